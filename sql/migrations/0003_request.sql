-- Which run requests which txid.

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
    is_dry_run     boolean NOT NULL DEFAULT false,  -- report what a replay would change
    status         text NOT NULL DEFAULT 'OPEN',
    reason         text,
    granted_after  integer NOT NULL,        -- the newest attempt when the request came, or -1
    opened_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at       timestamptz,
    tasks_ended_at timestamptz,             -- when the run's tasks for the txid had ended
    is_done_in_airflow boolean NOT NULL DEFAULT false,  -- its commit task had not failed by then
    problem_code   text,                    -- what a task has met before an attempt could begin,
    problem        text,                    -- and no attempt could tell; NULL again when one begins
    problem_remedy text,                    -- unless it is that of the code
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT request_is_numbered UNIQUE (topology, txid, dag_id, run_id, number),
    CONSTRAINT request_kind CHECK (kind IN ('COMMIT', 'REPLAY')),
    CONSTRAINT dry_run_of_a_replay CHECK (NOT is_dry_run OR kind = 'REPLAY'),
    CONSTRAINT request_status CHECK (status IN (
        'OPEN', 'SATISFIED', 'CLOSED', 'GIVEN_UP', 'PARKED')),
    CONSTRAINT open_request_has_no_end CHECK ((status = 'OPEN') = (ended_at IS NULL)),
    CONSTRAINT problem_has_a_code CHECK ((problem IS NULL) = (problem_code IS NULL)),
    CONSTRAINT remedy_is_of_a_problem CHECK (problem_remedy IS NULL OR problem_code IS NOT NULL)
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
    try_id       text NOT NULL DEFAULT '',    -- Airflow's id of the task's try
    clear_number integer NOT NULL DEFAULT 0,  -- increases when any task of the run is cleared
    run_started  text NOT NULL DEFAULT '',    -- differs if the run was created again
    PRIMARY KEY (request_id, task)
);
