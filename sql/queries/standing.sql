-- standing --
-- The part of a topology's position that the decisions about all its txids share.
SELECT c.position, p.next_txid, p.max_spout_pending, p.max_replay_pending, p.paused_reason,
       coalesce(p.last_granted_at + p.emit_interval > clock_timestamp(), false) AS is_throttled
  FROM reliability.topology p
  JOIN reliability.commit_position c USING (topology)
 WHERE p.topology = %(topology)s;

-- live_attempts --
-- The live attempts of a topology with their steps; there are few.
SELECT l.txid, l.attempt_id AS live_attempt_id, l.status AS live_status,
       l.request_id AS live_request_id, l.nonce::text AS live_nonce, l.sealing_task,
       coalesce(l.lease_until < clock_timestamp(), false) AS live_lease_expired,
       coalesce(q.is_dry_run, false) AS live_is_dry_run,
       coalesce(q.status = 'OPEN', false) AS live_is_wanted,
       coalesce((SELECT jsonb_agg(jsonb_build_object('step', d.step, 'claimed_by', d.claimed_by,
                                                     'is_done', d.status = 'DONE'))
                   FROM reliability.attempt_step d
                  WHERE d.topology = l.topology AND d.txid = l.txid
                    AND d.attempt_id = l.attempt_id), '[]') AS steps
  FROM reliability.attempt l
  LEFT JOIN reliability.request q ON q.request_id = l.request_id
 WHERE l.topology = %(topology)s AND l.status IN ('PROCESSING', 'SEALING', 'PROCESSED');

-- unfrozen_or_held --
-- Uncommitted txids without a frozen batch, those that a person must release, and all skipped ones.
SELECT t.topology, t.txid, t.batch_meta IS NULL AS is_unfrozen, t.held_reason,
       t.interval_start, t.interval_end, k.skipped_at, k.skipped_by, k.reason AS skipped_reason
  FROM reliability.transaction t
  LEFT JOIN reliability.skip k ON k.topology = t.topology AND k.txid = t.txid AND k.ended_at IS NULL
 WHERE t.topology = %(topology)s AND t.txid IN (
       SELECT o.txid FROM reliability.transaction o
        WHERE o.topology = %(topology)s AND o.committed_attempt IS NULL
          AND o.txid >= %(curr_txid)s AND (o.batch_meta IS NULL OR o.held_reason IS NOT NULL)
        UNION
       SELECT s.txid FROM reliability.skip s
        WHERE s.topology = %(topology)s AND s.ended_at IS NULL);

-- requests_that_changed --
-- Which of these requests are no longer open, and those whose status the caller does not know yet.
SELECT request_id, number, kind, status, granted_after, coalesce(reason, '') AS reason, is_dry_run,
       dag_id, run_id
  FROM reliability.request
 WHERE request_id = ANY(%(known)s::bigint[]) AND status <> 'OPEN'
    OR request_id = ANY(%(unknown)s::bigint[]);
