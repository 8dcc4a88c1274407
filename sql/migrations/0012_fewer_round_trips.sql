-- What a task asks of the ledger in one round trip. Each function says what it expects to find, and whether
-- it raises or returns no row if it finds anything else.

-- Raise unless this is the coordinator's ledger of the topology: decisions are made there only.
CREATE FUNCTION reliability.check_coordinator(p_topology text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_participant text;
BEGIN
    SELECT participant INTO v_participant FROM reliability.topology WHERE topology = p_topology;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the ledger has no topology called %', p_topology USING ERRCODE = 'RL002';
    END IF;
    IF v_participant IS NOT NULL THEN
        RAISE EXCEPTION 'the ledger of % is in another database', p_topology
            USING ERRCODE = 'RL003';
    END IF;
END $$;

-- Claim a step that no task has claimed, and extend the lease to cover its submission and queueing.
-- No row: the attempt has ended, or another task was faster.
-- Contract: the attempt is still PROCESSING when its lease is extended, or RL001 takes the claim back.
CREATE FUNCTION reliability.claim_step(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_request_id bigint,
    p_step text, p_task text, p_submit_lease double precision
) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.attempt_step d
       SET status = 'RUNNING', claimed_by = p_task, claimed_at = clock_timestamp()
      FROM reliability.attempt a
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.request_id = p_request_id AND a.status = 'PROCESSING'
       AND d.topology = a.topology AND d.txid = a.txid AND d.attempt_id = a.attempt_id
       AND d.step = p_step AND d.status = 'OPEN';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE reliability.attempt
       SET lease_until = greatest(lease_until,
                                  clock_timestamp() + p_submit_lease * interval '1 second')
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND status = 'PROCESSING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt %:% of % was ended', p_txid, p_attempt_id, p_topology
            USING ERRCODE = 'RL001';
    END IF;
    RETURN NEXT p_step;
END $$;

-- First step of the seal: from now on an ack finds no PROCESSING row, so what has acked is all that
-- ever will, and the attempt has all the tables of its own that it ever will. They are read in a
-- statement of their own, which sees the acks that the first one waited for.
-- No row: the attempt is no longer PROCESSING.
CREATE FUNCTION reliability.begin_seal(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_task text
) RETURNS TABLE (batch_meta jsonb, emitted_xor bigint, emitted_count bigint, sinks jsonb)
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.attempt a
       SET status = 'SEALING', lease_until = clock_timestamp() + a.lease, sealing_task = p_task
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.status = 'PROCESSING';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT coalesce(a.batch_meta, t.batch_meta), coalesce(a.emitted_xor, t.emitted_xor),
           coalesce(a.emitted_count, t.emitted_count), coalesce((
           SELECT jsonb_agg(jsonb_build_object(
                      'sink', s.sink, 'step', s.step, 'partitions', s.partitions,
                      'ack_val', s.ack_val, 'unacked', s.unacked,
                      'acked_partitions', k.partitions, 'digests', k.digests,
                      'table_id', own.table_id) ORDER BY s.sink)
             FROM reliability.sink s
             LEFT JOIN reliability.attempt_table own
               ON own.topology = s.topology AND own.state = s.sink AND own.txid = s.txid
                  AND own.attempt_id = s.attempt_id
             LEFT JOIN LATERAL (
                  SELECT coalesce(jsonb_agg(partition ORDER BY partition), '[]') AS partitions,
                         coalesce(jsonb_agg(digest ORDER BY partition), '[]') AS digests
                    FROM reliability.ack
                   WHERE topology = s.topology AND txid = s.txid AND attempt_id = s.attempt_id
                     AND sink = s.sink) AS k ON true
            WHERE s.topology = a.topology AND s.txid = a.txid AND s.attempt_id = a.attempt_id), '[]')
      FROM reliability.attempt a
      JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id;
END $$;

-- Last step of the seal: the staged rows of each sink are complete and never change again.
-- Contract: the attempt is still SEALING, or RL001; it has these sinks, or RL002.
CREATE FUNCTION reliability.end_seal(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_sinks text[], p_rows bigint[], p_digests text[]
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_found bigint;
BEGIN
    UPDATE reliability.attempt
       SET status = 'PROCESSED', lease_until = NULL, processed_at = clock_timestamp()
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND nonce = p_nonce AND status = 'SEALING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % %:% was ended', p_topology, p_txid, p_attempt_id
            USING ERRCODE = 'RL001';
    END IF;
    UPDATE reliability.sink s
       SET staged_rows = staged.rows, contribution_digest = staged.digest
      FROM unnest(p_sinks, p_rows, p_digests) AS staged(sink, rows, digest)
     WHERE s.topology = p_topology AND s.txid = p_txid AND s.attempt_id = p_attempt_id
       AND s.sink = staged.sink;
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('end_seal', v_found, cardinality(p_sinks));
END $$;

-- With one database: the checkpoint follows the commit numbers that the same transaction has taken.
CREATE FUNCTION reliability.advance_checkpoint(
    p_topology text, p_commit_number bigint, p_changes integer
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.checkpoint
       SET commit_number = p_commit_number + p_changes - 1, changed_at = clock_timestamp()
     WHERE topology = p_topology AND phase = 'COMMITTED' AND commit_number = p_commit_number - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the checkpoint of % is not at c=%', p_topology, p_commit_number - 1
            USING ERRCODE = 'RL002';
    END IF;
END $$;
