-- snapshot --
-- Everything that the coordinator's decisions need of a topology, one of its txids and a request for
-- it, in one statement.
SELECT t.topology, t.txid, p.curr_txid, c.position, p.max_spout_pending, p.paused_reason,
       coalesce(p.last_granted_at + p.emit_interval > clock_timestamp(), false) AS is_throttled,
       t.interval_start, t.interval_end, t.batch_meta IS NOT NULL AS is_frozen, t.held_reason,
       p.max_replay_pending, k.skipped_at, k.skipped_by, k.reason AS skipped_reason,
       b.attempt_id AS predecessor_attempt,
       l.attempt_id AS live_attempt_id, l.status AS live_status, l.request_id AS live_request_id,
       l.nonce::text AS live_nonce, l.sealing_task, coalesce(l.lease_until < clock_timestamp(), false) AS live_lease_expired,
       coalesce(q.is_dry_run, false) AS live_is_dry_run,
       coalesce(q.status = 'OPEN', false) AS live_is_wanted,
       coalesce((SELECT jsonb_agg(jsonb_build_object('step', d.step, 'claimed_by', d.claimed_by,
                                                     'is_done', d.status = 'DONE'))
                   FROM reliability.attempt_step d
                  WHERE d.topology = l.topology AND d.txid = l.txid
                    AND d.attempt_id = l.attempt_id), '[]') AS steps,
       ARRAY(SELECT r.txid FROM reliability.attempt r
              WHERE r.topology = p.topology AND r.txid < p.curr_txid AND r.txid <> t.txid
                AND r.status IN ('PROCESSING', 'SEALING') ORDER BY r.txid) AS other_replays,
       (SELECT jsonb_build_object('request_id', r.request_id, 'number', r.number, 'kind', r.kind,
               'status', r.status, 'granted_after', r.granted_after,
               'reason', coalesce(r.reason, ''), 'is_dry_run', r.is_dry_run,
               'dag_id', r.dag_id, 'run_id', r.run_id)
          FROM reliability.request r WHERE r.request_id = %(request_id)s) AS request,
       (SELECT max(n.attempt_id) FROM reliability.attempt n
         WHERE n.topology = t.topology AND n.txid = t.txid) AS newest_attempt,
       coalesce((SELECT jsonb_object_agg(d.state, d.definition_digest) FROM reliability.state d
                  WHERE d.topology = p.topology), '{}') AS definition_digests,
       EXISTS (SELECT FROM reliability.exclusion x
                WHERE x.topology = p.topology AND x.ended_at IS NULL) AS has_exclusions
  FROM reliability.topology p
  JOIN reliability.commit_position c ON c.topology = p.topology
  JOIN reliability.transaction t ON t.topology = p.topology AND t.txid = %(txid)s
  LEFT JOIN reliability.attempt l ON l.topology = t.topology AND l.txid = t.txid
        AND l.status IN ('PROCESSING', 'SEALING', 'PROCESSED')
  LEFT JOIN reliability.request q ON q.request_id = l.request_id
  LEFT JOIN reliability.skip k ON k.topology = t.topology AND k.txid = t.txid AND k.ended_at IS NULL
  LEFT JOIN reliability.attempt b ON b.topology = t.topology AND b.txid = t.txid - 1
        AND (b.txid < p.curr_txid AND b.status = 'COMMITTED'
             OR b.txid >= p.curr_txid AND b.status IN ('PROCESSING', 'SEALING', 'PROCESSED'))
 WHERE p.topology = %(topology)s;

-- fence_live_attempt --
-- Before a newer attempt is granted: nothing that an older one does can count any more (G4). A
-- PROCESSED attempt is never fenced, unless it is a dry run's and no longer wanted.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND (status IN ('PROCESSING', 'SEALING')
        OR status = 'PROCESSED' AND request_id IN (
           SELECT request_id FROM reliability.request WHERE is_dry_run AND status <> 'OPEN'))
RETURNING attempt_id;

-- hold_predecessor --
-- Lock the attempt from which a batch starts, so that it cannot end meanwhile; no row: it has
-- ended.
SELECT attempt_id FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s - 1 AND attempt_id = %(predecessor_attempt)s
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED', 'COMMITTED') FOR SHARE;

-- grant_attempt --
-- Grant the next attempt id, which was never used before; durable before anything runs. An id that was
-- used violates the primary key.
INSERT INTO reliability.attempt (topology, txid, attempt_id, nonce, request_id, lease, lease_until,
       batch_meta, emitted_xor, emitted_count, predecessor_attempt, as_refrozen, batch_digest)
