-- open_attempt_table --
-- Number a table for an attempt that is PROCESSING; no row: it has ended.
INSERT INTO reliability.attempt_table (topology, state, txid, attempt_id)
SELECT topology, %(state)s, txid, attempt_id FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'PROCESSING'
RETURNING table_id;

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
-- The tables of an attempt, one for each state that it has one for.
SELECT table_id FROM reliability.attempt_table
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
 ORDER BY table_id;

-- tables_of_topology --
-- The tables of a topology's attempts.
SELECT table_id FROM reliability.attempt_table WHERE topology = %(topology)s ORDER BY table_id;

-- forget_attempt_table --
-- Forget a table that is dropped.
DELETE FROM reliability.attempt_table WHERE table_id = %(table_id)s
RETURNING table_id;
