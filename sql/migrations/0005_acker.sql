-- The acker, after Storm's: a sink has got all rows that were emitted when ack_val is 0. And what
-- an attempt stages, and sets aside on purpose.

-- The acker: one row per attempt and sink. ack_val starts as the emitted XOR; acks reduce it to 0.
CREATE TABLE reliability.sink (
    topology            text NOT NULL,
    txid                bigint NOT NULL,
    attempt_id          integer NOT NULL,
    sink                text NOT NULL,
    step                text NOT NULL,
    ack_val             bigint NOT NULL,
    unacked             bigint NOT NULL,
    partitions          integer,  -- declared when the write action ended
    staged_rows         bigint,   -- counted when the attempt was sealed
    contribution_digest text,     -- of the staged rows, folded to a row per key
    PRIMARY KEY (topology, txid, attempt_id, sink),
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT partitions_are_counted CHECK (partitions >= 0)
);

-- One row per partition that acked. A second copy of the Spark task finds the row.
CREATE TABLE reliability.ack (
    topology   text NOT NULL,
    txid       bigint NOT NULL,
    attempt_id integer NOT NULL,
    sink       text NOT NULL,
    partition  integer NOT NULL,
    write_id   uuid NOT NULL,                    -- the one write action of this sink
    xor        bigint NOT NULL,
    count      bigint NOT NULL,
    rows       bigint NOT NULL,
    digest     bigint NOT NULL,                  -- of its rows, so that the seal need not read them
    began_at   timestamptz NOT NULL DEFAULT now(),  -- of the transaction
    acked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ack_once_per_partition
        PRIMARY KEY (topology, txid, attempt_id, sink, partition),
    FOREIGN KEY (topology, txid, attempt_id, sink) REFERENCES reliability.sink
);

-- An attempt with many rows to append stages them in a table of its own, without an index. The
-- commit copies them into the target and drops the table: nothing has to be deleted row by row.
CREATE TABLE reliability.attempt_table (
    table_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology   text NOT NULL,
    state      text NOT NULL,
    txid       bigint NOT NULL,
    attempt_id integer NOT NULL,
    bytes      bigint,  -- its size when it was sealed; it never changes
    is_merged  boolean NOT NULL,  -- the seal moves its rows to the contributions', however many
    is_folded  boolean NOT NULL DEFAULT false,  -- the seal has found no key twice
    FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt,
    CONSTRAINT one_table_per_attempt_and_state UNIQUE (topology, state, txid, attempt_id)
);

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

