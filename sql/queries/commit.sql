-- facts_to_apply --
-- The definitions of the states in the order of their locks, whether the batch of any of these txids is
-- not frozen, by state the txids whose attempts have staged each key once, and the audits of tables that
-- the attempts were sealed with.
SELECT coalesce((SELECT jsonb_agg(s.definition ORDER BY s.state) FROM reliability.state s
                  WHERE s.topology = %(topology)s), '[]') AS definitions,
       EXISTS (SELECT FROM reliability.transaction
                WHERE topology = %(topology)s AND txid = ANY(%(txids)s::bigint[])
                  AND batch_meta IS NULL) AS is_any_unfrozen,
       coalesce((SELECT jsonb_object_agg(state, txids) FROM (
              SELECT own.state, array_agg(own.txid) AS txids
                FROM unnest(%(txids)s::bigint[], %(attempt_ids)s::integer[])
                     AS planned(txid, attempt_id)
                JOIN reliability.attempt_table own USING (txid, attempt_id)
               WHERE own.topology = %(topology)s AND own.is_folded
               GROUP BY own.state) AS by_state), '{}') AS folded,
       coalesce((SELECT jsonb_agg(to_jsonb(audits) ORDER BY state, name) FROM (
              SELECT r.state, d.digest, d.name, d.severity, d.query,
                     array_agg(r.txid ORDER BY r.txid) AS txids,
                     array_agg(r.attempt_id ORDER BY r.txid) AS attempt_ids
                FROM unnest(%(txids)s::bigint[], %(attempt_ids)s::integer[])
                     AS planned(txid, attempt_id)
                JOIN reliability.audit_result r ON r.topology = %(topology)s
                     AND r.txid = planned.txid AND r.attempt_id = planned.attempt_id
                JOIN reliability.audit d ON d.digest = r.digest AND d.of = 'table'
               GROUP BY r.state, d.digest) AS audits), '[]') AS audits;

-- is_any_processed --
-- Whether an attempt is processed, so that it may be due.
SELECT EXISTS (SELECT FROM reliability.attempt
                WHERE topology = %(topology)s AND status = 'PROCESSED') AS is_any_processed;

-- position --
-- All that decides what commits next, with the candidates in the order of their txids. The next group
-- reaches no further than so many txids, however many are processed behind it.
SELECT c.position,
       coalesce((SELECT jsonb_agg(n.candidate ORDER BY n.txid) FROM reliability.commit_candidate n
                  WHERE n.topology = p.topology AND n.txid < p.curr_txid + %(most)s), '[]')
       AS processed
  FROM reliability.topology p JOIN reliability.commit_position c USING (topology)
 WHERE p.topology = %(topology)s;

-- staged_rows --
-- How many rows an attempt has staged for a state.
SELECT staged_rows FROM reliability.sink
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND sink = %(state)s;

-- stages_the_same --
-- Whether a replay has staged the same rows for a state as the attempt that it replaces, for the
-- columns of today: a value that was dropped and added again is gone from the older rows.
SELECT count(DISTINCT contribution_digest) = 1 AND count(contribution_digest) = 2
       AND NOT EXISTS (SELECT FROM reliability.alteration a
                         JOIN reliability.transaction t ON t.topology = a.topology
                              AND t.txid = %(txid)s AND t.commit_number <= a.commit_number
                        WHERE a.topology = %(topology)s AND a.state = %(state)s) AS is_same
  FROM reliability.sink
 WHERE topology = %(topology)s AND txid = %(txid)s AND sink = %(state)s
   AND attempt_id IN (%(attempt_id)s, %(replaced_attempt)s);

-- contribution --
-- The header of a txid's contribution to a state.
SELECT attempt_id, presence, rows FROM reliability.contribution
 WHERE topology = %(topology)s AND state = %(state)s AND txid = %(txid)s;

-- last_contribution --
-- The last txid that committed into a state, NULL if none did.
SELECT max(txid) AS txid FROM reliability.contribution
 WHERE topology = %(topology)s AND state = %(state)s;

-- insert_contribution --
-- Insert the header of a txid's contribution to a state; `rows` counts its rows in the table of
-- contributions, or the changed keys where no contribution is kept.
INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
VALUES (%(topology)s, %(state)s, %(txid)s, %(attempt_id)s, %(presence)s, %(rows)s)
RETURNING txid;

-- move_contribution --
-- Replace the contribution of the replayed attempt by that of the replay.
UPDATE reliability.contribution
   SET attempt_id = %(attempt_id)s, rows = %(rows)s, presence = %(presence)s
 WHERE topology = %(topology)s AND state = %(state)s AND txid = %(txid)s
   AND attempt_id = %(replaced_attempt)s
RETURNING txid;

-- use_more_memory --
-- For a transaction that folds many keys: Postgres's default, 4 MB, sorts them on disk, and looks for
-- the header of each contribution by itself.
SELECT set_config('work_mem', '64MB', true)
 WHERE pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('64MB');

-- drop_later_contributions --
-- For a rollback: delete the headers of later txids in a state.
DELETE FROM reliability.contribution
 WHERE topology = %(topology)s AND state = %(state)s AND txid > %(txid)s;

