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
FULL JOIN
  (SELECT _txid,
          _attempt_id,
          count(*) AS rows
   FROM "public"."revenue"
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
TEMPORARY TABLE "pg_temp"."reached" ON
COMMIT
DROP AS
SELECT "customer",
       "price",
       "_x"
FROM "public"."revenue"
WHERE _txid > %(txid)s;

-- the query drop_later_contributions

DELETE
FROM "public"."revenue"
WHERE _txid > %(txid)s;

SELECT
  (SELECT count(*)
   FROM
     (SELECT "customer",
             "price"
      FROM "public"."revenue"
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s
        AND false
      EXCEPT ALL SELECT "customer",
                        "price"
      FROM "pg_temp"."reached") AS a) AS rows_added,
       0 AS rows_changed,

  (SELECT count(*)
   FROM
     (SELECT "customer",
             "price"
      FROM "pg_temp"."reached"
      EXCEPT ALL SELECT "customer",
                        "price"
      FROM "public"."revenue"
      WHERE _txid = %(txid)s
        AND _attempt_id = %(attempt_id)s
        AND false) AS r) AS rows_removed,
       '{}'::jsonb AS moved;

DROP TABLE "pg_temp"."reached";
