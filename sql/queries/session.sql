-- open_session --
-- Settings that this package needs and that only a SELECT can set: once per session, because a
-- SELECT takes the transaction's snapshot, and some transactions must lock first. The path comes before
-- the first call of a function. By the server's defaults the transaction of these may be serializable,
-- read-only and deferrable: it would wait for all serializable transactions of others.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET search_path = pg_catalog, pg_temp;
SET idle_session_timeout = 0;
SELECT set_config('transaction_timeout', '0', false)
 WHERE current_setting('server_version_num')::integer >= 170000;
SELECT current_setting('synchronous_commit') = 'remote_apply' AS waits_for_standbys,
       pg_is_in_recovery() AS is_standby;

-- begin --
-- Begin a transaction that may write.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- begin_reading --
-- Begin a read-only transaction.
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;

-- begin_at_once --
-- Begin a transaction that is sent whole, without BEGIN and COMMIT: Postgres commits statements that
-- are sent together if none of them fails.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE;

-- pin_settings --
-- Sent with every BEGIN, in one round trip: the settings that this package relies on, whatever the
-- defaults of the server, the database, the role, the service file and the environment are, and
-- whatever a trigger or a pooler left in the session. No SELECT: it would take the snapshot.
-- Waiting for a row ends after 10 s; a session that idles inside a transaction is ended.
SET LOCAL lock_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '60s';
SET LOCAL statement_timeout = 0;
-- Values as text, in both directions.
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO, MDY';
SET LOCAL IntervalStyle = 'postgres';
SET LOCAL extra_float_digits = 1;
SET LOCAL bytea_output = 'hex';
SET LOCAL array_nulls = on;
-- Names of types as they are: text, and not "text".
SET LOCAL quote_all_identifiers = off;
-- Only Postgres's own functions, operators and types are found without a schema. In any other schema
-- of the path, a role that may create there could add a function whose arguments fit better than those
-- of Postgres's own, and it would run with the rights of this session.
SET LOCAL search_path = pg_catalog, pg_temp;
-- What an expression means. Not standard_conforming_strings: the driver quotes as it was when the
-- session began.
SET LOCAL transform_null_equals = off;
-- Rows that a policy hides are an error, never missing without a word.
SET LOCAL row_security = off;
-- Of tables without statistics any plan looks expensive: compiling it takes longer than running it.
SET LOCAL jit = off;

-- wait_for_disk --
-- Sent with these, unless the server's own default is stricter.
SET LOCAL synchronous_commit = on;

-- commit --
-- Commit the transaction.
COMMIT;

-- roll_back --
-- Roll the transaction back.
ROLLBACK;

-- set_lock_timeout --
-- Set how long this transaction waits for a lock.
SELECT set_config('lock_timeout', %(seconds)s || 's', true);

-- let_idle --
-- Let this transaction idle for as long as it takes: it holds a lock while others work.
SET LOCAL idle_in_transaction_session_timeout = 0;

-- end_sessions_of_attempt --
-- A stalled COPY FROM STDIN ignores statement_timeout, idle timeouts and pg_cancel_backend. A session of
-- another role, such as the executors', is the owner's to end.
SELECT s.application_name, CASE WHEN pg_has_role(s.usesysid, 'USAGE')
            THEN pg_terminate_backend(s.pid)
            ELSE reliability.end_session(s.pid, s.application_name) END AS ended
  FROM pg_stat_activity s
 WHERE s.datname = current_database() AND s.application_name = %(application_name)s;

-- server_timeline --
-- A restored or promoted server starts another timeline, and may have lost recent changes. NULL
-- where the server does not report it.
SELECT reliability.timeline() AS now,
       (SELECT timeline FROM reliability.server) AS known;

-- record_timeline --
-- Record the server's timeline.
INSERT INTO reliability.server (timeline) VALUES (%(timeline)s)
ON CONFLICT (only_row) DO UPDATE SET timeline = excluded.timeline;

-- let_no_driver_decide --
-- A driver that is at a vote finds another epoch, and rolls back. A decided commit goes on.
UPDATE reliability.checkpoint c SET epoch = epoch + 1, changed_at = clock_timestamp()
 WHERE phase <> 'COMMITTING'
   AND EXISTS (SELECT FROM reliability.participant p WHERE p.topology = c.topology);

-- fence_all_live_attempts --
-- After let_no_driver_decide. Except those of a decided commit, which other databases may have
-- already; empty ones, which no process works for and nobody begins again; and mirrors, because their
-- coordinator's ledger has its own timeline.
UPDATE reliability.attempt a
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED',
       reason = 'the server was restored or failed over: it may have granted this id twice'
 WHERE status IN ('PROCESSING', 'SEALING', 'PROCESSED') AND verdict IS NULL
   AND NOT EXISTS (SELECT FROM reliability.topology p
                    WHERE p.topology = a.topology AND p.participant IS NOT NULL)
   AND NOT EXISTS (SELECT FROM reliability.checkpoint c, jsonb_array_elements(c.plan) AS planned
                    WHERE c.topology = a.topology AND c.phase = 'COMMITTING'
                      AND (planned->>'txid')::bigint = a.txid
                      AND (planned->>'attempt_id')::integer = a.attempt_id)
RETURNING topology, txid, attempt_id;
