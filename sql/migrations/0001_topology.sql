-- The ledger: which batches count, and which attempts may make them count. It is in the same
-- database as the target tables, so that a change of a table and its record are one local
-- transaction.
--
-- Its files, in this order: topologies and their states; what is emitted; who requests it;
-- attempts; the acker; the quarantine; audits; commits; monitoring; rights. Together they are the
-- first release. Later ones add files: what a ledger has applied never changes.
--
-- Triggers fire with any session_replication_role: a role may have 'replica' as its default. Those of
-- foreign keys do not, so no statement relies on ON DELETE CASCADE.
-- Functions find only Postgres's own functions, operators and types without a schema, whatever the
-- path of the session that calls them is.

-- Staged rows and contributions of committed txids, in one table per state, created when the state
-- is declared.
CREATE SCHEMA reliability_contribution;

-- One row per topology. The session that holds its lock decides. Txids come from next_txid: a
-- sequence would leave gaps. A database that only takes part in a topology has a mirror of the row.
CREATE TABLE reliability.topology (
    topology            text PRIMARY KEY,
    topology_id         uuid NOT NULL DEFAULT gen_random_uuid(),  -- unique across ledgers
    participant         text,                     -- this database's name; NULL in the coordinator's
    module              text NOT NULL DEFAULT '',  -- of its code, for `reliability replay`
    spout_kind          text NOT NULL DEFAULT 'TRANSACTIONAL',
    curr_txid           bigint NOT NULL DEFAULT 1,  -- the only txid that may commit first
    next_txid           bigint NOT NULL DEFAULT 1,  -- the next one to be allocated
    commit_number       bigint NOT NULL DEFAULT 0,  -- c; each change of the states takes the next
    rollbacks           integer NOT NULL DEFAULT 0,  -- how often it was rolled back
    compacted_through   bigint NOT NULL DEFAULT 0,  -- no replay or rollback reaches it or below
    max_spout_pending   integer NOT NULL,
    max_replay_pending  integer NOT NULL DEFAULT 1,
    emit_interval       interval NOT NULL DEFAULT '0',  -- least time between two attempts' starts
    checkpoint_interval interval NOT NULL DEFAULT '0',  -- least time between two first commits
    -- How long a txid waits behind one that no run is working on, before its task fails (E2).
    blocked_timeout     interval NOT NULL DEFAULT '7 days',
    groups_commits      boolean NOT NULL DEFAULT true,  -- txids may share a physical commit (C6)
    declared_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_granted_at     timestamptz,
    paused_at           timestamptz,
    paused_reason       text,
    CONSTRAINT participant_has_a_name CHECK (participant <> ''),
    CONSTRAINT spout_kind CHECK (spout_kind IN ('TRANSACTIONAL', 'OPAQUE')),
    CONSTRAINT curr_txid_within_allocated CHECK (curr_txid BETWEEN 1 AND next_txid),
    CONSTRAINT only_the_committed_is_compacted CHECK (
        participant IS NOT NULL OR compacted_through < curr_txid),
    CONSTRAINT max_spout_pending_starts_at_1 CHECK (max_spout_pending >= 1),
    CONSTRAINT max_replay_pending_starts_at_1 CHECK (max_replay_pending >= 1),
    CONSTRAINT checkpoint_interval_has_a_floor CHECK (
        checkpoint_interval = interval '0' OR checkpoint_interval >= interval '100 milliseconds'),
    CONSTRAINT paused_says_why CHECK ((paused_at IS NULL) = (paused_reason IS NULL))
);

-- The other databases that hold states of a topology; in the coordinator's ledger.
CREATE TABLE reliability.participant (
    topology text NOT NULL REFERENCES reliability.topology,
    database text NOT NULL,
    PRIMARY KEY (topology, database),
    CONSTRAINT participant_is_another_database CHECK (database <> '')
);

-- One row per topology: which change of its states is in progress. With one database the phase is
-- always COMMITTED, because one transaction changes everything. A participant keeps the last c that
-- it applied and the greatest epoch that it has seen: drivers with a smaller one are refused.
CREATE TABLE reliability.checkpoint (
    topology      text PRIMARY KEY REFERENCES reliability.topology,
    phase         text NOT NULL DEFAULT 'COMMITTED',
    commit_number bigint NOT NULL DEFAULT 0,    -- reached when COMMITTED, otherwise the target
    plan          jsonb NOT NULL DEFAULT '[]',  -- the changes that lead there, in order
    epoch         bigint NOT NULL DEFAULT 0,    -- of its driver; each driver takes the next
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT checkpoint_phase CHECK (phase IN ('PREPARING', 'COMMITTING', 'COMMITTED')),
    CONSTRAINT plan_until_committed CHECK ((phase = 'COMMITTED') = (plan = '[]')),
    CONSTRAINT commit_number_covers_the_plan CHECK (commit_number >= jsonb_array_length(plan)),
    CONSTRAINT epoch_starts_at_0 CHECK (epoch >= 0)
);

