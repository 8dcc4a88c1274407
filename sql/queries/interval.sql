-- record_schedule --
-- Record the schedule of the DAG, unless it is known. Of several DAGs that emit a topology it is that of
-- the last one with intervals.
INSERT INTO reliability.schedule AS s
       (topology, dag_id, cron, time_zone, period, not_evaluated, first_start, last_start, catchup,
        interval_zone)
VALUES (%(topology)s, %(dag_id)s, %(cron)s, %(time_zone)s, %(period)s, %(not_evaluated)s,
        %(first_start)s, %(last_start)s, %(catchup)s, %(interval_zone)s)
ON CONFLICT (topology) DO UPDATE
   SET dag_id = excluded.dag_id, cron = excluded.cron, time_zone = excluded.time_zone,
       period = excluded.period, not_evaluated = excluded.not_evaluated,
       first_start = excluded.first_start, last_start = excluded.last_start,
       catchup = excluded.catchup, interval_zone = excluded.interval_zone,
       recorded_at = clock_timestamp()
 WHERE (s.dag_id = excluded.dag_id OR excluded.not_evaluated IS NULL)
   AND (s.dag_id, s.cron, s.time_zone, s.period, s.not_evaluated, s.first_start, s.last_start,
        s.catchup, s.interval_zone)
       IS DISTINCT FROM
       (excluded.dag_id, excluded.cron, excluded.time_zone, excluded.period,
        excluded.not_evaluated, excluded.first_start, excluded.last_start, excluded.catchup,
        excluded.interval_zone);

-- begin_emission --
-- Record that a run tries to emit, and since when. The schedule says nothing any more about a topology whose
-- spout no longer reads by interval.
WITH untimed AS (
       DELETE FROM reliability.schedule
        WHERE topology = %(topology)s AND %(interval_start)s::timestamptz IS NULL)
INSERT INTO reliability.emission AS e
       (topology, dag_id, run_id, task_id, interval_start, interval_end, interval_zone)
VALUES (%(topology)s, %(dag_id)s, %(run_id)s, %(task_id)s, %(interval_start)s, %(interval_end)s,
        %(interval_zone)s)
ON CONFLICT (topology, dag_id, run_id) DO UPDATE
   SET task_id = excluded.task_id, interval_start = excluded.interval_start,
       interval_end = excluded.interval_end, interval_zone = excluded.interval_zone,
       status = 'EMITTING', began_at = clock_timestamp(), ended_at = NULL,
       reason_code = NULL, reason = NULL, remedy = NULL
RETURNING began_at;

-- complete_emission --
-- Record that the run has emitted, in the transaction that allocates its txids.
UPDATE reliability.emission
   SET status = 'EMITTED', ended_at = clock_timestamp(), failing_since = NULL,
       reason_code = NULL, reason = NULL, remedy = NULL
 WHERE topology = %(topology)s AND dag_id = %(dag_id)s AND run_id = %(run_id)s
RETURNING run_id;

-- fail_emission --
-- Record why an emission failed. No row: another try of the task has emitted meanwhile.
UPDATE reliability.emission
   SET status = 'FAILED', ended_at = clock_timestamp(),
       failing_since = coalesce(failing_since, clock_timestamp()),
       reason_code = %(reason_code)s, reason = %(reason)s, remedy = %(remedy)s
 WHERE topology = %(topology)s AND dag_id = %(dag_id)s AND run_id = %(run_id)s
   AND status <> 'EMITTED';

-- emissions_of_dag --
-- The runs of a DAG that have tried to emit, and whether each has emitted all that it should.
SELECT run_id, bool_and(status = 'EMITTED') AS has_emitted FROM reliability.emission
 WHERE dag_id = %(dag_id)s GROUP BY run_id;

-- interval_of_run --
-- The interval that a run has tried to emit.
SELECT interval_start, interval_end, interval_zone FROM reliability.emission
 WHERE topology = %(topology)s AND dag_id = %(dag_id)s AND run_id = %(run_id)s;

-- emission_has_ended --
-- Whether a run has emitted, or has failed to.
SELECT EXISTS (
       SELECT FROM reliability.emission
        WHERE topology = %(topology)s AND dag_id = %(dag_id)s AND run_id = %(run_id)s
          AND status <> 'EMITTING') AS has_ended;

-- schedule --
-- The recorded schedule of each topology's DAG, or of one, and where the intervals begin for which Airflow's
-- schedule has made runs; NULL if there is none.
SELECT topology, dag_id, cron, time_zone, period, not_evaluated, first_start, last_start, catchup, interval_zone,
       (SELECT min(e.interval_start) FROM reliability.emission e
         WHERE e.topology = s.topology AND starts_with(e.run_id, 'scheduled__')) AS first_scheduled
  FROM reliability.schedule s WHERE %(topology)s::text IS NULL OR topology = %(topology)s;