SELECT %(topology)s, %(txid)s, %(attempt_id)s, %(nonce)s, %(request_id)s,
       %(lease)s * interval '1 second', clock_timestamp() + %(submit_lease)s * interval '1 second',
       %(batch_meta)s, %(emitted_xor)s, %(emitted_count)s, %(predecessor_attempt)s, %(as_refrozen)s,
       encode(sha256(convert_to(coalesce(%(batch_meta)s::jsonb, (
              SELECT t.batch_meta FROM reliability.transaction t
               WHERE t.topology = %(topology)s AND t.txid = %(txid)s))::text, 'UTF8')), 'hex');

-- record_grant --
-- The emission throttle counts from this time.
UPDATE reliability.topology SET last_granted_at = clock_timestamp()
 WHERE topology = %(topology)s;

-- check_rights --
-- Raise unless this role may stage and commit what it begins: it would find out after Spark has run.
SELECT reliability.check_rights(%(schemas)s::text[], %(tables)s::text[], %(rights)s::text[]);

-- open_sinks --
-- Storm's ack init, one per sink: ack_val starts as the XOR of all emitted rows.
INSERT INTO reliability.sink (topology, txid, attempt_id, step, sink, ack_val, unacked)
SELECT t.topology, t.txid, a.attempt_id, s.step, s.sink,
       coalesce(a.emitted_xor, t.emitted_xor), coalesce(a.emitted_count, t.emitted_count)
  FROM reliability.transaction t
  JOIN reliability.attempt a ON a.topology = t.topology AND a.txid = t.txid
       AND a.attempt_id = %(attempt_id)s,
       unnest(%(steps)s::text[], %(sinks)s::text[]) AS s(step, sink)
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s
RETURNING sink;

-- open_steps --
-- Open the steps of a new attempt.
INSERT INTO reliability.attempt_step (topology, txid, attempt_id, step)
SELECT %(topology)s, %(txid)s, %(attempt_id)s, unnest(%(steps)s::text[])
RETURNING step;

-- claim_step --
-- Claim a step that no task has claimed, in an attempt of the task's own request; no row: it cannot be
-- claimed any more.
SELECT reliability.claim_step(%(topology)s, %(txid)s, %(attempt_id)s, %(nonce)s, %(request_id)s,
       %(step)s, %(task)s, %(submit_lease)s);

-- record_code --
-- Record code before the step that refers to it; a topology has few versions, however many
-- attempts.
INSERT INTO reliability.code (digest, contents) VALUES (%(digest)s, %(contents)s)
    ON CONFLICT (digest) DO NOTHING;

-- start_step --
-- The driver's first message: from here on the lease is renewed by progress.
UPDATE reliability.attempt_step d
   SET started_at = clock_timestamp(),
       driver_host = %(driver_host)s, driver_pid = %(driver_pid)s, python_pid = %(python_pid)s,
       application_id = %(application_id)s, ui_url = %(ui_url)s,
       code_digest = %(code_digest)s
  FROM reliability.attempt a
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'PROCESSING'
   AND d.topology = a.topology AND d.txid = a.txid AND d.attempt_id = a.attempt_id
   AND d.step = %(step)s AND d.status = 'RUNNING' AND d.started_at IS NULL
RETURNING d.attempt_id;

-- end_step --
-- Mark a running step of a PROCESSING attempt as done.
UPDATE reliability.attempt_step d SET status = 'DONE', ended_at = clock_timestamp()
  FROM reliability.attempt a
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'PROCESSING'
   AND d.topology = a.topology AND d.txid = a.txid AND d.attempt_id = a.attempt_id
   AND d.step = %(step)s AND d.status = 'RUNNING'
RETURNING d.attempt_id;

-- renew_lease --
-- Renew the lease of an unsealed attempt after progress.
UPDATE reliability.attempt a SET lease_until = reliability.renewed_lease(a)
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status IN ('PROCESSING', 'SEALING')
RETURNING attempt_id;

-- declare_partitions --
-- Record how many partitions the finished write action of a sink had, and what was set aside on the way
-- to it; a second declaration finds no row. Returns what the sink lacks of what was emitted; its xor is
-- Storm's ack_val.
SELECT ack_val, unacked FROM reliability.declare_partitions(%(topology)s, %(txid)s, %(attempt_id)s, %(nonce)s, %(sink)s,
       %(partitions)s, %(kinds)s::text[], %(reasons)s::text[], %(xors)s::bigint[],
       %(counts)s::bigint[]);

