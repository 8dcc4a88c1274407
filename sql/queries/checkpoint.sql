-- checkpoint --
SELECT phase, commit_number, plan, epoch FROM reliability.checkpoint WHERE topology = %(topology)s;

-- save_checkpoint --
-- Every change of phase, plan and epoch, compared with what the caller believes it to be.
UPDATE reliability.checkpoint
   SET phase = %(phase)s, commit_number = %(commit_number)s, plan = %(plan)s, epoch = %(epoch)s,
       changed_at = clock_timestamp()
 WHERE topology = %(topology)s AND phase = %(old_phase)s
   AND commit_number = %(old_commit_number)s AND epoch = %(old_epoch)s
RETURNING epoch;

-- enter_epoch --
-- A participant hears of a driver; whoever comes with a smaller epoch from now on is refused.
UPDATE reliability.checkpoint SET epoch = %(epoch)s, changed_at = clock_timestamp()
 WHERE topology = %(topology)s AND epoch < %(epoch)s
RETURNING epoch;

-- lock_driver --
-- One driver at a time, so that nobody takes over from a living one. A courtesy: what a second
-- driver could do is refused by its epoch. The lock ends with the session that holds it.
SELECT pg_advisory_lock(hashtextextended('reliability.checkpoint.' || %(topology)s, 0));

-- show_driver --
-- A driver's sign of life, before it has changed anything.
UPDATE reliability.checkpoint SET changed_at = clock_timestamp() WHERE topology = %(topology)s;

-- unlock_driver --
SELECT pg_advisory_unlock(hashtextextended('reliability.checkpoint.' || %(topology)s, 0));

-- is_silent --
-- Whether a driver that holds the lock has given no sign of life for so long.
SELECT changed_at < clock_timestamp() - %(seconds)s * interval '1 second' AS is_silent
  FROM reliability.checkpoint WHERE topology = %(topology)s;

-- check_constraints --
-- Deferred constraints and constraint triggers are checked now, as COMMIT would check them.
SET CONSTRAINTS ALL IMMEDIATE;

-- participants --
SELECT database FROM reliability.participant WHERE topology = %(topology)s ORDER BY database;

-- drop_other_participants --
-- Before the first emission a definition may still change, or have been mistyped.
DELETE FROM reliability.participant
 WHERE topology = %(topology)s AND database <> ALL(%(databases)s::text[]);

-- add_participants --
INSERT INTO reliability.participant (topology, database)
SELECT %(topology)s, unnest(%(databases)s::text[])
    ON CONFLICT (topology, database) DO NOTHING;

-- topology_to_mirror --
-- A topology's row as its participants get it: nothing is emitted or committed there yet.
SELECT topology_id::text AS topology_id, commit_number,
       (to_jsonb(p) - '{paused_at,paused_reason,last_granted_at}'::text[]
        || '{"curr_txid": 1, "next_txid": 1, "commit_number": 0}')::text AS row
  FROM reliability.topology p WHERE topology = %(topology)s;

-- mirror_topology --
INSERT INTO reliability.topology
SELECT m.* FROM jsonb_populate_record(NULL::reliability.topology,
       %(row)s::jsonb || jsonb_build_object('participant', %(database)s::text)) AS m
    ON CONFLICT (topology) DO NOTHING;

-- mirrored_topology --
SELECT topology_id::text AS topology_id, participant FROM reliability.topology
 WHERE topology = %(topology)s;

-- attempt_to_mirror --
-- An attempt and its txid as the participants get them. A request is the coordinator's business,
-- and so is which batch an opaque spout freezes: here the txid has the batch of its last attempt.
SELECT coalesce(a.batch_meta, t.batch_meta) AS batch_meta,
       coalesce(a.emitted_xor, t.emitted_xor) AS emitted_xor,
       coalesce(a.emitted_count, t.emitted_count) AS emitted_count,
       (to_jsonb(t) - '{committed_attempt,commit_number,committed_at}'::text[]
        || jsonb_build_object('batch_meta', coalesce(a.batch_meta, t.batch_meta),
                              'emitted_xor', coalesce(a.emitted_xor, t.emitted_xor),
                              'emitted_count', coalesce(a.emitted_count, t.emitted_count))
       )::text AS transaction_row,
       (to_jsonb(a) - '{request_id,batch_meta,emitted_xor,emitted_count,predecessor_attempt}'::text[]
       )::text AS attempt_row
  FROM reliability.attempt a
  JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'PROCESSING';

-- greatest_attempt --
SELECT attempt_id, nonce::text AS nonce, status FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s
 ORDER BY attempt_id DESC LIMIT 1;

-- mirror_transaction --
INSERT INTO reliability.transaction
SELECT m.* FROM jsonb_populate_record(NULL::reliability.transaction,
       %(transaction_row)s::jsonb || jsonb_build_object('verdict', %(verdict)s::text)) AS m
    ON CONFLICT (topology, txid) DO UPDATE
   SET batch_meta = excluded.batch_meta, emitted_xor = excluded.emitted_xor,
       emitted_count = excluded.emitted_count, verdict = excluded.verdict;

-- reach_txid --
-- A mirror has allocated whatever was granted to it.
UPDATE reliability.topology SET next_txid = greatest(next_txid, %(txid)s + 1)
 WHERE topology = %(topology)s AND participant IS NOT NULL
RETURNING next_txid;

-- fence_lower_attempts --
-- In a participant also what is PROCESSED: in the coordinator's ledger it was ended before.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = 'a newer attempt was granted'
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id < %(attempt_id)s
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED')
RETURNING attempt_id;

-- mirror_attempt --
INSERT INTO reliability.attempt
SELECT m.* FROM jsonb_populate_record(NULL::reliability.attempt, %(attempt_row)s::jsonb) AS m
RETURNING attempt_id;

-- fence_ended_attempt --
-- In a participant: the attempt was ended in the coordinator's ledger.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = 'it was ended in the ledger of its topology'
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED')
RETURNING attempt_id;
