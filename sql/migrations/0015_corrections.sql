-- Rows of a source that a person has corrected, after they went into the quarantine. Every later attempt
-- of the txid reads them so; a dry run's are read by the attempts of its request only.
CREATE TABLE reliability.correction (
    correction_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology      text        NOT NULL,
    txid          bigint      NOT NULL,
    xor           bigint      NOT NULL,  -- the id of the row
    was           jsonb       NOT NULL,  -- the values of the corrected columns in the source
    becomes       jsonb       NOT NULL,  -- the values that are read instead
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
    CONSTRAINT correction_changes_something CHECK (becomes <> '{}' AND becomes <> was)
);

CREATE UNIQUE INDEX one_correction_per_row ON reliability.correction (topology, txid, xor)
    WHERE ended_at IS NULL AND request_id IS NULL;
