-- last_change --
-- Whether the last change of the states was a first commit: then it is a replay's turn.
SELECT kind = 'COMMIT' AS was_first_commit FROM reliability.commit_log
 WHERE topology = %(topology)s ORDER BY commit_number DESC LIMIT 1;

-- due --
-- What may commit now: the PROCESSED attempts from curr_txid on, in case they follow each other
-- without a gap, and those of replays. A dry run never commits. First commits keep the checkpoint
-- interval, so that more of them share a physical commit, unless they may not share one.
SELECT a.txid, a.attempt_id, a.nonce::text AS nonce, t.committed_attempt,
       (SELECT coalesce(sum(s.staged_rows), 0)::bigint FROM reliability.sink s
         WHERE s.topology = a.topology AND s.txid = a.txid
           AND s.attempt_id = a.attempt_id) AS staged_rows
  FROM reliability.topology p
  JOIN reliability.attempt a ON a.topology = p.topology AND a.status = 'PROCESSED'
       AND a.txid < p.curr_txid + CASE WHEN p.groups_commits THEN %(most)s ELSE 1 END
  JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
 WHERE p.topology = %(topology)s
   AND NOT EXISTS (SELECT FROM reliability.request r
                    WHERE r.request_id = a.request_id AND r.is_dry_run)
   AND (%(overdue)s = 0 OR a.processed_at < clock_timestamp() - %(overdue)s * interval '1 second')
   AND (a.txid < p.curr_txid OR %(at_once)s OR NOT p.groups_commits OR NOT EXISTS (
        SELECT FROM reliability.commit_log l
         WHERE l.topology = p.topology AND l.txid = p.curr_txid - 1 AND l.kind = 'COMMIT'
           AND l.committed_at > clock_timestamp() - p.checkpoint_interval))
 ORDER BY a.txid;

-- advance_state --
-- The deciding check, per state and commit number: a second apply of c finds no row (C3).
UPDATE reliability.state SET commit_number = %(commit_number)s
 WHERE topology = %(topology)s AND state = %(state)s AND commit_number = %(commit_number)s - 1
RETURNING state;

-- staged_rows --
SELECT staged_rows FROM reliability.sink
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND sink = %(state)s;

-- contribution --
SELECT attempt_id, presence, rows FROM reliability.contribution
 WHERE topology = %(topology)s AND state = %(state)s AND txid = %(txid)s;

-- last_contribution --
-- The last txid that committed into a state, NULL if none did.
SELECT max(txid) AS txid FROM reliability.contribution
 WHERE topology = %(topology)s AND state = %(state)s;

-- insert_contribution --
-- The header of what a txid has in a state; `rows` are those of the contributions' table, or the
-- keys that the txid changed where no contribution is kept.
INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
VALUES (%(topology)s, %(state)s, %(txid)s, %(attempt_id)s, %(presence)s, %(rows)s)
RETURNING txid;

-- move_contribution --
-- A replay's contribution takes the place of the one it replaces.
UPDATE reliability.contribution
   SET attempt_id = %(attempt_id)s, rows = %(rows)s, presence = %(presence)s
 WHERE topology = %(topology)s AND state = %(state)s AND txid = %(txid)s
   AND attempt_id = %(replaced_attempt)s
RETURNING txid;

-- drop_later_contributions --
-- A rollback: the headers of what later txids had in a state.
DELETE FROM reliability.contribution
 WHERE topology = %(topology)s AND state = %(state)s AND txid > %(txid)s;

-- end_history --
-- What an OpaqueState's rows held before is used up: this txid cannot be taken out as well.
UPDATE reliability.state SET compacted_through = greatest(compacted_through, %(txid)s)
 WHERE topology = %(topology)s AND state = %(state)s
RETURNING state;

-- replace_attempt --
UPDATE reliability.attempt SET status = 'REPLACED', ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(replaced_attempt)s
   AND status = 'COMMITTED'
RETURNING attempt_id;

-- commit_attempt --
UPDATE reliability.attempt SET status = 'COMMITTED', ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'PROCESSED'
RETURNING attempt_id;

-- refuse_attempt --
-- Its commit was refused by the data: the next request begins another attempt.
UPDATE reliability.attempt
   SET status = 'FAILED', ended_at = clock_timestamp(),
       reason_code = %(reason_code)s, reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'PROCESSED'
RETURNING attempt_id;

