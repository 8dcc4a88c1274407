-- The attempts at txids, their steps, and what follows from them for requests and later txids.

-- One row per attempt at a txid, durable before anything runs. The nonce distinguishes two
-- grants of one attempt_id, which may exist after a restore from backup.
CREATE TABLE reliability.attempt (
    topology            text NOT NULL,
    txid                bigint NOT NULL,
    attempt_id          integer NOT NULL,
    nonce               uuid NOT NULL DEFAULT gen_random_uuid(),
    request_id          bigint REFERENCES reliability.request,  -- NULL in a participant
    status              text NOT NULL DEFAULT 'PROCESSING',
    lease               interval NOT NULL,             -- renewed by progress, once the driver runs
    lease_until         timestamptz,
    sealing_task        text,                          -- the task that seals it
    reason_code         text,
    reason              text,
    remedy              text,                          -- unless it is that of the code
    verdict             text,                          -- PARKED or SKIPPED: an empty attempt
    verdict_reason      text,
    -- An opaque spout's batch belongs to the attempt until its txid commits. It starts where the
    -- batch of the predecessor's attempt ended, refers to that attempt, and commits only after it.
    batch_meta          jsonb,
    emitted_xor         bigint,
    emitted_count       bigint,
    predecessor_attempt integer,
    left_out            text[] NOT NULL DEFAULT '{}',  -- excluded source items of a frozen batch
    batch_digest        text,                          -- of the batch that it reads, with any spout
    -- A dry run's: it reads what a refreeze would freeze, and so without the corrections that the
    -- refreeze would end.
    as_refrozen         boolean NOT NULL DEFAULT false,
    granted_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    processed_at        timestamptz,
    ended_at            timestamptz,
    cleaned_at          timestamptz,                   -- its staged rows were deleted
    PRIMARY KEY (topology, txid, attempt_id),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT attempt_id_starts_at_0 CHECK (attempt_id >= 0),
    CONSTRAINT attempt_status CHECK (status IN (
        'PROCESSING', 'SEALING', 'PROCESSED', 'COMMITTED', 'REPLACED', 'FAILED', 'FENCED',
        'DRY_RUN', 'ROLLED_BACK')),
    CONSTRAINT lease_while_unsealed CHECK (
        (status IN ('PROCESSING', 'SEALING')) = (lease_until IS NOT NULL)),
    CONSTRAINT ended_says_why CHECK (
        (status IN ('FAILED', 'FENCED', 'ROLLED_BACK')) = (reason_code IS NOT NULL)),
    CONSTRAINT remedy_is_of_a_reason CHECK (remedy IS NULL OR reason_code IS NOT NULL),
    CONSTRAINT attempt_verdict CHECK (verdict IN ('PARKED', 'SKIPPED')),
    CONSTRAINT verdict_says_why CHECK ((verdict IS NULL) = (verdict_reason IS NULL)),
    CONSTRAINT own_batch_is_whole CHECK (
        (batch_meta IS NULL) = (emitted_xor IS NULL)
        AND (batch_meta IS NULL) = (emitted_count IS NULL)),
    CONSTRAINT only_an_own_batch_has_a_predecessor CHECK (
        predecessor_attempt IS NULL OR batch_meta IS NOT NULL),
    CONSTRAINT only_what_cannot_count_is_cleaned CHECK (cleaned_at IS NULL OR status IN (
        'FAILED', 'FENCED', 'REPLACED', 'DRY_RUN', 'ROLLED_BACK'))
);
CREATE UNIQUE INDEX one_live_attempt_per_txid ON reliability.attempt (topology, txid)
    WHERE status IN ('PROCESSING', 'SEALING', 'PROCESSED');
CREATE UNIQUE INDEX one_committed_attempt_per_txid ON reliability.attempt (topology, txid)
    WHERE status = 'COMMITTED';
CREATE INDEX attempt_to_clean ON reliability.attempt (topology, txid, attempt_id)
    WHERE cleaned_at IS NULL
      AND status IN ('FAILED', 'FENCED', 'REPLACED', 'DRY_RUN', 'ROLLED_BACK');
CREATE INDEX attempt_with_verdict ON reliability.attempt (topology, txid)
    WHERE verdict IS NOT NULL;