-- end_history --
-- The previous values of an OpaqueState are used up: this txid cannot be taken out as well.
UPDATE reliability.state SET compacted_through = greatest(compacted_through, %(txid)s)
 WHERE topology = %(topology)s AND state = %(state)s
RETURNING state;

-- replace_attempt --
-- Mark the attempt that a replay replaces.
UPDATE reliability.attempt SET status = 'REPLACED', ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(replaced_attempt)s
   AND status = 'COMMITTED'
RETURNING attempt_id;

-- refuse_attempt --
-- The data refused the commit: the next request begins another attempt.
UPDATE reliability.attempt
   SET status = 'FAILED', ended_at = clock_timestamp(),
       reason_code = %(reason_code)s, reason = %(reason)s, remedy = %(remedy)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'PROCESSED'
RETURNING attempt_id;

-- advance_topology --
-- A repair takes the next commit number.
UPDATE reliability.topology SET commit_number = %(commit_number)s
 WHERE topology = %(topology)s AND commit_number = %(commit_number)s - 1
RETURNING curr_txid;

-- lock_later_requests --
-- For a rollback: lock what it closes, in the order in which a run closes its own, before it takes back
-- attempts. A run that ends locks its request and then the attempt.
SELECT FROM reliability.request
 WHERE topology = %(topology)s AND txid > %(txid)s AND status <> 'CLOSED'
 ORDER BY txid, request_id FOR NO KEY UPDATE;

-- take_back_attempts --
-- For a rollback: nothing that was processed or committed after a txid counts any more.
UPDATE reliability.attempt
   SET status = CASE status WHEN 'COMMITTED' THEN 'ROLLED_BACK' ELSE 'FENCED' END,
       lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ROLLED_BACK', reason = %(reason)s
 WHERE topology = %(topology)s AND txid > %(txid)s
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED', 'COMMITTED');

-- take_back_transactions --
-- For a rollback: later txids are no longer committed.
UPDATE reliability.transaction
   SET committed_attempt = NULL, committed_at = NULL, commit_number = NULL
 WHERE topology = %(topology)s AND txid > %(txid)s AND committed_attempt IS NOT NULL;

-- drop_commit_numbers --
-- Skip the numbers of decided changes that could not be committed everywhere and are missing here (C6).
WITH states AS (
       UPDATE reliability.state SET commit_number = %(commit_number)s - 1
        WHERE topology = %(topology)s AND commit_number < %(commit_number)s - 1
          AND commit_number >= %(commit_number)s - 1 - %(dropped)s)
UPDATE reliability.topology SET commit_number = %(commit_number)s - 1
 WHERE topology = %(topology)s AND commit_number < %(commit_number)s - 1
   AND commit_number >= %(commit_number)s - 1 - %(dropped)s;

-- is_rolled_back --
-- Whether this database has nothing after the txid.
SELECT FROM reliability.topology WHERE topology = %(topology)s AND curr_txid = %(txid)s + 1;

-- take_back_topology --
-- Move curr_txid back; only a rollback that drops a decided change may have nothing to take back.
UPDATE reliability.topology
   SET commit_number = %(commit_number)s, curr_txid = %(txid)s + 1, rollbacks = rollbacks + 1
 WHERE topology = %(topology)s AND commit_number = %(commit_number)s - 1
   AND curr_txid + (%(dropped)s > 0)::int > %(txid)s + 1
RETURNING curr_txid;

-- log_change_of_rows --
-- Log a rollback or a repair, which no attempt has made.
INSERT INTO reliability.commit_log (topology, commit_number, kind, txid, reason, rollbacks)
SELECT topology, %(commit_number)s, %(kind)s, %(txid)s, %(reason)s, rollbacks
  FROM reliability.topology WHERE topology = %(topology)s
RETURNING commit_number;

-- close_later_requests --
-- Rolled back txids satisfy no request; once released, they must be requested again (H4). A dry run that
-- has ended stays done. The reason that a person gave for what was done is kept behind the new one.
UPDATE reliability.request
   SET status = 'CLOSED', ended_at = clock_timestamp(),
       reason = %(reason)s || CASE WHEN status = 'SATISFIED' AND reason IS NOT NULL
                                   THEN format(' (requested because: %%s)', reason) ELSE '' END
 WHERE topology = %(topology)s AND txid > %(txid)s AND status <> 'CLOSED'
   AND NOT (is_dry_run AND status = 'SATISFIED');

-- hold_later_txids --
-- Hold the txids after a rollback's target.
UPDATE reliability.transaction SET held_reason = %(reason)s
 WHERE topology = %(topology)s AND txid > %(txid)s;

-- record_difference --
-- Record what a replay, a rollback, a repair or a dry run changes in the rows of a state.
INSERT INTO reliability.difference (topology, state, txid, attempt_id, commit_number,
       rows_added, rows_changed, rows_removed, moved, by_hand)
VALUES (%(topology)s, %(state)s, %(txid)s, %(attempt_id)s, %(commit_number)s,
        %(rows_added)s, %(rows_changed)s, %(rows_removed)s, %(moved)s, %(by_hand)s)
RETURNING difference_id;
