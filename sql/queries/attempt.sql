-- snapshot --
-- All that the coordinator's decisions need of a topology and one of its txids, in one statement.
SELECT t.txid, p.curr_txid, p.max_spout_pending, t.committed_attempt,
       l.attempt_id AS live_attempt_id, l.status AS live_status, l.request_id AS live_request_id,
       coalesce(l.lease_until < clock_timestamp(), false) AS live_lease_expired,
       (SELECT count(*) FROM reliability.attempt r
         WHERE r.topology = p.topology AND r.txid < p.curr_txid AND r.txid <> t.txid
           AND r.status IN ('PROCESSING', 'SEALING')) AS replays_processing
  FROM reliability.topology p
  JOIN reliability.transaction t ON t.topology = p.topology AND t.txid = %(txid)s
  LEFT JOIN reliability.attempt l ON l.topology = t.topology AND l.txid = t.txid
        AND l.status IN ('PROCESSING', 'SEALING', 'PROCESSED')
 WHERE p.topology = %(topology)s;

-- fence_live_attempt --
-- Before a newer attempt is granted: nothing that an older one does can count any more (G4).
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND status IN ('PROCESSING', 'SEALING')
RETURNING attempt_id;

-- grant_attempt --
-- The next attempt id, never used before, durable before anything runs.
INSERT INTO reliability.attempt (topology, txid, attempt_id, request_id, lease, lease_until)
SELECT %(topology)s, %(txid)s, coalesce(max(attempt_id), -1) + 1, %(request_id)s,
       %(lease)s * interval '1 second', clock_timestamp() + %(submit_lease)s * interval '1 second'
  FROM reliability.attempt WHERE topology = %(topology)s AND txid = %(txid)s
RETURNING attempt_id, nonce::text AS nonce;

-- open_sinks --
-- Storm's ack init, one a sink: ack_val starts as the XOR of all that was emitted.
INSERT INTO reliability.sink (topology, txid, attempt_id, sink, ack_val, unacked)
SELECT t.topology, t.txid, %(attempt_id)s, s.sink, t.emitted_xor, t.emitted_count
  FROM reliability.transaction t, unnest(%(sinks)s::text[]) AS s(sink)
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s
RETURNING sink;

-- start_attempt --
-- The driver's first message: from here on the lease is renewed by progress.
UPDATE reliability.attempt
   SET started_at = clock_timestamp(), lease_until = clock_timestamp() + lease,
       driver_host = %(driver_host)s, driver_pid = %(driver_pid)s, python_pid = %(python_pid)s,
       application_id = %(application_id)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'PROCESSING' AND started_at IS NULL
RETURNING attempt_id;

-- renew_lease --
UPDATE reliability.attempt SET lease_until = clock_timestamp() + lease
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status IN ('PROCESSING', 'SEALING')
RETURNING attempt_id;

-- declare_partitions --
-- The write action of a sink ended with so many partitions; a second declaration finds no row.
UPDATE reliability.sink s SET partitions = %(partitions)s
  FROM reliability.attempt a
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'PROCESSING'
   AND s.topology = a.topology AND s.txid = a.txid AND s.attempt_id = a.attempt_id
   AND s.sink = %(sink)s AND s.partitions IS NULL
RETURNING s.sink;

-- acknowledge --
-- Fence, then ack; the caller sends it in one round trip with COMMIT.
SELECT reliability.acknowledge(%(topology)s, %(txid)s, %(attempt_id)s, %(nonce)s, %(sink)s,
       %(partition)s, %(write_id)s, %(xor)s, %(count)s, %(rows)s);

-- existing_ack --
SELECT write_id::text AS write_id FROM reliability.ack
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND sink = %(sink)s AND partition = %(partition)s;

-- sinks --
SELECT s.sink, s.partitions, s.ack_val, s.unacked,
       coalesce(array_agg(k.partition ORDER BY k.partition) FILTER (WHERE k.partition IS NOT NULL),
                '{}') AS acked_partitions
  FROM reliability.sink s
  LEFT JOIN reliability.ack k ON k.topology = s.topology AND k.txid = s.txid
        AND k.attempt_id = s.attempt_id AND k.sink = s.sink
 WHERE s.topology = %(topology)s AND s.txid = %(txid)s AND s.attempt_id = %(attempt_id)s
 GROUP BY s.sink, s.partitions, s.ack_val, s.unacked
 ORDER BY s.sink;

-- begin_seal --
-- Seal, first step: from now on an ack finds no PROCESSING row.
UPDATE reliability.attempt
   SET status = 'SEALING', lease_until = clock_timestamp() + lease
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'PROCESSING'
RETURNING attempt_id;

-- record_staged_rows --
UPDATE reliability.sink SET staged_rows = %(staged_rows)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND sink = %(sink)s
RETURNING sink;

-- end_seal --
-- Seal, last step: what lies in staging is complete and never changes again.
UPDATE reliability.attempt
   SET status = 'PROCESSED', lease_until = NULL, processed_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'SEALING'
RETURNING attempt_id;

-- end_attempt --
-- Fail or fence one unsealed attempt. A PROCESSED or committed one is out of reach (A8).
UPDATE reliability.attempt
   SET status = %(status)s, lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = %(reason_code)s, reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status IN ('PROCESSING', 'SEALING')
RETURNING attempt_id;

-- end_attempt_of_request --
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'REQUEST_CLOSED', reason = %(reason)s
 WHERE request_id = %(request_id)s AND status IN ('PROCESSING', 'SEALING')
RETURNING attempt_id;

-- expire_leases --
-- A process that died silently is found by its lease.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = 'its lease expired: no progress'
 WHERE topology = %(topology)s AND status IN ('PROCESSING', 'SEALING')
   AND lease_until < clock_timestamp()
RETURNING txid, attempt_id;

-- attempt --
SELECT status, reason_code, coalesce(reason, '') AS reason FROM reliability.attempt
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s;

-- attempts_to_clean --
-- Attempts that can never count any more and whose staged rows still lie there.
SELECT txid, attempt_id FROM reliability.attempt
 WHERE topology = %(topology)s AND cleaned_at IS NULL
   AND status IN ('FAILED', 'FENCED', 'REPLACED')
 ORDER BY txid, attempt_id;

-- record_cleaned --
UPDATE reliability.attempt SET cleaned_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND status IN ('FAILED', 'FENCED', 'REPLACED')
RETURNING attempt_id;