-- What a monitor counts: the attempts of the last hour, and all that failed.
CREATE INDEX attempt_by_grant ON reliability.attempt (topology, granted_at);
CREATE INDEX attempt_that_failed ON reliability.attempt (topology, status, ended_at)
    WHERE status IN ('FAILED', 'FENCED');

-- Each status that an attempt has had; a trigger writes it.
CREATE TABLE reliability.attempt_event (
    event_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology    text NOT NULL,
    txid        bigint NOT NULL,
    attempt_id  integer NOT NULL,
    status      text NOT NULL,
    reason_code text,
    reason      text,
    happened_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX attempt_event_by_attempt ON reliability.attempt_event (topology, txid, attempt_id);

-- Every status of an attempt is recorded.
CREATE FUNCTION reliability.record_attempt_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO reliability.attempt_event (topology, txid, attempt_id, status, reason_code, reason)
    VALUES (NEW.topology, NEW.txid, NEW.attempt_id, NEW.status, NEW.reason_code, NEW.reason);
    RETURN NULL;
END $$;
CREATE TRIGGER attempt_begins AFTER INSERT ON reliability.attempt
    FOR EACH ROW EXECUTE FUNCTION reliability.record_attempt_event();
CREATE TRIGGER attempt_changes AFTER UPDATE OF status ON reliability.attempt
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION reliability.record_attempt_event();
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_begins;
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_changes;

-- An attempt fails with the one that its batch starts from. Each failure fires this again, so that
-- later txids fail one after another, however the first attempt ended.
CREATE FUNCTION reliability.fail_successor() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_falls;

-- The code that steps have run: {"modules": {name: digest}, "packages": {name: version}}.
CREATE TABLE reliability.code (
    digest   text PRIMARY KEY,
    contents jsonb NOT NULL,
    seen_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row per processing step of an attempt. A step is claimed once: its write actions are never
-- repeated under the same attempt.
CREATE TABLE reliability.attempt_step (
    topology       text NOT NULL,
    txid           bigint NOT NULL,
    attempt_id     integer NOT NULL,
    step           text NOT NULL,
    status         text NOT NULL DEFAULT 'OPEN',
    claimed_by     text,         -- the task that runs it
    driver_host    text,
    driver_pid     integer,      -- the JVM
    python_pid     integer,      -- the driver's Python, which may outlive the JVM
    application_id text,
    ui_url         text,         -- where Spark shows the application while it runs; NULL: nowhere
    code_digest    text REFERENCES reliability.code,
    claimed_at     timestamptz,
    started_at     timestamptz,  -- the driver's first message
    ended_at       timestamptz,
    PRIMARY KEY (topology, txid, attempt_id, step),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT step_status CHECK (status IN ('OPEN', 'RUNNING', 'DONE')),
    CONSTRAINT open_step_is_nobodys CHECK (
        (status = 'OPEN') = (claimed_by IS NULL) AND (status = 'OPEN') = (claimed_at IS NULL)),
    CONSTRAINT done_has_an_end CHECK ((status = 'DONE') = (ended_at IS NOT NULL))
);

-- The lease of an attempt after a sign of progress. A step that was submitted and has not started
-- keeps the longer lease, which covers its submission and queueing: the progress of another step
-- says nothing about the cluster's queue.
CREATE FUNCTION reliability.renewed_lease(a reliability.attempt) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN EXISTS (
                SELECT FROM reliability.attempt_step d
                 WHERE d.topology = a.topology AND d.txid = a.txid
                   AND d.attempt_id = a.attempt_id
                   AND d.status = 'RUNNING' AND d.started_at IS NULL)
           THEN greatest(a.lease_until, clock_timestamp() + a.lease)
           ELSE clock_timestamp() + a.lease END
$$;

-- Claim a step that no task has claimed, and extend the lease to cover its submission and queueing.
-- No row: the attempt has ended, or another task was faster.
-- Contract: the attempt is PROCESSING when its lease is extended, or RL001 takes the claim back.
CREATE FUNCTION reliability.claim_step(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_request_id bigint,
    p_step text, p_task text, p_submit_lease double precision
) RETURNS SETOF text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE reliability.attempt_step d
       SET status = 'RUNNING', claimed_by = p_task, claimed_at = clock_timestamp()
      FROM reliability.attempt a
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.request_id = p_request_id AND a.status = 'PROCESSING'
       AND d.topology = a.topology AND d.txid = a.txid AND d.attempt_id = a.attempt_id
       AND d.step = p_step AND d.status = 'OPEN';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE reliability.attempt
       SET lease_until = greatest(lease_until,
                                  clock_timestamp() + p_submit_lease * interval '1 second')
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND status = 'PROCESSING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt %:% of % was ended', p_txid, p_attempt_id, p_topology
            USING ERRCODE = 'RL001';
    END IF;
    RETURN NEXT p_step;
END $$;

-- Each request, and whether its run has got what it requested. A commit that it asked for is also
-- done if the txid has committed since for another run or by a skip, but not as parked; a replay, if
-- a newer attempt has.
CREATE VIEW reliability.request_outcome AS
SELECT r.request_id, r.topology, r.txid, r.dag_id, r.run_id, r.number, r.kind, r.is_dry_run,
       r.status, r.reason, r.granted_after,
       r.status = 'SATISFIED'
           OR (r.status IN ('CLOSED', 'GIVEN_UP', 'PARKED') AND a.attempt_id IS NOT NULL
               AND a.verdict IS DISTINCT FROM 'PARKED'
               AND (r.kind = 'COMMIT' OR (r.granted_after < a.attempt_id AND NOT r.is_dry_run)))
           AS is_done
  FROM reliability.request r
  JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                   = (t.topology, t.txid, t.committed_attempt);

-- Txids that have committed as empty and wait for a replay to process them: parked, or unskipped.
CREATE VIEW reliability.parked_transaction AS
SELECT a.topology, a.txid, a.verdict, a.verdict_reason
  FROM reliability.attempt a
 WHERE a.status = 'COMMITTED' AND a.verdict IS NOT NULL
   AND NOT EXISTS (SELECT FROM reliability.skip k
                    WHERE k.topology = a.topology AND k.txid = a.txid AND k.ended_at IS NULL);

-- The items of committed txids that are or were excluded: whether one is, and whether the attempt has
-- left it out. A replay makes both the same.
CREATE VIEW reliability.excluded_item AS
SELECT s.topology, s.item, s.txid,
       EXISTS (SELECT FROM reliability.exclusion e
                WHERE e.topology = s.topology AND e.item = s.item AND e.ended_at IS NULL)
       AS is_excluded,
       s.item = ANY (a.left_out) AS is_left_out
  FROM (SELECT DISTINCT topology, item FROM reliability.exclusion) AS known
  JOIN reliability.source_item s USING (topology, item)
  JOIN reliability.attempt a ON a.topology = s.topology AND a.txid = s.txid
       AND a.status = 'COMMITTED' AND a.verdict IS NULL;

-- What each attempt has read, or reads: its own batch, or the one that was frozen when it was
-- granted. That is the txid's batch only if nobody has refrozen it since.
CREATE VIEW reliability.attempt_batch AS
SELECT a.topology, a.txid, a.attempt_id,
       coalesce(a.batch_meta, until.batch_meta, t.batch_meta) AS batch_meta,
       coalesce(a.emitted_xor, until.emitted_xor, t.emitted_xor) AS emitted_xor,
       coalesce(a.emitted_count, until.emitted_count, t.emitted_count) AS emitted_count
  FROM reliability.attempt a
  JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN LATERAL (
       SELECT f.batch_meta, f.emitted_xor, f.emitted_count FROM reliability.refreeze f
        WHERE f.topology = a.topology AND f.txid = a.txid AND f.next_attempt > a.attempt_id
        ORDER BY f.number LIMIT 1) AS until ON true;

-- Uncommitted txids that are not PROCESSED and that no run is working on, or that are held: those
-- behind them wait (E2).
CREATE VIEW reliability.blocked_transaction AS
SELECT t.topology, t.txid, t.interval_start, t.interval_end, t.interval_zone, t.dag_id, t.run_id,
       t.emitted_at, t.held_reason
  FROM reliability.transaction t
 WHERE t.committed_attempt IS NULL
   AND (t.held_reason IS NOT NULL
        OR NOT EXISTS (SELECT FROM reliability.request r WHERE r.topology = t.topology
                          AND r.txid = t.txid AND r.status = 'OPEN')
           AND NOT EXISTS (SELECT FROM reliability.attempt a WHERE a.topology = t.topology
                              AND a.txid = t.txid AND a.status = 'PROCESSED'));
