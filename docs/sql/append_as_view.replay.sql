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

-- the query history_of_states

-- the query contribution

-- the query stages_the_same

CREATE
TEMPORARY TABLE "pg_temp"."reached" ON
COMMIT
DROP AS
SELECT *
FROM
  (SELECT txid AS _txid,
          attempt_id AS _attempt_id,
          rows AS _rows
   FROM reliability.contribution AS header
   WHERE header.topology = E'one'
     AND header.state = E'revenue') AS headers
WHERE _txid = %(txid)s
  AND _attempt_id = %(replaced_attempt)s;

SELECT count(*) AS rows
FROM "reliability_contribution"."one__revenue"
WHERE _txid = %(txid)s
  AND _attempt_id = %(replaced_attempt)s;

-- the query move_contribution

SELECT
  (SELECT count(*)
   FROM
     (SELECT "customer",
             "price"
      FROM "public"."revenue"
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s
      EXCEPT ALL SELECT "customer",
                        "price"
      FROM
        (SELECT *
         FROM "reliability_contribution"."one__revenue"
         JOIN "pg_temp"."reached" USING (_txid,
                                         _attempt_id)) AS reached) AS a) AS rows_added,
       0 AS rows_changed,

  (SELECT count(*)
   FROM
     (SELECT "customer",
             "price"
      FROM
        (SELECT *
         FROM "reliability_contribution"."one__revenue"
         JOIN "pg_temp"."reached" USING (_txid,
                                         _attempt_id)) AS reached
      EXCEPT ALL SELECT "customer",
                        "price"
      FROM "public"."revenue"
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s) AS r) AS rows_removed,
       '{}'::jsonb AS moved;

DROP TABLE "pg_temp"."reached";