-- emit_tasks --
-- The task of a DAG that emits a topology, or each of its topologies. It is in a task group if the
-- DAG has other tasks too.
SELECT DISTINCT ON (topology) topology, task_id FROM reliability.emission
 WHERE dag_id = %(dag_id)s AND topology = coalesce(%(topology)s, topology)
 ORDER BY topology, began_at DESC;

-- emitting_task --
-- The DAG and the task that emitted a topology last; not the command line.
SELECT dag_id, task_id FROM reliability.emission
 WHERE topology = %(topology)s AND dag_id <> 'cli'
 ORDER BY began_at DESC LIMIT 1;

-- zone_of_intervals --
-- The time zone in which the intervals of a topology are written: by its schedule, otherwise as its last
-- run has written them. NULL: UTC.
SELECT interval_zone FROM (
       SELECT 1 AS place, interval_zone FROM reliability.schedule WHERE topology = %(topology)s
        UNION ALL
       (SELECT 2, interval_zone FROM reliability.emission WHERE topology = %(topology)s
         ORDER BY began_at DESC LIMIT 1)
        UNION ALL
       SELECT 3, NULL) AS known
 ORDER BY place LIMIT 1;

-- gaps_between_emissions --
-- Where no run has tried to emit: before the first interval, between two, after the last. No end of
-- a gap: NULL. And the end of the last interval before it that the schedule has made. The database's clock
-- says what is past.
SELECT n.topology, lower(gap) AS gap_start, upper(gap) AS gap_end, clock_timestamp() AS now,
       (SELECT e.interval_end FROM reliability.emission e
         WHERE e.topology = n.topology AND e.interval_start < lower(gap) AND starts_with(e.run_id, 'scheduled__')
         ORDER BY e.interval_start DESC LIMIT 1) AS run_end
  FROM (SELECT topology FROM reliability.topology
         UNION SELECT topology FROM reliability.schedule) AS n
  LEFT JOIN reliability.tried_time t USING (topology)
 CROSS JOIN unnest('{(,)}'::tstzmultirange - coalesce(t.intervals, '{}')) AS gap
 WHERE %(topology)s::text IS NULL OR n.topology = %(topology)s
 ORDER BY n.topology, gap_end NULLS LAST;

-- unfinished_emissions --
-- The last try of each interval, if it has not emitted. An untimed spout has no intervals: its last
-- try of all. An interval that overlapped others is done when others cover all of it. Nobody owes one that a
-- person has named, which has no file, and is not over or beyond the dates of the schedule: it was mistyped.
SELECT e.topology, e.dag_id, e.run_id, e.interval_start, e.interval_end, e.interval_zone, e.status,
       e.began_at, e.failing_since, e.reason_code, e.reason, e.remedy, clock_timestamp() AS now,
       (e.reason_code IN ('NOTHING_TO_EMIT', 'SOURCE_NOT_READY')
        AND e.run_id !~ '^(scheduled|backfill|operator_triggered|asset_triggered|asset_materialization)__'
        AND (e.interval_end > clock_timestamp() OR e.interval_start < s.first_start
             OR e.interval_start > s.last_start)) IS NOT TRUE AS is_owed
  FROM reliability.emission e
  LEFT JOIN reliability.schedule s ON s.topology = e.topology AND s.not_evaluated IS NULL
 WHERE (%(topology)s::text IS NULL OR e.topology = %(topology)s) AND e.status <> 'EMITTED'
   AND CASE WHEN e.interval_start IS NULL THEN NOT EXISTS (
       SELECT FROM reliability.emission l
        WHERE l.topology = e.topology AND l.interval_start IS NULL
          AND (l.began_at, l.dag_id, l.run_id) > (e.began_at, e.dag_id, e.run_id))
       ELSE NOT EXISTS (
       SELECT FROM reliability.emission l
        WHERE l.topology = e.topology AND l.interval_start = e.interval_start
          AND l.interval_end = e.interval_end
          AND (l.began_at, l.dag_id, l.run_id) > (e.began_at, e.dag_id, e.run_id)) END
   AND (e.interval_start IS NULL OR e.interval_start = e.interval_end
        OR NOT coalesce((
           SELECT range_agg(tstzrange(o.interval_start, o.interval_end))
             FROM reliability.emission o
            WHERE o.topology = e.topology AND o.status = 'EMITTED'
              AND o.interval_start < e.interval_end AND o.interval_end > e.interval_start
              AND (o.interval_start, o.interval_end) <> (e.interval_start, e.interval_end)
           ) @> tstzrange(e.interval_start, e.interval_end), false))
 ORDER BY e.topology, e.interval_start, e.began_at;

