-- What has committed, as it was: a rollback to txid 0, whose txid is in no table, is a rollback; a repair commits
-- no rows; and a batch that was parked or skipped has committed none of its rows.

CREATE OR REPLACE VIEW reliability.metrics AS
SELECT p.topology,
       p.next_txid - p.curr_txid AS lag_txids,
       coalesce((SELECT greatest(extract(epoch FROM now() - t.emitted_at), 0)
                   FROM reliability.transaction t
                  WHERE t.topology = p.topology AND t.txid = p.curr_txid), 0)::float8 AS lag_seconds,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.status IN ('PROCESSING', 'SEALING')) AS processing,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.status = 'PROCESSED') AS processed,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.granted_at > now() - interval '1 hour') AS attempts_last_hour,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.status = 'FAILED' AND a.ended_at > now() - interval '1 hour') AS failed_last_hour,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.status = 'FENCED' AND a.ended_at > now() - interval '1 hour') AS fenced_last_hour,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology) AS attempts,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.status = 'FAILED') AS failed,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.status = 'FENCED') AS fenced,
       (SELECT count(*) FROM reliability.quarantined_row q
          JOIN reliability.attempt a USING (topology, txid, attempt_id)
         WHERE q.topology = p.topology AND a.status = 'COMMITTED') AS quarantined_rows,
       (SELECT coalesce(sum(coalesce(a.emitted_count, t.emitted_count)), 0)::bigint
          FROM reliability.transaction t
          JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                      = (t.topology, t.txid, t.committed_attempt)
         WHERE t.topology = p.topology AND a.verdict IS NULL) AS rows_committed,
       p.commit_number AS commits,
       last.committed_at AS last_commit_at,
       extract(epoch FROM last.committed_at - last.began_at)::float8 AS last_commit_seconds,
       size.contribution_bytes,
       CASE WHEN blocked.txid IS NULL THEN 0 ELSE p.next_txid - blocked.txid END AS blocked_txids,
       (blocked.txid IS NOT NULL)::integer AS blocked,
       EXISTS (SELECT FROM reliability.transaction t WHERE t.topology = p.topology
                  AND t.committed_attempt IS NULL AND t.held_reason IS NOT NULL)::integer AS held,
       (p.paused_at IS NOT NULL)::integer AS paused
  FROM reliability.topology p
  LEFT JOIN LATERAL (
       SELECT l.committed_at, l.began_at FROM reliability.commit_log l WHERE l.topology = p.topology
        ORDER BY l.commit_number DESC LIMIT 1) AS last ON true
  LEFT JOIN LATERAL (
       SELECT min(o.txid) AS txid FROM reliability.blocked_transaction o
        WHERE o.topology = p.topology) AS blocked ON true
  LEFT JOIN LATERAL (
       SELECT coalesce(sum(pg_total_relation_size(c.relation)), 0)::bigint AS contribution_bytes
         FROM reliability.contribution_tables c WHERE c.topology = p.topology) AS size ON true
 WHERE p.participant IS NULL;

-- What has committed in each minute: first commits, replays and rollbacks, the rows of the batches, and
-- medians in seconds: of the commits, and from a batch's emission to its first commit.
CREATE OR REPLACE VIEW reliability.commits_by_minute AS
SELECT l.topology, date_bin('1 minute', l.committed_at, 'epoch') AS minute,
       count(*) FILTER (WHERE l.kind = 'COMMIT') AS commits,
       count(*) FILTER (WHERE l.kind = 'REPLAY') AS replays,
       count(*) FILTER (WHERE l.kind = 'ROLLBACK') AS rollbacks,
       coalesce(sum(coalesce(a.emitted_count, t.emitted_count))
                FILTER (WHERE a.verdict IS NULL AND l.kind IN ('COMMIT', 'REPLAY')), 0)::bigint AS rows,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM l.committed_at - l.began_at)::float8) AS median_commit_seconds,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM l.committed_at - t.emitted_at)::float8)
           FILTER (WHERE l.kind = 'COMMIT') AS median_seconds
  FROM reliability.commit_log l
  LEFT JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                   = (l.topology, l.txid, l.attempt_id)
 GROUP BY l.topology, date_bin('1 minute', l.committed_at, 'epoch');

-- The same for each hour.
CREATE OR REPLACE VIEW reliability.commits_by_hour AS
SELECT l.topology, date_bin('1 hour', l.committed_at, 'epoch') AS hour,
       count(*) FILTER (WHERE l.kind = 'COMMIT') AS commits,
       count(*) FILTER (WHERE l.kind = 'REPLAY') AS replays,
       count(*) FILTER (WHERE l.kind = 'ROLLBACK') AS rollbacks,
       coalesce(sum(coalesce(a.emitted_count, t.emitted_count))
                FILTER (WHERE a.verdict IS NULL AND l.kind IN ('COMMIT', 'REPLAY')), 0)::bigint AS rows,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM l.committed_at - l.began_at)::float8) AS median_commit_seconds,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM l.committed_at - t.emitted_at)::float8)
           FILTER (WHERE l.kind = 'COMMIT') AS median_seconds
  FROM reliability.commit_log l
  LEFT JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                   = (l.topology, l.txid, l.attempt_id)
 GROUP BY l.topology, date_bin('1 hour', l.committed_at, 'epoch');
