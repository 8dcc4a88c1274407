-- What a run was to emit and did not, and which intervals should exist.

-- One row per run of a DAG that has tried to emit. No foreign key: an emission may fail before its
-- topology is declared.
CREATE TABLE reliability.emission (
    topology       text NOT NULL,
    dag_id         text NOT NULL,
    run_id         text NOT NULL,
    interval_start timestamptz,
    interval_end   timestamptz,
    status         text NOT NULL DEFAULT 'EMITTING',
    began_at       timestamptz NOT NULL DEFAULT clock_timestamp(),  -- the last try
    ended_at       timestamptz,
    failing_since  timestamptz,                         -- the first failure since it last emitted
    reason_code    text,
    reason         text,
    PRIMARY KEY (topology, dag_id, run_id),
    CONSTRAINT emission_interval_has_both_ends CHECK (
        (interval_start IS NULL) = (interval_end IS NULL)),
    CONSTRAINT emission_status CHECK (status IN ('EMITTING', 'EMITTED', 'FAILED')),
    CONSTRAINT emission_that_ended_has_an_end CHECK ((status = 'EMITTING') = (ended_at IS NULL)),
    CONSTRAINT failed_emission_says_why CHECK (
        (status = 'FAILED') = (reason_code IS NOT NULL)
        AND (reason_code IS NULL) = (reason IS NULL)
        AND (status <> 'FAILED' OR failing_since IS NOT NULL))
);
CREATE INDEX emission_by_interval ON reliability.emission (topology, interval_start, interval_end);

-- What was emitted before this table existed.
INSERT INTO reliability.emission (topology, dag_id, run_id, interval_start, interval_end, status,
       began_at, ended_at)
SELECT DISTINCT ON (topology, dag_id, run_id)
       topology, dag_id, run_id, interval_start, interval_end, 'EMITTED', emitted_at, emitted_at
  FROM reliability.transaction
 ORDER BY topology, dag_id, run_id, txid DESC;

-- The schedule of the DAG that emits a topology, as its last emission has recorded it.
CREATE TABLE reliability.schedule (
    topology      text PRIMARY KEY,
    dag_id        text NOT NULL,
    cron          text,
    time_zone     text,
    period        interval,
    not_evaluated text,                                 -- why intervals cannot be computed
    first_start   timestamptz,
    last_start    timestamptz,
    catchup       boolean NOT NULL,
    recorded_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT schedule_is_of_one_kind CHECK (num_nonnulls(cron, period, not_evaluated) = 1),
    CONSTRAINT cron_has_a_time_zone CHECK ((cron IS NULL) = (time_zone IS NULL)),
    CONSTRAINT schedule_period_is_positive CHECK (period > interval '0')
);