-- emitted_since_by_another_run --
-- Whether another run has emitted the interval of a run since that has last tried to. Airflow's interval
-- counts if it has not tried.
SELECT EXISTS (
       SELECT FROM (VALUES (1)) AS run
         LEFT JOIN reliability.emission own
                ON own.topology = %(topology)s AND own.dag_id = %(dag_id)s AND own.run_id = %(run_id)s
         JOIN reliability.emission l
           ON l.topology = %(topology)s AND l.status = 'EMITTED'
          AND l.interval_start = coalesce(own.interval_start, %(interval_start)s)
          AND l.interval_end = coalesce(own.interval_end, %(interval_end)s)
          AND l.began_at > coalesce(own.began_at, '-infinity')
          AND (l.dag_id, l.run_id) <> (%(dag_id)s, %(run_id)s)) AS is_emitted;

-- open_txids --
-- Emitted uncommitted txids with their last attempts, and whether any run still wants each.
SELECT t.topology, t.txid, t.interval_start, t.interval_end, t.interval_zone, t.dag_id, t.run_id,
       t.emitted_at, t.held_reason, a.attempt_id, a.status, a.reason_code, a.reason, a.remedy,
       a.verdict, a.verdict_reason,
       EXISTS (SELECT FROM reliability.request r
                WHERE r.topology = t.topology AND r.txid = t.txid AND r.status = 'OPEN'
              ) AS is_requested,
       clock_timestamp() AS now
  FROM reliability.topology p
  JOIN reliability.transaction t ON t.topology = p.topology AND t.txid >= p.curr_txid
  LEFT JOIN LATERAL (
       SELECT * FROM reliability.attempt a WHERE a.topology = t.topology AND a.txid = t.txid
        ORDER BY a.attempt_id DESC LIMIT 1) AS a ON true
 WHERE (%(topology)s::text IS NULL OR p.topology = %(topology)s) AND t.committed_attempt IS NULL
 ORDER BY t.topology, t.txid;

-- parked_with_intervals --
-- The parked txids with their intervals.
SELECT t.topology, t.txid, t.interval_start, t.interval_end, t.interval_zone, t.dag_id, t.run_id,
       t.emitted_at, p.verdict_reason, clock_timestamp() AS now
  FROM reliability.parked_transaction p JOIN reliability.transaction t USING (topology, txid)
 WHERE %(topology)s::text IS NULL OR p.topology = %(topology)s
 ORDER BY t.topology, t.txid;

-- last_run_of_interval --
-- The run that last emitted an interval, or last tried to.
SELECT dag_id, run_id, status, reason_code, reason FROM reliability.emission
 WHERE topology = %(topology)s AND interval_start IS NOT DISTINCT FROM %(interval_start)s
   AND interval_end IS NOT DISTINCT FROM %(interval_end)s
 ORDER BY began_at DESC LIMIT 1;

-- selected_txids --
-- Txids by their number, by their interval, and by their source items. A NULL selects all.
SELECT t.txid, t.interval_start, t.interval_end, t.interval_zone
  FROM reliability.transaction t
 WHERE t.topology = %(topology)s
   AND (%(txids)s::bigint[] IS NULL OR t.txid = ANY (%(txids)s::bigint[]))
   AND (%(interval_start)s::timestamptz IS NULL
        OR t.interval_start >= %(interval_start)s::timestamptz
           AND t.interval_end <= %(interval_end)s::timestamptz)
   AND (%(file)s::text IS NULL
        OR t.txid IN (SELECT s.txid FROM reliability.source_item s
                       WHERE s.topology = %(topology)s AND s.item ~ %(file)s::text))
 ORDER BY t.txid;

-- intervals_beside --
-- The nearest emitted interval before a moment, and the nearest after it.
SELECT txid, interval_start, interval_end, interval_zone FROM (
       (SELECT txid, interval_start, interval_end, interval_zone FROM reliability.transaction
         WHERE topology = %(topology)s AND interval_start < %(moment)s
         ORDER BY interval_start DESC, txid LIMIT 1)
        UNION ALL
       (SELECT txid, interval_start, interval_end, interval_zone FROM reliability.transaction
         WHERE topology = %(topology)s AND interval_start >= %(moment)s
         ORDER BY interval_start, txid LIMIT 1)) AS beside
 ORDER BY interval_start;

-- files_of_topology --
-- The last source items that were emitted, for a person who has mistyped one.
SELECT item FROM reliability.source_item WHERE topology = %(topology)s
 ORDER BY item DESC LIMIT 3;

