-- keep_history --
-- Record how long contributions can be replaced; not part of the definition, so every declaration
-- may change it.
UPDATE reliability.state
   SET keep_txids = %(txids)s::bigint, keep_age = %(days)s::float8 * interval '1 day'
 WHERE topology = %(topology)s AND state = %(state)s
   AND (keep_txids, keep_age)
       IS DISTINCT FROM (%(txids)s::bigint, %(days)s::float8 * interval '1 day');

-- horizon --
-- In the coordinator's ledger: the last txid that a state compacts. With two limits, a contribution
-- is kept as long as either keeps it. Never a txid that may still change: being replayed or to be
-- replayed, held, uncommitted, committed as empty and not skipped, which a replay may process, refrozen
-- since, or with a correction that was recorded or forgotten since.
WITH due AS (
       SELECT p.curr_txid,
              least(p.curr_txid - 1, p.curr_txid - 1 - %(keep_txids)s::bigint, (
                    SELECT min(t.txid) - 1 FROM reliability.transaction t
                     WHERE t.topology = p.topology AND t.txid > %(after)s
                       AND t.txid < p.curr_txid
                       AND t.committed_at > clock_timestamp() - %(keep_age)s::interval)) AS txid
         FROM reliability.topology p WHERE p.topology = %(topology)s
), unsettled AS (
       SELECT txid FROM reliability.transaction
        WHERE topology = %(topology)s AND committed_attempt IS NULL  -- only these can be held
        UNION ALL
       SELECT txid FROM reliability.attempt
        WHERE topology = %(topology)s AND status IN ('PROCESSING', 'SEALING', 'PROCESSED')
        UNION ALL
       SELECT txid FROM reliability.parked_transaction WHERE topology = %(topology)s
        UNION ALL
       SELECT txid FROM reliability.request
        WHERE topology = %(topology)s AND status = 'OPEN' AND kind = 'REPLAY'
        UNION ALL
       SELECT txid FROM reliability.excluded_item
        WHERE topology = %(topology)s AND is_excluded <> is_left_out
        UNION ALL
       SELECT txid FROM reliability.refreeze JOIN reliability.attempt USING (topology, txid)
        WHERE topology = %(topology)s AND status = 'COMMITTED' AND verdict IS NULL
          AND next_attempt > attempt_id
        UNION ALL
       SELECT txid FROM reliability.correction JOIN reliability.attempt USING (topology, txid)
        WHERE topology = %(topology)s AND status = 'COMMITTED' AND verdict IS NULL
          AND correction.request_id IS NULL
          AND coalesce(correction.ended_at, corrected_at) > granted_at
)
SELECT least(due.txid, held.txid - 1) AS through,
       CASE WHEN held.txid <= due.txid THEN held.txid END AS held_up_by
  FROM due CROSS JOIN (
       SELECT min(u.txid) AS txid FROM unsettled u, due
        WHERE u.txid > %(after)s AND u.txid < due.curr_txid) AS held;

-- decide_compaction --
-- From now on none of these txids can be replayed, even if the process that folds them dies.
UPDATE reliability.topology SET compacted_through = %(through)s
 WHERE topology = %(topology)s AND compacted_through < %(through)s;

-- txids_to_compact --
-- The next txids of a state to fold in one transaction, limited by their rows.
SELECT s.compacted_through AS after, max(h.txid) AS through, count(*) AS txids
  FROM reliability.state s
 CROSS JOIN LATERAL (
       SELECT c.txid, sum(c.rows) OVER (ORDER BY c.txid) - c.rows AS rows_before
         FROM reliability.contribution c
        WHERE c.topology = s.topology AND c.state = s.state
          AND c.txid > s.compacted_through AND c.txid <= %(through)s) AS h
 WHERE s.topology = %(topology)s AND s.state = %(state)s AND h.rows_before < %(most)s
 GROUP BY s.compacted_through;

-- mark_compacted --
-- Mark the headers of folded contributions.
UPDATE reliability.contribution SET presence = 'compacted'
 WHERE topology = %(topology)s AND state = %(state)s
   AND txid > %(after)s AND txid <= %(through)s AND presence = 'present';

-- compact_state --
-- Record through which txid a state is compacted.
UPDATE reliability.state SET compacted_through = %(through)s
 WHERE topology = %(topology)s AND state = %(state)s AND compacted_through = %(after)s
RETURNING state;

-- txids_without_header --
-- Committed txids without a contribution header in a state.
SELECT t.txid, t.committed_attempt AS attempt_id FROM reliability.transaction t
 WHERE t.topology = %(topology)s AND t.committed_attempt IS NOT NULL
   AND NOT EXISTS (SELECT FROM reliability.contribution h
                    WHERE h.topology = t.topology AND h.state = %(state)s AND h.txid = t.txid
                      AND h.attempt_id = t.committed_attempt)
 ORDER BY t.txid;

-- commits_of_attempts --
-- When these attempts committed, and for which run: the one that requested them, or the one that
-- emitted the txid.
SELECT t.txid, t.committed_attempt AS attempt_id, t.committed_at, t.interval_start, t.interval_end,
       t.interval_zone,
       coalesce(r.dag_id, t.dag_id) AS dag_id, coalesce(r.run_id, t.run_id) AS run_id
  FROM unnest(%(txids)s::bigint[], %(attempt_ids)s::integer[]) AS c(txid, attempt_id)
  JOIN reliability.transaction t ON t.topology = %(topology)s AND t.txid = c.txid
       AND t.committed_attempt = c.attempt_id
  JOIN reliability.attempt a ON a.topology = t.topology AND a.txid = t.txid
       AND a.attempt_id = t.committed_attempt
  LEFT JOIN reliability.request r ON r.request_id = a.request_id;
