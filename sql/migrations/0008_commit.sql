-- The changes of the states. A commit writes to the ledger in one round trip, many txids together.
-- Each function states what it expects to find. If it finds anything else, the ledger is not what
-- its caller has read, and RL002 rolls the commit back.

-- The header of a txid's contribution to a state. Missing rows are an error unless the header says
-- that there are none. A state that keeps no contributions has headers but no rows. A compacted
-- txid whose keys all occur in later txids has no row left, but is not empty. Txid 0 is what the
-- state has adopted; no attempt has made it, and it counts as compacted.
CREATE TABLE reliability.contribution (
    topology   text NOT NULL,
    state      text NOT NULL,
    txid       bigint NOT NULL,
    attempt_id integer NOT NULL,
    presence   text NOT NULL,
    rows       bigint NOT NULL,
    made_by    bigint GENERATED ALWAYS AS (nullif(txid, 0)) STORED,
    PRIMARY KEY (topology, state, txid),
    FOREIGN KEY (topology, state) REFERENCES reliability.state,
    FOREIGN KEY (topology, made_by, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT only_the_adopted_is_of_no_attempt CHECK (
        txid > 0 OR txid = 0 AND attempt_id = 0 AND presence = 'compacted'),
    CONSTRAINT contribution_presence CHECK (presence IN ('present', 'empty', 'compacted')),
    CONSTRAINT empty_contribution_has_no_rows CHECK (
        rows >= 0 AND (presence = 'compacted' OR (presence = 'empty') = (rows = 0)))
);

-- Every change of the states, in order: a commit, a replay, a rollback to a txid, or a repair,
-- which writes rows as their contributions say; its txid is the last one that had committed. After
-- a rollback a txid commits first once more.
CREATE TABLE reliability.commit_log (
    topology         text NOT NULL,
    commit_number    bigint NOT NULL,
    kind             text NOT NULL,
    txid             bigint NOT NULL,
    attempt_id       integer,                             -- NULL for a rollback or a repair
    replaced_attempt integer,                             -- of a replay
    rollbacks        integer NOT NULL,                    -- how many there were before this change
    reason           text,
    began_at         timestamptz NOT NULL DEFAULT now(),  -- of the transaction
    committed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topology, commit_number),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT change_kind CHECK (kind IN ('COMMIT', 'REPLAY', 'ROLLBACK', 'REPAIR')),
    CONSTRAINT only_a_rollback_or_a_repair_has_no_attempt CHECK (
        (kind IN ('ROLLBACK', 'REPAIR')) = (attempt_id IS NULL)),
    CONSTRAINT only_a_replay_replaces CHECK (
        (kind = 'REPLAY') = (replaced_attempt IS NOT NULL))
);
CREATE UNIQUE INDEX one_first_commit_per_txid
    ON reliability.commit_log (topology, txid, rollbacks) WHERE kind = 'COMMIT';

-- The changes of a txid, found without reading the whole log.
CREATE INDEX commit_log_by_txid ON reliability.commit_log (topology, txid);

-- The log is written in the order of time: an entry of such an index stands for a hundred pages.
CREATE INDEX commit_log_by_minute ON reliability.commit_log
    USING brin (date_bin('1 minute', committed_at, 'epoch'));
CREATE INDEX commit_log_by_hour ON reliability.commit_log
    USING brin (date_bin('1 hour', committed_at, 'epoch'));

