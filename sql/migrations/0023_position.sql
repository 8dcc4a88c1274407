-- All that decides what commits next in a topology, in one place: the coordinator, a commit, a sweep and the
-- poller read the same.

-- `processed` are the PROCESSED attempts, in the order of their txids; a dry run's never commits. `is_gathering`
-- says whether the checkpoint interval since the last first commit has not passed.
CREATE VIEW reliability.commit_position AS
SELECT p.topology, jsonb_build_object(
       'curr_txid', p.curr_txid,
       'commit_number', p.commit_number,
       'groups_commits', p.groups_commits,
       'is_gathering', EXISTS (
           SELECT FROM reliability.commit_log l
            WHERE l.topology = p.topology AND l.txid = p.curr_txid - 1 AND l.kind = 'COMMIT'
              AND l.committed_at > clock_timestamp() - p.checkpoint_interval),
       'last_was_first_commit', coalesce((
           SELECT l.kind = 'COMMIT' FROM reliability.commit_log l
            WHERE l.topology = p.topology ORDER BY l.commit_number DESC LIMIT 1), false),
       'processed', coalesce((
           SELECT jsonb_agg(jsonb_build_object(
                  'txid', a.txid, 'attempt_id', a.attempt_id, 'nonce', a.nonce,
                  'committed_attempt', t.committed_attempt,
                  'staged_rows', (SELECT coalesce(sum(s.staged_rows), 0)::bigint
                                    FROM reliability.sink s
                                   WHERE s.topology = a.topology AND s.txid = a.txid
                                     AND s.attempt_id = a.attempt_id),
                  'age', extract(epoch FROM clock_timestamp() - a.processed_at)) ORDER BY a.txid)
             FROM reliability.attempt a
             JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
            WHERE a.topology = p.topology AND a.status = 'PROCESSED'
              AND NOT EXISTS (SELECT FROM reliability.request r
                               WHERE r.request_id = a.request_id AND r.is_dry_run)), '[]')) AS position
  FROM reliability.topology p;
