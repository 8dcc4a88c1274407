-- standing --
-- The position of a topology, or of each: all that decides what its tasks do next. Its live attempts
-- are few. Of the uncommitted txids, those without a frozen batch and those that a person must release;
-- and the skipped ones. For a task: only what concerns its txid of these, its request, and what a begin
-- has to know: the live attempts of its txid, of the one before it, and of replays. Of the candidates
-- only those up to curr_txid: none beyond it can commit before it.
SELECT p.topology, c.position,
       coalesce((SELECT jsonb_agg(n.candidate ORDER BY n.txid) FROM reliability.commit_candidate n
                  WHERE n.topology = p.topology AND n.txid <= p.curr_txid), '[]') AS processed,
       p.next_txid, p.max_spout_pending, p.max_replay_pending,
       p.paused_reason AS paused,
       coalesce(p.last_granted_at + p.emit_interval > clock_timestamp()
                AND p.last_granted_at <= clock_timestamp(), false) AS is_throttled,  -- or set back
       coalesce((SELECT jsonb_agg(jsonb_build_object(
              'txid', l.txid, 'attempt_id', l.attempt_id, 'status', l.status,
              'request_id', l.request_id, 'nonce', l.nonce, 'sealing_task', l.sealing_task,
              'lease_expired', coalesce(l.lease_until < clock_timestamp(), false),
              'is_dry_run', coalesce(q.is_dry_run, false),
              'is_wanted', coalesce(q.status = 'OPEN', false),
              'steps', coalesce((
                   SELECT jsonb_agg(jsonb_build_object('step', d.step, 'claimed_by', d.claimed_by,
                                                       'is_done', d.status = 'DONE'))
                     FROM reliability.attempt_step d
                    WHERE d.topology = l.topology AND d.txid = l.txid
                      AND d.attempt_id = l.attempt_id), '[]')))
            FROM reliability.attempt l
            LEFT JOIN reliability.request q ON q.request_id = l.request_id
           WHERE l.topology = p.topology AND l.status IN ('PROCESSING', 'SEALING', 'PROCESSED')
             AND (%(txid)s::bigint IS NULL OR l.txid BETWEEN %(txid)s::bigint - 1 AND %(txid)s
                  OR l.txid < p.curr_txid)),
           '[]') AS live,
       ARRAY(SELECT t.txid FROM reliability.transaction t
              WHERE t.topology = p.topology AND t.txid >= p.curr_txid AND t.batch_meta IS NULL
                AND t.committed_attempt IS NULL
                AND t.txid = coalesce(%(txid)s::bigint, t.txid)) AS unfrozen,
       coalesce((SELECT jsonb_object_agg(t.txid, t.held_reason) FROM reliability.transaction t
                  WHERE t.topology = p.topology AND t.txid >= p.curr_txid
                    AND t.held_reason IS NOT NULL AND t.committed_attempt IS NULL
                    AND t.txid = coalesce(%(txid)s::bigint, t.txid)), '{}') AS held,
       ARRAY(SELECT s.txid FROM reliability.skip s
              WHERE s.topology = p.topology AND s.ended_at IS NULL
                AND s.txid = coalesce(%(txid)s::bigint, s.txid)) AS skipped,
       (SELECT jsonb_build_object('request_id', r.request_id, 'number', r.number, 'kind', r.kind,
               'status', r.status, 'granted_after', r.granted_after,
               'reason', coalesce(r.reason, ''), 'is_dry_run', r.is_dry_run,
               'dag_id', r.dag_id, 'run_id', r.run_id)
          FROM reliability.request r WHERE r.request_id = %(request_id)s) AS request,
       t.interval_start, t.interval_end, t.interval_zone,
       (SELECT max(n.attempt_id) FROM reliability.attempt n
         WHERE n.topology = t.topology AND n.txid = t.txid) AS newest_attempt,
       coalesce((SELECT jsonb_object_agg(d.state, d.definition_digest) FROM reliability.state d
                  WHERE d.topology = p.topology), '{}') AS definition_digests,
       ARRAY(SELECT o.database FROM reliability.participant o
              WHERE o.topology = p.topology ORDER BY o.database) AS databases,
       EXISTS (SELECT FROM reliability.exclusion x
                WHERE x.topology = p.topology AND x.ended_at IS NULL) AS has_exclusions
  FROM reliability.topology p
  JOIN reliability.commit_position c ON c.topology = p.topology
  LEFT JOIN reliability.transaction t ON t.topology = p.topology AND t.txid = %(txid)s
 WHERE %(topology)s::text IS NULL OR p.topology = %(topology)s;

-- fence_live_attempt --
-- Before a newer attempt is granted: nothing that an older one does can count any more (G4). A
-- PROCESSED attempt is never fenced, unless it is a dry run's and no longer wanted, or a person parks,
-- skips or unskips the txid.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND (status IN ('PROCESSING', 'SEALING')
        OR status = 'PROCESSED' AND (%(even_processed)s OR request_id IN (
           SELECT request_id FROM reliability.request WHERE is_dry_run AND status <> 'OPEN')));

-- hold_predecessor --
-- Lock the attempt from which a batch starts, so that it cannot end meanwhile; no row: it has
-- ended.
SELECT attempt_id FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s - 1 AND attempt_id = %(predecessor_attempt)s
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED', 'COMMITTED') FOR SHARE;

-- grant_attempt --
-- Grant the next attempt id, which was never used before; durable before anything runs. An id that was
-- used violates the primary key. With a verdict it is empty, and reads no batch.
INSERT INTO reliability.attempt (topology, txid, attempt_id, nonce, request_id, lease, lease_until,
       verdict, verdict_reason, batch_meta, emitted_xor, emitted_count, predecessor_attempt,
       as_refrozen, left_out, batch_digest)