-- What a replay, a rollback or a dry run changed, or would have changed, in the rows of a state. It
-- stays on record when the state is removed.
CREATE TABLE reliability.difference (
    difference_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology      text NOT NULL,
    state         text NOT NULL,
    txid          bigint NOT NULL,  -- replayed, or rolled back to
    attempt_id    integer,          -- NULL for a rollback
    commit_number bigint,           -- NULL for a dry run
    rows_added    bigint NOT NULL,
    rows_changed  bigint NOT NULL,
    rows_removed  bigint NOT NULL,
    moved         jsonb NOT NULL,   -- value -> the change of its sum
    -- Rows that were found other than their contributions said, and written as these said. They are
    -- not part of the difference: somebody else had changed them.
    by_hand       jsonb,
    recorded_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX difference_by_txid ON reliability.difference (topology, txid);

-- The PROCESSED attempts, which commit in their turn; a dry run's never does.
CREATE VIEW reliability.commit_candidate AS
SELECT a.topology, a.txid, jsonb_build_object(
       'txid', a.txid, 'attempt_id', a.attempt_id, 'nonce', a.nonce,
       'committed_attempt', t.committed_attempt,
       'staged_rows', (SELECT coalesce(sum(s.staged_rows), 0)::bigint
                         FROM reliability.sink s
                        WHERE s.topology = a.topology AND s.txid = a.txid
                          AND s.attempt_id = a.attempt_id),
       'age', extract(epoch FROM clock_timestamp() - a.processed_at)) AS candidate
  FROM reliability.attempt a
  JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
 WHERE a.status = 'PROCESSED'
   AND NOT EXISTS (SELECT FROM reliability.request r
                    WHERE r.request_id = a.request_id AND r.is_dry_run);

-- With its candidates, all that decides what commits next in a topology, in one place: the
-- coordinator, a commit, a sweep and the poller read the same. `is_gathering` says whether the
-- checkpoint interval since the last first commit has not passed.
CREATE VIEW reliability.commit_position AS
SELECT p.topology, jsonb_build_object(
       'topology', p.topology,
       'curr_txid', p.curr_txid,
       'commit_number', p.commit_number,
       'groups_commits', p.groups_commits,
       'is_gathering', EXISTS (
           SELECT FROM reliability.commit_log l
            WHERE l.topology = p.topology AND l.txid = p.curr_txid - 1 AND l.kind = 'COMMIT'
              AND l.committed_at > clock_timestamp() - p.checkpoint_interval
              AND l.committed_at <= clock_timestamp()),  -- else the clock was set back
       'last_was_first_commit', coalesce((
           SELECT l.kind = 'COMMIT' FROM reliability.commit_log l
            WHERE l.topology = p.topology ORDER BY l.commit_number DESC LIMIT 1), false))
       AS position
  FROM reliability.topology p;

-- How many rows a write has changed, and how many it had to change.
CREATE FUNCTION reliability.expect_rows(p_write text, p_found bigint, p_expected bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_found IS DISTINCT FROM p_expected THEN
        RAISE EXCEPTION '%: % rows instead of %', p_write, p_found, p_expected
            USING ERRCODE = 'RL002';
    END IF;
END $$;

-- The deciding check, per state and commit number: a second apply of c finds no row (C3). A state
-- takes so many commit numbers, from p_commit_number on.
CREATE FUNCTION reliability.advance_state(
    p_topology text, p_state text, p_commit_number bigint, p_changes integer
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE reliability.state SET commit_number = p_commit_number + p_changes - 1
     WHERE topology = p_topology AND state = p_state AND commit_number = p_commit_number - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'advance_state: % of % is not at c=%',
            p_state, p_topology, p_commit_number - 1 USING ERRCODE = 'RL002';
    END IF;
END $$;

-- With one database: the checkpoint follows the commit numbers that the same transaction has taken.
CREATE FUNCTION reliability.advance_checkpoint(
    p_topology text, p_commit_number bigint, p_changes integer
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE reliability.checkpoint
       SET commit_number = p_commit_number + p_changes - 1, changed_at = clock_timestamp()
     WHERE topology = p_topology AND phase = 'COMMITTED' AND commit_number = p_commit_number - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the checkpoint of % is not at c=%', p_topology, p_commit_number - 1
            USING ERRCODE = 'RL002';
    END IF;
END $$;

-- Record the contribution of an attempt that was added to the rows of a state, in the same
-- statement. Contract: as many rows were found as were sealed, because missing rows are no empty
-- contribution (H2); and as many rows were written as there were keys, because ON CONFLICT with
-- WHERE silently passes over a row that is not older than the txid (C3). The header counts the rows
-- if they are kept, otherwise the keys. A replay moves the header of the attempt that it replaces.
CREATE FUNCTION reliability.record_contribution(
    p_topology text, p_state text, p_txid bigint, p_attempt_id integer, p_replaced_attempt integer,
    p_is_kept boolean, p_staged bigint, p_keys bigint, p_applied bigint
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_sealed   bigint;
    v_rows     bigint := CASE WHEN p_is_kept THEN p_staged ELSE p_keys END;
    v_presence text := CASE WHEN v_rows = 0 THEN 'empty'
                            WHEN p_is_kept THEN 'present' ELSE 'compacted' END;
BEGIN
    SELECT staged_rows INTO v_sealed FROM reliability.sink
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id AND sink = p_state;
    IF v_sealed IS NULL THEN
        RAISE EXCEPTION '%: attempt %:% is not sealed in this database; was that restored since?',
            p_topology, p_txid, p_attempt_id USING ERRCODE = 'RL002';
    END IF;
    IF v_sealed IS DISTINCT FROM p_staged THEN
        RAISE EXCEPTION '%: % rows were sealed for attempt %:%, but % exist',
            (SELECT contribution_table FROM reliability.state
              WHERE topology = p_topology AND state = p_state),
            v_sealed, p_txid, p_attempt_id, p_staged USING ERRCODE = 'RL002';
    END IF;
    IF p_keys <> p_applied THEN
        RAISE EXCEPTION '%: txid % has % keys, but only % rows were older than it and written;'
            ' has the table a trigger or a rule that keeps rows back?',
            (SELECT target_table FROM reliability.state
              WHERE topology = p_topology AND state = p_state),
            p_txid, p_keys, p_applied USING ERRCODE = 'RL002';
    END IF;
    IF p_replaced_attempt IS NULL THEN
        INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
        VALUES (p_topology, p_state, p_txid, p_attempt_id, v_presence, v_rows);
        RETURN;
    END IF;
    UPDATE reliability.contribution
       SET attempt_id = p_attempt_id, rows = v_rows, presence = v_presence
     WHERE topology = p_topology AND state = p_state AND txid = p_txid
       AND attempt_id = p_replaced_attempt;
    IF NOT FOUND THEN
        RAISE EXCEPTION '%__%: the contribution of txid % is not that of attempt %',
            p_topology, p_state, p_txid, p_replaced_attempt USING ERRCODE = 'RL002';
    END IF;
END $$;

-- The plans of this function and the next are generic: those for one array would be made at every
-- call, which takes longer than to carry them out.
-- Move the pointers to attempts that have been added to all states, which take the commit numbers
-- from p_commit_number on, in the order of their txids. They are either first commits, whose txids
-- follow each other, or one replay, which replaces p_replaced_attempt. curr_txid moves on a first
-- commit only.
CREATE FUNCTION reliability.move_pointers(
    p_topology text, p_commit_number bigint, p_txids bigint[], p_attempt_ids integer[],
    p_nonces uuid[], p_replaced_attempt integer
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_changes CONSTANT integer := cardinality(p_txids);
    v_last    CONSTANT bigint := p_txids[v_changes];
    v_found   bigint;
BEGIN
    UPDATE reliability.attempt a SET status = 'COMMITTED', ended_at = clock_timestamp()
      FROM unnest(p_txids, p_attempt_ids, p_nonces) AS planned(txid, attempt_id, nonce)
     WHERE a.topology = p_topology AND a.txid = planned.txid
       AND a.attempt_id = planned.attempt_id
       AND a.nonce = planned.nonce AND a.status = 'PROCESSED';
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('commit_attempt', v_found, v_changes);

    UPDATE reliability.transaction t
       SET committed_attempt = planned.attempt_id,
           commit_number = p_commit_number + planned.place - 1, committed_at = clock_timestamp()
      FROM unnest(p_txids, p_attempt_ids) WITH ORDINALITY AS planned(txid, attempt_id, place)
     WHERE t.topology = p_topology AND t.txid = planned.txid
       AND t.committed_attempt IS NOT DISTINCT FROM p_replaced_attempt;
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('commit_transaction', v_found, v_changes);

    UPDATE reliability.topology
       SET commit_number = p_commit_number + v_changes - 1,
           curr_txid = greatest(curr_txid, v_last + 1)
     WHERE topology = p_topology AND commit_number = p_commit_number - 1
       AND curr_txid >= p_txids[1];
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('advance_topology', v_found, 1);

    INSERT INTO reliability.commit_log
           (topology, commit_number, kind, txid, attempt_id, replaced_attempt, rollbacks)
    SELECT p_topology, p_commit_number + planned.place - 1,
           CASE WHEN p_replaced_attempt IS NULL THEN 'COMMIT' ELSE 'REPLAY' END,
           planned.txid, planned.attempt_id, p_replaced_attempt,
           (SELECT rollbacks FROM reliability.topology WHERE topology = p_topology)
      FROM unnest(p_txids, p_attempt_ids) WITH ORDINALITY AS planned(txid, attempt_id, place);
END $$;

-- In the coordinator's ledger: what the commit of these attempts means for who asked for the txids.
CREATE FUNCTION reliability.finish_requests(
    p_topology text, p_txids bigint[], p_attempt_ids integer[]
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Keys that a refrozen txid no longer has are free, and can be emitted as new rows.
    DELETE FROM reliability.source_item
     WHERE topology = p_topology AND txid = ANY(p_txids) AND refrozen_part = '{}';
    UPDATE reliability.source_item SET part = refrozen_part, refrozen_part = NULL
     WHERE topology = p_topology AND txid = ANY(p_txids) AND refrozen_part <> '{}';

    -- Satisfy the requests that were made before the committed attempt was granted; a commit
    -- satisfies no dry run. All requests for a parked txid are closed as not done (C7).
    UPDATE reliability.request r
       SET ended_at = clock_timestamp(),
           status = CASE WHEN a.verdict = 'PARKED' THEN 'PARKED' ELSE 'SATISFIED' END,
           reason = CASE WHEN a.verdict = 'PARKED' THEN 'parked: ' || a.verdict_reason
                         ELSE r.reason END
      FROM unnest(p_txids, p_attempt_ids) AS done(txid, attempt_id)
      JOIN reliability.attempt a ON a.topology = p_topology AND a.txid = done.txid
           AND a.attempt_id = done.attempt_id
     WHERE r.topology = p_topology AND r.txid = done.txid AND r.status IN ('OPEN', 'GIVEN_UP')
       AND (a.verdict = 'PARKED'
            OR (r.kind = 'COMMIT' OR r.granted_after < a.attempt_id) AND NOT r.is_dry_run);
END $$;
