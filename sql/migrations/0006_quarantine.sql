-- The rows that an attempt has put into the quarantine. They count from its commit on, and as long
-- as it is its txid's committed attempt.
CREATE TABLE reliability.quarantined_row (
    topology   text    NOT NULL,
    txid       bigint  NOT NULL,
    attempt_id integer NOT NULL,
    step       text    NOT NULL,
    number     integer NOT NULL,
    reason     text    NOT NULL,
    item       text,              -- the file that it is from
    row        bigint,            -- its index there, from 0
    contents   text    NOT NULL,  -- its columns as JSON
    -- Its columns that are as in the source, with the source's values, as JSON. NULL: it cannot be
    -- corrected, because it is not one row of the batch.
    source     text,
    is_cut     boolean NOT NULL,  -- the contents were too long
    xor        bigint  NOT NULL,  -- of the source rows in it, and their number
    count      bigint  NOT NULL,
    PRIMARY KEY (topology, txid, attempt_id, step, number),
    FOREIGN KEY (topology, txid, attempt_id)
        REFERENCES reliability.attempt (topology, txid, attempt_id),
    CONSTRAINT quarantined_row_has_a_reason CHECK (reason <> '')
);

-- Rows in quarantine: those of committed attempts.
CREATE VIEW reliability.quarantine AS
SELECT q.topology, q.txid, t.interval_start, t.interval_end, q.step, q.number, q.reason, q.item,
       q.row, q.contents, q.is_cut, q.xor, q.count, a.attempt_id, a.ended_at AS committed_at,
       q.source, t.interval_zone
  FROM reliability.quarantined_row q
  JOIN reliability.attempt a USING (topology, txid, attempt_id)
  JOIN reliability.transaction t USING (topology, txid)
 WHERE a.status = 'COMMITTED';

-- Rows of a source that a person has corrected, after they went into the quarantine. Every later
-- attempt of the txid reads them so; a dry run's are read by the attempts of its request only.
CREATE TABLE reliability.correction (
    correction_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology      text        NOT NULL,
    txid          bigint      NOT NULL,
    xor           bigint      NOT NULL,          -- the id of the row then
    item          text,                          -- the file that it is from
    row           bigint,                        -- its index there, from 0
    was           text        NOT NULL,          -- the values of its columns in the source, as JSON
    becomes       text        NOT NULL,          -- the values that are read instead of some of them
    reason        text        NOT NULL,
    corrected_by  text        NOT NULL,
    corrected_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    request_id    bigint      REFERENCES reliability.request (request_id),  -- a dry run's
    ended_at      timestamptz,
    ended_reason  text,
    FOREIGN KEY (topology, txid) REFERENCES reliability.transaction (topology, txid),
    CONSTRAINT correction_says_why CHECK (reason <> ''),
    CONSTRAINT correction_that_ended_says_why
        CHECK ((ended_at IS NULL) = (ended_reason IS NULL) AND ended_reason <> ''),
    CONSTRAINT correction_changes_something CHECK (becomes <> '{}')
);

-- A row is found by its file and its index there; by its id if they are not known.
CREATE UNIQUE INDEX one_correction_per_row
    ON reliability.correction (topology, txid, coalesce(item, ''), coalesce("row", xor))
    WHERE ended_at IS NULL AND request_id IS NULL;
