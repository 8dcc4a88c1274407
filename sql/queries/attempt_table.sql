-- open_attempt_table --
-- Number a table for an attempt that is PROCESSING; none if the state has as many as it may have.
WITH live AS (
    SELECT topology, txid, attempt_id FROM reliability.attempt
     WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
       AND nonce = %(nonce)s AND status = 'PROCESSING'),
opened AS (
    INSERT INTO reliability.attempt_table (topology, state, txid, attempt_id, is_merged)
    SELECT topology, %(state)s, txid, attempt_id, %(is_merged)s FROM live
     WHERE %(most)s::bigint IS NULL
        OR %(most)s > (SELECT count(*) FROM reliability.attempt_table
                        WHERE topology = %(topology)s AND state = %(state)s)
    RETURNING table_id)
SELECT EXISTS (SELECT FROM live) AS is_live, (SELECT table_id FROM opened) AS table_id;

-- hold_attempt --
-- Lock an attempt that is PROCESSING until its new table is there; no row: it has ended.
SELECT attempt_id FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'PROCESSING' FOR SHARE;

-- attempt_table --
-- The table of an attempt, if it has one, with its size when it was sealed and now.
SELECT table_id, bytes AS sealed_bytes, pg_relation_size(
           to_regclass('reliability_contribution.attempt_' || table_id)) AS bytes
  FROM reliability.attempt_table
 WHERE topology = %(topology)s AND state = %(state)s
   AND txid = %(txid)s AND attempt_id = %(attempt_id)s;

-- seal_attempt_table --
-- Record the size of a table whose rows are complete.
UPDATE reliability.attempt_table
   SET bytes = pg_relation_size(to_regclass('reliability_contribution.attempt_' || table_id))
 WHERE table_id = %(table_id)s
RETURNING bytes;

-- tables_of_attempt --
-- The tables of an attempt, one for each state that it has one for. One that a view has shown is
-- dropped later: DROP is no part of snapshots, and a reader's older one may still show it.
SELECT t.table_id,
       a.status NOT IN ('REPLACED', 'ROLLED_BACK')
       OR a.ended_at < clock_timestamp() - %(snapshot_seconds)s * interval '1 second' AS is_unread
  FROM reliability.attempt_table t
  JOIN reliability.attempt a USING (topology, txid, attempt_id)
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s AND t.attempt_id = %(attempt_id)s
 ORDER BY t.table_id;

-- drop_tables_left --
-- Drop the tables of a state's committed attempts, whose rows are elsewhere, unless somebody holds them.
SELECT reliability.drop_committed_table(t.table_id)
  FROM reliability.attempt_table t JOIN reliability.attempt a USING (topology, txid, attempt_id)
 WHERE t.topology = %(topology)s AND t.state = %(state)s AND a.status = 'COMMITTED';

-- tables_to_merge --
-- The tables of committed contributions: those up to a txid, and all but the newest.
SELECT table_id
  FROM (SELECT t.table_id, t.txid, row_number() OVER (ORDER BY t.txid DESC) AS age
          FROM reliability.attempt_table t
          JOIN reliability.contribution c USING (topology, state, txid, attempt_id)
         WHERE t.topology = %(topology)s AND t.state = %(state)s) AS committed
 WHERE txid <= %(through)s OR age > %(kept)s
 ORDER BY txid;

-- claim_attempt_table --
-- Lock a table that is to be merged; no row: another process has merged it. It is waited for: a
-- compaction reads only what is merged. An erasure locks it too.
SELECT table_id FROM reliability.attempt_table
 WHERE table_id = %(table_id)s FOR UPDATE;

-- tables_of_attempts --
-- Lock the tables of a topology's attempts, or of those of one state: nobody merges them meanwhile.
SELECT state, table_id FROM reliability.attempt_table
 WHERE topology = %(topology)s AND (%(state)s::text IS NULL OR state = %(state)s)
 ORDER BY table_id FOR UPDATE;

-- show_nonce --
-- Let the session of a Spark task show its attempt's nonce to the attempt's own table.
SELECT set_config('reliability.nonce', %(nonce)s, true);
