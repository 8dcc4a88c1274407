-- The checkpoint: states of a topology in several databases, and many txids in one commit.

-- A database that only takes part in a topology has a mirror of its row, which says by `participant`
-- under what name the coordinator's ledger knows this database. The id tells two topologies of
-- one name apart that belong to different ledgers.
ALTER TABLE reliability.topology
    ADD COLUMN topology_id uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN participant text,                   -- NULL in the coordinator's ledger
    ADD COLUMN checkpoint_interval interval NOT NULL DEFAULT '0',  -- least time between first commits
    ADD CONSTRAINT participant_has_a_name CHECK (participant <> ''),
    ADD CONSTRAINT checkpoint_interval_has_a_floor CHECK (
        checkpoint_interval = interval '0' OR checkpoint_interval >= interval '100 milliseconds');

-- The other databases that states of a topology lie in, in the coordinator's ledger.
CREATE TABLE reliability.participant (
    topology text NOT NULL REFERENCES reliability.topology,
    database text NOT NULL,
    PRIMARY KEY (topology, database),
    CONSTRAINT participant_is_another_database CHECK (database <> '')
);

-- Where a topology's states are on their way to. With one database it is always COMMITTED: one
-- transaction takes them all along. In a participant it is the last c that it applied, and the
-- greatest epoch that it has heard of: who comes with a smaller one was given up meanwhile.
CREATE TABLE reliability.checkpoint (
    topology      text PRIMARY KEY REFERENCES reliability.topology,
    phase         text NOT NULL DEFAULT 'COMMITTED',
    commit_number bigint NOT NULL DEFAULT 0,       -- reached when COMMITTED, else aimed at
    plan          jsonb NOT NULL DEFAULT '[]',     -- the commits that lead there, in their order
    epoch         bigint NOT NULL DEFAULT 0,       -- who drives it: each driver takes the next
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT checkpoint_phase CHECK (phase IN ('PREPARING', 'COMMITTING', 'COMMITTED')),
    CONSTRAINT plan_until_committed CHECK ((phase = 'COMMITTED') = (plan = '[]')),
    CONSTRAINT commit_number_covers_the_plan CHECK (commit_number >= jsonb_array_length(plan)),
    CONSTRAINT epoch_starts_at_0 CHECK (epoch >= 0)
);
INSERT INTO reliability.checkpoint (topology, commit_number)
SELECT topology, commit_number FROM reliability.topology;

-- Every topology has one, so that no caller can forget it.
CREATE FUNCTION reliability.open_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO reliability.checkpoint (topology, commit_number)
    VALUES (NEW.topology, NEW.commit_number);
    RETURN NULL;
END $$;
CREATE TRIGGER topology_has_a_checkpoint AFTER INSERT ON reliability.topology
    FOR EACH ROW EXECUTE FUNCTION reliability.open_checkpoint();

-- Requests lie in the coordinator's ledger; an attempt in a participant has none.
ALTER TABLE reliability.attempt ALTER COLUMN request_id DROP NOT NULL;
