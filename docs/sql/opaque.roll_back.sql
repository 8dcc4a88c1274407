-- the query advance_state

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
   WHERE _txid = %(txid)s) AS touched
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

-- the query end_history

-- the query drop_later_contributions

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