-- commit_transaction --
-- Move the pointer to the attempt that counts; the old one is compared, NULL for a first commit.
UPDATE reliability.transaction
   SET committed_attempt = %(attempt_id)s, commit_number = %(commit_number)s,
       committed_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND committed_attempt IS NOT DISTINCT FROM %(replaced_attempt)s
RETURNING txid;

-- advance_topology --
-- The next commit number; curr_txid moves on a first commit only.
UPDATE reliability.topology
   SET commit_number = %(commit_number)s,
       curr_txid = curr_txid + CASE WHEN curr_txid = %(txid)s THEN 1 ELSE 0 END
 WHERE topology = %(topology)s AND commit_number = %(commit_number)s - 1
   AND curr_txid >= %(txid)s
RETURNING curr_txid;

-- log_commit --
INSERT INTO reliability.commit_log
       (topology, commit_number, kind, txid, attempt_id, replaced_attempt, rollbacks)
SELECT topology, %(commit_number)s,
       CASE WHEN %(replaced_attempt)s::integer IS NULL THEN 'COMMIT' ELSE 'REPLAY' END,
       %(txid)s, %(attempt_id)s, %(replaced_attempt)s, rollbacks
  FROM reliability.topology WHERE topology = %(topology)s
RETURNING commit_number;

-- take_back_attempts --
-- A rollback: nothing that was processed or committed after a txid counts any more.
UPDATE reliability.attempt
   SET status = CASE status WHEN 'COMMITTED' THEN 'ROLLED_BACK' ELSE 'FENCED' END,
       lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ROLLED_BACK', reason = %(reason)s
 WHERE topology = %(topology)s AND txid > %(txid)s
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED', 'COMMITTED');

-- take_back_transactions --
UPDATE reliability.transaction
   SET committed_attempt = NULL, committed_at = NULL, commit_number = NULL
 WHERE topology = %(topology)s AND txid > %(txid)s AND committed_attempt IS NOT NULL;

-- drop_commit_numbers --
-- What was decided and could not be committed everywhere lacks here: its numbers pass unused (C6).
UPDATE reliability.topology SET commit_number = %(commit_number)s - 1
 WHERE topology = %(topology)s AND commit_number < %(commit_number)s - 1
   AND commit_number >= %(commit_number)s - 1 - %(dropped)s;

-- drop_commit_numbers_of_states --
UPDATE reliability.state SET commit_number = %(commit_number)s - 1
 WHERE topology = %(topology)s AND commit_number < %(commit_number)s - 1
   AND commit_number >= %(commit_number)s - 1 - %(dropped)s;

-- is_rolled_back --
-- Whether this database has nothing that comes after the txid.
SELECT FROM reliability.topology WHERE topology = %(topology)s AND curr_txid = %(txid)s + 1;

-- take_back_topology --
-- Only who drops what was decided may have nothing to take back.
UPDATE reliability.topology
   SET commit_number = %(commit_number)s, curr_txid = %(txid)s + 1, rollbacks = rollbacks + 1
 WHERE topology = %(topology)s AND commit_number = %(commit_number)s - 1
   AND curr_txid + (%(dropped)s > 0)::int > %(txid)s + 1
RETURNING curr_txid;

-- log_rollback --
INSERT INTO reliability.commit_log (topology, commit_number, kind, txid, reason, rollbacks)
SELECT topology, %(commit_number)s, 'ROLLBACK', %(txid)s, %(reason)s, rollbacks
  FROM reliability.topology WHERE topology = %(topology)s
RETURNING commit_number;

-- close_later_requests --
-- A rolled back txid satisfies nobody: who wants it asks anew, once it is released (H4).
UPDATE reliability.request
   SET status = 'CLOSED', reason = %(reason)s, ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid > %(txid)s AND status <> 'CLOSED';

-- hold_later_txids --
UPDATE reliability.transaction SET held_reason = %(reason)s
 WHERE topology = %(topology)s AND txid > %(txid)s;

-- record_difference --
INSERT INTO reliability.difference (topology, state, txid, attempt_id, commit_number,
       rows_added, rows_changed, rows_removed, moved)
VALUES (%(topology)s, %(state)s, %(txid)s, %(attempt_id)s, %(commit_number)s,
        %(rows_added)s, %(rows_changed)s, %(rows_removed)s, %(moved)s)
RETURNING difference_id;
