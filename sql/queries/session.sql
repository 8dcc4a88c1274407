-- begin --
-- Every ledger transaction says itself what it is, whatever the server's or the role's defaults.
-- Who waits for a row lets go after 10 s; who falls asleep inside a transaction loses it.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL synchronous_commit = on;
SET LOCAL lock_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '60s';

-- commit --
COMMIT;

-- roll_back --
ROLLBACK;

-- set_lock_timeout --
SELECT set_config('lock_timeout', %(seconds)s || 's', true);

-- end_sessions_of_attempt --
-- A stalled COPY FROM STDIN ignores statement_timeout, idle timeouts and pg_cancel_backend.
SELECT s.application_name, pg_terminate_backend(s.pid) AS ended FROM pg_stat_activity s
 WHERE s.datname = current_database() AND s.application_name = %(application_name)s;

-- server_timeline --
-- A restored or promoted server starts another timeline; what it knew may lie in the past.
-- Of the log that is being written: the control file learns of a promotion at its next checkpoint.
SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer AS now,
       (SELECT timeline FROM reliability.server) AS known;

-- record_timeline --
INSERT INTO reliability.server (timeline) VALUES (%(timeline)s)
ON CONFLICT (only_row) DO UPDATE SET timeline = excluded.timeline;

-- fence_all_live_attempts --
-- Not those of a commit that is decided: other databases may have it already. Not mirrors: their
-- coordinator's ledger has its own timeline.
UPDATE reliability.attempt a
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED',
       reason = 'the server was restored or failed over: it may have granted this id twice'
 WHERE status IN ('PROCESSING', 'SEALING', 'PROCESSED')
   AND NOT EXISTS (SELECT FROM reliability.topology p
                    WHERE p.topology = a.topology AND p.participant IS NOT NULL)
   AND NOT EXISTS (SELECT FROM reliability.checkpoint c, jsonb_array_elements(c.plan) AS planned
                    WHERE c.topology = a.topology AND c.phase = 'COMMITTING'
                      AND (planned->>'txid')::bigint = a.txid
                      AND (planned->>'attempt_id')::integer = a.attempt_id)
RETURNING topology, txid, attempt_id;
