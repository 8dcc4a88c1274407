-- History: what a replay changes, rollback to a txid, park and skip, dry runs, compaction.

-- Where the code of a topology is found, for who replays without Airflow; how many replays may be
-- processed at once; and how often the topology was rolled back.
ALTER TABLE reliability.topology
    ADD COLUMN module text NOT NULL DEFAULT '',
    ADD COLUMN max_replay_pending integer NOT NULL DEFAULT 1,
    ADD COLUMN rollbacks integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT max_replay_pending_starts_at_1 CHECK (max_replay_pending >= 1);
UPDATE reliability.topology SET max_replay_pending = max_spout_pending;

-- How long a state keeps contributions that can be replaced; NULL is for ever. What is older is
-- folded to one row a key. `compacted_through`: no txid up to this one can be replaced any more.
ALTER TABLE reliability.state
    ADD COLUMN keep_txids bigint,
    ADD COLUMN keep_age interval,
    ADD COLUMN compacted_through bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT keep_txids_starts_at_1 CHECK (keep_txids >= 1);

-- Held: rolled back, and kept from being processed until a person releases it (H4).
ALTER TABLE reliability.transaction
    ADD COLUMN held_reason text,
    ADD CONSTRAINT only_the_uncommitted_is_held CHECK (
        held_reason IS NULL OR committed_attempt IS NULL);

-- A dry run processes a committed txid again and tells what a replay would change; nothing stays.
ALTER TABLE reliability.request
    ADD COLUMN is_dry_run boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT dry_run_of_a_replay CHECK (NOT is_dry_run OR kind = 'REPLAY'),
    DROP CONSTRAINT request_status,
    ADD CONSTRAINT request_status CHECK (status IN (
        'OPEN', 'SATISFIED', 'CLOSED', 'GIVEN_UP', 'PARKED'));

-- What ran: the code, by its fingerprint, of each step; the batch, by its digest.
CREATE TABLE reliability.code (
    digest   text PRIMARY KEY,
    contents jsonb NOT NULL,                       -- {"modules": {name: digest}, "packages": {name: version}}
    seen_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE reliability.attempt_step ADD COLUMN code_digest text REFERENCES reliability.code;
ALTER TABLE reliability.attempt
    ADD COLUMN batch_digest text,
    ADD COLUMN verdict text,                       -- of an empty attempt, that a person put there
    ADD COLUMN verdict_reason text,
    ADD CONSTRAINT attempt_verdict CHECK (verdict IN ('PARKED', 'SKIPPED')),
    ADD CONSTRAINT verdict_says_why CHECK ((verdict IS NULL) = (verdict_reason IS NULL)),
    DROP CONSTRAINT ended_says_why,
    ADD CONSTRAINT ended_says_why CHECK (
        (status IN ('FAILED', 'FENCED', 'ROLLED_BACK')) = (reason_code IS NOT NULL)),
    DROP CONSTRAINT attempt_status,
    ADD CONSTRAINT attempt_status CHECK (status IN (
        'PROCESSING', 'SEALING', 'PROCESSED', 'COMMITTED', 'REPLACED', 'FAILED', 'FENCED',
        'REHEARSED', 'ROLLED_BACK')),
    DROP CONSTRAINT only_what_cannot_count_is_cleaned,
    ADD CONSTRAINT only_what_cannot_count_is_cleaned CHECK (cleaned_at IS NULL OR status IN (
        'FAILED', 'FENCED', 'REPLACED', 'REHEARSED', 'ROLLED_BACK'));
-- Of what was staged, folded to a row a key, so that it does not depend on Spark's partitions.
ALTER TABLE reliability.sink ADD COLUMN contribution_digest text;

-- A rollback is a change of the states like a commit, to the txid that it names. After it a txid
-- commits first once more.
ALTER TABLE reliability.commit_log
    ADD COLUMN kind text,
    ADD COLUMN reason text,
    ADD COLUMN rollbacks integer NOT NULL DEFAULT 0,
    ALTER COLUMN attempt_id DROP NOT NULL;
UPDATE reliability.commit_log
   SET kind = CASE WHEN replaced_attempt IS NULL THEN 'COMMIT' ELSE 'REPLAY' END;
ALTER TABLE reliability.commit_log
    ALTER COLUMN kind SET NOT NULL,
    ALTER COLUMN rollbacks DROP DEFAULT,
    ADD CONSTRAINT change_kind CHECK (kind IN ('COMMIT', 'REPLAY', 'ROLLBACK')),
    ADD CONSTRAINT only_a_rollback_has_no_attempt CHECK (
        (kind = 'ROLLBACK') = (attempt_id IS NULL)),
    ADD CONSTRAINT only_a_replay_replaces CHECK (
        (kind = 'REPLAY') = (replaced_attempt IS NOT NULL));
DROP INDEX reliability.one_first_commit_per_txid;
CREATE UNIQUE INDEX one_first_commit_per_txid
    ON reliability.commit_log (topology, txid, rollbacks) WHERE kind = 'COMMIT';

-- What a replay, a rollback or a dry run changed, or would have changed, in the rows of a state.
CREATE TABLE reliability.difference (
    difference_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology      text NOT NULL,
    state         text NOT NULL,
    txid          bigint NOT NULL,                 -- replayed, or rolled back to
    attempt_id    integer,                         -- NULL for a rollback
    commit_number bigint,                          -- NULL for a dry run
    rows_added    bigint NOT NULL,
    rows_changed  bigint NOT NULL,
    rows_removed  bigint NOT NULL,
    moved         jsonb NOT NULL,                  -- value -> its sum after less its sum before
    recorded_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (topology, state) REFERENCES reliability.state
);
CREATE INDEX difference_by_txid ON reliability.difference (topology, txid);

-- Batches that a person had frozen anew, because the source was exchanged on purpose.
CREATE TABLE reliability.refreeze (
    topology    text NOT NULL,
    txid        bigint NOT NULL,
    refrozen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    batch_meta  jsonb NOT NULL,                    -- what it was until then
    reason      text NOT NULL,
    PRIMARY KEY (topology, txid, refrozen_at),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction
);
