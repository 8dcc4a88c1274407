-- What tells a clear from a retry. max_tries alone does not: a clear sets it to the tries so far plus
-- the retries that the task has by then, which may be what it was; and a run that was deleted and made
-- again under its run_id starts anew.
ALTER TABLE reliability.request_contact
    ADD COLUMN try_id       text NOT NULL DEFAULT '',     -- Airflow's id of the task's try
    ADD COLUMN clear_number integer NOT NULL DEFAULT 0,   -- rises when any task of the run is cleared
    ADD COLUMN run_started  text NOT NULL DEFAULT '';     -- when the run began; another run, another time

-- When all of the run's tasks for the txid had ended: whichever comes after that was cleared.
ALTER TABLE reliability.request ADD COLUMN tasks_ended_at timestamptz;

-- Few: each run that ended without what it had asked for.
CREATE INDEX request_that_ended_without ON reliability.request (dag_id, run_id)
 WHERE status IN ('CLOSED', 'GIVEN_UP');

-- They hold whatever session_replication_role is: a role may have 'replica' as its default.
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_begins;
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_changes;
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_falls;
ALTER TABLE reliability.topology ENABLE ALWAYS TRIGGER topology_has_a_checkpoint;

-- The timeline of the log that is being written; the control file learns of a promotion only at its
-- next checkpoint. NULL where the server does not say: managed servers refuse these functions.
CREATE FUNCTION reliability.timeline() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
