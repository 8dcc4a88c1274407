-- the query advance_state

-- the query attempt_table

-- the query staged_rows

SELECT coalesce(bit_xor(_x), 0) AS xor,
       coalesce(sum(_n), 0)::bigint AS count,
       count(*) AS rows
FROM "reliability_contribution"."one__revenue"
WHERE _txid = %(txid)s
  AND _attempt_id = %(attempt_id)s;

-- the query last_contribution

WITH moved AS
  (DELETE
   FROM "reliability_contribution"."one__revenue"
   WHERE _txid = %(txid)s
     AND _attempt_id = %(attempt_id)s RETURNING "_txid",
                                                "_attempt_id",
                                                "customer",
                                                "price",
                                                "_x",
                                                "_n")
INSERT INTO "public"."revenue" ("_txid",
                                "_attempt_id",
                                "customer",
                                "price",
                                "_x",
                                "_n")
SELECT "_txid",
       "_attempt_id",
       "customer",
       "price",
       "_x",
       "_n"
FROM moved;

-- the query insert_contribution
