-- The ledger: which batches count, and which attempts may make them count. It is in the same database
-- as the target tables, so that a change of a table and its record are one local transaction.
--
-- From top to bottom: a topology and its states; its txids and what each reads; the requests for
-- them; the attempts at them and the acker; their contributions; the log of changes. Then the
-- triggers, which enforce what no caller may forget, and the functions.
--
-- Staged rows and contributions of committed txids are in schema reliability_contribution, in one
-- table per state, created when the state is declared.

CREATE SCHEMA reliability_contribution;

-- --- Topologies --------------------------------------------------------------------------------

-- One row per topology. The session that holds its lock decides. Txids come from next_txid: a sequence
-- would leave gaps. A database that only takes part in a topology has a mirror of the row.
CREATE TABLE reliability.topology (
    topology            text PRIMARY KEY,
    topology_id         uuid NOT NULL DEFAULT gen_random_uuid(),  -- unique across ledgers
    participant         text,                           -- this database's name; NULL in the coordinator's
    module              text NOT NULL DEFAULT '',       -- of its code, for `reliability replay`
    spout_kind          text NOT NULL DEFAULT 'TRANSACTIONAL',
    curr_txid           bigint NOT NULL DEFAULT 1,      -- the only txid that may commit first
    next_txid           bigint NOT NULL DEFAULT 1,      -- the next one to be allocated
    commit_number       bigint NOT NULL DEFAULT 0,      -- c; each change of the states takes the next
    rollbacks           integer NOT NULL DEFAULT 0,     -- how often it was rolled back
    compacted_through   bigint NOT NULL DEFAULT 0,      -- no replay or rollback reaches it or below
    max_spout_pending   integer NOT NULL,
    max_replay_pending  integer NOT NULL DEFAULT 1,
    emit_interval       interval NOT NULL DEFAULT '0',  -- least time between the starts of two attempts
    checkpoint_interval interval NOT NULL DEFAULT '0',  -- least time between two first commits
    groups_commits      boolean NOT NULL DEFAULT true,  -- several txids may share a physical commit (C6)
    declared_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_granted_at     timestamptz,
    paused_at           timestamptz,
    paused_reason       text,
    CONSTRAINT participant_has_a_name CHECK (participant <> ''),
    CONSTRAINT spout_kind CHECK (spout_kind IN ('TRANSACTIONAL', 'OPAQUE')),
    CONSTRAINT curr_txid_within_allocated CHECK (curr_txid BETWEEN 1 AND next_txid),
    CONSTRAINT only_the_committed_is_compacted CHECK (
        participant IS NOT NULL OR compacted_through < curr_txid),
    CONSTRAINT max_spout_pending_starts_at_1 CHECK (max_spout_pending >= 1),
    CONSTRAINT max_replay_pending_starts_at_1 CHECK (max_replay_pending >= 1),
    CONSTRAINT checkpoint_interval_has_a_floor CHECK (
        checkpoint_interval = interval '0' OR checkpoint_interval >= interval '100 milliseconds'),
    CONSTRAINT paused_says_why CHECK ((paused_at IS NULL) = (paused_reason IS NULL))
);

-- The other databases that hold states of a topology; in the coordinator's ledger.
CREATE TABLE reliability.participant (
    topology text NOT NULL REFERENCES reliability.topology,
    database text NOT NULL,
    PRIMARY KEY (topology, database),
    CONSTRAINT participant_is_another_database CHECK (database <> '')
);

-- One row per topology: which change of its states is in progress. With one database the phase is
-- always COMMITTED, because one transaction changes everything. A participant keeps the last c that
-- it applied and the greatest epoch that it has seen: drivers with a smaller one are refused.
CREATE TABLE reliability.checkpoint (
    topology      text PRIMARY KEY REFERENCES reliability.topology,
    phase         text NOT NULL DEFAULT 'COMMITTED',
    commit_number bigint NOT NULL DEFAULT 0,            -- reached when COMMITTED, otherwise the target
    plan          jsonb NOT NULL DEFAULT '[]',          -- the changes that lead there, in order
    epoch         bigint NOT NULL DEFAULT 0,            -- of its driver; each driver takes the next
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT checkpoint_phase CHECK (phase IN ('PREPARING', 'COMMITTING', 'COMMITTED')),
    CONSTRAINT plan_until_committed CHECK ((phase = 'COMMITTED') = (plan = '[]')),
    CONSTRAINT commit_number_covers_the_plan CHECK (commit_number >= jsonb_array_length(plan)),
    CONSTRAINT epoch_starts_at_0 CHECK (epoch >= 0)
);

