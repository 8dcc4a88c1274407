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
   FROM "public"."revenue"
   WHERE _txid = %(txid)s
   UNION SELECT "customer"
   FROM
     (SELECT "customer",
             CAST(sum("staged"."orders") AS bigint) AS "orders",
             CAST(sum("staged"."revenue") AS numeric(14, 2)) AS "revenue",
             CAST(sum("staged"."_revenue_count") AS bigint) AS "_revenue_count",
             CAST(sum("staged"."_rows") AS bigint) AS "_rows"
      FROM "reliability_contribution"."one__revenue" AS staged
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s
      GROUP BY "customer") AS added) AS touched
LEFT JOIN "public"."revenue" AS target ON ("touched"."customer" = "target"."customer"
                                           OR ("touched"."customer" IS NULL
                                               AND "target"."customer" IS NULL));

DELETE
FROM "public"."revenue"
WHERE _txid = %(txid)s
  AND "__txid_previous" IS NULL;

UPDATE "public"."revenue"
SET "orders" = "_orders_previous",
    "revenue" = "_revenue_previous",
    "_revenue_count" = "__revenue_count_previous",
    "_rows" = "__rows_previous",
    "_txid" = "__txid_previous"
WHERE _txid = %(txid)s
  AND "__txid_previous" < _txid;

WITH applied AS
  (INSERT INTO "public"."revenue" AS target ("customer", "orders", "revenue", "_revenue_count", "_rows", _txid) SELECT "customer",
                                                                                                                       "orders",
                                                                                                                       "revenue",
                                                                                                                       "_revenue_count",
                                                                                                                       "_rows",
                                                                                                                       %(txid)s
   FROM
     (SELECT "customer",
             CAST(sum("staged"."orders") AS bigint) AS "orders",
             CAST(sum("staged"."revenue") AS numeric(14, 2)) AS "revenue",
             CAST(sum("staged"."_revenue_count") AS bigint) AS "_revenue_count",
             CAST(sum("staged"."_rows") AS bigint) AS "_rows"
      FROM "reliability_contribution"."one__revenue" AS staged
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s
      GROUP BY "customer") AS added
   ORDER BY "customer" ON CONFLICT ("customer") DO UPDATE
   SET "orders" = "target"."orders" + "excluded"."orders",
       "revenue" = coalesce("target"."revenue" + "excluded"."revenue", "target"."revenue", "excluded"."revenue"),
       "_revenue_count" = "target"."_revenue_count" + "excluded"."_revenue_count",
       "_rows" = "target"."_rows" + "excluded"."_rows",
       "_orders_previous" = "target"."orders",
       "_revenue_previous" = "target"."revenue",
       "__revenue_count_previous" = "target"."_revenue_count",
       "__rows_previous" = "target"."_rows",
       "__txid_previous" = "target"."_txid",
       _txid = excluded._txid
   WHERE target._txid < excluded._txid RETURNING 1),
     counted AS MATERIALIZED
  (SELECT
     (SELECT count(*)
      FROM applied) AS applied,

     (SELECT count(*)
      FROM "reliability_contribution"."one__revenue"
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s) AS staged)
SELECT reliability.record_contribution(%(topology)s, %(state)s, %(txid)s, %(attempt_id)s, %(replaced_attempt)s, false, staged, CASE
                                                                                                                                   WHEN applied = staged THEN staged
                                                                                                                                   ELSE
                                                                                                                                          (SELECT count(*)
                                                                                                                                           FROM
                                                                                                                                             (SELECT "customer", CAST(sum("staged"."orders") AS bigint) AS "orders", CAST(sum("staged"."revenue") AS numeric(14, 2)) AS "revenue", CAST(sum("staged"."_revenue_count") AS bigint) AS "_revenue_count", CAST(sum("staged"."_rows") AS bigint) AS "_rows"
                                                                                                                                              FROM "reliability_contribution"."one__revenue" AS staged
                                                                                                                                              WHERE _txid = %(txid)s
                                                                                                                                                AND _attempt_id = %(attempt_id)s
                                                                                                                                              GROUP BY "customer") AS added)
                                                                                                                               END, applied)
FROM counted;

DELETE
FROM ONLY "reliability_contribution"."one__revenue"
WHERE _txid = %(txid)s
  AND _attempt_id = %(attempt_id)s;

-- the query drop_table_of_attempt

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
LEFT JOIN "public"."revenue" AS target ON ("reached"."customer" = "target"."customer"
                                           OR ("reached"."customer" IS NULL
                                               AND "target"."customer" IS NULL));

DROP TABLE "pg_temp"."reached";
