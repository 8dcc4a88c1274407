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

CREATE
TEMPORARY TABLE "pg_temp"."collected" ON
COMMIT
DROP AS
SELECT row_number() OVER () AS _number,
       found.*
FROM
  (SELECT DISTINCT "customer"
   FROM
     (SELECT staged.*
      FROM "reliability_contribution"."one__revenue" AS staged
      JOIN reliability.contribution AS header ON header.topology = E'one'
      AND header.state = E'revenue'
      AND header.txid = staged._txid
      AND header.attempt_id = staged._attempt_id) AS kept
   WHERE _txid > %(txid)s) AS found;

ANALYZE "pg_temp"."collected";

SELECT DISTINCT "customer" IS NULL AS "customer"
FROM "pg_temp"."collected";

WITH differing AS MATERIALIZED
  (SELECT expected." is there" IS NOT NULL AS is_expected,
                                              found." is there" IS NOT NULL AS is_found,
                                                                               coalesce(expected."customer", found."customer") AS " key customer",
                                                                               "expected"."orders" AS " expected orders",
                                                                               "found"."orders" AS " found orders",
                                                                               "expected"."revenue" AS " expected revenue",
                                                                               "found"."revenue" AS " found revenue",
                                                                               "expected"."_revenue_count" AS " expected _revenue_count",
                                                                               "found"."_revenue_count" AS " found _revenue_count",
                                                                               "expected"."_rows" AS " expected _rows",
                                                                               "found"."_rows" AS " found _rows",
                                                                               "expected"."_txid" AS " expected _txid",
                                                                               "found"."_txid" AS " found _txid"
   FROM
     (SELECT *,
             true AS " is there"
      FROM
        (SELECT "customer",
                CAST(sum("kept"."orders") AS numeric) AS "orders",
                CAST(sum("kept"."revenue") AS numeric) AS "revenue",
                CAST(sum("kept"."_revenue_count") AS numeric) AS "_revenue_count",
                CAST(sum("kept"."_rows") AS numeric) AS "_rows",
                max("kept"."_txid") AS _txid
         FROM
           (SELECT *
            FROM
              (SELECT collected._number,
                      staged.*
               FROM "pg_temp"."collected" AS collected
               JOIN "reliability_contribution"."one__revenue" AS staged ON "collected"."customer" = "staged"."customer"
               OFFSET 0) AS own
            WHERE EXISTS
                (SELECT
                 FROM reliability.contribution AS header
                 WHERE header.topology = E'one'
                   AND header.state = E'revenue'
                   AND header.txid = "own"."_txid"
                   AND header.attempt_id = "own"."_attempt_id"
                   OFFSET 0)) AS kept
         GROUP BY "customer") AS folded) AS expected
   FULL JOIN
     (SELECT *,
             true AS " is there"
      FROM
        (SELECT target.*
         FROM "pg_temp"."collected" AS collected
         JOIN "public"."revenue" AS target ON ("collected"."customer" = "target"."customer"
                                               OR ("collected"."customer" IS NULL
                                                   AND "target"."customer" IS NULL))) AS target) AS found ON ROW("expected"."customer")::record = ROW("found"."customer")::record
   WHERE expected." is there" IS NULL
     OR found." is there" IS NULL
     OR ROW("expected"."orders", "expected"."revenue", "expected"."_revenue_count", "expected"."_rows", "expected"."_txid") IS DISTINCT
     FROM ROW("found"."orders", "found"."revenue", "found"."_revenue_count", "found"."_rows", "found"."_txid"))
SELECT counted.*,
       shown.*
FROM
  (SELECT count(*) FILTER (
                           WHERE NOT is_found) AS missing,
          count(*) FILTER (
                           WHERE NOT is_expected) AS surplus,
          count(*) FILTER (
                           WHERE is_expected
                             AND is_found) AS different
   FROM differing) AS counted
LEFT JOIN
  (SELECT *
   FROM differing
   ORDER BY " key customer"
   LIMIT %(most)s) AS shown ON true;

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
LEFT JOIN "public"."revenue" AS target ON ("touched"."customer" = "target"."customer"
                                           OR ("touched"."customer" IS NULL
                                               AND "target"."customer" IS NULL));

-- the query drop_later_contributions

CREATE
TEMPORARY TABLE "pg_temp"."swapped" ON
COMMIT
DROP AS
SELECT "collected"."customer",
       CAST(sum("kept"."orders") AS bigint) AS "orders",
       CAST(sum("kept"."revenue") AS numeric(14, 2)) AS "revenue",
       CAST(sum("kept"."_revenue_count") AS bigint) AS "_revenue_count",
       CAST(sum("kept"."_rows") AS bigint) AS "_rows",
       max("kept"."_txid") AS _txid
FROM "pg_temp"."collected" AS collected
LEFT JOIN
  (SELECT *
   FROM
     (SELECT collected._number,
             staged.*
      FROM "pg_temp"."collected" AS collected
      JOIN "reliability_contribution"."one__revenue" AS staged ON "collected"."customer" = "staged"."customer"
      OFFSET 0) AS own
   WHERE EXISTS
       (SELECT
        FROM reliability.contribution AS header
        WHERE header.topology = E'one'
          AND header.state = E'revenue'
          AND header.txid = "own"."_txid"
          AND header.attempt_id = "own"."_attempt_id"
          OFFSET 0)) AS kept ON kept._number = collected._number
GROUP BY "collected"."customer";

DELETE
FROM "public"."revenue" AS target USING "pg_temp"."swapped" AS swapped
WHERE ("target"."customer" = "swapped"."customer"
       OR ("target"."customer" IS NULL
           AND "swapped"."customer" IS NULL))
  AND coalesce(swapped._rows, 0) = 0;

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
       jsonb_strip_nulls(jsonb_build_object(E'orders', nullif(coalesce(sum("target"."orders"), 0) - coalesce(sum(" before orders"), 0), 0)::text, E'revenue', nullif(coalesce(sum("target"."revenue"), 0) - coalesce(sum(" before revenue"), 0), 0)::text)) AS moved
FROM "pg_temp"."reached" AS reached
LEFT JOIN "public"."revenue" AS target ON ("reached"."customer" = "target"."customer"
                                           OR ("reached"."customer" IS NULL
                                               AND "target"."customer" IS NULL));

DROP TABLE "pg_temp"."reached";
