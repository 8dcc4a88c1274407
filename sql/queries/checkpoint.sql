-- save_checkpoint --
-- Save a change of phase, plan or epoch if the checkpoint is still what the caller has read.
UPDATE reliability.checkpoint
   SET phase = %(phase)s, commit_number = %(commit_number)s, plan = %(plan)s, epoch = %(epoch)s,
       changed_at = clock_timestamp()
 WHERE topology = %(topology)s AND phase = %(old_phase)s
   AND commit_number = %(old_commit_number)s AND epoch = %(old_epoch)s
RETURNING epoch;

-- enter_epoch --
-- Tell a participant the epoch of a driver; from now on it refuses smaller epochs.
UPDATE reliability.checkpoint SET epoch = %(epoch)s, changed_at = clock_timestamp()
 WHERE topology = %(topology)s AND epoch < %(epoch)s
RETURNING epoch;

-- lock_driver --
-- Admit one driver at a time, so that none takes over from a living one. Not needed for safety: the
-- epoch refuses what a second driver could do. The lock ends with its session.
SELECT pg_advisory_lock(hashtextextended('reliability.checkpoint.' || %(topology)s, 0));

-- show_driver --
-- A sign of life of a driver, before it has changed anything.
UPDATE reliability.checkpoint SET changed_at = clock_timestamp() WHERE topology = %(topology)s;

-- unlock_driver --
-- Release the driver's lock.
SELECT pg_advisory_unlock(hashtextextended('reliability.checkpoint.' || %(topology)s, 0));

-- is_silent --
-- Whether the driver that holds the lock has shown no sign of life for so long.
SELECT changed_at < clock_timestamp() - %(seconds)s * interval '1 second' AS is_silent
  FROM reliability.checkpoint WHERE topology = %(topology)s;

-- change_at --
-- What a commit number was: a database that was restored may have used it for another change. A nonce
-- is never made twice.
SELECT concat_ws(' ', l.kind, l.txid, l.attempt_id, a.nonce) AS change
  FROM reliability.commit_log l LEFT JOIN reliability.attempt a USING (topology, txid, attempt_id)
 WHERE l.topology = %(topology)s AND l.commit_number = %(commit_number)s;

-- check_constraints --
-- Check deferred constraints and constraint triggers now, as COMMIT would.
SET CONSTRAINTS ALL IMMEDIATE;

-- participants --
-- The participants of a topology, or of all.
SELECT DISTINCT database FROM reliability.participant
 WHERE topology = coalesce(%(topology)s, topology) ORDER BY database;

-- drop_other_participants --
-- Before the first emission the definition may still change, or be mistyped.
DELETE FROM reliability.participant
 WHERE topology = %(topology)s AND database <> ALL(%(databases)s::text[]);

-- add_participants --
-- Record participants of a topology.
INSERT INTO reliability.participant (topology, database)
SELECT %(topology)s, unnest(%(databases)s::text[])
    ON CONFLICT (topology, database) DO NOTHING;

-- topology_to_mirror --
-- A topology's row for its participants: nothing is emitted or committed there yet.
SELECT topology_id::text AS topology_id, commit_number,
       (to_jsonb(p) - '{paused_at,paused_reason,last_granted_at}'::text[]
        || '{"curr_txid": 1, "next_txid": 1, "commit_number": 0}')::text AS row
  FROM reliability.topology p WHERE topology = %(topology)s;

-- mirror_topology --
-- Insert the mirror of a topology's row in a participant.
INSERT INTO reliability.topology
SELECT m.* FROM jsonb_populate_record(NULL::reliability.topology,
       %(row)s::jsonb || jsonb_build_object('participant', %(database)s::text)) AS m
    ON CONFLICT (topology) DO NOTHING;

-- mirrored_topology --
-- The identity of a topology, and the participant's name if this database has only a mirror.
SELECT topology_id::text AS topology_id, participant FROM reliability.topology
 WHERE topology = %(topology)s;

-- attempt_to_mirror --
-- An attempt and its txid for the participants, without what only the coordinator uses: the
-- request, and the batch that an opaque spout freezes. Here the txid has the batch of its last
-- attempt.
SELECT p.topology_id::text AS topology_id,
       b.batch_meta, b.emitted_xor, b.emitted_count, t.verdict,
       (to_jsonb(t) - '{committed_attempt,commit_number,committed_at}'::text[]
        || jsonb_build_object('batch_meta', b.batch_meta, 'emitted_xor', b.emitted_xor,
                              'emitted_count', b.emitted_count))::text AS transaction_row,
       (to_jsonb(a) - '{request_id,batch_meta,emitted_xor,emitted_count,predecessor_attempt}'::text[]
       )::text AS attempt_row
  FROM reliability.attempt a
  JOIN reliability.attempt_batch b USING (topology, txid, attempt_id)
  JOIN reliability.transaction t USING (topology, txid)
  JOIN reliability.topology p USING (topology)
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'PROCESSING';

-- greatest_attempt --
-- The newest attempt of a txid in this database.
SELECT attempt_id, nonce::text AS nonce, status FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s
 ORDER BY attempt_id DESC LIMIT 1;

-- mirror_transaction --
-- Insert or update the mirror of a txid in a participant.
INSERT INTO reliability.transaction
SELECT m.* FROM jsonb_populate_record(NULL::reliability.transaction,
       %(transaction_row)s::jsonb || jsonb_build_object('verdict', %(verdict)s::text)) AS m
    ON CONFLICT (topology, txid) DO UPDATE
   SET batch_meta = excluded.batch_meta, emitted_xor = excluded.emitted_xor,
       emitted_count = excluded.emitted_count, verdict = excluded.verdict;

-- reach_txid --
-- A mirror has allocated every txid that was granted to it.
UPDATE reliability.topology SET next_txid = greatest(next_txid, %(txid)s + 1)
 WHERE topology = %(topology)s AND participant IS NOT NULL
RETURNING next_txid;

-- mirror_attempt --
-- Insert the mirror of an attempt in a participant, whose ledger may have been migrated first.
INSERT INTO reliability.attempt
SELECT m.* FROM jsonb_populate_record(NULL::reliability.attempt,
       '{"as_refrozen": false}' || %(attempt_row)s::jsonb) AS m
RETURNING attempt_id;