-- Every topology has a checkpoint.
CREATE FUNCTION reliability.open_checkpoint() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO reliability.checkpoint (topology, commit_number)
    VALUES (NEW.topology, NEW.commit_number);
    RETURN NULL;
END $$;
CREATE TRIGGER topology_has_a_checkpoint AFTER INSERT ON reliability.topology
    FOR EACH ROW EXECUTE FUNCTION reliability.open_checkpoint();
ALTER TABLE reliability.topology ENABLE ALWAYS TRIGGER topology_has_a_checkpoint;

-- One row per state of a topology. commit_number is the last change that it has applied.
CREATE TABLE reliability.state (
    topology          text NOT NULL REFERENCES reliability.topology,
    state             text NOT NULL,
    target_table      text NOT NULL,  -- quoted where Postgres needs it
    definition        jsonb NOT NULL,
    definition_digest text NOT NULL,
    commit_number     bigint NOT NULL DEFAULT 0,
    keep_txids        bigint,                     -- how long contributions can be replaced;
    keep_age          interval,                   -- NULL is for ever
    compacted_through bigint NOT NULL DEFAULT 0,  -- contributions up to it are folded by key
    contribution_table text NOT NULL,             -- in the schema reliability_contribution
    PRIMARY KEY (topology, state),
    CONSTRAINT one_state_per_contribution_table UNIQUE (contribution_table),
    CONSTRAINT one_state_per_target_table UNIQUE (target_table),
    CONSTRAINT keep_txids_starts_at_1 CHECK (keep_txids >= 1)
);

-- The table whose rows a state has adopted before its topology's first commit, as the contribution
-- of txid 0, which no attempt has made.
CREATE TABLE reliability.adoption (
    topology      text NOT NULL,
    state         text NOT NULL,
    adopted_table text NOT NULL,
    rows          bigint NOT NULL,
    adopted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    adopted_by    text NOT NULL,
    reason        text,
    PRIMARY KEY (topology, state),
    FOREIGN KEY (topology, state) REFERENCES reliability.state
);

-- How the definition of a state has changed since its topology's first commit (C11).
CREATE TABLE reliability.alteration (
    alteration_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology          text NOT NULL REFERENCES reliability.topology,
    state             text NOT NULL,
    altered_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason            text NOT NULL,
    commit_number     bigint NOT NULL,  -- c at that time: what committed later knows it
    counts_from       bigint NOT NULL,  -- the next txid to commit at that time
    differences       text[] NOT NULL,
    statements        text[] NOT NULL,  -- that were run
    added             text[] NOT NULL,  -- values that earlier contributions lack
    definition_before jsonb,            -- NULL for a state that was added
    digest_before     text,
    definition_after  jsonb,            -- NULL for a state that was removed
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

-- One row: the server's timeline at the last check. A restore starts another timeline.
CREATE TABLE reliability.server (
    only_row boolean PRIMARY KEY DEFAULT true,
    timeline integer NOT NULL,
    CONSTRAINT one_server CHECK (only_row)
);

-- The timeline of the log that is being written; the control file shows a promotion only after the
-- next checkpoint. NULL where the server does not report it: managed servers refuse this.
CREATE FUNCTION reliability.timeline() RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- Raise unless this is the coordinator's ledger of the topology: decisions are made there only.
CREATE FUNCTION reliability.check_coordinator(p_topology text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_participant text;
BEGIN
    SELECT participant INTO v_participant FROM reliability.topology WHERE topology = p_topology;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the ledger has no topology called %', p_topology USING ERRCODE = 'RL004';
    END IF;
    IF v_participant IS NOT NULL THEN
        RAISE EXCEPTION 'the ledger of % is in another database', p_topology
            USING ERRCODE = 'RL003';
    END IF;
END $$;

-- Delete everything that the ledger of this database has of a topology: first the rows of tables
-- without the column `topology`, then all others in one statement, as foreign keys are checked at its
-- end.
CREATE FUNCTION reliability.forget_topology(p_topology text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- In the order in which an erasure of another topology locks them. Meanwhile no result of a
    -- verification is recorded, and no alert begins or is told.
    LOCK TABLE reliability.correction, reliability.quarantined_row, reliability.audit_result,
               reliability.difference IN ROW EXCLUSIVE MODE;
    LOCK TABLE reliability.verified, reliability.alert IN EXCLUSIVE MODE;
    DELETE FROM reliability.request_contact USING reliability.request r
     WHERE r.topology = p_topology AND request_contact.request_id = r.request_id;
    DELETE FROM reliability.alert_told USING reliability.alert a
     WHERE a.topology = p_topology AND alert_told.alert_id = a.alert_id;
    EXECUTE (
        SELECT format('WITH %s DELETE FROM reliability.topology WHERE topology = $1', string_agg(
                   format('%1$I AS (DELETE FROM reliability.%1$I WHERE topology = $1)', c.relname),
                   ', '))
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'topology'
         WHERE c.relnamespace = 'reliability'::regnamespace AND c.relkind = 'r'
           AND c.relname <> 'topology') USING p_topology;
END $$;
