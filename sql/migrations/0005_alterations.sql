-- How the definition of a state has changed since its topology's first commit (C11).
CREATE TABLE reliability.alteration (
    alteration_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology          text NOT NULL REFERENCES reliability.topology,
    state             text NOT NULL,
    altered_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason            text NOT NULL,
    commit_number     bigint NOT NULL,                  -- c at that time: what committed later knows it
    counts_from       bigint NOT NULL,                  -- the next txid to commit at that time
    differences       text[] NOT NULL,
    statements        text[] NOT NULL,                  -- that were run
    added             text[] NOT NULL,                  -- values that earlier contributions lack
    definition_before jsonb,                            -- NULL for a state that was added
    digest_before     text,
    definition_after  jsonb,                            -- NULL for a state that was removed
    digest_after      text,
    CONSTRAINT alteration_says_why CHECK (reason <> ''),
    CONSTRAINT alteration_changes_something CHECK (
        digest_before IS DISTINCT FROM digest_after),
    CONSTRAINT alteration_digests_its_definitions CHECK (
        (definition_before IS NULL) = (digest_before IS NULL)
        AND (definition_after IS NULL) = (digest_after IS NULL)),
    CONSTRAINT only_what_stays_has_added_values CHECK (
        definition_after IS NOT NULL OR added = '{}')
);
CREATE INDEX alteration_by_state ON reliability.alteration (topology, state);

-- What a replay changed stays on record when its state is removed.
ALTER TABLE reliability.difference DROP CONSTRAINT difference_topology_state_fkey;
