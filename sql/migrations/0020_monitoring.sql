-- What a monitor asks of the ledger: where each topology stands now, and what has committed when.

-- Few rows, however long the history is: the attempts of the last hour, and all that failed.
CREATE INDEX attempt_by_grant ON reliability.attempt (topology, granted_at);
CREATE INDEX attempt_that_failed ON reliability.attempt (topology, status, ended_at)
    WHERE status IN ('FAILED', 'FENCED');
-- The log is written in the order of time: an entry of such an index stands for a hundred pages.
CREATE INDEX commit_log_by_minute ON reliability.commit_log
    USING brin (date_bin('1 minute', committed_at, 'epoch'));
CREATE INDEX commit_log_by_hour ON reliability.commit_log
    USING brin (date_bin('1 hour', committed_at, 'epoch'));

-- The tables with the staged rows and contributions of a topology in this database: one for each state, its
-- partitions, and attempts' own. Found by their names: to_regclass needs a right that readers may lack.
CREATE VIEW reliability.contribution_tables AS
WITH named AS (
     SELECT s.topology, s.state, s.topology || '__' || s.state AS name FROM reliability.state s
      UNION ALL
     SELECT t.topology, t.state, 'attempt_' || t.table_id FROM reliability.attempt_table t
), own AS (
     SELECT n.topology, n.state, c.oid
       FROM named n
       JOIN pg_catalog.pg_class c ON c.relname = n.name
            AND c.relnamespace = 'reliability_contribution'::regnamespace
)
SELECT topology, state, oid::regclass AS relation FROM own
 UNION
SELECT o.topology, o.state, i.inhrelid::regclass
  FROM own o JOIN pg_catalog.pg_inherits i ON i.inhparent = o.oid;

-- Where each topology stands. 0 where there is nothing to wait for; NULL if nothing has committed yet.
-- attempts and rows_committed read the whole history if they are selected; nothing else does.
CREATE VIEW reliability.metrics AS
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
       (SELECT coalesce(sum(t.emitted_count), 0)::bigint FROM reliability.transaction t
         WHERE t.topology = p.topology AND t.committed_attempt IS NOT NULL) AS rows_committed,
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
CREATE VIEW reliability.commits_by_minute AS
SELECT l.topology, date_bin('1 minute', l.committed_at, 'epoch') AS minute,
       count(*) FILTER (WHERE l.kind = 'COMMIT') AS commits,
       count(*) FILTER (WHERE l.kind = 'REPLAY') AS replays,
       count(*) FILTER (WHERE l.kind = 'ROLLBACK') AS rollbacks,
       coalesce(sum(coalesce(a.emitted_count, t.emitted_count))
                FILTER (WHERE a.verdict IS NULL AND l.kind <> 'ROLLBACK'), 0)::bigint AS rows,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM l.committed_at - l.began_at)::float8) AS median_commit_seconds,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM l.committed_at - t.emitted_at)::float8)
           FILTER (WHERE l.kind = 'COMMIT') AS median_seconds
  FROM reliability.commit_log l
  JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                   = (l.topology, l.txid, l.attempt_id)
 GROUP BY l.topology, date_bin('1 minute', l.committed_at, 'epoch');

-- The same for each hour.
CREATE VIEW reliability.commits_by_hour AS
SELECT l.topology, date_bin('1 hour', l.committed_at, 'epoch') AS hour,
       count(*) FILTER (WHERE l.kind = 'COMMIT') AS commits,
       count(*) FILTER (WHERE l.kind = 'REPLAY') AS replays,
       count(*) FILTER (WHERE l.kind = 'ROLLBACK') AS rollbacks,
       coalesce(sum(coalesce(a.emitted_count, t.emitted_count))
                FILTER (WHERE a.verdict IS NULL AND l.kind <> 'ROLLBACK'), 0)::bigint AS rows,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM l.committed_at - l.began_at)::float8) AS median_commit_seconds,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM l.committed_at - t.emitted_at)::float8)
           FILTER (WHERE l.kind = 'COMMIT') AS median_seconds
  FROM reliability.commit_log l
  JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                   = (l.topology, l.txid, l.attempt_id)
 GROUP BY l.topology, date_bin('1 hour', l.committed_at, 'epoch');

-- The attempts that failed or were fenced, and why.
CREATE VIEW reliability.failures AS
SELECT a.topology, a.txid, t.interval_start, t.interval_end, a.attempt_id, a.status, a.ended_at,
       a.reason_code, a.reason, t.committed_attempt IS NOT NULL AS has_committed
  FROM reliability.attempt a
  JOIN reliability.transaction t USING (topology, txid)
 WHERE a.status IN ('FAILED', 'FENCED');

-- What a person should hear of. A row for each time that it begins: what has ended may begin again.
CREATE TABLE reliability.alert (
    alert_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topology text NOT NULL,
    kind     text NOT NULL,
    subject  text NOT NULL,         -- which of its kind: a txid, an attempt, a run, a state
    what     text NOT NULL,
    advice   text NOT NULL,
    command  text NOT NULL,
    since    timestamptz NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),  -- when it was found
    ended_at timestamptz,
    CONSTRAINT alert_kind CHECK (kind IN (
        'BLOCKED', 'LAG', 'LEASE_EXPIRED', 'RUN_UNSATISFIED', 'CHANGED_BY_HAND'))
);
CREATE UNIQUE INDEX one_open_alert ON reliability.alert (topology, kind, subject)
    WHERE ended_at IS NULL;
CREATE INDEX alert_by_subject ON reliability.alert (topology, kind, subject);
CREATE INDEX alert_by_end ON reliability.alert (ended_at);

-- Who was told of an alert: written before the call, so that nobody is told twice.
CREATE TABLE reliability.alert_told (
    alert_id bigint NOT NULL REFERENCES reliability.alert,
    channel  text NOT NULL,
    is_over  boolean NOT NULL,      -- that it has ended, otherwise that it has begun
    told_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT told_once PRIMARY KEY (alert_id, channel, is_over)
);

-- What the last `verify` of each table has found.
CREATE TABLE reliability.verified (
    topology    text NOT NULL,
    database    text NOT NULL,      -- '' is the ledger's own
    state       text NOT NULL,
    verified_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    wrong       text,               -- NULL if nothing is known to be
    PRIMARY KEY (topology, database, state)
);
