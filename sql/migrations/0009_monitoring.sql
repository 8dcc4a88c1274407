-- What a monitor asks: where each topology stands now, what has committed when, and who was told.

-- Where the time of each attempt went, in seconds; a phase that has not ended is NULL.
CREATE VIEW reliability.attempt_timing AS
SELECT a.topology, a.txid, a.attempt_id, a.status, a.granted_at,
       extract(epoch FROM e.ended_at - e.began_at)::float8 AS emit,
       extract(epoch FROM d.claimed_at - greatest(t.emitted_at, r.opened_at))::float8 AS queue,
       extract(epoch FROM d.started_at - d.claimed_at)::float8 AS submit,
       extract(epoch FROM k.began_at - d.started_at)::float8 AS read,
       extract(epoch FROM k.acked_at - k.began_at)::float8 AS stage,
       extract(epoch FROM d.ended_at - k.acked_at)::float8 AS exit,
       extract(epoch FROM a.processed_at - s.sealing_at)::float8 AS seal,
       extract(epoch FROM l.began_at - a.processed_at)::float8 AS wait,
       extract(epoch FROM l.committed_at - l.began_at)::float8 AS commit,
       extract(epoch FROM l.committed_at - greatest(t.emitted_at, r.opened_at))::float8 AS total
  FROM reliability.attempt a
  JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
  LEFT JOIN reliability.request r ON r.request_id = a.request_id
  LEFT JOIN reliability.emission e ON (e.topology, e.dag_id, e.run_id)
                                    = (t.topology, t.dag_id, t.run_id) AND e.status = 'EMITTED'
  LEFT JOIN reliability.commit_log l ON (l.topology, l.txid, l.attempt_id)
                                      = (a.topology, a.txid, a.attempt_id)
  LEFT JOIN LATERAL (
       SELECT min(claimed_at) AS claimed_at, min(started_at) AS started_at,
              CASE WHEN bool_and(status = 'DONE') THEN max(ended_at) END AS ended_at
         FROM reliability.attempt_step
        WHERE (topology, txid, attempt_id) = (a.topology, a.txid, a.attempt_id)) AS d ON true
  LEFT JOIN LATERAL (
       SELECT min(began_at) AS began_at, max(acked_at) AS acked_at FROM reliability.ack
        WHERE (topology, txid, attempt_id) = (a.topology, a.txid, a.attempt_id)) AS k ON true
  LEFT JOIN LATERAL (
       SELECT max(happened_at) AS sealing_at FROM reliability.attempt_event
        WHERE (topology, txid, attempt_id) = (a.topology, a.txid, a.attempt_id)
          AND status = 'SEALING') AS s ON true;

-- The tables with the staged rows and contributions of a topology in this database: one for each
-- state, its partitions, and attempts' own. Found by their names: to_regclass needs a right that
-- readers may lack.
CREATE VIEW reliability.contribution_tables AS
WITH named AS (
     SELECT s.topology, s.state, s.contribution_table AS name FROM reliability.state s
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

-- Where each topology stands. 0 where there is nothing to wait for; NULL if nothing has committed
-- yet. attempts and rows_committed read the whole history if they are selected; nothing else does.
CREATE VIEW reliability.metrics AS
SELECT p.topology,
       p.next_txid - p.curr_txid AS lag_txids,
       coalesce((SELECT greatest(extract(epoch FROM now() - t.emitted_at), 0)
                   FROM reliability.transaction t
                  WHERE t.topology = p.topology AND t.txid = p.curr_txid), 0)::float8
       AS lag_seconds,
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

-- Each change of the states as it was, with what the next two views add up: also a rollback to txid 0,
-- which is in no table; the rows of a batch that was not parked or skipped; and the seconds of the
-- commit, and from the batch's emission to its first commit.
CREATE VIEW reliability.committed_change AS
SELECT l.topology, l.committed_at, l.kind,
       CASE WHEN a.verdict IS NULL AND l.kind IN ('COMMIT', 'REPLAY')
            THEN coalesce(a.emitted_count, t.emitted_count) END AS rows,
       extract(epoch FROM l.committed_at - l.began_at)::float8 AS commit_seconds,
       CASE WHEN l.kind = 'COMMIT'
            THEN extract(epoch FROM l.committed_at - t.emitted_at)::float8 END AS seconds
  FROM reliability.commit_log l
  LEFT JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                   = (l.topology, l.txid, l.attempt_id);

-- What has committed in each minute; the medians are in seconds.
CREATE VIEW reliability.commits_by_minute AS
SELECT topology, date_bin('1 minute', committed_at, 'epoch') AS minute,
       count(*) FILTER (WHERE kind = 'COMMIT') AS commits,
       count(*) FILTER (WHERE kind = 'REPLAY') AS replays,
       count(*) FILTER (WHERE kind = 'ROLLBACK') AS rollbacks,
       coalesce(sum(rows), 0)::bigint AS rows,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY commit_seconds) AS median_commit_seconds,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS median_seconds
  FROM reliability.committed_change
 GROUP BY topology, date_bin('1 minute', committed_at, 'epoch');

-- The same for each hour.
CREATE VIEW reliability.commits_by_hour AS
SELECT topology, date_bin('1 hour', committed_at, 'epoch') AS hour,
       count(*) FILTER (WHERE kind = 'COMMIT') AS commits,
       count(*) FILTER (WHERE kind = 'REPLAY') AS replays,
       count(*) FILTER (WHERE kind = 'ROLLBACK') AS rollbacks,
       coalesce(sum(rows), 0)::bigint AS rows,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY commit_seconds) AS median_commit_seconds,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS median_seconds
  FROM reliability.committed_change
 GROUP BY topology, date_bin('1 hour', committed_at, 'epoch');

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
    subject  text NOT NULL,                 -- which of its kind: a txid, an attempt, a run, a state
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
    is_over  boolean NOT NULL,  -- that it has ended, otherwise that it has begun
    told_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT told_once PRIMARY KEY (alert_id, channel, is_over)
);

-- What the last `verify` of each table has found.
CREATE TABLE reliability.verified (
    topology    text NOT NULL,
    database    text NOT NULL,  -- '' is the ledger's own
    state       text NOT NULL,
    verified_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    wrong       text,           -- NULL if nothing is known to be
    PRIMARY KEY (topology, database, state)
);
