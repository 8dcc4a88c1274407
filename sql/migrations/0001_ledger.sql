-- The ledger: what counts, and who may make it count. It lives beside the target tables, so
-- that effect and record are one local transaction. Contributions (the staged rows of every
-- attempt) lie in reliability_contribution, a table per state, made when the state is declared.

CREATE SCHEMA reliability_contribution;

-- One row a topology. Whoever locks it decides; txids come from it, because a sequence has gaps.
CREATE TABLE reliability.topology (
    topology          text PRIMARY KEY,
    curr_txid         bigint NOT NULL DEFAULT 1,   -- the only txid that may commit first
    next_txid         bigint NOT NULL DEFAULT 1,   -- the next one to be allocated
    max_spout_pending integer NOT NULL,
    commit_number     bigint NOT NULL DEFAULT 0,   -- c: every change of the states takes the next
    declared_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT curr_txid_within_allocated CHECK (curr_txid BETWEEN 1 AND next_txid),
    CONSTRAINT max_spout_pending_starts_at_1 CHECK (max_spout_pending >= 1)
);

-- One row a state; commit_number says which change of the topology's states it has applied.
CREATE TABLE reliability.state (
    topology          text NOT NULL REFERENCES reliability.topology,
    state             text NOT NULL,
    target_table      text NOT NULL,
    definition        jsonb NOT NULL,
    definition_digest text NOT NULL,
    commit_number     bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (topology, state),
    CONSTRAINT one_state_per_target_table UNIQUE (target_table)
);

-- One row a txid, with the batch that it always reads.
CREATE TABLE reliability.transaction (
    topology          text NOT NULL REFERENCES reliability.topology,
    txid              bigint NOT NULL,
    batch_meta        jsonb NOT NULL,
    emitted_xor       bigint NOT NULL,
    emitted_count     bigint NOT NULL,
    interval_start    timestamptz,
    interval_end      timestamptz,
    dag_id            text NOT NULL,               -- the run that emitted it
    run_id            text NOT NULL,
    emitted_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_attempt integer,
    commit_number     bigint,
    committed_at      timestamptz,
    PRIMARY KEY (topology, txid),
    CONSTRAINT txid_starts_at_1 CHECK (txid >= 1),
    CONSTRAINT emitted_count_is_no_loss CHECK (emitted_count >= 0),
    CONSTRAINT interval_has_both_ends CHECK ((interval_start IS NULL) = (interval_end IS NULL)),
    CONSTRAINT committed_is_whole CHECK (
        (committed_attempt IS NULL) = (committed_at IS NULL)
        AND (committed_attempt IS NULL) = (commit_number IS NULL))
);
CREATE INDEX transaction_by_interval ON reliability.transaction (topology, interval_start);
CREATE INDEX transaction_by_run ON reliability.transaction (dag_id, run_id);

-- A source item belongs to at most one txid of a topology, whatever the interval.
CREATE TABLE reliability.source_item (
    topology text NOT NULL,
    item     text NOT NULL,
    txid     bigint NOT NULL,
    CONSTRAINT source_item_belongs_to_one_txid PRIMARY KEY (topology, item),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction
);

