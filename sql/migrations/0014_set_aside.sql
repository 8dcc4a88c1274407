-- What a process function does to the number of rows on purpose: it drops them, puts them into the
-- quarantine, or makes many of one. Then emitted = staged + set aside, for every state on its own.
CREATE TABLE reliability.set_aside (
    topology   text    NOT NULL,
    txid       bigint  NOT NULL,
    attempt_id integer NOT NULL,
    sink       text    NOT NULL,
    kind       text    NOT NULL,
    reason     text    NOT NULL,
    xor        bigint  NOT NULL,
    count      bigint  NOT NULL,  -- less than 0 for a fan-out: so many rows were added
    CONSTRAINT set_aside_once_per_reason
        PRIMARY KEY (topology, txid, attempt_id, sink, kind, reason),
    FOREIGN KEY (topology, txid, attempt_id, sink)
        REFERENCES reliability.sink (topology, txid, attempt_id, sink),
    CONSTRAINT set_aside_kind CHECK (kind IN ('DROPPED', 'QUARANTINED', 'FANNED_OUT')),
    CONSTRAINT set_aside_has_a_reason CHECK (reason <> ''),
    CONSTRAINT only_a_fan_out_adds CHECK (
        CASE kind WHEN 'FANNED_OUT' THEN count < 0 AND xor = 0 ELSE count > 0 END)
);

-- The rows that an attempt has put into the quarantine. They count from its commit on, and as long as it
-- is its txid's committed attempt.
CREATE TABLE reliability.quarantined_row (
    topology   text    NOT NULL,
    txid       bigint  NOT NULL,
    attempt_id integer NOT NULL,
    step       text    NOT NULL,
    number     integer NOT NULL,
    reason     text    NOT NULL,
    item       text,              -- the file that it is from
    row        bigint,            -- its index there, from 0
    contents   text    NOT NULL,  -- its columns as JSON
    is_cut     boolean NOT NULL,  -- the contents were too long
    xor        bigint  NOT NULL,  -- of the source rows in it, and their number
    count      bigint  NOT NULL,
    PRIMARY KEY (topology, txid, attempt_id, step, number),
    FOREIGN KEY (topology, txid, attempt_id)
        REFERENCES reliability.attempt (topology, txid, attempt_id),
    CONSTRAINT quarantined_row_has_a_reason CHECK (reason <> '')
);

-- Rows in quarantine: those of committed attempts.
CREATE VIEW reliability.quarantine AS
SELECT q.topology, q.txid, t.interval_start, t.interval_end, q.step, q.number, q.reason, q.item,
       q.row, q.contents, q.is_cut, q.xor, q.count, a.attempt_id, a.ended_at AS committed_at
  FROM reliability.quarantined_row q
  JOIN reliability.attempt a USING (topology, txid, attempt_id)
  JOIN reliability.transaction t USING (topology, txid)
 WHERE a.status = 'COMMITTED';

-- The accounts of each state by each attempt that has not failed: emitted = applied + dropped +
-- quarantined, in tuples. A fan-out has staged added_rows more rows than tuples.
CREATE VIEW reliability.accounts AS
SELECT s.topology, s.txid, s.attempt_id, a.status, s.sink AS state, t.verdict,
       coalesce(a.emitted_count, t.emitted_count) AS emitted,
       coalesce(a.emitted_count, t.emitted_count) - aside.dropped - aside.quarantined AS applied,
       aside.dropped, aside.quarantined, aside.added_rows,
       aside.reasons
  FROM reliability.sink s
  JOIN reliability.attempt a USING (topology, txid, attempt_id)
  JOIN reliability.transaction t USING (topology, txid)
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(x.count) FILTER (WHERE x.kind = 'DROPPED'), 0)::bigint AS dropped,
              coalesce(sum(x.count) FILTER (WHERE x.kind = 'QUARANTINED'), 0)::bigint AS quarantined,
              coalesce(sum(-x.count) FILTER (WHERE x.kind = 'FANNED_OUT'), 0)::bigint AS added_rows,
              coalesce(jsonb_agg(jsonb_build_object(
                           'kind', x.kind, 'reason', x.reason, 'count', x.count)
                           ORDER BY x.kind, x.reason), '[]') AS reasons
         FROM reliability.set_aside x
        WHERE x.topology = s.topology AND x.txid = s.txid AND x.attempt_id = s.attempt_id
          AND x.sink = s.sink) AS aside
 WHERE a.status IN ('PROCESSED', 'COMMITTED', 'REPLACED', 'DRY_RUN');

-- Record the end of a sink's single write action: its number of partitions, and what was set aside
-- on the way to it, which counts as acked. Returns what the sink then lacks of what was emitted.
-- Contract: the attempt is PROCESSING, and the sink has not been declared yet; no row otherwise.
CREATE FUNCTION reliability.declare_partitions(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_sink text,
    p_partitions integer, p_kinds text[], p_reasons text[], p_xors bigint[], p_counts bigint[]
) RETURNS TABLE (ack_val bigint, unacked bigint) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reliability.sink s
       SET partitions = p_partitions,
           ack_val = s.ack_val # coalesce((SELECT bit_xor(x) FROM unnest(p_xors) AS x), 0),
           unacked = s.unacked - coalesce((SELECT sum(c) FROM unnest(p_counts) AS c), 0)
      FROM reliability.attempt a
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.status = 'PROCESSING'
       AND s.topology = a.topology AND s.txid = a.txid AND s.attempt_id = a.attempt_id
       AND s.sink = p_sink AND s.partitions IS NULL
    RETURNING s.ack_val, s.unacked INTO ack_val, unacked;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO reliability.set_aside
           (topology, txid, attempt_id, sink, kind, reason, xor, count)
    SELECT p_topology, p_txid, p_attempt_id, p_sink, aside.*
      FROM unnest(p_kinds, p_reasons, p_xors, p_counts) AS aside(kind, reason, xor, count);
    RETURN NEXT;
END $$;

-- First step of the seal: from now on an ack finds no PROCESSING row, so what has acked is all that
-- ever will, and the attempt has all the tables of its own that it ever will. They are read in a
-- statement of their own, which sees the acks that the first one waited for.
-- No row: the attempt is no longer PROCESSING.
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
                      'aside_xor', x.xor, 'aside_count', x.count,
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
             LEFT JOIN LATERAL (
                  SELECT coalesce(bit_xor(xor), 0) AS xor, coalesce(sum(count), 0)::bigint AS count
                    FROM reliability.set_aside
                   WHERE topology = s.topology AND txid = s.txid AND attempt_id = s.attempt_id
                     AND sink = s.sink) AS x ON true
            WHERE s.topology = a.topology AND s.txid = a.txid AND s.attempt_id = a.attempt_id), '[]')
      FROM reliability.attempt a
      JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id;
END $$;
