-- the query advance_state

-- the query staged_rows

SELECT coalesce(bit_xor(_x), 0) AS xor,
       coalesce(sum(_n), 0)::bigint AS count,
       count(*) AS rows
FROM "reliability_contribution"."one__revenue"
WHERE _txid = %(txid)s
  AND _attempt_id = %(attempt_id)s;

-- the query last_contribution

-- the query history_of_states

-- the query contribution

SELECT coalesce(bit_xor(_x), 0) AS xor,
       coalesce(sum(_n), 0)::bigint AS count,
       count(*) AS rows
FROM "reliability_contribution"."one__revenue"
WHERE _txid = %(txid)s
  AND _attempt_id = %(attempt_id)s;

-- the query use_more_memory

CREATE
TEMPORARY TABLE "pg_temp"."collected" ON
COMMIT
DROP AS
SELECT row_number() OVER () AS _number,
       found.*
FROM
  (SELECT coalesce(new."customer", old."customer") AS "customer",
          "old"."orders" AS " old orders",
          "new"."orders" AS " new orders",
          "old"."revenue" AS " old revenue",
          "new"."revenue" AS " new revenue",
          "old"."_revenue_count" AS " old _revenue_count",
          "new"."_revenue_count" AS " new _revenue_count",
          "old"."_rows" AS " old _rows",
          "new"."_rows" AS " new _rows"
   FROM
     (SELECT "customer",
             CAST(sum("staged"."orders") AS bigint) AS "orders",
             CAST(sum("staged"."revenue") AS numeric(14, 2)) AS "revenue",
             CAST(sum("staged"."_revenue_count") AS bigint) AS "_revenue_count",
             CAST(sum("staged"."_rows") AS bigint) AS "_rows"
      FROM "reliability_contribution"."one__revenue" AS staged
      WHERE _txid = %(txid)s
        AND _attempt_id = %(replaced_attempt)s
      GROUP BY "customer") AS old
   FULL JOIN
     (SELECT "customer",
             CAST(sum("staged"."orders") AS bigint) AS "orders",
             CAST(sum("staged"."revenue") AS numeric(14, 2)) AS "revenue",
             CAST(sum("staged"."_revenue_count") AS bigint) AS "_revenue_count",
             CAST(sum("staged"."_rows") AS bigint) AS "_rows"
      FROM "reliability_contribution"."one__revenue" AS staged
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s
      GROUP BY "customer") AS new ON ROW("old"."customer")::record = ROW("new"."customer")::record
   WHERE ("old"."orders",
          "old"."revenue",
          "old"."_revenue_count",
          "old"."_rows") IS DISTINCT
     FROM ("new"."orders",
           "new"."revenue",
           "new"."_revenue_count",
           "new"."_rows")) AS found;

ANALYZE "pg_temp"."collected" (_number,
                               "customer");

SELECT DISTINCT "customer" IS NULL AS "customer"
FROM "pg_temp"."collected";

SELECT count(*) >= %(keys)s
AND
  (SELECT count(*) <= %(headers)s
   FROM
     (SELECT
      FROM reliability.contribution AS header
      WHERE header.topology = E'one'
        AND header.state = E'revenue'
      LIMIT %(headers)s + 1) AS h) AS are_many
FROM
  (SELECT
   FROM "pg_temp"."collected"
   LIMIT %(keys)s) AS k;

-- the query move_contribution

CREATE
TEMPORARY TABLE "pg_temp"."reached" ON
COMMIT
DROP AS
SELECT "touched"."customer",
       target._txid IS NOT NULL AS " was there",
                                   "target"."orders" AS " before orders",
                                   "target"."revenue" AS " before revenue"
FROM
  (SELECT "customer"
   FROM "pg_temp"."collected") AS touched
LEFT JOIN "public"."revenue" AS target ON "touched"."customer" = "target"."customer";

