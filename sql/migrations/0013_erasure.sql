-- What was erased of a topology, and the keys whose rows every later attempt leaves out (H12).
--
-- Code that does not know this file would stage these rows again, so it does not go on (S7).

-- One row per `reliability erase`.
CREATE TABLE reliability.erasure (
    erasure_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology      text NOT NULL REFERENCES reliability.topology,
    erased_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    erased_by     text NOT NULL,
    reason        text NOT NULL,
    commit_number bigint NOT NULL,  -- c at that time
    counts        jsonb NOT NULL,   -- what -> how many were deleted
    CONSTRAINT erasure_says_why CHECK (reason <> '')
);
CREATE INDEX erasure_by_topology ON reliability.erasure (topology);

-- The persons: of each a salted SHA-256 of the value, never the value. The keys of a topology have
-- one salt. A reader of monitors has no right on it: who has the salt can try values.
CREATE TABLE reliability.erased_key (
    topology    text NOT NULL,
    column_name text NOT NULL,
    salt        text NOT NULL,
    key_hash    text NOT NULL,
    erasure_id  bigint NOT NULL REFERENCES reliability.erasure,  -- the first one
    CONSTRAINT erased_key_once PRIMARY KEY (topology, column_name, salt, key_hash),
    CONSTRAINT erased_key_has_a_salt CHECK (salt ~ '^[0-9a-f]{32}$'),
    CONSTRAINT erased_key_is_a_hash CHECK (key_hash ~ '^[0-9a-f]{64}$')
);

-- The persons of each erasure for who looks: of them, a role without a right on the hashes sees only
-- the columns.
CREATE VIEW reliability.erased_person AS
SELECT erasure_id, column_name,
       CASE WHEN has_table_privilege('reliability.erased_key', 'SELECT') THEN key_hash END AS key_hash
  FROM reliability.erased_key;
