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
  (SELECT DISTINCT "customer"
   FROM
     (SELECT staged.*
      FROM "reliability_contribution"."one__revenue" AS staged
      JOIN reliability.contribution AS header ON header.topology = E'one'
      AND header.state = E'revenue'
      AND header.txid = staged._txid
      AND header.attempt_id = staged._attempt_id
      WHERE _txid > %(txid)s) AS kept) AS found;

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
TEMPORARY TABLE "pg_temp"."swapped" ON
COMMIT
DROP AS
SELECT "collected"."customer",
       "folded"."dearest",
       "folded"."_mean_sum",
       "folded"."_mean_count",
       "folded"."status",
       "folded"."_status_by_1",
       "folded"."_status_tuple",
       "folded"."_rows",
       folded._txid
FROM "pg_temp"."collected" AS collected
LEFT JOIN
  (SELECT DISTINCT ON ("customer") "customer",
                      CAST(max("kept"."dearest") OVER all_of_key AS numeric(14, 2)) AS "dearest",
                      CAST(sum("kept"."_mean_sum") OVER all_of_key AS numeric) AS "_mean_sum",
                      CAST(sum("kept"."_mean_count") OVER all_of_key AS bigint) AS "_mean_count",
                      CAST("kept"."status" AS text) AS "status",
                      CAST("kept"."_status_by_1" AS numeric(14, 2)) AS "_status_by_1",
                      CAST("kept"."_status_tuple" AS bigint) AS "_status_tuple",
                      CAST(sum("kept"."_rows") OVER all_of_key AS bigint) AS "_rows",
                      max("kept"."_txid") OVER all_of_key AS _txid
   FROM
     (SELECT *
      FROM
        (SELECT collected._number,
                staged.*
         FROM "pg_temp"."collected" AS collected
         JOIN
           (SELECT *
            FROM "reliability_contribution"."one__revenue"
            WHERE _txid <= %(txid)s) AS staged ON "collected"."customer" = "staged"."customer"
         OFFSET 0) AS own
      WHERE EXISTS
          (SELECT
           FROM reliability.contribution AS header
           WHERE header.topology = E'one'
             AND header.state = E'revenue'
             AND header.txid = "own"."_txid"
             AND header.attempt_id = "own"."_attempt_id"
             OFFSET 0)) AS kept WINDOW same_key AS (PARTITION BY "customer"),
                                       all_of_key AS (same_key
                                                      ORDER BY "kept"."_status_by_1" DESC NULLS LAST,
                                                               "kept"."_txid" DESC,
                                                               "kept"."_status_tuple" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
   ORDER BY "customer",
            "kept"."_status_by_1" DESC NULLS LAST,
            "kept"."_txid" DESC,
            "kept"."_status_tuple" DESC) AS folded ON "collected"."customer" = "folded"."customer";

WITH differing AS MATERIALIZED
  (SELECT expected." is there" IS NOT NULL AS is_expected,
                                              found." is there" IS NOT NULL AS is_found,
                                                                               coalesce(expected."customer", found."customer") AS " key customer",
                                                                               "expected"."dearest" AS " expected dearest",
                                                                               "found"."dearest" AS " found dearest",
                                                                               "expected"."_mean_sum" AS " expected _mean_sum",
                                                                               "found"."_mean_sum" AS " found _mean_sum",
                                                                               "expected"."_mean_count" AS " expected _mean_count",
                                                                               "found"."_mean_count" AS " found _mean_count",
                                                                               "expected"."status" AS " expected status",
                                                                               "found"."status" AS " found status",
                                                                               "expected"."_status_by_1" AS " expected _status_by_1",
                                                                               "found"."_status_by_1" AS " found _status_by_1",
                                                                               "expected"."_status_tuple" AS " expected _status_tuple",
                                                                               "found"."_status_tuple" AS " found _status_tuple",
                                                                               "expected"."_rows" AS " expected _rows",
                                                                               "found"."_rows" AS " found _rows",
                                                                               "expected"."_txid" AS " expected _txid",
                                                                               "found"."_txid" AS " found _txid"
   FROM
     (SELECT *,
             true AS " is there"
      FROM
        (SELECT DISTINCT ON ("customer") "customer",
                            CAST(max("kept"."dearest") OVER all_of_key AS numeric(14, 2)) AS "dearest",
                            CAST(sum("kept"."_mean_sum") OVER all_of_key AS numeric) AS "_mean_sum",
                            CAST(sum("kept"."_mean_count") OVER all_of_key AS numeric) AS "_mean_count",
                            CAST("kept"."status" AS text) AS "status",
                            CAST("kept"."_status_by_1" AS numeric(14, 2)) AS "_status_by_1",
                            CAST("kept"."_status_tuple" AS bigint) AS "_status_tuple",
                            CAST(sum("kept"."_rows") OVER all_of_key AS numeric) AS "_rows",
                            max("kept"."_txid") OVER all_of_key AS _txid
         FROM
           (SELECT "customer",
                   "dearest",
                   "_mean_sum",
                   "_mean_count",
                   "status",
                   "_status_by_1",
                   "_status_tuple",
                   "_rows",
                   _txid
            FROM "pg_temp"."swapped"
            WHERE _rows > 0
            UNION ALL SELECT "customer",
                             "dearest",
                             "_mean_sum",
                             "_mean_count",
                             "status",
                             "_status_by_1",
                             "_status_tuple",
                             "_rows",
                             _txid
            FROM
              (SELECT staged.*
               FROM "reliability_contribution"."one__revenue" AS staged
               JOIN reliability.contribution AS header ON header.topology = E'one'
               AND header.state = E'revenue'
               AND header.txid = staged._txid
               AND header.attempt_id = staged._attempt_id
               WHERE _txid > %(txid)s) AS kept) AS kept WINDOW same_key AS (PARTITION BY "customer"),
                                                               all_of_key AS (same_key
                                                                              ORDER BY "kept"."_status_by_1" DESC NULLS LAST,
                                                                                       "kept"."_txid" DESC,
                                                                                       "kept"."_status_tuple" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
         ORDER BY "customer",
                  "kept"."_status_by_1" DESC NULLS LAST,
                  "kept"."_txid" DESC,
                  "kept"."_status_tuple" DESC) AS folded) AS expected
   FULL JOIN
     (SELECT *,
             true AS " is there"
      FROM
        (SELECT target.*
         FROM "pg_temp"."collected" AS collected
         JOIN "public"."revenue" AS target ON "collected"."customer" = "target"."customer") AS target) AS found ON ROW("expected"."customer")::record = ROW("found"."customer")::record
   WHERE expected." is there" IS NULL
     OR found." is there" IS NULL
     OR ROW("expected"."dearest", "expected"."_mean_sum", "expected"."_mean_count", "expected"."status" COLLATE "C", "expected"."_status_by_1", "expected"."_status_tuple", "expected"."_rows", "expected"."_txid") IS DISTINCT
     FROM ROW("found"."dearest", "found"."_mean_sum", "found"."_mean_count", "found"."status" COLLATE "C", "found"."_status_by_1", "found"."_status_tuple", "found"."_rows", "found"."_txid"))
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
                                   "target"."dearest" AS " before dearest",
                                   "target"."mean" AS " before mean",
                                   "target"."status" AS " before status"
FROM
  (SELECT "customer"
   FROM "pg_temp"."collected") AS touched
LEFT JOIN "public"."revenue" AS target ON "touched"."customer" = "target"."customer";

-- the query drop_later_contributions

DELETE
FROM "public"."revenue" AS target USING "pg_temp"."swapped" AS swapped
WHERE "target"."customer" = "swapped"."customer"
  AND coalesce(swapped._rows, 0) <= 0;

INSERT INTO "public"."revenue" AS target ("customer", "dearest", "_mean_sum", "_mean_count", "status", "_status_by_1", "_status_tuple", "_rows", _txid)
SELECT "customer",
       "dearest",
       "_mean_sum",
       "_mean_count",
       "status",
       "_status_by_1",
       "_status_tuple",
       "_rows",
       _txid
FROM "pg_temp"."swapped"
WHERE _rows > 0
ORDER BY "customer" ON CONFLICT ("customer") DO
UPDATE
SET "dearest" = "excluded"."dearest",
    "_mean_sum" = "excluded"."_mean_sum",
    "_mean_count" = "excluded"."_mean_count",
    "status" = "excluded"."status",
    "_status_by_1" = "excluded"."_status_by_1",
    "_status_tuple" = "excluded"."_status_tuple",
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
                          AND ROW(" before dearest", " before mean", " before status") IS DISTINCT
                          FROM ROW("target"."dearest", "target"."mean", "target"."status")) AS rows_changed,
       count(*) FILTER (
                        WHERE " was there"
                          AND NOT (target._txid IS NOT NULL)) AS rows_removed,
       jsonb_strip_nulls(jsonb_object(ARRAY[]::text[], ARRAY[]::text[])) AS moved
FROM "pg_temp"."reached" AS reached
LEFT JOIN "public"."revenue" AS target ON "reached"."customer" = "target"."customer";

DROP TABLE "pg_temp"."reached";