-- The last statement of a Spark task's transaction, in one round trip with COMMIT.
-- Contract: the attempt is still PROCESSING with this nonce, or RL001 rolls the COPY back;
-- the partition has not acked yet, or unique_violation on ack_once_per_partition. The attempt's
-- row is locked last: a check at the start would let a zombie commit, a lock at the start would
-- let a stalled COPY hold up the topology. It runs as the owner of the ledger: who knows the nonce
-- may ack, and needs no right on a table.
CREATE FUNCTION reliability.acknowledge(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_sink text, p_partition integer, p_write_id uuid,
    p_xor bigint, p_count bigint, p_rows bigint, p_digest bigint
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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

-- The write id of a partition's ack, if it has acked, for who knows the nonce.
CREATE FUNCTION reliability.existing_ack(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_sink text, p_partition integer
) RETURNS TABLE (write_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.write_id::text FROM reliability.ack k
      JOIN reliability.attempt a USING (topology, txid, attempt_id)
     WHERE k.topology = p_topology AND k.txid = p_txid AND k.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND k.sink = p_sink AND k.partition = p_partition
$$;

-- Record the end of a sink's single write action: its number of partitions, and what was set aside
-- on the way to it, which counts as acked. Returns what the sink then lacks of what was emitted.
-- Contract: the attempt is PROCESSING, and the sink has not been declared yet; no row otherwise.
CREATE FUNCTION reliability.declare_partitions(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_sink text,
    p_partitions integer, p_kinds text[], p_reasons text[], p_xors bigint[], p_counts bigint[]
) RETURNS TABLE (ack_val bigint, unacked bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- How far each sink is: what has acked and was set aside, and the attempt's own table, if it has one.
CREATE VIEW reliability.sink_progress AS
SELECT s.topology, s.txid, s.attempt_id, s.sink, s.step, s.partitions, s.ack_val, s.unacked,
       k.partitions AS acked_partitions, k.digests, x.xor AS aside_xor, x.count AS aside_count,
       own.table_id
  FROM reliability.sink s
  LEFT JOIN reliability.attempt_table own ON own.topology = s.topology AND own.state = s.sink
       AND own.txid = s.txid AND own.attempt_id = s.attempt_id
 CROSS JOIN LATERAL (
       SELECT coalesce(array_agg(partition ORDER BY partition), '{}') AS partitions,
              coalesce(array_agg(digest ORDER BY partition), '{}') AS digests
         FROM reliability.ack
        WHERE topology = s.topology AND txid = s.txid AND attempt_id = s.attempt_id
          AND sink = s.sink) AS k
 CROSS JOIN LATERAL (
       SELECT coalesce(bit_xor(xor), 0) AS xor, coalesce(sum(count), 0)::bigint AS count
         FROM reliability.set_aside
        WHERE topology = s.topology AND txid = s.txid AND attempt_id = s.attempt_id
          AND sink = s.sink) AS x;

-- First step of the seal: from now on an ack finds no PROCESSING row, so what has acked is all that
-- ever will, and the attempt has all the tables of its own that it ever will. They are read in a
-- statement of their own, which sees the acks that the first one waited for.
-- No row: the attempt is no longer PROCESSING.
CREATE FUNCTION reliability.begin_seal(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_task text
) RETURNS TABLE (batch_meta jsonb, emitted_xor bigint, emitted_count bigint, sinks jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE reliability.attempt a
       SET status = 'SEALING', lease_until = clock_timestamp() + a.lease, sealing_task = p_task
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.status = 'PROCESSING';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT b.batch_meta, b.emitted_xor, b.emitted_count, coalesce((
           SELECT jsonb_agg(to_jsonb(s) ORDER BY s.sink) FROM reliability.sink_progress s
            WHERE s.topology = b.topology AND s.txid = b.txid
              AND s.attempt_id = b.attempt_id), '[]')
      FROM reliability.attempt_batch b
     WHERE b.topology = p_topology AND b.txid = p_txid AND b.attempt_id = p_attempt_id;
END $$;

-- Last step of the seal: the staged rows of each sink are complete and never change again.
-- Contract: the attempt is still SEALING, or RL001; it has these sinks, or RL002.
CREATE FUNCTION reliability.end_seal(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_sinks text[], p_rows bigint[], p_digests text[]
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
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

-- The accounts of each state by each attempt that has not failed: emitted = applied + dropped +
-- quarantined, in tuples. A fan-out has staged added_rows more rows than tuples.
-- The attempt was sealed, so what was emitted is what it has acked. The txid may have another batch
-- since: a refreeze replaces it, and an attempt that is parked or skipped has read none.
CREATE VIEW reliability.accounts AS
SELECT s.topology, s.txid, s.attempt_id, a.status, s.sink AS state, t.verdict,
       aside.applied + aside.dropped + aside.quarantined AS emitted,
       aside.applied,
       aside.dropped, aside.quarantined, aside.added_rows,
       aside.reasons
  FROM reliability.sink s
  JOIN reliability.attempt a USING (topology, txid, attempt_id)
  JOIN reliability.transaction t USING (topology, txid)
 CROSS JOIN LATERAL (
       SELECT (coalesce((SELECT sum(k.count) FROM reliability.ack k
                          WHERE k.topology = s.topology AND k.txid = s.txid
                            AND k.attempt_id = s.attempt_id AND k.sink = s.sink), 0)
               + coalesce(sum(x.count) FILTER (WHERE x.kind = 'FANNED_OUT'), 0))::bigint AS applied,
              coalesce(sum(x.count) FILTER (WHERE x.kind = 'DROPPED'), 0)::bigint AS dropped,
              coalesce(sum(x.count) FILTER (WHERE x.kind = 'QUARANTINED'), 0)::bigint
              AS quarantined,
              coalesce(sum(-x.count) FILTER (WHERE x.kind = 'FANNED_OUT'), 0)::bigint AS added_rows,
              coalesce(jsonb_agg(jsonb_build_object(
                           'kind', x.kind, 'reason', x.reason, 'count', x.count)
                           ORDER BY x.kind, x.reason), '[]') AS reasons
         FROM reliability.set_aside x
        WHERE x.topology = s.topology AND x.txid = s.txid AND x.attempt_id = s.attempt_id
          AND x.sink = s.sink) AS aside
 WHERE a.status IN ('PROCESSED', 'COMMITTED', 'REPLACED', 'DRY_RUN');
