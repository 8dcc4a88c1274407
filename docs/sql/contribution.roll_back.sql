-- the query advance_state

SELECT coalesce(header.txid, found._txid) AS txid,
       coalesce(header.attempt_id, found._attempt_id) AS attempt_id,
       coalesce(header.rows, 0) AS rows,
       coalesce(found.rows, 0) AS found
FROM
  (SELECT *
   FROM reliability.contribution AS header
   WHERE header.topology = E'one'
     AND header.state = E'revenue'
     AND txid > %(after)s
     AND txid <= %(through)s) AS header
LEFT JOIN
  (SELECT _txid,
          _attempt_id,
          count(*) AS rows
   FROM "reliability_contribution"."one__revenue"
   WHERE _txid > %(after)s
     AND _txid <= %(through)s
   GROUP BY 1,
            2) AS found ON found._txid = header.txid
AND found._attempt_id = header.attempt_id
WHERE header.rows IS DISTINCT
  FROM coalesce(found.rows, 0)
ORDER BY 1,
         2;

-- the query use_more_memory

CREATE
TEMPORARY TABLE "pg_temp"."collected" ON
COMMIT
DROP AS
SELECT row_number() OVER () AS _number,
       found.*
FROM
  (SELECT "customer",
          "later"."orders" AS " old orders",
          "later"."revenue" AS " old revenue",
          "later"."_revenue_count" AS " old _revenue_count",
          "later"."_rows" AS " old _rows"
   FROM
     (SELECT "customer",
             CAST(sum("kept"."orders") AS numeric) AS "orders",
             CAST(sum("kept"."revenue") AS numeric) AS "revenue",
             CAST(sum("kept"."_revenue_count") AS numeric) AS "_revenue_count",
             CAST(sum("kept"."_rows") AS numeric) AS "_rows"
      FROM
        (SELECT staged.*
         FROM "reliability_contribution"."one__revenue" AS staged
         JOIN reliability.contribution AS header ON header.topology = E'one'
         AND header.state = E'revenue'
         AND header.txid = staged._txid
         AND header.attempt_id = staged._attempt_id
         WHERE _txid > %(txid)s) AS kept
      GROUP BY "customer") AS later) AS found;

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

-- the query last_contribution

CREATE
TEMPORARY TABLE "pg_temp"."last_txids" (_number bigint, _txid bigint) ON
COMMIT
DROP;

INSERT INTO "pg_temp"."last_txids"
SELECT _number,
       max(_txid)
FROM
  (SELECT *
   FROM
     (SELECT collected._number,
             staged.*
      FROM "pg_temp"."collected" AS collected
      JOIN
        (SELECT "customer",
                _txid,
                _attempt_id
         FROM "reliability_contribution"."one__revenue"
         WHERE _txid > %(after)s
           AND _txid <= %(through)s) AS staged ON "collected"."customer" = "staged"."customer"
      OFFSET 0) AS own
   WHERE EXISTS
       (SELECT
        FROM reliability.contribution AS header
        WHERE header.topology = E'one'
          AND header.state = E'revenue'
          AND header.txid = "own"."_txid"
          AND header.attempt_id = "own"."_attempt_id"
          OFFSET 0)) AS found
GROUP BY _number;

-- the query drop_later_contributions

CREATE
TEMPORARY TABLE "pg_temp"."swapped" ON
COMMIT
DROP AS
SELECT "collected"."customer",
       CAST(CAST(coalesce("target"."orders", 0) AS numeric) - coalesce("collected"." old orders", 0) + coalesce(NULL, 0) AS bigint) AS "orders",
       CASE
           WHEN CAST(CAST(coalesce("target"."_revenue_count", 0) AS numeric) - coalesce("collected"." old _revenue_count", 0) + coalesce(NULL, 0) AS bigint) > 0 THEN CAST(CAST(coalesce("target"."revenue", 0) AS numeric) - coalesce("collected"." old revenue", 0) + coalesce(NULL, 0) AS numeric(14, 2))
       END AS "revenue",
       CAST(CAST(coalesce("target"."_revenue_count", 0) AS numeric) - coalesce("collected"." old _revenue_count", 0) + coalesce(NULL, 0) AS bigint) AS "_revenue_count",
       CAST(CAST(coalesce("target"."_rows", 0) AS numeric) - coalesce("collected"." old _rows", 0) + coalesce(NULL, 0) AS bigint) AS "_rows",
       last._txid
FROM "pg_temp"."collected" AS collected
LEFT JOIN "public"."revenue" AS target ON "collected"."customer" = "target"."customer"
LEFT JOIN "pg_temp"."last_txids" AS last ON last._number = collected._number;

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

DROP TABLE "pg_temp"."last_txids";

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
