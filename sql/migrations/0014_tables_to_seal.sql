-- Any state's attempt may have a table of its own: the seal reads which do with what has acked. Once the
-- attempt is SEALING, no table is opened for it.
CREATE OR REPLACE FUNCTION reliability.begin_seal(
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