-- quarantine_rows --
-- Store rows that a step of a PROCESSING attempt has put into the quarantine, in their order.
INSERT INTO reliability.quarantined_row
       (topology, txid, attempt_id, step, number, reason, item, row, contents, is_cut, xor, count,
        source)
SELECT a.topology, a.txid, a.attempt_id, %(step)s, q.number, q.reason, q.item, q.row, q.contents,
       q.is_cut, q.xor, q.count, q.source
  FROM reliability.attempt a,
       unnest(%(reasons)s::text[], %(items)s::text[], %(rows)s::bigint[], %(contents)s::text[],
              %(cut)s::boolean[], %(xors)s::bigint[], %(counts)s::bigint[], %(sources)s::text[])
       WITH ORDINALITY AS q(reason, item, row, contents, is_cut, xor, count, source, number)
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'PROCESSING'
RETURNING number;

-- set_aside_for --
-- What an attempt has set aside on the way to a state.
SELECT kind, reason, xor, count FROM reliability.set_aside
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND sink = %(sink)s
 ORDER BY kind, reason;

-- delete_quarantined --
-- Delete the quarantined rows of an attempt that has ended.
DELETE FROM reliability.quarantined_row
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s;

-- acknowledge --
-- Fence, then ack; the caller sends it in one round trip with COMMIT.
SELECT reliability.acknowledge(%(topology)s, %(txid)s, %(attempt_id)s, %(nonce)s, %(sink)s,
       %(partition)s, %(write_id)s, %(xor)s, %(count)s, %(rows)s, %(digest)s);

-- existing_ack --
-- The write id of a partition's ack, if it has acked.
SELECT write_id::text AS write_id FROM reliability.ack
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND sink = %(sink)s AND partition = %(partition)s;

-- sinks --
-- The acker's record of each sink of an attempt: ack_val, and which partitions have acked.
SELECT s.sink, s.step, s.partitions, s.ack_val, s.unacked,
       (SELECT coalesce(bit_xor(x.xor), 0) FROM reliability.set_aside x
         WHERE x.topology = s.topology AND x.txid = s.txid AND x.attempt_id = s.attempt_id
           AND x.sink = s.sink) AS aside_xor,
       (SELECT coalesce(sum(x.count), 0)::bigint FROM reliability.set_aside x
         WHERE x.topology = s.topology AND x.txid = s.txid AND x.attempt_id = s.attempt_id
           AND x.sink = s.sink) AS aside_count,
       coalesce(array_agg(k.partition ORDER BY k.partition) FILTER (WHERE k.partition IS NOT NULL),
                '{}') AS acked_partitions
  FROM reliability.sink s
  LEFT JOIN reliability.ack k ON k.topology = s.topology AND k.txid = s.txid
        AND k.attempt_id = s.attempt_id AND k.sink = s.sink
 WHERE s.topology = %(topology)s AND s.txid = %(txid)s AND s.attempt_id = %(attempt_id)s
 GROUP BY s.topology, s.txid, s.attempt_id, s.sink
 ORDER BY s.sink;

-- begin_seal --
-- First step of the seal: from now on nothing acks. Returns the batch, and of each sink what has acked
-- and its table, if it has one of its own; no row: the attempt is no longer PROCESSING.
SELECT batch_meta, emitted_xor, emitted_count, sinks
  FROM reliability.begin_seal(%(topology)s, %(txid)s, %(attempt_id)s, %(nonce)s, %(task)s);

-- end_seal --
-- Last step of the seal: record the number and digest of each sink's staged rows, which are complete and
-- never change again. Raises if the attempt was ended.
SELECT reliability.end_seal(%(topology)s, %(txid)s, %(attempt_id)s, %(nonce)s, %(sinks)s::text[],
       %(rows)s::bigint[], %(digests)s::text[]);

-- end_attempt --
-- Fail or fence one unsealed attempt, never a PROCESSED or committed one (A8).
UPDATE reliability.attempt
   SET status = %(status)s, lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = %(reason_code)s, reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status IN ('PROCESSING', 'SEALING')
RETURNING attempt_id;