-- One row per state of a topology. commit_number is the last change that it has applied.
CREATE TABLE reliability.state (
    topology          text NOT NULL REFERENCES reliability.topology,
    state             text NOT NULL,
    target_table      text NOT NULL,
    definition        jsonb NOT NULL,
    definition_digest text NOT NULL,
    commit_number     bigint NOT NULL DEFAULT 0,
    keep_txids        bigint,                           -- how long contributions can be replaced;
    keep_age          interval,                         -- NULL is for ever
    compacted_through bigint NOT NULL DEFAULT 0,        -- contributions up to it are folded by key
    PRIMARY KEY (topology, state),
    CONSTRAINT one_state_per_target_table UNIQUE (target_table),
    CONSTRAINT keep_txids_starts_at_1 CHECK (keep_txids >= 1)
);

-- --- Txids -------------------------------------------------------------------------------------

-- One row per txid. A transactional spout's batch is frozen at emission, an opaque one's when the
-- txid commits.
CREATE TABLE reliability.transaction (
    topology          text NOT NULL REFERENCES reliability.topology,
    txid              bigint NOT NULL,
    interval_start    timestamptz,
    interval_end      timestamptz,
    dag_id            text NOT NULL,                    -- the run that emitted it
    run_id            text NOT NULL,
    emitted_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    batch_meta        jsonb,
    emitted_xor       bigint,
    emitted_count     bigint,
    verdict           text,                             -- EXACT by XOR and count, or COUNTED
    held_reason       text,                             -- rolled back; held until a person releases it (H4)
    committed_attempt integer,
    commit_number     bigint,
    committed_at      timestamptz,
    PRIMARY KEY (topology, txid),
    CONSTRAINT txid_starts_at_1 CHECK (txid >= 1),
    CONSTRAINT interval_has_both_ends CHECK ((interval_start IS NULL) = (interval_end IS NULL)),
    CONSTRAINT emitted_count_is_no_loss CHECK (emitted_count >= 0),
    CONSTRAINT batch_is_whole CHECK (
        (batch_meta IS NULL) = (emitted_xor IS NULL)
        AND (batch_meta IS NULL) = (emitted_count IS NULL)),
    CONSTRAINT verdict CHECK (verdict IN ('EXACT', 'COUNTED')),
    CONSTRAINT committed_is_whole CHECK (
        (committed_attempt IS NULL) = (committed_at IS NULL)
        AND (committed_attempt IS NULL) = (commit_number IS NULL)),
    CONSTRAINT committed_batch_is_frozen CHECK (
        committed_attempt IS NULL OR batch_meta IS NOT NULL),
    CONSTRAINT committed_batch_has_a_verdict CHECK (
        committed_attempt IS NULL OR verdict IS NOT NULL),
    CONSTRAINT only_the_uncommitted_is_held CHECK (
        held_reason IS NULL OR committed_attempt IS NULL)
);
CREATE INDEX transaction_by_interval ON reliability.transaction (topology, interval_start);
CREATE INDEX transaction_by_run ON reliability.transaction (dag_id, run_id);

-- The source items of each txid. A part of an item is all of it, the rows of some row groups,
-- or a range of keys, and belongs to one txid for ever, whatever the spout's limits are at the time.
CREATE TABLE reliability.source_item (
    topology      text NOT NULL,
    item          text NOT NULL,
    txid          bigint NOT NULL,
    part          int8multirange NOT NULL,
    -- What a refrozen batch still has of the item. The rest is in the target tables until the txid
    -- commits again, and belongs to it until then: emitted under another txid, it would count twice.
    refrozen_part int8multirange,
    PRIMARY KEY (topology, item, txid),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT source_item_part_has_something CHECK (NOT isempty(part)),
    -- Without an extension, GiST cannot compare texts for equality. A hash is compared instead, as a
    -- range of one number. Two items with the same hash (1 in 2^63) exclude each other: an error,
    -- never a row that counts twice. The shift keeps the range's upper bound a bigint.
    CONSTRAINT source_item_belongs_to_one_txid EXCLUDE USING gist (
        int8range(hashtextextended(topology || '/' || item, 0) >> 1,
                  hashtextextended(topology || '/' || item, 0) >> 1, '[]') WITH &&,
        part WITH &&)
);
CREATE INDEX source_item_frozen_anew
    ON reliability.source_item (topology, txid) WHERE refrozen_part IS NOT NULL;