SELECT %(topology)s, %(txid)s, %(attempt_id)s, %(nonce)s, %(request_id)s,
       %(lease)s * interval '1 second', clock_timestamp() + %(submit_lease)s * interval '1 second',
       %(verdict)s, %(verdict_reason)s,
       %(batch_meta)s, %(emitted_xor)s, %(emitted_count)s, %(predecessor_attempt)s, %(as_refrozen)s,
       %(left_out)s::text[],
       CASE WHEN %(verdict)s IS NULL THEN encode(sha256(convert_to(coalesce(
              %(batch_meta)s::jsonb, (
              SELECT t.batch_meta FROM reliability.transaction t
               WHERE t.topology = %(topology)s AND t.txid = %(txid)s))::text, 'UTF8')), 'hex') END;

-- record_grant --
-- The emission throttle counts from this time.
UPDATE reliability.topology SET last_granted_at = clock_timestamp()
 WHERE topology = %(topology)s;

-- open_sinks --
-- Storm's ack init, one per sink: ack_val starts as the XOR of all emitted rows. Those of an empty
-- attempt have nothing to ack.
INSERT INTO reliability.sink (topology, txid, attempt_id, step, sink, ack_val, unacked, partitions)
SELECT t.topology, t.txid, a.attempt_id, s.step, s.sink,
       CASE WHEN a.verdict IS NULL THEN coalesce(a.emitted_xor, t.emitted_xor) ELSE 0 END,
       CASE WHEN a.verdict IS NULL THEN coalesce(a.emitted_count, t.emitted_count) ELSE 0 END,
       CASE WHEN a.verdict IS NOT NULL THEN 0 END
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

-- record_code --
-- Record code before the step that refers to it; a topology has few versions, however many
-- attempts.
INSERT INTO reliability.code (digest, contents) VALUES (%(digest)s, %(contents)s)
    ON CONFLICT (digest) DO NOTHING;

-- start_step --
-- The driver's first message: from here on the lease is renewed by progress. The timeline tells
-- whether a session that is opened later is with the same server.
UPDATE reliability.attempt_step d
   SET started_at = clock_timestamp(),
       driver_host = %(host)s, driver_pid = %(jvm_pid)s, python_pid = %(python_pid)s,
       application_id = %(application_id)s, ui_url = %(ui_url)s,
       code_digest = %(code_digest)s
  FROM reliability.attempt a
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'PROCESSING'
   AND d.topology = a.topology AND d.txid = a.txid AND d.attempt_id = a.attempt_id
   AND d.step = %(step)s AND d.status = 'RUNNING' AND d.started_at IS NULL
RETURNING reliability.timeline() AS timeline;

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

-- sinks --
-- The acker's record of each sink of an attempt: ack_val, and which partitions have acked.
SELECT * FROM reliability.sink_progress
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
 ORDER BY sink;

-- end_attempt --
-- Fail or fence one unsealed attempt, never a PROCESSED or committed one (A8).
UPDATE reliability.attempt
   SET status = %(status)s, lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = %(reason_code)s, reason = %(reason)s, remedy = %(remedy)s
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
-- Fence an attempt if its lease has still expired. An empty one has a lease only while its verb tells other
-- databases of it.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = 'its lease expired: no progress',
       remedy = CASE verdict WHEN 'PARKED' THEN 'it was killed; call {park} again.'
                             WHEN 'SKIPPED' THEN 'it was killed; call {skip} again.' END
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
-- What an attempt reads.
SELECT b.batch_meta, b.emitted_xor, b.emitted_count
  FROM reliability.attempt a JOIN reliability.attempt_batch b USING (topology, txid, attempt_id)
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s;

-- attempt --
-- The status of an attempt, and why it ended.
SELECT status, reason_code, coalesce(reason, '') AS reason, remedy FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s;

-- attempts_to_clean --
-- Attempts that can never count any more and still have staged rows.
SELECT txid, attempt_id FROM reliability.attempt
 WHERE topology = %(topology)s AND cleaned_at IS NULL
   AND status IN ('FAILED', 'FENCED', 'REPLACED', 'DRY_RUN', 'ROLLED_BACK')
 ORDER BY txid, attempt_id;

-- committed_here --
-- Whether an attempt has committed in this database, whatever the ledger of its topology says.
SELECT FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND status = 'COMMITTED';

-- rows_of_sources --
-- Whether txids, of any topology, have rows of their sources, and have committed some: otherwise a test
-- shows nothing.
SELECT count(*) > 0 AS any, count(committed_attempt) > 0 AS any_committed
  FROM reliability.transaction WHERE emitted_count > 0;

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

-- predecessor --
-- The data interval of a txid whose batch is not frozen, and the attempt from which it starts: the
-- committed or the live one of the txid before.
SELECT t.interval_start, t.interval_end, t.interval_zone, b.attempt_id AS predecessor_attempt
  FROM reliability.topology p
  JOIN reliability.transaction t ON t.topology = p.topology AND t.txid = %(txid)s
  LEFT JOIN reliability.attempt b ON b.topology = t.topology AND b.txid = t.txid - 1
        AND (b.txid < p.curr_txid AND b.status = 'COMMITTED'
             OR b.txid >= p.curr_txid AND b.status IN ('PROCESSING', 'SEALING', 'PROCESSED'))
 WHERE p.topology = %(topology)s AND t.batch_meta IS NULL;

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
