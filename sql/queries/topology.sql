-- declare_topology --
-- Record a topology, or update its configuration.
INSERT INTO reliability.topology
       (topology, max_spout_pending, max_replay_pending, module, spout_kind, emit_interval,
        checkpoint_interval, groups_commits, blocked_timeout)
VALUES (%(topology)s, %(max_spout_pending)s, %(max_replay_pending)s, %(module)s, %(spout_kind)s,
        %(emit_interval)s * interval '1 second', %(checkpoint_interval)s * interval '1 second',
        %(groups_commits)s, %(blocked_timeout)s * interval '1 second')
ON CONFLICT (topology) DO UPDATE
   SET max_spout_pending = excluded.max_spout_pending,
       max_replay_pending = excluded.max_replay_pending, module = excluded.module,
       spout_kind = excluded.spout_kind,
       emit_interval = excluded.emit_interval, checkpoint_interval = excluded.checkpoint_interval,
       groups_commits = excluded.groups_commits, blocked_timeout = excluded.blocked_timeout;

-- pause_topology --
-- Pause a topology; a pause that is already in effect keeps its time.
UPDATE reliability.topology
   SET paused_at = coalesce(paused_at, clock_timestamp()), paused_reason = %(reason)s
 WHERE topology = %(topology)s;

-- resume_topology --
-- Resume a topology.
UPDATE reliability.topology SET paused_at = NULL, paused_reason = NULL
 WHERE topology = %(topology)s;

-- lock_topology --
-- Queue for the topology's lock. A separate statement: what is read or written under the lock must
-- come later. Not FOR UPDATE, which deadlocks with acks.
SELECT topology
  FROM reliability.topology WHERE topology = %(topology)s FOR NO KEY UPDATE;

-- locked_topology --
-- The topology under its lock, and its checkpoint.
SELECT p.topology_id::text AS topology_id, p.curr_txid, p.next_txid, p.commit_number, p.participant,
       c.phase, c.commit_number AS checkpoint_number, c.plan, c.epoch
  FROM reliability.topology p
  JOIN reliability.checkpoint c ON c.topology = p.topology
 WHERE p.topology = %(topology)s;

-- topologies --
-- The topologies whose ledger this is.
SELECT topology FROM reliability.topology WHERE participant IS NULL ORDER BY topology;

-- owner_of_target_table --
-- The state that owns a table.
SELECT topology, state FROM reliability.state WHERE target_table = %(target_table)s;

-- declare_state --
-- Assign the table to the state; a state that is added later starts at the topology's commit
-- number.
INSERT INTO reliability.state
       (topology, state, target_table, contribution_table, definition, definition_digest,
        commit_number)
SELECT topology, %(state)s, %(target_table)s, %(contribution_table)s, %(definition)s,
       %(definition_digest)s, commit_number
  FROM reliability.topology WHERE topology = %(topology)s
RETURNING state;

-- topology_position --
-- The configuration and position of a topology: the only txid that may commit first, the next one to be
-- allocated, the number of the last commit, 0 before the first. Not locked, so only a hint.
SELECT topology, module, spout_kind, max_spout_pending, max_replay_pending, curr_txid, next_txid,
       commit_number, rollbacks, emit_interval, checkpoint_interval, declared_at
  FROM reliability.topology WHERE topology = %(topology)s;

-- fence_live_attempts --
-- Fence every live attempt, even a PROCESSED one: of a topology, of one of its txids, or this one.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = %(reason)s
 WHERE topology = %(topology)s AND txid = coalesce(%(txid)s, txid)
   AND attempt_id = coalesce(%(attempt_id)s, attempt_id)
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED');

-- live_attempts_of --
-- How many attempts of a topology are live, and for how many of them a process works: what is
-- PROCESSED only waits to be committed, if it is no dry run.
SELECT count(*) AS attempts,
       count(*) FILTER (WHERE a.status <> 'PROCESSED' OR r.is_dry_run) AS at_work
  FROM reliability.attempt a
  LEFT JOIN reliability.request r USING (request_id)
 WHERE a.topology = %(topology)s AND a.status IN ('PROCESSING', 'SEALING', 'PROCESSED');

-- live_attempts --
-- The live attempts of a topology, with their nonces.
SELECT txid, attempt_id, nonce FROM reliability.attempt
 WHERE topology = %(topology)s AND status IN ('PROCESSING', 'SEALING', 'PROCESSED')
 ORDER BY txid;

-- waiting_empty_attempts --
-- Parked and skipped txids that have not committed as empty yet.
SELECT txid, verdict, verdict_reason FROM reliability.attempt
 WHERE topology = %(topology)s AND status = 'PROCESSED' AND verdict IS NOT NULL
   AND request_id IS NULL
 ORDER BY txid;

-- forget_state --
-- Remove the record of a state to which nothing has ever been committed; it has no rows, adopted ones
-- neither.
DELETE FROM reliability.state
 WHERE topology = %(topology)s AND state = %(state)s AND commit_number = 0
RETURNING state;

-- table_exists --
-- Whether a table exists.
SELECT to_regclass(%(table)s) IS NOT NULL AS exists;

-- states --
-- The definition, position and horizon of each state in this database, of a topology or of all.
SELECT topology, state, contribution_table, definition, definition_digest, commit_number, keep_txids,
       keep_age, extract(epoch FROM keep_age)::float8 / 86400 AS keep_days, compacted_through
  FROM reliability.state
 WHERE topology = coalesce(%(topology)s, topology) ORDER BY topology, state;
