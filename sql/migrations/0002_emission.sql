-- What runs emit: their emissions, the txids, what each of them reads, and what a person leaves
-- out.

-- One row per run of a DAG that has tried to emit. No foreign key: an emission may fail before its
-- topology is declared.
CREATE TABLE reliability.emission (
    topology       text NOT NULL,
    dag_id         text NOT NULL,
    run_id         text NOT NULL,
    task_id        text NOT NULL DEFAULT 'emit',          -- the task that emits
    interval_start timestamptz,
    interval_end   timestamptz,
    interval_zone  text,  -- in which the interval is written; NULL is UTC
    status         text NOT NULL DEFAULT 'EMITTING',
    began_at       timestamptz NOT NULL DEFAULT clock_timestamp(),  -- the last try
    ended_at       timestamptz,
    failing_since  timestamptz,                           -- the first failure since it last emitted
    reason_code    text,
    reason         text,
    remedy         text,                                  -- unless it is that of the code
    PRIMARY KEY (topology, dag_id, run_id),
    CONSTRAINT emission_interval_has_both_ends CHECK (
        (interval_start IS NULL) = (interval_end IS NULL)),
    CONSTRAINT emission_status CHECK (status IN ('EMITTING', 'EMITTED', 'FAILED')),
    CONSTRAINT emission_that_ended_has_an_end CHECK ((status = 'EMITTING') = (ended_at IS NULL)),
    CONSTRAINT failed_emission_says_why CHECK (
        (status = 'FAILED') = (reason_code IS NOT NULL)
        AND (reason_code IS NULL) = (reason IS NULL)
        AND (remedy IS NULL OR reason_code IS NOT NULL)
        AND (status <> 'FAILED' OR failing_since IS NOT NULL))
);
CREATE INDEX emission_by_interval ON reliability.emission (topology, interval_start, interval_end);
-- The last ones are asked for again and again, and `@continuous` makes thousands a day.
CREATE INDEX emission_by_time ON reliability.emission (topology, began_at DESC);
CREATE INDEX emission_unfinished ON reliability.emission (topology, interval_start)
    WHERE status <> 'EMITTED';
CREATE INDEX emission_by_schedule ON reliability.emission (topology, interval_start)
    WHERE starts_with(run_id, 'scheduled__');

-- The intervals that runs have tried to emit, those that touch each other as one: who asks for the
-- gaps does not read every run.
CREATE TABLE reliability.tried_time (
    topology  text PRIMARY KEY,
    intervals tstzmultirange NOT NULL
);

CREATE FUNCTION reliability.add_tried_time() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO reliability.tried_time AS t (topology, intervals)
    SELECT topology, range_agg(tstzrange(interval_start, interval_end)) FROM begun
     WHERE interval_start IS NOT NULL GROUP BY topology
    ON CONFLICT (topology) DO UPDATE SET intervals = t.intervals + excluded.intervals
     WHERE NOT t.intervals @> excluded.intervals;
    RETURN NULL;
END $$;
CREATE TRIGGER emission_begins AFTER INSERT ON reliability.emission
    REFERENCING NEW TABLE AS begun
    FOR EACH STATEMENT EXECUTE FUNCTION reliability.add_tried_time();
ALTER TABLE reliability.emission ENABLE ALWAYS TRIGGER emission_begins;

-- A run that has got another interval has not tried its former one. Contract: it locks the row, so
-- that it counts what others add until then.
CREATE FUNCTION reliability.count_tried_time() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO reliability.tried_time VALUES (NEW.topology, '{}') ON CONFLICT DO NOTHING;
    PERFORM FROM reliability.tried_time WHERE topology = NEW.topology FOR UPDATE;
    UPDATE reliability.tried_time
       SET intervals = coalesce((SELECT range_agg(tstzrange(interval_start, interval_end))
                                   FROM reliability.emission
                                  WHERE topology = NEW.topology AND interval_start IS NOT NULL), '{}')
     WHERE topology = NEW.topology;
    RETURN NULL;
END $$;
CREATE TRIGGER emission_moves AFTER UPDATE OF interval_start, interval_end
    ON reliability.emission FOR EACH ROW
    WHEN ((OLD.interval_start, OLD.interval_end)
          IS DISTINCT FROM (NEW.interval_start, NEW.interval_end))
    EXECUTE FUNCTION reliability.count_tried_time();
ALTER TABLE reliability.emission ENABLE ALWAYS TRIGGER emission_moves;

-- The schedule of the DAG that emits a topology, as its last emission has recorded it.
CREATE TABLE reliability.schedule (
    topology      text PRIMARY KEY,
    dag_id        text NOT NULL,
    cron          text,
    time_zone     text,
    period        interval,
    not_evaluated text,  -- why intervals cannot be computed
    first_start   timestamptz,
    last_start    timestamptz,
    catchup       boolean NOT NULL,
    interval_zone text,  -- in which the intervals are written; NULL is UTC
    recorded_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT schedule_is_of_one_kind CHECK (num_nonnulls(cron, period, not_evaluated) = 1),
    CONSTRAINT cron_has_a_time_zone CHECK ((cron IS NULL) = (time_zone IS NULL)),
    CONSTRAINT schedule_period_is_positive CHECK (period > interval '0')
);