-- Who wants a txid done. The number is the ledger's: dag_run.clear_number rises for a whole run.
CREATE TABLE reliability.request (
    request_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology      text NOT NULL,
    txid          bigint NOT NULL,
    dag_id        text NOT NULL,
    run_id        text NOT NULL,
    number        integer NOT NULL,
    kind          text NOT NULL,
    status        text NOT NULL DEFAULT 'OPEN',
    granted_after integer NOT NULL,                -- the newest attempt when the request came, or -1
    reason        text,
    opened_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at      timestamptz,
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT request_is_numbered UNIQUE (topology, txid, dag_id, run_id, number),
    CONSTRAINT request_kind CHECK (kind IN ('COMMIT', 'REPLAY')),
    CONSTRAINT request_status CHECK (status IN ('OPEN', 'SATISFIED', 'CLOSED', 'GIVEN_UP')),
    CONSTRAINT open_request_has_no_end CHECK ((status = 'OPEN') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX one_open_request_per_run_and_txid
    ON reliability.request (topology, txid, dag_id, run_id) WHERE status = 'OPEN';
CREATE INDEX request_by_run ON reliability.request (dag_id, run_id);

-- What tells a clear from a retry: ti.max_tries when a task first worked for a request.
CREATE TABLE reliability.request_contact (
    request_id bigint NOT NULL REFERENCES reliability.request,
    task       text NOT NULL,
    max_tries  integer NOT NULL,
    PRIMARY KEY (request_id, task)
);

-- One row a try, durable before anything runs. The nonce tells two grants of one id apart.
CREATE TABLE reliability.attempt (
    topology       text NOT NULL,
    txid           bigint NOT NULL,
    attempt_id     integer NOT NULL,
    nonce          uuid NOT NULL DEFAULT gen_random_uuid(),
    request_id     bigint NOT NULL REFERENCES reliability.request,
    status         text NOT NULL DEFAULT 'PROCESSING',
    lease          interval NOT NULL,              -- renewed by progress, once the driver runs
    lease_until    timestamptz,
    driver_host    text,
    driver_pid     integer,                        -- the JVM
    python_pid     integer,                        -- the driver's Python, which may outlive it
    application_id text,
    reason_code    text,
    reason         text,
    granted_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at     timestamptz,                    -- the driver's first message
    processed_at   timestamptz,
    ended_at       timestamptz,
    cleaned_at     timestamptz,                    -- its staged rows are gone
    PRIMARY KEY (topology, txid, attempt_id),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT attempt_id_starts_at_0 CHECK (attempt_id >= 0),
    CONSTRAINT attempt_status CHECK (status IN (
        'PROCESSING', 'SEALING', 'PROCESSED', 'COMMITTED', 'REPLACED', 'FAILED', 'FENCED')),
    CONSTRAINT lease_while_unsealed CHECK (
        (status IN ('PROCESSING', 'SEALING')) = (lease_until IS NOT NULL)),
    CONSTRAINT only_what_cannot_count_is_cleaned CHECK (
        cleaned_at IS NULL OR status IN ('FAILED', 'FENCED', 'REPLACED')),
    CONSTRAINT ended_says_why CHECK (
        (status IN ('FAILED', 'FENCED')) = (reason_code IS NOT NULL))
);
CREATE UNIQUE INDEX one_live_attempt_per_txid ON reliability.attempt (topology, txid)
    WHERE status IN ('PROCESSING', 'SEALING', 'PROCESSED');
CREATE UNIQUE INDEX one_committed_attempt_per_txid ON reliability.attempt (topology, txid)
    WHERE status = 'COMMITTED';

-- The acker, a row per attempt and sink: ack_val starts as the emitted XOR, acks take it to 0.
CREATE TABLE reliability.sink (
    topology    text NOT NULL,
    txid        bigint NOT NULL,
    attempt_id  integer NOT NULL,
    sink        text NOT NULL,
    ack_val     bigint NOT NULL,
    unacked     bigint NOT NULL,
    partitions  integer,                           -- declared when the write action ended
    staged_rows bigint,                            -- counted when the attempt was sealed
    PRIMARY KEY (topology, txid, attempt_id, sink),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT partitions_are_counted CHECK (partitions >= 0)
);

-- One row per Spark task that counted; a second copy of the task finds its row here.
CREATE TABLE reliability.ack (
    topology   text NOT NULL,
    txid       bigint NOT NULL,
    attempt_id integer NOT NULL,
    sink       text NOT NULL,
    partition  integer NOT NULL,
    write_id   uuid NOT NULL,                      -- the one write action of this sink
    xor        bigint NOT NULL,
    count      bigint NOT NULL,
    rows       bigint NOT NULL,
    acked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ack_once_per_partition
        PRIMARY KEY (topology, txid, attempt_id, sink, partition),
    FOREIGN KEY (topology, txid, attempt_id, sink) REFERENCES reliability.sink
);

-- What a txid has in a state. Rows missing without a header that says so are an error, never zero.
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
    CONSTRAINT contribution_presence CHECK (presence IN ('present', 'empty')),
    CONSTRAINT empty_contribution_has_no_rows CHECK ((presence = 'empty') = (rows = 0))
);

-- Every change of the states, in its order.
CREATE TABLE reliability.commit_log (
    topology         text NOT NULL,
    commit_number    bigint NOT NULL,
    txid             bigint NOT NULL,
    attempt_id       integer NOT NULL,
    replaced_attempt integer,                      -- NULL for a first commit
    committed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topology, commit_number),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt
);
CREATE UNIQUE INDEX one_first_commit_per_txid
    ON reliability.commit_log (topology, txid) WHERE replaced_attempt IS NULL;

-- The story of every attempt, written by trigger, so that no caller can forget it.
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

-- The last statement of a Spark task's transaction, in one round trip with COMMIT.
-- Contract: the attempt is still PROCESSING under this nonce, else RL001 and the COPY rolls back;
-- the partition has not acked yet, else unique_violation on ack_once_per_partition. The attempt's
-- row is locked last: a check at the start would let a zombie commit, a lock at the start would
-- let a stalled COPY hold up the topology.
CREATE FUNCTION reliability.acknowledge(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_sink text, p_partition integer, p_write_id uuid,
    p_xor bigint, p_count bigint, p_rows bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.attempt
       SET lease_until = clock_timestamp() + lease
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
