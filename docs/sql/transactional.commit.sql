-- the query advance_state

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