-- One row per txid. A transactional spout's batch is frozen at emission, an opaque one's when the
-- txid commits.
CREATE TABLE reliability.transaction (
    topology          text NOT NULL REFERENCES reliability.topology,
    txid              bigint NOT NULL,
    interval_start    timestamptz,
    interval_end      timestamptz,
    interval_zone     text,           -- in which the interval is written; NULL is UTC
    dag_id            text NOT NULL,  -- the run that emitted it
    run_id            text NOT NULL,
    emitted_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    batch_meta        jsonb,
    emitted_xor       bigint,
    emitted_count     bigint,
    verdict           text,           -- EXACT by XOR and count, or COUNTED
    held_reason       text,           -- rolled back; held until a person releases it (H4)
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

-- So that no query of a task, a sweep or `reliability status` reads every txid that has committed.
CREATE INDEX uncommitted_transaction ON reliability.transaction (topology, txid)
    WHERE committed_attempt IS NULL;

-- The source items of each txid. A part of an item is all of it, the rows of some row groups, or a
-- range of keys, and belongs to one txid for ever, whatever the spout's limits are at the time.
CREATE TABLE reliability.source_item (
    topology      text NOT NULL,
    item          text NOT NULL,
    txid          bigint NOT NULL,
    part          int8multirange NOT NULL,
    -- What a refrozen batch still has of the item. The rest is in the target tables until the txid
    -- commits again, and is its own until then: emitted under another txid, it would count twice.
    refrozen_part int8multirange,
    PRIMARY KEY (topology, item, txid),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT source_item_part_has_something CHECK (NOT isempty(part)),
    -- Without an extension, GiST cannot compare texts. A hash is compared instead, as a range of
    -- one number. Two items with the same hash (1 in 2^63) exclude each other: an error, never a
    -- row that counts twice. The shift keeps the range's upper bound a bigint.
    CONSTRAINT source_item_belongs_to_one_txid EXCLUDE USING gist (
        int8range(hashtextextended(topology || '/' || item, 0) >> 1,
                  hashtextextended(topology || '/' || item, 0) >> 1, '[]') WITH &&,
        part WITH &&)
);
CREATE INDEX source_item_frozen_anew
    ON reliability.source_item (topology, txid) WHERE refrozen_part IS NOT NULL;

-- Earlier batches of txids that a person refroze because the source was replaced on purpose, with
-- what was emitted of them.
CREATE TABLE reliability.refreeze (
    topology      text NOT NULL,
    txid          bigint NOT NULL,
    number        bigint GENERATED ALWAYS AS IDENTITY,  -- a clock may be set back
    next_attempt  integer NOT NULL,  -- the first one that reads what was frozen then
    refrozen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    batch_meta    jsonb NOT NULL,  -- the batch until then
    emitted_xor   bigint NOT NULL,
    emitted_count bigint NOT NULL,
    reason        text NOT NULL,
    PRIMARY KEY (topology, txid, number),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction
);

-- Txids that are skipped: they count as done without their batch until a person takes that back.
CREATE TABLE reliability.skip (
    topology     text NOT NULL,
    txid         bigint NOT NULL,
    skipped_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    skipped_by   text NOT NULL,
    reason       text NOT NULL,
    ended_at     timestamptz,  -- `reliability unskip`
    ended_by     text,
    ended_reason text,
    PRIMARY KEY (topology, txid, skipped_at),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT unskip_is_whole CHECK (
        (ended_at IS NULL) = (ended_by IS NULL) AND (ended_at IS NULL) = (ended_reason IS NULL))
);
CREATE UNIQUE INDEX one_skip_per_txid ON reliability.skip (topology, txid) WHERE ended_at IS NULL;

-- Source items that are excluded: attempts read their batches without them, and no run emits them.
CREATE TABLE reliability.exclusion (
    topology     text NOT NULL REFERENCES reliability.topology,
    item         text NOT NULL,
    excluded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    excluded_by  text NOT NULL,
    reason       text NOT NULL,
    after_txid   bigint NOT NULL,  -- the last txid that had been emitted
    ended_at     timestamptz,      -- `reliability include`
    ended_by     text,
    ended_reason text,
    PRIMARY KEY (topology, item, excluded_at),
    CONSTRAINT inclusion_is_whole CHECK (
        (ended_at IS NULL) = (ended_by IS NULL) AND (ended_at IS NULL) = (ended_reason IS NULL))
);
CREATE UNIQUE INDEX one_exclusion_per_item
    ON reliability.exclusion (topology, item) WHERE ended_at IS NULL;
