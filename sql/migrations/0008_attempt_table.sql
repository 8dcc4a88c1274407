-- An attempt with many rows to append stages them in a table of its own, without an index. The
-- commit copies them into the target and drops the table: nothing has to be deleted row by row.
CREATE TABLE reliability.attempt_table (
    table_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology   text NOT NULL,
    state      text NOT NULL,
    txid       bigint NOT NULL,
    attempt_id integer NOT NULL,
    bytes      bigint,                              -- its size when it was sealed; it never changes
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT one_table_per_attempt_and_state UNIQUE (topology, state, txid, attempt_id)
);
