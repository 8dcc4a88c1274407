-- story_attempt --
-- Everything that the ledger keeps of an attempt. For a replay that did not commit, the replaced
-- attempt is the one committed when it was granted.
SELECT a.status, a.reason_code, a.reason, a.granted_at, a.processed_at, a.ended_at,
       a.verdict, a.verdict_reason, a.batch_digest,
       b.batch_meta AS items,
       r.kind, r.dag_id, r.run_id, r.number, r.is_dry_run, l.commit_number,
       coalesce(l.replaced_attempt,
                (SELECT max(c.attempt_id) FROM reliability.commit_log c
                  WHERE c.topology = a.topology AND c.txid = a.txid
                    AND c.attempt_id < a.attempt_id AND r.kind = 'REPLAY')) AS replaced_attempt
  FROM reliability.attempt a
  JOIN reliability.attempt_batch b USING (topology, txid, attempt_id)
  LEFT JOIN reliability.request r ON r.request_id = a.request_id
  LEFT JOIN reliability.commit_log l ON l.topology = a.topology AND l.txid = a.txid
        AND l.attempt_id = a.attempt_id
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s;

-- attempt_of_run --
-- The newest attempt that a run got for a txid; if it needed none, or got none that counts and a newer one
-- does, the one that counts.
SELECT CASE WHEN own.status IN ('FAILED', 'FENCED') AND NOT own.is_dry_run
                 AND own.attempt_id < t.committed_attempt THEN t.committed_attempt
            ELSE coalesce(own.attempt_id, t.committed_attempt) END AS attempt_id
  FROM reliability.transaction t
  LEFT JOIN LATERAL (
       SELECT a.attempt_id, a.status, r.is_dry_run
         FROM reliability.attempt a
         JOIN reliability.request r USING (request_id)
        WHERE a.topology = t.topology AND a.txid = t.txid
          AND r.dag_id = %(dag_id)s AND r.run_id = %(run_id)s
        ORDER BY a.attempt_id DESC LIMIT 1) AS own ON true
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s;

-- story_steps --
-- The steps of an attempt: where each ran, and with which code.
SELECT d.step, d.status, d.claimed_by AS task, d.driver_host, d.application_id, d.ui_url, d.started_at,
       d.ended_at, d.code_digest, c.contents AS code
  FROM reliability.attempt_step d
  LEFT JOIN reliability.code c ON c.digest = d.code_digest
 WHERE d.topology = %(topology)s AND d.txid = %(txid)s AND d.attempt_id = %(attempt_id)s
 ORDER BY d.started_at, d.step;

-- story_states --
-- What an attempt staged for each state, and how many partitions have acked.
SELECT s.sink AS state, s.step, s.staged_rows, s.contribution_digest, s.partitions,
       (SELECT count(*) FROM reliability.ack k
         WHERE k.topology = s.topology AND k.txid = s.txid AND k.attempt_id = s.attempt_id
           AND k.sink = s.sink) AS acked_partitions
  FROM reliability.sink s
 WHERE s.topology = %(topology)s AND s.txid = %(txid)s AND s.attempt_id = %(attempt_id)s
 ORDER BY s.sink;

-- accounts --
-- The accounts of each state of an attempt that was sealed.
SELECT state, verdict, emitted, applied, dropped, quarantined, added_rows, reasons
  FROM reliability.accounts
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
 ORDER BY state;

-- newer_code --
-- The attempt that ran the newest code before this one, if that code is newer than this one's.
SELECT n.txid, n.attempt_id, newer.seen_at
  FROM reliability.attempt_step d
  JOIN reliability.code own ON own.digest = d.code_digest
  JOIN reliability.attempt_step n ON n.topology = d.topology AND n.started_at < d.started_at
  JOIN reliability.code newer ON newer.digest = n.code_digest AND newer.seen_at > own.seen_at
 WHERE d.topology = %(topology)s AND d.txid = %(txid)s AND d.attempt_id = %(attempt_id)s
 ORDER BY newer.seen_at DESC, n.started_at DESC LIMIT 1;

-- timing_of_attempts --
-- Where the time of a txid's attempts went, in seconds; of one of them, or of all.
SELECT attempt_id, status, emit, queue, submit, read, stage, exit, seal, wait, commit, total
  FROM reliability.attempt_timing
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND (%(attempt_id)s::integer IS NULL OR attempt_id = %(attempt_id)s)
 ORDER BY attempt_id;

-- timing_of_topology --
-- Where the time of the committed txids from the first on went: for each phase, percentiles over
-- their attempts.
SELECT p.phase, count(p.seconds) AS attempts,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY p.seconds) AS median,
       percentile_cont(0.9) WITHIN GROUP (ORDER BY p.seconds) AS p90,
       max(p.seconds) AS longest
  FROM (SELECT * FROM reliability.attempt_timing
         WHERE topology = %(topology)s AND txid >= %(first)s
           AND status IN ('COMMITTED', 'REPLACED')) AS a
 CROSS JOIN LATERAL (VALUES
       (1, 'emit', a.emit), (2, 'queue', a.queue), (3, 'submit', a.submit), (4, 'read', a.read),
       (5, 'stage', a.stage), (6, 'exit', a.exit), (7, 'seal', a.seal), (8, 'wait', a.wait),
       (9, 'commit', a.commit), (10, 'total', a.total)) AS p(place, phase, seconds)
 GROUP BY p.place, p.phase ORDER BY p.place;
