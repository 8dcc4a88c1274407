-- gauges --
-- Where each topology stands, without what would read its whole history.
SELECT topology, lag_txids, lag_seconds, processing, processed, attempts_last_hour, failed_last_hour,
       fenced_last_hour, quarantined_rows, last_commit_seconds, contribution_bytes, blocked_txids, blocked, held, paused
  FROM reliability.metrics ORDER BY topology;

-- figures_of_commits --
-- The rows of some commits, and how long each took.
SELECT l.commit_number, l.kind = 'REPLAY' AS is_replay,
       CASE WHEN a.verdict IS NULL THEN b.emitted_count ELSE 0 END AS rows,
       extract(epoch FROM l.committed_at - l.began_at)::float8 AS seconds
  FROM reliability.commit_log l
  JOIN reliability.attempt a USING (topology, txid, attempt_id)
  JOIN reliability.attempt_batch b USING (topology, txid, attempt_id)
 WHERE l.topology = %(topology)s AND l.commit_number = ANY(%(commit_numbers)s)
 ORDER BY l.commit_number;

-- how_an_attempt_ended --
-- The status of the newest attempt at a txid, if it ended after a time.
SELECT status FROM (
       SELECT status, ended_at FROM reliability.attempt
        WHERE topology = %(topology)s AND txid = %(txid)s
        ORDER BY attempt_id DESC LIMIT 1) AS newest
 WHERE ended_at >= %(since)s;

-- server_time --
-- The clock by which attempts begin and end.
SELECT clock_timestamp() AS now;
