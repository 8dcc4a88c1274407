-- The whole engine: opaque spouts, throttle and pause, several processing steps a txid.

ALTER TABLE reliability.topology
    ADD COLUMN spout_kind text NOT NULL DEFAULT 'TRANSACTIONAL',
    ADD COLUMN emit_interval interval NOT NULL DEFAULT '0',  -- least time between two attempts
    ADD COLUMN last_granted_at timestamptz,
    ADD COLUMN paused_at timestamptz,
    ADD COLUMN paused_reason text,
    ADD CONSTRAINT spout_kind CHECK (spout_kind IN ('TRANSACTIONAL', 'OPAQUE')),
    ADD CONSTRAINT paused_says_why CHECK ((paused_at IS NULL) = (paused_reason IS NULL));

-- A transactional spout's batch is frozen at emission, an opaque one's when its txid commits.
ALTER TABLE reliability.transaction
    ALTER COLUMN batch_meta DROP NOT NULL,
    ALTER COLUMN emitted_xor DROP NOT NULL,
    ALTER COLUMN emitted_count DROP NOT NULL,
    ADD CONSTRAINT batch_is_whole CHECK (
        (batch_meta IS NULL) = (emitted_xor IS NULL)
        AND (batch_meta IS NULL) = (emitted_count IS NULL)),
    ADD CONSTRAINT committed_batch_is_frozen CHECK (
        committed_attempt IS NULL OR batch_meta IS NOT NULL);

-- An opaque spout's batch belongs to the attempt until then, and starts where the batch of the
-- predecessor's attempt ended: it names that attempt, and can only commit after it.
ALTER TABLE reliability.attempt
    ADD COLUMN batch_meta jsonb,
    ADD COLUMN emitted_xor bigint,
    ADD COLUMN emitted_count bigint,
    ADD COLUMN predecessor_attempt integer,
    ADD COLUMN sealing_task text,                  -- who seals it
    ADD CONSTRAINT own_batch_is_whole CHECK (
        (batch_meta IS NULL) = (emitted_xor IS NULL)
        AND (batch_meta IS NULL) = (emitted_count IS NULL)),
    ADD CONSTRAINT only_an_own_batch_has_a_predecessor CHECK (
        predecessor_attempt IS NULL OR batch_meta IS NOT NULL);

-- An attempt falls with the one that its batch starts from: later txids one after the other,
-- because each fall fires this again. A trigger, so that no way of ending an attempt forgets it.
CREATE FUNCTION reliability.fail_successor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.attempt
       SET status = 'FAILED', lease_until = NULL, ended_at = clock_timestamp(),
           reason_code = 'PREDECESSOR_FAILED',
           reason = format('its batch starts where %s:%s ended, and that attempt has ended',
                           NEW.txid, NEW.attempt_id)
     WHERE topology = NEW.topology AND txid = NEW.txid + 1
       AND predecessor_attempt = NEW.attempt_id
       AND status IN ('PROCESSING', 'SEALING', 'PROCESSED');
    RETURN NULL;
END $$;
CREATE TRIGGER attempt_falls AFTER UPDATE OF status ON reliability.attempt
    FOR EACH ROW WHEN (NEW.status IN ('FAILED', 'FENCED') AND OLD.status <> NEW.status)
    EXECUTE FUNCTION reliability.fail_successor();

-- One row per processing step of an attempt. A step is taken up once: its write actions are not
-- repeated under the same attempt.
CREATE TABLE reliability.attempt_step (
    topology       text NOT NULL,
    txid           bigint NOT NULL,
    attempt_id     integer NOT NULL,
    step           text NOT NULL,
    status         text NOT NULL DEFAULT 'OPEN',
    claimed_by     text,                           -- the task that runs it
    driver_host    text,
    driver_pid     integer,                        -- the JVM
    python_pid     integer,                        -- the driver's Python, which may outlive it
    application_id text,
    claimed_at     timestamptz,
    started_at     timestamptz,                    -- the driver's first message
    ended_at       timestamptz,
    PRIMARY KEY (topology, txid, attempt_id, step),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT step_status CHECK (status IN ('OPEN', 'RUNNING', 'DONE')),
    CONSTRAINT open_step_is_nobodys CHECK (
        (status = 'OPEN') = (claimed_by IS NULL) AND (status = 'OPEN') = (claimed_at IS NULL)),
    CONSTRAINT done_has_an_end CHECK ((status = 'DONE') = (ended_at IS NOT NULL))
);
INSERT INTO reliability.attempt_step
       (topology, txid, attempt_id, step, status, claimed_by, driver_host, driver_pid,
        python_pid, application_id, claimed_at, started_at, ended_at)
SELECT topology, txid, attempt_id, 'process',
       CASE WHEN processed_at IS NULL THEN 'RUNNING' ELSE 'DONE' END, '', driver_host, driver_pid,
       python_pid, application_id, granted_at, started_at, processed_at
  FROM reliability.attempt WHERE started_at IS NOT NULL;
INSERT INTO reliability.attempt_step (topology, txid, attempt_id, step)
SELECT topology, txid, attempt_id, 'process'
  FROM reliability.attempt WHERE started_at IS NULL;
ALTER TABLE reliability.attempt
    DROP COLUMN driver_host,
    DROP COLUMN driver_pid,
    DROP COLUMN python_pid,
    DROP COLUMN application_id,
    DROP COLUMN started_at;

ALTER TABLE reliability.sink ADD COLUMN step text NOT NULL DEFAULT 'process';
ALTER TABLE reliability.sink ALTER COLUMN step DROP DEFAULT;

-- A state that keeps no history has the header of a contribution, and no rows.
ALTER TABLE reliability.contribution
    DROP CONSTRAINT contribution_presence,
    ADD CONSTRAINT contribution_presence CHECK (presence IN ('present', 'empty', 'compacted'));

-- The timeline of the server when it was last looked at: a restore from backup starts another one.
CREATE TABLE reliability.server (
    only_row boolean PRIMARY KEY DEFAULT true,
    timeline integer NOT NULL,
    CONSTRAINT one_server CHECK (only_row)
);
