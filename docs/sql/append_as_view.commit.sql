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

-- the query insert_contribution