-- page_of_txids --
-- A page of txids with their states, the latest first. A replay leaves one REPLACED attempt.
SELECT t.txid, t.interval_start, t.interval_end, t.interval_zone, t.dag_id, t.run_id, t.emitted_at,
       t.batch_meta AS items, t.emitted_count AS rows, t.committed_attempt, t.committed_at,
       t.held_reason, a.attempt_id, a.status, a.reason_code, a.reason, a.verdict, a.verdict_reason,
       EXISTS (SELECT FROM reliability.skip k WHERE k.topology = t.topology AND k.txid = t.txid
                  AND k.ended_at IS NULL) AS is_skipped,
       (SELECT count(*) FROM reliability.attempt r WHERE r.topology = t.topology
           AND r.txid = t.txid AND r.status = 'REPLACED') AS replays,
       EXISTS (SELECT FROM reliability.request r
                WHERE r.topology = t.topology AND r.txid = t.txid AND r.status = 'OPEN'
              ) AS is_requested
  FROM reliability.transaction t
  LEFT JOIN LATERAL (
       SELECT * FROM reliability.attempt a WHERE a.topology = t.topology AND a.txid = t.txid
          AND (t.committed_attempt IS NULL OR a.attempt_id = t.committed_attempt)
        ORDER BY a.attempt_id DESC LIMIT 1) AS a ON true
 WHERE t.topology = %(topology)s AND t.txid < %(before)s
   AND (%(txids)s::bigint[] IS NULL OR t.txid = ANY (%(txids)s::bigint[]))
 ORDER BY t.txid DESC LIMIT %(page)s;

-- accounts_by_interval --
-- The txids of each interval, or of those that lie between two times, or of the last ones before a
-- moment, with the rows of their batches: of what has committed the batch that counts, otherwise the
-- frozen one; none of what is parked or skipped.
SELECT t.interval_start, t.interval_end, max(t.interval_zone) AS interval_zone, count(*) AS txids, count(t.committed_attempt) AS committed,
       min(t.txid) AS first_txid,
       sum(CASE WHEN a.verdict IS NULL THEN coalesce(b.emitted_count, t.emitted_count) ELSE 0 END
          )::bigint AS emitted
  FROM reliability.transaction t
  LEFT JOIN reliability.attempt a ON a.topology = t.topology AND a.txid = t.txid
       AND a.attempt_id = t.committed_attempt
  LEFT JOIN reliability.attempt_batch b ON b.topology = t.topology AND b.txid = t.txid
       AND b.attempt_id = t.committed_attempt
 WHERE t.topology = %(topology)s
   AND (%(interval_start)s::timestamptz IS NULL OR t.interval_start >= %(interval_start)s)
   AND (%(interval_end)s::timestamptz IS NULL OR t.interval_end <= %(interval_end)s)
   AND (%(before)s::timestamptz IS NULL OR t.interval_start < %(before)s)
 GROUP BY t.interval_start, t.interval_end
 ORDER BY t.interval_start DESC NULLS LAST LIMIT %(most)s;

-- set_aside_by_interval --
-- What the states of this database were not given of the rows of each interval.
SELECT t.interval_start, t.interval_end, c.state, sum(c.dropped)::bigint AS dropped,
       sum(c.quarantined)::bigint AS quarantined
  FROM reliability.accounts c
  JOIN reliability.transaction t USING (topology, txid)
 WHERE c.topology = %(topology)s AND c.status = 'COMMITTED'
   AND (%(interval_start)s::timestamptz IS NULL OR t.interval_start >= %(interval_start)s)
   AND (%(interval_end)s::timestamptz IS NULL OR t.interval_end <= %(interval_end)s)
 GROUP BY t.interval_start, t.interval_end, c.state
 ORDER BY t.interval_start, c.state;

-- committed_batches --
-- What the committed attempts have read, of all intervals or of those that lie between two times.
SELECT t.txid, t.interval_start, t.interval_end, t.interval_zone, b.batch_meta, b.emitted_xor, b.emitted_count
  FROM reliability.transaction t
  JOIN reliability.attempt a ON a.topology = t.topology AND a.txid = t.txid
       AND a.attempt_id = t.committed_attempt AND a.verdict IS NULL
  JOIN reliability.attempt_batch b ON b.topology = t.topology AND b.txid = t.txid
       AND b.attempt_id = t.committed_attempt
 WHERE t.topology = %(topology)s
   AND (%(interval_start)s::timestamptz IS NULL OR t.interval_start >= %(interval_start)s)
   AND (%(interval_end)s::timestamptz IS NULL OR t.interval_end <= %(interval_end)s)
 ORDER BY t.txid;
