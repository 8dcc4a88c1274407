-- the query advance_state

WITH applied AS
  (INSERT INTO "public"."revenue" AS target ("customer", "dearest", "_mean_sum", "_mean_count", "status", "_status_by_1", "_status_tuple", "_rows", _txid) SELECT "customer",
                                                                                                                                                                  "dearest",
                                                                                                                                                                  "_mean_sum",
                                                                                                                                                                  "_mean_count",
                                                                                                                                                                  "status",
                                                                                                                                                                  "_status_by_1",
                                                                                                                                                                  "_status_tuple",
                                                                                                                                                                  "_rows",
                                                                                                                                                                  %(txid)s
   FROM
     (SELECT DISTINCT ON ("customer") "customer",
                         CAST(max("staged"."dearest") OVER all_of_key AS numeric(14, 2)) AS "dearest",
                         CAST(sum("staged"."_mean_sum") OVER all_of_key AS numeric) AS "_mean_sum",
                         CAST(sum("staged"."_mean_count") OVER all_of_key AS bigint) AS "_mean_count",
                         CAST("staged"."status" AS text) AS "status",
                         CAST("staged"."_status_by_1" AS numeric(14, 2)) AS "_status_by_1",
                         CAST("staged"."_status_tuple" AS bigint) AS "_status_tuple",
                         CAST(sum("staged"."_rows") OVER all_of_key AS bigint) AS "_rows"
      FROM "reliability_contribution"."one__revenue" AS staged
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s WINDOW same_key AS (PARTITION BY "customer"),
                                                all_of_key AS (same_key
                                                               ORDER BY "staged"."_status_by_1" DESC NULLS LAST,
                                                                        "staged"."_txid" DESC,
                                                                        "staged"."_status_tuple" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
      ORDER BY "customer",
               "staged"."_status_by_1" DESC NULLS LAST,
               "staged"."_txid" DESC,
               "staged"."_status_tuple" DESC) AS added
   ORDER BY "customer" ON CONFLICT ("customer") DO UPDATE
   SET "dearest" = greatest("target"."dearest", "excluded"."dearest"),
       "_mean_sum" = coalesce("target"."_mean_sum" + "excluded"."_mean_sum", "target"."_mean_sum", "excluded"."_mean_sum"),
       "_mean_count" = "target"."_mean_count" + "excluded"."_mean_count",
       "status" = CASE
                      WHEN (coalesce("excluded"."_status_by_1" > "target"."_status_by_1", "target"."_status_by_1" IS NULL
                                     AND "excluded"."_status_by_1" IS NOT NULL)
                            OR ("excluded"."_status_by_1" IS NOT DISTINCT
                                FROM "target"."_status_by_1"
                                AND true)) THEN "excluded"."status"
                      ELSE "target"."status"
                  END,
                  "_status_by_1" = CASE
                                       WHEN (coalesce("excluded"."_status_by_1" > "target"."_status_by_1", "target"."_status_by_1" IS NULL
                                                      AND "excluded"."_status_by_1" IS NOT NULL)
                                             OR ("excluded"."_status_by_1" IS NOT DISTINCT
                                                 FROM "target"."_status_by_1"
                                                 AND true)) THEN "excluded"."_status_by_1"
                                       ELSE "target"."_status_by_1"
                                   END,
                                   "_status_tuple" = CASE
                                                         WHEN (coalesce("excluded"."_status_by_1" > "target"."_status_by_1", "target"."_status_by_1" IS NULL
                                                                        AND "excluded"."_status_by_1" IS NOT NULL)
                                                               OR ("excluded"."_status_by_1" IS NOT DISTINCT
                                                                   FROM "target"."_status_by_1"
                                                                   AND true)) THEN "excluded"."_status_tuple"
                                                         ELSE "target"."_status_tuple"
                                                     END,
                                                     "_rows" = "target"."_rows" + "excluded"."_rows",
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
SELECT reliability.record_contribution(%(topology)s, %(state)s, %(txid)s, %(attempt_id)s, %(replaced_attempt)s, true, staged, CASE
                                                                                                                                  WHEN applied = staged THEN staged
                                                                                                                                  ELSE
                                                                                                                                         (SELECT count(*)
                                                                                                                                          FROM
                                                                                                                                            (SELECT DISTINCT ON ("customer") "customer", CAST(max("staged"."dearest") OVER all_of_key AS numeric(14, 2)) AS "dearest", CAST(sum("staged"."_mean_sum") OVER all_of_key AS numeric) AS "_mean_sum", CAST(sum("staged"."_mean_count") OVER all_of_key AS bigint) AS "_mean_count", CAST("staged"."status" AS text) AS "status", CAST("staged"."_status_by_1" AS numeric(14, 2)) AS "_status_by_1", CAST("staged"."_status_tuple" AS bigint) AS "_status_tuple", CAST(sum("staged"."_rows") OVER all_of_key AS bigint) AS "_rows"
                                                                                                                                             FROM "reliability_contribution"."one__revenue" AS staged
                                                                                                                                             WHERE _txid = %(txid)s
                                                                                                                                               AND _attempt_id = %(attempt_id)s WINDOW same_key AS (PARTITION BY "customer"), all_of_key AS (same_key
                                                                                                                                                                                                                                             ORDER BY "staged"."_status_by_1" DESC NULLS LAST, "staged"."_txid" DESC, "staged"."_status_tuple" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
                                                                                                                                             ORDER BY "customer", "staged"."_status_by_1" DESC NULLS LAST, "staged"."_txid" DESC, "staged"."_status_tuple" DESC) AS added)
                                                                                                                              END, applied)
FROM counted;