-- Earlier batches of txids that a person refroze because the source was replaced on purpose.
CREATE TABLE reliability.refreeze (
    topology    text NOT NULL,
    txid        bigint NOT NULL,
    refrozen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    batch_meta  jsonb NOT NULL,                         -- the batch until then
    reason      text NOT NULL,
    PRIMARY KEY (topology, txid, refrozen_at),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction
);

-- --- Requests ----------------------------------------------------------------------------------

-- One row each time a run requests a txid; a clear requests it again, with the next number. Only in
-- the coordinator's ledger.
CREATE TABLE reliability.request (
    request_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology       text NOT NULL,
    txid           bigint NOT NULL,
    dag_id         text NOT NULL,
    run_id         text NOT NULL,
    number         integer NOT NULL,
    kind           text NOT NULL,
    is_dry_run     boolean NOT NULL DEFAULT false,      -- report what a replay would change
    status         text NOT NULL DEFAULT 'OPEN',
    reason         text,
    granted_after  integer NOT NULL,                    -- the newest attempt when the request came, or -1
    opened_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at       timestamptz,
    tasks_ended_at timestamptz,                         -- when the run's tasks for the txid had ended
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT request_is_numbered UNIQUE (topology, txid, dag_id, run_id, number),
    CONSTRAINT request_kind CHECK (kind IN ('COMMIT', 'REPLAY')),
    CONSTRAINT dry_run_of_a_replay CHECK (NOT is_dry_run OR kind = 'REPLAY'),
    CONSTRAINT request_status CHECK (status IN (
        'OPEN', 'SATISFIED', 'CLOSED', 'GIVEN_UP', 'PARKED')),
    CONSTRAINT open_request_has_no_end CHECK ((status = 'OPEN') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX one_open_request_per_run_and_txid
    ON reliability.request (topology, txid, dag_id, run_id) WHERE status = 'OPEN';
CREATE INDEX request_by_run ON reliability.request (dag_id, run_id);
CREATE INDEX request_that_ended_without ON reliability.request (dag_id, run_id)
    WHERE status IN ('CLOSED', 'GIVEN_UP');             -- few: runs that ended unsatisfied

-- Each task's try when it first worked for a request, which distinguishes a clear from a retry.
-- max_tries alone is not enough: a clear sets it to the tries so far plus the task's retries, which
-- may be the same number as before.
CREATE TABLE reliability.request_contact (
    request_id   bigint NOT NULL REFERENCES reliability.request,
    task         text NOT NULL,
    max_tries    integer NOT NULL,
    try_id       text NOT NULL DEFAULT '',              -- Airflow's id of the task's try
    clear_number integer NOT NULL DEFAULT 0,            -- increases when any task of the run is cleared
    run_started  text NOT NULL DEFAULT '',              -- differs if the run was created again
    PRIMARY KEY (request_id, task)
);

-- --- Attempts and the acker --------------------------------------------------------------------

-- One row per attempt at a txid, durable before anything runs. The nonce distinguishes two
-- grants of one attempt_id, which may exist after a restore from backup.
CREATE TABLE reliability.attempt (
    topology            text NOT NULL,
    txid                bigint NOT NULL,
    attempt_id          integer NOT NULL,
    nonce               uuid NOT NULL DEFAULT gen_random_uuid(),
    request_id          bigint REFERENCES reliability.request,  -- NULL in a participant
    status              text NOT NULL DEFAULT 'PROCESSING',
    lease               interval NOT NULL,              -- renewed by progress, once the driver runs
    lease_until         timestamptz,
    sealing_task        text,                           -- the task that seals it
    reason_code         text,
    reason              text,
    verdict             text,                           -- PARKED or SKIPPED: an empty attempt
    verdict_reason      text,
    -- An opaque spout's batch belongs to the attempt until its txid commits. It starts where the
    -- batch of the predecessor's attempt ended, refers to that attempt, and commits only after it.
    batch_meta          jsonb,
    emitted_xor         bigint,
    emitted_count       bigint,
    predecessor_attempt integer,
    batch_digest        text,                           -- of the batch that it reads, with any spout
    granted_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    processed_at        timestamptz,
    ended_at            timestamptz,
    cleaned_at          timestamptz,                    -- its staged rows were deleted
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
    claimed_by     text,                                -- the task that runs it
    driver_host    text,
    driver_pid     integer,                             -- the JVM
    python_pid     integer,                             -- the driver's Python, which may outlive the JVM
    application_id text,
    code_digest    text REFERENCES reliability.code,
    claimed_at     timestamptz,
    started_at     timestamptz,                         -- the driver's first message
    ended_at       timestamptz,
    PRIMARY KEY (topology, txid, attempt_id, step),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT step_status CHECK (status IN ('OPEN', 'RUNNING', 'DONE')),
    CONSTRAINT open_step_is_nobodys CHECK (
        (status = 'OPEN') = (claimed_by IS NULL) AND (status = 'OPEN') = (claimed_at IS NULL)),
    CONSTRAINT done_has_an_end CHECK ((status = 'DONE') = (ended_at IS NOT NULL))
);

-- The acker: one row per attempt and sink. ack_val starts as the emitted XOR; acks reduce it to 0.
CREATE TABLE reliability.sink (
    topology            text NOT NULL,
    txid                bigint NOT NULL,
    attempt_id          integer NOT NULL,
    sink                text NOT NULL,
    step                text NOT NULL,
    ack_val             bigint NOT NULL,
    unacked             bigint NOT NULL,
    partitions          integer,                        -- declared when the write action ended
    staged_rows         bigint,                         -- counted when the attempt was sealed
    contribution_digest text,                           -- of the staged rows, folded to a row per key
    PRIMARY KEY (topology, txid, attempt_id, sink),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT partitions_are_counted CHECK (partitions >= 0)
);

-- One row per partition that acked. A second copy of the Spark task finds the row.
CREATE TABLE reliability.ack (
    topology   text NOT NULL,
    txid       bigint NOT NULL,
    attempt_id integer NOT NULL,
    sink       text NOT NULL,
    partition  integer NOT NULL,
    write_id   uuid NOT NULL,                           -- the one write action of this sink
    xor        bigint NOT NULL,
    count      bigint NOT NULL,
    rows       bigint NOT NULL,
    acked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ack_once_per_partition
        PRIMARY KEY (topology, txid, attempt_id, sink, partition),
    FOREIGN KEY (topology, txid, attempt_id, sink) REFERENCES reliability.sink
);

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

-- --- Changes of the states ---------------------------------------------------------------------

-- The header of a txid's contribution to a state. Missing rows are an error unless the header says
-- that there are none. A state that keeps no contributions has headers but no rows. A compacted txid
-- whose keys all occur in later txids has no row left, but is not empty.
CREATE TABLE reliability.contribution (
    topology   text NOT NULL,
    state      text NOT NULL,
    txid       bigint NOT NULL,
    attempt_id integer NOT NULL,
    presence   text NOT NULL,
    rows       bigint NOT NULL,
    PRIMARY KEY (topology, state, txid),
    FOREIGN KEY (topology, state) REFERENCES reliability.state,
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT contribution_presence CHECK (presence IN ('present', 'empty', 'compacted')),
    CONSTRAINT empty_contribution_has_no_rows CHECK (
        rows >= 0 AND (presence = 'compacted' OR (presence = 'empty') = (rows = 0)))
);

-- Every change of the states, in order: a commit, a replay, or a rollback to a txid. After a rollback
-- a txid commits first once more.
CREATE TABLE reliability.commit_log (
    topology         text NOT NULL,
    commit_number    bigint NOT NULL,
    kind             text NOT NULL,
    txid             bigint NOT NULL,
    attempt_id       integer,                           -- NULL for a rollback
    replaced_attempt integer,                           -- of a replay
    rollbacks        integer NOT NULL,                  -- how many there were before this change
    reason           text,
    committed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topology, commit_number),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT change_kind CHECK (kind IN ('COMMIT', 'REPLAY', 'ROLLBACK')),
    CONSTRAINT only_a_rollback_has_no_attempt CHECK (
        (kind = 'ROLLBACK') = (attempt_id IS NULL)),
    CONSTRAINT only_a_replay_replaces CHECK (
        (kind = 'REPLAY') = (replaced_attempt IS NOT NULL))
);
CREATE UNIQUE INDEX one_first_commit_per_txid
    ON reliability.commit_log (topology, txid, rollbacks) WHERE kind = 'COMMIT';

-- What a replay, a rollback or a dry run changed, or would have changed, in the rows of a state.
CREATE TABLE reliability.difference (
    difference_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology      text NOT NULL,
    state         text NOT NULL,
    txid          bigint NOT NULL,                      -- replayed, or rolled back to
    attempt_id    integer,                              -- NULL for a rollback
    commit_number bigint,                               -- NULL for a dry run
    rows_added    bigint NOT NULL,
    rows_changed  bigint NOT NULL,
    rows_removed  bigint NOT NULL,
    moved         jsonb NOT NULL,                       -- value -> the change of its sum
    recorded_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (topology, state) REFERENCES reliability.state
);
CREATE INDEX difference_by_txid ON reliability.difference (topology, txid);

-- One row: the server's timeline at the last check. A restore starts another timeline.
CREATE TABLE reliability.server (
    only_row boolean PRIMARY KEY DEFAULT true,
    timeline integer NOT NULL,
    CONSTRAINT one_server CHECK (only_row)
);

-- --- Triggers ----------------------------------------------------------------------------------
-- They fire with any session_replication_role: a role may have 'replica' as its default.

-- Every topology has a checkpoint.
CREATE FUNCTION reliability.open_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO reliability.checkpoint (topology, commit_number)
    VALUES (NEW.topology, NEW.commit_number);
    RETURN NULL;
END $$;
CREATE TRIGGER topology_has_a_checkpoint AFTER INSERT ON reliability.topology
    FOR EACH ROW EXECUTE FUNCTION reliability.open_checkpoint();
ALTER TABLE reliability.topology ENABLE ALWAYS TRIGGER topology_has_a_checkpoint;

-- Every status of an attempt is recorded.
CREATE FUNCTION reliability.record_attempt_event() RETURNS trigger LANGUAGE plpgsql AS $$
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
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_falls;

-- --- Functions ---------------------------------------------------------------------------------

-- The lease of an attempt after a sign of progress. A step that was submitted and has not started
-- keeps the longer lease, which covers its submission and queueing: the progress of another step
-- says nothing about the cluster's queue.
CREATE FUNCTION reliability.renewed_lease(a reliability.attempt) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN EXISTS (
                SELECT FROM reliability.attempt_step d
                 WHERE d.topology = a.topology AND d.txid = a.txid
                   AND d.attempt_id = a.attempt_id
                   AND d.status = 'RUNNING' AND d.started_at IS NULL)
           THEN greatest(a.lease_until, clock_timestamp() + a.lease)
           ELSE clock_timestamp() + a.lease END
$$;

-- The last statement of a Spark task's transaction, in one round trip with COMMIT.
-- Contract: the attempt is still PROCESSING with this nonce, or RL001 rolls the COPY back;
-- the partition has not acked yet, or unique_violation on ack_once_per_partition. The attempt's
-- row is locked last: a check at the start would let a zombie commit, a lock at the start would
-- let a stalled COPY hold up the topology.
CREATE FUNCTION reliability.acknowledge(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_sink text, p_partition integer, p_write_id uuid,
    p_xor bigint, p_count bigint, p_rows bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.attempt a
       SET lease_until = reliability.renewed_lease(a)
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND nonce = p_nonce AND status = 'PROCESSING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt %:% of % is not processing', p_txid, p_attempt_id, p_topology
            USING ERRCODE = 'RL001';
    END IF;
    INSERT INTO reliability.ack
           (topology, txid, attempt_id, sink, partition, write_id, xor, count, rows)
    VALUES (p_topology, p_txid, p_attempt_id, p_sink, p_partition, p_write_id,
            p_xor, p_count, p_rows);
    UPDATE reliability.sink
       SET ack_val = ack_val # p_xor, unacked = unacked - p_count
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND sink = p_sink;
END $$;

-- The timeline of the log that is being written; the control file shows a promotion only after the
-- next checkpoint. NULL where the server does not report it: managed servers refuse these functions.
CREATE FUNCTION reliability.timeline() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