-- end_attempt_of_request --
-- End the request's unsealed attempt (A8), or its PROCESSED dry run, which can never commit.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'REQUEST_CLOSED', reason = %(reason)s
 WHERE request_id = %(request_id)s
   AND (status IN ('PROCESSING', 'SEALING')
        OR status = 'PROCESSED' AND EXISTS (
           SELECT FROM reliability.request WHERE request_id = %(request_id)s AND is_dry_run))
RETURNING attempt_id;

-- expired_attempts --
-- Attempts whose lease has expired: their process died silently.
SELECT txid, attempt_id FROM reliability.attempt
 WHERE topology = %(topology)s AND status IN ('PROCESSING', 'SEALING')
   AND lease_until < clock_timestamp()
 ORDER BY txid;

-- expire_attempt --
-- Fence an attempt if its lease has still expired.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = 'its lease expired: no progress'
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND status IN ('PROCESSING', 'SEALING') AND lease_until < clock_timestamp()
RETURNING attempt_id;

-- attempts_that_fall_with --
-- An attempt, and those of later txids whose batches start, one after another, where its batch
-- ended.
WITH RECURSIVE falling AS (
       SELECT topology, txid, attempt_id FROM reliability.attempt
        WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
        UNION ALL
       SELECT a.topology, a.txid, a.attempt_id
         FROM falling f
         JOIN reliability.attempt a ON a.topology = f.topology AND a.txid = f.txid + 1
              AND a.predecessor_attempt = f.attempt_id
              AND a.status IN ('PROCESSING', 'SEALING', 'PROCESSED')
)
SELECT txid, attempt_id FROM falling ORDER BY txid;

-- batch_meta_of_attempt --
-- What an attempt reads: its own batch with an opaque spout until the commit, otherwise the txid's.
SELECT coalesce(a.batch_meta, t.batch_meta) AS batch_meta,
       coalesce(a.emitted_xor, t.emitted_xor) AS emitted_xor,
       coalesce(a.emitted_count, t.emitted_count) AS emitted_count
  FROM reliability.attempt a
  JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s;

-- attempt --
-- The status of an attempt, and why it ended.
SELECT status, reason_code, coalesce(reason, '') AS reason FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s;

-- attempts_to_clean --
-- Attempts that can never count any more and still have staged rows.
SELECT txid, attempt_id FROM reliability.attempt
 WHERE topology = %(topology)s AND cleaned_at IS NULL
   AND status IN ('FAILED', 'FENCED', 'REPLACED', 'DRY_RUN', 'ROLLED_BACK')
 ORDER BY txid, attempt_id;

-- record_cleaned --
-- Record that the staged rows of an ended attempt are deleted.
UPDATE reliability.attempt SET cleaned_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND status IN ('FAILED', 'FENCED', 'REPLACED', 'DRY_RUN', 'ROLLED_BACK')
RETURNING attempt_id;

-- uncommitted_batches_before --
-- The batches of the current attempts of the uncommitted txids before this one.
SELECT a.batch_meta, a.emitted_xor, a.emitted_count
  FROM reliability.attempt a
  JOIN reliability.topology p ON p.topology = a.topology
 WHERE a.topology = %(topology)s AND a.txid BETWEEN p.curr_txid AND %(txid)s - 1
   AND a.status IN ('PROCESSING', 'SEALING', 'PROCESSED') AND a.batch_meta IS NOT NULL
 ORDER BY a.txid;

-- is_frozen --
-- Whether the batch of a txid is frozen.
SELECT batch_meta IS NOT NULL AS is_frozen FROM reliability.transaction
 WHERE topology = %(topology)s AND txid = %(txid)s;

-- freeze_batch --
-- Make the attempt's own batch the txid's, if it starts where the committed batch before it ended.
-- A replay of the previous txid reads the same batch again, so it does not matter here.
UPDATE reliability.transaction t
   SET batch_meta = a.batch_meta, emitted_xor = a.emitted_xor, emitted_count = a.emitted_count
  FROM reliability.attempt a
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s AND t.batch_meta IS NULL
   AND a.topology = t.topology AND a.txid = t.txid AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'PROCESSED' AND a.batch_meta IS NOT NULL
   AND (t.txid = 1 OR EXISTS (
        SELECT FROM reliability.attempt b
         WHERE b.topology = t.topology AND b.txid = t.txid - 1
           AND b.attempt_id = a.predecessor_attempt AND b.status IN ('COMMITTED', 'REPLACED')))
RETURNING t.batch_meta, t.emitted_xor, t.emitted_count;
