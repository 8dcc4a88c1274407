-- A contribution's digest travels with its acks, so that the seal need not read all rows for it.
ALTER TABLE reliability.ack ADD COLUMN digest bigint;   -- NULL if an earlier release has acked

DROP FUNCTION reliability.acknowledge(
    text, bigint, integer, uuid, text, integer, uuid, bigint, bigint, bigint);

-- The last statement of a Spark task's transaction, in one round trip with COMMIT.
-- Contract: the attempt is still PROCESSING with this nonce, or RL001 rolls the COPY back;
-- the partition has not acked yet, or unique_violation on ack_once_per_partition. The attempt's
-- row is locked last: a check at the start would let a zombie commit, a lock at the start would
-- let a stalled COPY hold up the topology.
CREATE FUNCTION reliability.acknowledge(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_sink text, p_partition integer, p_write_id uuid,
    p_xor bigint, p_count bigint, p_rows bigint, p_digest bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.attempt a
       SET lease_until = reliability.renewed_lease(a)
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND nonce = p_nonce AND status = 'PROCESSING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt %:% of % is not processing', p_txid, p_attempt_id, p_topology
            USING ERRCODE = 'RL001';
    END IF;
    INSERT INTO reliability.ack
           (topology, txid, attempt_id, sink, partition, write_id, xor, count, rows, digest)
    VALUES (p_topology, p_txid, p_attempt_id, p_sink, p_partition, p_write_id,
            p_xor, p_count, p_rows, p_digest);
    UPDATE reliability.sink
       SET ack_val = ack_val # p_xor, unacked = unacked - p_count
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND sink = p_sink;
END $$;