CREATE
TEMPORARY TABLE "pg_temp"."swapped" ON
COMMIT
DROP AS
SELECT "collected"."customer",
       CAST(CAST(coalesce("target"."orders", 0) AS numeric) - coalesce("collected"." old orders", 0) + coalesce("collected"." new orders", 0) AS bigint) AS "orders",
       CASE
           WHEN CAST(CAST(coalesce("target"."_revenue_count", 0) AS numeric) - coalesce("collected"." old _revenue_count", 0) + coalesce("collected"." new _revenue_count", 0) AS bigint) > 0 THEN CAST(CAST(coalesce("target"."revenue", 0) AS numeric) - coalesce("collected"." old revenue", 0) + coalesce("collected"." new revenue", 0) AS numeric(14, 2))
       END AS "revenue",
       CAST(CAST(coalesce("target"."_revenue_count", 0) AS numeric) - coalesce("collected"." old _revenue_count", 0) + coalesce("collected"." new _revenue_count", 0) AS bigint) AS "_revenue_count",
       CAST(CAST(coalesce("target"."_rows", 0) AS numeric) - coalesce("collected"." old _rows", 0) + coalesce("collected"." new _rows", 0) AS bigint) AS "_rows",
       CASE
           WHEN coalesce("collected"." new _rows", 0) > 0 THEN greatest(target._txid, %(txid)s)
           WHEN target._txid > %(txid)s THEN target._txid
           ELSE
                  (SELECT max(kept._txid)
                   FROM
                     (SELECT staged.*
                      FROM "reliability_contribution"."one__revenue" AS staged
                      JOIN reliability.contribution AS header ON header.topology = E'one'
                      AND header.state = E'revenue'
                      AND header.txid = staged._txid
                      AND header.attempt_id = staged._attempt_id) AS kept
                   WHERE "collected"."customer" = "kept"."customer")
       END AS _txid
FROM "pg_temp"."collected" AS collected
LEFT JOIN "public"."revenue" AS target ON "collected"."customer" = "target"."customer";

DELETE
FROM "public"."revenue" AS target USING "pg_temp"."swapped" AS swapped
WHERE "target"."customer" = "swapped"."customer"
  AND coalesce(swapped._rows, 0) <= 0;

INSERT INTO "public"."revenue" AS target ("customer", "orders", "revenue", "_revenue_count", "_rows", _txid)
SELECT "customer",
       "orders",
       "revenue",
       "_revenue_count",
       "_rows",
       _txid
FROM "pg_temp"."swapped"
WHERE _rows > 0
ORDER BY "customer" ON CONFLICT ("customer") DO
UPDATE
SET "orders" = "excluded"."orders",
    "revenue" = "excluded"."revenue",
    "_revenue_count" = "excluded"."_revenue_count",
    "_rows" = "excluded"."_rows",
    _txid = excluded._txid;

DROP TABLE "pg_temp"."swapped",
           "pg_temp"."collected";

SELECT count(*) FILTER (
                        WHERE NOT " was there"
                          AND (target._txid IS NOT NULL)) AS rows_added,
       count(*) FILTER (
                        WHERE " was there"
                          AND (target._txid IS NOT NULL)
                          AND ROW(" before orders", " before revenue") IS DISTINCT
                          FROM ROW("target"."orders", "target"."revenue")) AS rows_changed,
       count(*) FILTER (
                        WHERE " was there"
                          AND NOT (target._txid IS NOT NULL)) AS rows_removed,
       jsonb_strip_nulls(jsonb_object(ARRAY[E'orders', E'revenue']::text[], ARRAY[nullif(coalesce(sum("target"."orders") FILTER (
                                                                                                                                 WHERE "target"."orders" IS DISTINCT
                                                                                                                                   FROM " before orders"), 0) - coalesce(sum(" before orders") FILTER (
                                                                                                                                                                                                       WHERE "target"."orders" IS DISTINCT
                                                                                                                                                                                                         FROM " before orders"), 0), 0)::text, nullif(coalesce(sum("target"."revenue") FILTER (
                                                                                                                                                                                                                                                                                               WHERE "target"."revenue" IS DISTINCT
                                                                                                                                                                                                                                                                                                 FROM " before revenue"), 0) - coalesce(sum(" before revenue") FILTER (
                                                                                                                                                                                                                                                                                                                                                                       WHERE "target"."revenue" IS DISTINCT
                                                                                                                                                                                                                                                                                                                                                                         FROM " before revenue"), 0), 0)::text]::text[])) AS moved
FROM "pg_temp"."reached" AS reached
LEFT JOIN "public"."revenue" AS target ON "reached"."customer" = "target"."customer";

DROP TABLE "pg_temp"."reached";
