-- One word for how a txid's rows are accounted for.
ALTER TABLE reliability.transaction RENAME COLUMN verified TO verdict;

-- The lease of an attempt after a sign of progress. While one of its steps was submitted and has
-- not started, the longer lease that covers its submit and its queue stands: the progress of the
-- steps beside it says nothing about the cluster's queue.
CREATE FUNCTION reliability.renewed_lease(a reliability.attempt) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN EXISTS (
                SELECT FROM reliability.attempt_step d
                 WHERE d.topology = a.topology AND d.txid = a.txid
                   AND d.attempt_id = a.attempt_id
                   AND d.status = 'RUNNING' AND d.started_at IS NULL)
           THEN greatest(a.lease_until, clock_timestamp() + a.lease)
           ELSE clock_timestamp() + a.lease END
$$;

-- The contract of the function in 0001 stands; its lease is the one above.
CREATE OR REPLACE FUNCTION reliability.acknowledge(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_sink text, p_partition integer, p_write_id uuid,
    p_xor bigint, p_count bigint, p_rows bigint
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
           (topology, txid, attempt_id, sink, partition, write_id, xor, count, rows)
    VALUES (p_topology, p_txid, p_attempt_id, p_sink, p_partition, p_write_id,
            p_xor, p_count, p_rows);
    UPDATE reliability.sink
       SET ack_val = ack_val # p_xor, unacked = unacked - p_count
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND sink = p_sink;
END $$;
