-- A commit writes to the ledger in one round trip, many txids together. Each function states what it
-- expects to find. If it finds anything else, the ledger is not what its caller has read, and RL002
-- rolls the commit back.

-- How many rows a write has changed, and how many it had to change.
CREATE FUNCTION reliability.expect_rows(p_write text, p_found bigint, p_expected bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_found IS DISTINCT FROM p_expected THEN
        RAISE EXCEPTION '%: % rows instead of %', p_write, p_found, p_expected
            USING ERRCODE = 'RL002';
    END IF;
END $$;

-- The deciding check, per state and commit number: a second apply of c finds no row (C3). A state takes
-- so many commit numbers, from p_commit_number on.
CREATE FUNCTION reliability.advance_state(
    p_topology text, p_state text, p_commit_number bigint, p_changes integer
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.state SET commit_number = p_commit_number + p_changes - 1
     WHERE topology = p_topology AND state = p_state AND commit_number = p_commit_number - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'advance_state: % of % is not at c=%',
            p_state, p_topology, p_commit_number - 1 USING ERRCODE = 'RL002';
    END IF;
END $$;

-- Record the contribution of an attempt that was added to the rows of a state, in the same statement.
-- Contract: as many rows were found as were sealed, because missing rows are no empty contribution
-- (H2); and as many rows were written as there were keys, because ON CONFLICT with WHERE silently passes
-- over a row that is not older than the txid (C3). The header counts the rows if they are kept,
-- otherwise the keys. A replay moves the header of the attempt that it replaces.
CREATE FUNCTION reliability.record_contribution(
    p_topology text, p_state text, p_txid bigint, p_attempt_id integer, p_replaced_attempt integer,
    p_is_kept boolean, p_staged bigint, p_keys bigint, p_applied bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_sealed   bigint;
    v_rows     bigint := CASE WHEN p_is_kept THEN p_staged ELSE p_keys END;
    v_presence text := CASE WHEN v_rows = 0 THEN 'empty'
                            WHEN p_is_kept THEN 'present' ELSE 'compacted' END;
BEGIN
    SELECT staged_rows INTO v_sealed FROM reliability.sink
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id AND sink = p_state;
    IF v_sealed IS DISTINCT FROM p_staged THEN
        RAISE EXCEPTION '%__%: % rows were sealed for attempt %:%, but % exist',
            p_topology, p_state, v_sealed, p_txid, p_attempt_id, p_staged USING ERRCODE = 'RL002';
    END IF;
    IF p_keys <> p_applied THEN
        RAISE EXCEPTION '%: txid % has % keys, but only % rows were older than it',
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

-- The plans of the two functions below are generic: those for one array would be made at every call,
-- which takes longer than to carry them out.

-- Move the pointers to attempts that have been added to all states, which take the commit numbers
-- from p_commit_number on, in the order of their txids. They are either first commits, whose txids
-- follow each other, or one replay, which replaces p_replaced_attempt. curr_txid moves on a first
-- commit only.
CREATE FUNCTION reliability.move_pointers(
    p_topology text, p_commit_number bigint, p_txids bigint[], p_attempt_ids integer[],
    p_nonces uuid[], p_replaced_attempt integer
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
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
       SET commit_number = p_commit_number + v_changes - 1, curr_txid = greatest(curr_txid, v_last + 1)
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

-- In the coordinator's ledger: what the commit of these attempts means for who asked for their txids.
CREATE FUNCTION reliability.finish_requests(
    p_topology text, p_txids bigint[], p_attempt_ids integer[]
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    -- Keys that a refrozen txid no longer has are free, and can be emitted as new rows.
    DELETE FROM reliability.source_item
     WHERE topology = p_topology AND txid = ANY(p_txids) AND refrozen_part = '{}';
    UPDATE reliability.source_item SET part = refrozen_part, refrozen_part = NULL
     WHERE topology = p_topology AND txid = ANY(p_txids) AND refrozen_part <> '{}';

    -- Satisfy the requests that were made before the committed attempt was granted. A parked txid
    -- satisfies no request (C7), and a commit satisfies no dry run.
    UPDATE reliability.request r
       SET status = 'SATISFIED', ended_at = clock_timestamp()
      FROM unnest(p_txids, p_attempt_ids) AS done(txid, attempt_id)
      JOIN reliability.attempt a ON a.topology = p_topology AND a.txid = done.txid
           AND a.attempt_id = done.attempt_id
     WHERE a.verdict IS DISTINCT FROM 'PARKED'
       AND r.topology = p_topology AND r.txid = done.txid AND r.status IN ('OPEN', 'GIVEN_UP')
       AND (r.kind = 'COMMIT' OR r.granted_after < a.attempt_id) AND NOT r.is_dry_run;

    -- Close the requests for a parked txid as not done.
    UPDATE reliability.request r
       SET status = 'PARKED', ended_at = clock_timestamp(), reason = 'parked: ' || a.verdict_reason
      FROM unnest(p_txids, p_attempt_ids) AS done(txid, attempt_id)
      JOIN reliability.attempt a ON a.topology = p_topology AND a.txid = done.txid
           AND a.attempt_id = done.attempt_id
     WHERE a.verdict = 'PARKED'
       AND r.topology = p_topology AND r.txid = done.txid AND r.status IN ('OPEN', 'GIVEN_UP');
END $$;
