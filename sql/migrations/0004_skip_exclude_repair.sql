-- What a person leaves out for good, and tables that are brought back to their contributions.

-- Txids that are skipped: they count as done without their batch until a person takes that back.
CREATE TABLE reliability.skip (
    topology     text NOT NULL,
    txid         bigint NOT NULL,
    skipped_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    skipped_by   text NOT NULL,
    reason       text NOT NULL,
    ended_at     timestamptz,                           -- `reliability unskip`
    ended_by     text,
    ended_reason text,
    PRIMARY KEY (topology, txid, skipped_at),
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction,
    CONSTRAINT unskip_is_whole CHECK (
        (ended_at IS NULL) = (ended_by IS NULL) AND (ended_at IS NULL) = (ended_reason IS NULL))
);
CREATE UNIQUE INDEX one_skip_per_txid ON reliability.skip (topology, txid) WHERE ended_at IS NULL;

-- Txids that were skipped before this table existed.
INSERT INTO reliability.skip (topology, txid, skipped_at, skipped_by, reason)
SELECT a.topology, a.txid, a.granted_at, 'not recorded', a.verdict_reason
  FROM reliability.attempt a
  JOIN reliability.topology p ON p.topology = a.topology AND p.participant IS NULL
 WHERE a.verdict = 'SKIPPED' AND a.status IN ('PROCESSED', 'COMMITTED');

-- Source items that are excluded: attempts read their batches without them, and no run emits them.
CREATE TABLE reliability.exclusion (
    topology     text NOT NULL REFERENCES reliability.topology,
    item         text NOT NULL,
    excluded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    excluded_by  text NOT NULL,
    reason       text NOT NULL,
    ended_at     timestamptz,                           -- `reliability include`
    ended_by     text,
    ended_reason text,
    PRIMARY KEY (topology, item, excluded_at),
    CONSTRAINT inclusion_is_whole CHECK (
        (ended_at IS NULL) = (ended_by IS NULL) AND (ended_at IS NULL) = (ended_reason IS NULL))
);
CREATE UNIQUE INDEX one_exclusion_per_item
    ON reliability.exclusion (topology, item) WHERE ended_at IS NULL;

-- A repair writes rows as their contributions say. Its txid is the last one that had committed.
ALTER TABLE reliability.commit_log
    DROP CONSTRAINT change_kind,
    DROP CONSTRAINT only_a_rollback_has_no_attempt,
    ADD CONSTRAINT change_kind CHECK (kind IN ('COMMIT', 'REPLAY', 'ROLLBACK', 'REPAIR')),
    ADD CONSTRAINT only_a_rollback_or_a_repair_has_no_attempt CHECK (
        (kind IN ('ROLLBACK', 'REPAIR')) = (attempt_id IS NULL));

-- Rows that a change found other than their contributions said, and wrote as these said. They are not
-- part of the difference: somebody else had changed them.
ALTER TABLE reliability.difference ADD COLUMN by_hand jsonb;
