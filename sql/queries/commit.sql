-- next_to_commit --
-- The txid whose first commit is due, if its attempt is PROCESSED; else the oldest PROCESSED replay.
SELECT a.txid, a.attempt_id, a.nonce::text AS nonce, t.committed_attempt, p.commit_number,
       clock_timestamp() - a.processed_at > %(overdue)s * interval '1 second' AS is_overdue
  FROM reliability.topology p
  JOIN reliability.attempt a ON a.topology = p.topology AND a.status = 'PROCESSED'
       AND a.txid <= p.curr_txid
  JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
 WHERE p.topology = %(topology)s
 ORDER BY (a.txid = p.curr_txid) DESC, a.txid LIMIT 1;

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

-- insert_contribution --
INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
VALUES (%(topology)s, %(state)s, %(txid)s, %(attempt_id)s,
        CASE WHEN %(rows)s = 0 THEN 'empty' ELSE 'present' END, %(rows)s)
RETURNING txid;

-- move_contribution --
-- A replay's contribution takes the place of the one it replaces.
UPDATE reliability.contribution
   SET attempt_id = %(attempt_id)s, rows = %(rows)s,
       presence = CASE WHEN %(rows)s = 0 THEN 'empty' ELSE 'present' END
 WHERE topology = %(topology)s AND state = %(state)s AND txid = %(txid)s
   AND attempt_id = %(replaced_attempt)s
RETURNING txid;

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
INSERT INTO reliability.commit_log (topology, commit_number, txid, attempt_id, replaced_attempt)
VALUES (%(topology)s, %(commit_number)s, %(txid)s, %(attempt_id)s, %(replaced_attempt)s)
RETURNING commit_number;
