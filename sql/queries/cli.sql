-- topology_status --
-- The position of every topology, or of one. The last change is read from the end of the log, however long it
-- is.
SELECT p.topology, p.curr_txid, p.next_txid, p.commit_number, p.paused_reason, p.max_spout_pending,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.status IN ('PROCESSING', 'SEALING')) AS processing,
       (SELECT count(*) FROM reliability.attempt a WHERE a.topology = p.topology
           AND a.status = 'PROCESSED') AS processed,
       (SELECT t.emitted_at FROM reliability.transaction t
         WHERE t.topology = p.topology AND t.txid = p.curr_txid) AS oldest_uncommitted_at,
       (SELECT l.committed_at FROM reliability.commit_log l WHERE l.topology = p.topology
         ORDER BY l.commit_number DESC LIMIT 1) AS last_change_at,
       c.phase AS checkpoint
  FROM reliability.topology p JOIN reliability.checkpoint c USING (topology)
 WHERE p.participant IS NULL
   AND (%(topology)s::text IS NULL OR p.topology = %(topology)s)
 ORDER BY p.topology;

-- commits_of_last_minutes --
-- How many commits and replays each topology has had in the last minutes, of at most the last 10,000
-- changes: read from the end of the log, however long it is.
SELECT p.topology, count(*) AS commits
  FROM reliability.topology p
  JOIN reliability.commit_log l ON l.topology = p.topology
       AND l.commit_number > p.commit_number - 10000
 WHERE p.topology = ANY(%(topologies)s) AND l.kind IN ('COMMIT', 'REPLAY')
   AND l.committed_at > clock_timestamp() - %(minutes)s * interval '1 minute'
 GROUP BY p.topology;

-- running_attempts --
-- The attempts that are processed or sealed now, the oldest first: the step that runs, or the next one;
-- since when, and for how long without progress they may go on.
SELECT a.topology, a.txid, a.attempt_id, a.status, s.step, s.driver_host,
       t.interval_start, t.interval_end, t.interval_zone, coalesce(q.is_dry_run, false) AS is_dry_run,
       clock_timestamp() - a.granted_at AS age, a.lease_until - clock_timestamp() AS lease_left
  FROM reliability.attempt a
  JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.request q ON q.request_id = a.request_id
  LEFT JOIN LATERAL (
       SELECT d.step, d.driver_host FROM reliability.attempt_step d
        WHERE d.topology = a.topology AND d.txid = a.txid AND d.attempt_id = a.attempt_id
          AND d.status <> 'DONE'
        ORDER BY d.status = 'OPEN', d.step LIMIT 1) AS s ON true
 WHERE a.topology = ANY(%(topologies)s) AND a.status IN ('PROCESSING', 'SEALING')
 ORDER BY a.granted_at, a.topology, a.txid;

-- last_commits --
-- The last changes of the states of all these topologies, the latest first.
SELECT l.topology, l.commit_number, l.kind, l.txid, l.attempt_id, t.interval_start, t.interval_end,
       t.interval_zone,
       clock_timestamp() - l.committed_at AS ago
  FROM reliability.topology p
 CROSS JOIN LATERAL (
       SELECT * FROM reliability.commit_log c WHERE c.topology = p.topology
        ORDER BY c.commit_number DESC LIMIT %(most)s) AS l
  LEFT JOIN reliability.transaction t ON t.topology = l.topology AND t.txid = l.txid
       AND l.kind <> 'REPAIR'   -- it is of all txids
 WHERE p.topology = ANY(%(topologies)s)
 ORDER BY l.committed_at DESC, l.topology, l.commit_number DESC LIMIT %(most)s;

-- requested_replays --
-- The committed txids for which a replay is requested.
SELECT DISTINCT r.topology, r.txid
  FROM reliability.request r
  JOIN reliability.topology p ON p.topology = r.topology AND r.txid < p.curr_txid
 WHERE (%(topology)s::text IS NULL OR r.topology = %(topology)s) AND r.status = 'OPEN'
 ORDER BY r.topology, r.txid;

-- held_txids --
-- Txids that a person must release; only uncommitted ones can be held.
SELECT p.topology, t.held_reason AS reason, count(*) AS count,
       range_agg(int8range(t.txid, t.txid, '[]'))::text AS txids
  FROM reliability.topology p
  JOIN reliability.transaction t ON t.topology = p.topology AND t.txid >= p.curr_txid
 WHERE (%(topology)s::text IS NULL OR p.topology = %(topology)s)
   AND t.held_reason IS NOT NULL AND t.committed_attempt IS NULL
 GROUP BY p.topology, t.held_reason ORDER BY p.topology, min(t.txid);

-- parked_txids --
-- Txids that have committed as empty and wait for a replay to process them: parked, or unskipped.
SELECT p.topology, coalesce(u.ended_reason, p.verdict_reason) AS reason, count(*) AS count,
       range_agg(int8range(p.txid, p.txid, '[]'))::text AS txids,
       u.ended_reason IS NOT NULL AS is_unskipped
  FROM reliability.parked_transaction p
  LEFT JOIN LATERAL (
       SELECT k.ended_reason FROM reliability.skip k
        WHERE k.topology = p.topology AND k.txid = p.txid AND p.verdict = 'SKIPPED'
        ORDER BY k.skipped_at DESC LIMIT 1) AS u ON true
 WHERE %(topology)s::text IS NULL OR p.topology = %(topology)s
 GROUP BY 1, 2, 5 ORDER BY 1, min(p.txid);

-- skipped_txids --
-- Txids that are skipped for good.
SELECT topology, reason, count(*) AS count, range_agg(int8range(txid, txid, '[]'))::text AS txids,
       min(skipped_at) AS skipped_at
  FROM reliability.skip
 WHERE (%(topology)s::text IS NULL OR topology = %(topology)s) AND ended_at IS NULL
 GROUP BY topology, reason ORDER BY topology, min(txid);

-- excluded_items --
-- Source items that are excluded.
SELECT topology, item, reason, excluded_at, excluded_by FROM reliability.exclusion
 WHERE (%(topology)s::text IS NULL OR topology = %(topology)s) AND ended_at IS NULL
 ORDER BY topology, item;

-- items_to_replay --
-- Items that a committed txid has counted although they are excluded, or has not counted although they
-- are included again.
SELECT topology, item, is_excluded, range_agg(int8range(txid, txid, '[]'))::text AS txids
  FROM reliability.excluded_item
 WHERE (%(topology)s::text IS NULL OR topology = %(topology)s) AND is_excluded <> is_left_out
 GROUP BY topology, item, is_excluded ORDER BY topology, item;

-- skips_of_txid --
-- When and why a txid was skipped and unskipped.
SELECT skipped_at, skipped_by, reason, ended_at, ended_by, ended_reason FROM reliability.skip
 WHERE topology = %(topology)s AND txid = %(txid)s ORDER BY skipped_at;

-- exclusions_of_txid --
-- Which source items of a txid were excluded and included again, and why.
SELECT e.item, e.excluded_at, e.excluded_by, e.reason, e.ended_at, e.ended_by, e.ended_reason
  FROM reliability.source_item s JOIN reliability.exclusion e USING (topology, item)
 WHERE s.topology = %(topology)s AND s.txid = %(txid)s ORDER BY e.excluded_at, e.item;

-- transaction_details --
-- What the ledger has of a txid.
SELECT txid, interval_start, interval_end, interval_zone, dag_id, run_id, emitted_at, emitted_count,
       verdict AS accounting, batch_meta AS items, committed_attempt, commit_number, committed_at,
       held_reason
  FROM reliability.transaction WHERE topology = %(topology)s AND txid = %(txid)s;

-- requests_of_txid --
-- The requests for a txid, in order. One `was_done`, and its attempt was rolled back since.
SELECT r.number, r.kind, r.is_dry_run, r.status, r.dag_id, r.run_id, r.reason, r.problem_code, r.problem, r.opened_at, r.ended_at,
       r.status = 'CLOSED' AND EXISTS (
           SELECT FROM reliability.attempt a
             JOIN reliability.commit_log l ON l.topology = a.topology AND l.txid = a.txid
                  AND l.attempt_id = a.attempt_id
             JOIN reliability.commit_log b ON b.topology = l.topology AND b.kind = 'ROLLBACK'
                  AND b.commit_number > l.commit_number AND b.txid < l.txid
            WHERE a.topology = r.topology AND a.txid = r.txid AND a.request_id = r.request_id)
           AS was_done
  FROM reliability.request r WHERE r.topology = %(topology)s AND r.txid = %(txid)s
 ORDER BY r.request_id;

-- attempts_of_txid --
-- The attempts at a txid, with the run that requested each.
SELECT a.attempt_id, a.status, a.reason_code, a.reason, a.verdict, a.verdict_reason,
       r.dag_id, r.run_id, r.number, r.is_dry_run, a.granted_at, a.processed_at, a.ended_at
  FROM reliability.attempt a LEFT JOIN reliability.request r USING (request_id)
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s
 ORDER BY a.attempt_id;

-- events_of_txid --
-- The status changes of the attempts at a txid, or of one of them, in order.
SELECT attempt_id, status, reason_code, reason, happened_at FROM reliability.attempt_event
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND attempt_id = coalesce(%(attempt_id)s::integer, attempt_id)
 ORDER BY event_id;

-- changes_of_txid --
-- Every change of the states that involved a txid. A rollback involves all later txids, a repair all
-- that had committed.
SELECT l.commit_number, l.kind, l.attempt_id, l.replaced_attempt, l.reason, l.committed_at
  FROM reliability.transaction t
  JOIN reliability.commit_log l ON l.topology = t.topology
       AND (l.txid = t.txid AND l.kind IN ('COMMIT', 'REPLAY')
            OR l.txid >= t.txid AND l.kind = 'REPAIR' AND l.committed_at > t.emitted_at
            OR l.txid < t.txid AND l.kind = 'ROLLBACK' AND l.committed_at > t.emitted_at)
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s
 ORDER BY l.commit_number;

-- refreezes_of_txid --
-- When and why a txid was refrozen, and its batch until then.
SELECT refrozen_at, reason, batch_meta AS items_until_then FROM reliability.refreeze
 WHERE topology = %(topology)s AND txid = %(txid)s ORDER BY refrozen_at;

-- differences_of_txid --
-- What the attempts at a txid, and some rollbacks and repairs, changed in the rows of each state.
SELECT attempt_id, commit_number, state, rows_added, rows_changed, rows_removed, moved, by_hand,
       recorded_at
  FROM reliability.difference
 WHERE topology = %(topology)s
   AND (txid = %(txid)s AND attempt_id IS NOT NULL
        OR commit_number = ANY(%(commit_numbers)s::bigint[]) AND attempt_id IS NULL)
 ORDER BY difference_id;

-- lag --
-- Emitted uncommitted txids, and since when the oldest has waited.
SELECT p.topology, p.curr_txid, p.next_txid, p.next_txid - p.curr_txid AS uncommitted, o.emitted_at,
       clock_timestamp() - o.emitted_at AS age
  FROM reliability.topology p
  LEFT JOIN reliability.transaction o ON o.topology = p.topology AND o.txid = p.curr_txid
 WHERE p.topology = %(topology)s;

-- closed_intervals --
-- Past intervals for which a run has emitted, be it nothing, the last ones, of all or of those that lie
-- between two times: files that arrived later have no txid.
SELECT interval_start, interval_end, max(interval_zone) AS interval_zone FROM (
       SELECT topology, interval_start, interval_end, interval_zone FROM reliability.transaction
        UNION ALL
       SELECT topology, interval_start, interval_end, interval_zone FROM reliability.emission
        WHERE status = 'EMITTED') AS emitted
 WHERE topology = %(topology)s AND interval_end <= clock_timestamp()
   AND (%(interval_start)s::timestamptz IS NULL OR interval_start >= %(interval_start)s)
   AND (%(interval_end)s::timestamptz IS NULL OR interval_end <= %(interval_end)s)
 GROUP BY interval_start, interval_end ORDER BY interval_start DESC LIMIT %(most)s;

-- emitted_txids --
-- Which of these txids were emitted, whether each has committed, and which run requests it when that is
-- cleared.
SELECT txid, dag_id, run_id, interval_start, interval_end, interval_zone,
       committed_attempt IS NOT NULL AS has_committed
  FROM reliability.transaction
 WHERE topology = %(topology)s AND txid = ANY(%(txids)s::bigint[])
 ORDER BY txid;

-- first_replay_after --
-- The commit that satisfied a replay request, whichever process committed it.
SELECT attempt_id FROM reliability.commit_log
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id > %(granted_after)s
 ORDER BY commit_number LIMIT 1;

-- open_different_rows --
-- Open a cursor with one JSON value per row, so that states of every shape fit into one file. A
-- state without a key has only its values. Read in pieces, because there may be millions of rows.
-- A user's column may be called d, but none begins with a blank.
DECLARE different_rows NO SCROLL CURSOR FOR
SELECT %(topology)s::text AS topology, %(txid)s::bigint AS txid, %(state)s::text AS state,
       d." change" AS change, (to_jsonb(d.*) - '{{" change",_key}}'::text[])::text AS row
  FROM ({rows}) AS d(" change");

-- next_different_rows --
-- Fetch the next different rows.
FETCH FORWARD 10000 FROM different_rows;

-- close_different_rows --
-- Close the cursor of different rows.
CLOSE different_rows;

-- create_difference_table --
-- Create the table into which a dry run writes different rows.
CREATE TABLE IF NOT EXISTS {table} (
       topology text NOT NULL, txid bigint NOT NULL, state text NOT NULL, change text NOT NULL,
       row jsonb NOT NULL, written_at timestamptz NOT NULL DEFAULT clock_timestamp());

-- copy_different_rows --
-- Copy different rows from a CSV file into that table.
COPY {table} (topology, txid, state, change, row) FROM STDIN (FORMAT csv, ENCODING 'UTF8');

-- dags_of_topology --
-- The DAGs whose runs have tried to emit a topology, or any, or have requested txids. Of a topology that
-- no run has tried to emit, the one with its name.
SELECT dag_id FROM reliability.emission WHERE topology = coalesce(%(topology)s, topology)
 UNION
SELECT dag_id FROM reliability.request WHERE topology = coalesce(%(topology)s, topology)
 UNION
SELECT p.topology FROM reliability.topology p
 WHERE p.participant IS NULL AND p.topology = coalesce(%(topology)s, p.topology)
   AND NOT EXISTS (SELECT FROM reliability.emission e
                    WHERE e.topology = p.topology AND e.dag_id <> 'cli')
 ORDER BY dag_id;

-- undone_of_dag --
-- The runs of a DAG: txids that nobody works on, those whose request is open, which nobody works on either if
-- Airflow has ended the run; how many txids are not satisfied, and why the first one ended whose request is
-- closed: its last attempt, unless a commit or a rollback came after that. Dry runs do not count. A held txid must be released
-- first. A parked one is left to a replay, unless its empty attempt was lost.
SELECT r.run_id,
       coalesce(array_agg(r.txid ORDER BY r.txid) FILTER (WHERE is_undone), '{}') AS undone,
       coalesce(array_agg(r.txid ORDER BY r.txid) FILTER (WHERE r.status = 'OPEN'), '{}') AS open,
       count(*) FILTER (WHERE NOT is_done) AS unsatisfied,
       (array_agg(r.reason ORDER BY r.txid) FILTER (WHERE is_undone AND r.status <> 'OPEN')
       )[1] AS reason
  FROM (SELECT DISTINCT ON (q.txid, q.run_id) q.txid, q.run_id, q.status, q.is_done,
               s.request_id IS NOT NULL AS is_silent,
               coalesce((SELECT CASE WHEN a.status IN ('FAILED', 'FENCED') AND NOT EXISTS (
                                     SELECT FROM reliability.commit_log l
                                      WHERE l.topology = q.topology AND l.kind = 'ROLLBACK'
                                        AND l.txid < q.txid AND l.committed_at > a.ended_at)
                                THEN a.reason END
                           FROM reliability.attempt a
                           LEFT JOIN reliability.request d ON d.request_id = a.request_id
                          WHERE a.topology = q.topology AND a.txid = q.txid
                            AND d.is_dry_run IS NOT TRUE
                          ORDER BY a.attempt_id DESC LIMIT 1), q.reason) AS reason
          FROM reliability.request_outcome q
          LEFT JOIN reliability.request s ON s.request_id = q.request_id AND s.status = 'OPEN'
               AND s.renewed_at < clock_timestamp() - %(request_lease)s * interval '1 second'
         WHERE q.topology = %(topology)s AND q.dag_id = %(dag_id)s AND NOT q.is_dry_run
         ORDER BY q.txid, q.run_id, q.number DESC) AS r
  JOIN reliability.transaction t ON t.topology = %(topology)s AND t.txid = r.txid
 CROSS JOIN LATERAL (
       SELECT NOT is_done AND t.held_reason IS NULL
              AND (is_silent OR r.status IN ('CLOSED', 'GIVEN_UP', 'PARKED') AND NOT EXISTS (
                   SELECT FROM reliability.attempt a
                    WHERE a.topology = t.topology AND a.txid = t.txid AND a.verdict IS NOT NULL
                      AND a.status IN ('PROCESSED', 'COMMITTED'))) AS is_undone) AS u
 GROUP BY r.run_id;

-- waiting_runs --
-- The runs that only wait behind an older txid of a topology, the last ones first.
SELECT r.dag_id, r.run_id
  FROM reliability.request r
  JOIN reliability.transaction t USING (topology, txid)
  JOIN reliability.topology p USING (topology)
 WHERE r.topology = %(topology)s AND r.status = 'OPEN'
 GROUP BY r.dag_id, r.run_id
HAVING min(r.txid) > max(p.curr_txid) AND bool_and(t.committed_attempt IS NULL)
   AND NOT bool_or(EXISTS (
       SELECT FROM reliability.attempt a WHERE a.topology = r.topology AND a.txid = r.txid
          AND a.status IN ('PROCESSING', 'SEALING')))
 ORDER BY min(r.txid) DESC;

-- runs_of_dag --
-- The latest request of each run for each txid, a dry run's if there is no other. A held txid must be
-- released first. What is silent has shown no sign of life for a request's lease.
SELECT r.run_id, count(*) AS txids,
       count(*) FILTER (WHERE is_done) AS satisfied,
       count(*) FILTER (WHERE r.status = 'OPEN') AS open,
       count(*) FILTER (WHERE r.status = 'GIVEN_UP' AND NOT is_done
                           OR r.status = 'OPEN' AND r.renewed_at
                              < clock_timestamp() - %(request_lease)s * interval '1 second') AS silent,
       count(*) FILTER (WHERE t.held_reason IS NOT NULL) AS held,
       coalesce(range_agg(int8range(r.txid, r.txid, '[]')) FILTER (WHERE NOT is_done),
                '{}')::text AS unsatisfied,
       min(t.interval_start) AS interval_start, max(t.interval_end) AS interval_end,
       max(t.interval_zone) AS interval_zone
  FROM (SELECT DISTINCT ON (o.topology, o.txid, o.run_id)
               o.topology, o.txid, o.run_id, o.status, o.is_done, q.renewed_at
          FROM reliability.request_outcome o
          JOIN reliability.request q USING (request_id) WHERE o.dag_id = %(dag_id)s
         ORDER BY o.topology, o.txid, o.run_id, o.is_dry_run, o.number DESC) AS r
  JOIN reliability.transaction t USING (topology, txid)
 GROUP BY r.run_id ORDER BY r.run_id;

-- runs_heard_of --
-- When a task of each run of a DAG has last emitted a topology, or made, renewed or ended a request.
SELECT run_id, topology, max(heard_at) AS heard_at
  FROM (SELECT run_id, topology, greatest(began_at, ended_at) AS heard_at
          FROM reliability.emission WHERE dag_id = %(dag_id)s
         UNION ALL
        SELECT run_id, topology, greatest(renewed_at, tasks_ended_at)
          FROM reliability.request WHERE dag_id = %(dag_id)s) AS heard
 GROUP BY run_id, topology;

-- server_facts --
-- The settings that a server needs to keep what it has committed, and to be understood.
SELECT current_setting('server_version_num')::integer AS version_number,
       current_setting('server_version') AS version,
       has_database_privilege(current_database(), 'CREATE') AS may_create_schema,
       EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'reliability') AS has_ledger,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('server_encoding') AS encoding,
       current_setting('lc_messages') AS messages,
       quote_ident(current_user) AS role, quote_ident(current_database()) AS database,
       clock_timestamp() AS now;

-- left_behind --
-- What a sweep would have found by now; housekeeping sweeps every minute.
SELECT (SELECT count(*) FROM reliability.attempt WHERE status IN ('PROCESSING', 'SEALING')
           AND lease_until < clock_timestamp() - interval '5 minutes') AS expired_leases,
       (SELECT count(*) FROM reliability.request WHERE status = 'OPEN'
           AND renewed_at < clock_timestamp() - %(silence)s * interval '1 second') AS silent_requests,
       (SELECT count(*) FROM reliability.attempt
         WHERE status IN ('FAILED', 'FENCED', 'REPLACED', 'DRY_RUN', 'ROLLED_BACK')
           AND cleaned_at IS NULL
           AND ended_at < clock_timestamp() - interval '1 hour') AS uncleaned_attempts;

-- server_process --
-- The process of the server that answers; a pooler may let another one answer the next time.
SELECT pg_backend_pid() AS pid;

-- ledger_size --
-- How large the ledger is, and what its states keep of committed txids.
SELECT pg_size_pretty(coalesce(sum(pg_total_relation_size(c.oid))
           FILTER (WHERE n.nspname = 'reliability'), 0)) AS ledger,
       pg_size_pretty(coalesce(sum(pg_total_relation_size(c.oid))
           FILTER (WHERE n.nspname <> 'reliability'), 0)) AS contributions
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname IN ('reliability', 'reliability_contribution') AND c.relkind = 'r';

-- session_facts --
-- For how many sessions there is place, until when the login's password is valid, and whether the server
-- tidies up by itself. reserved_connections is new in Postgres 16.
SELECT quote_ident(session_user) AS login,
       current_setting('max_connections')::integer
           - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true)::integer, 0) AS places,
       least(nullif(r.rolconnlimit, -1), nullif(d.datconnlimit, -1)) AS connection_limit,
       r.rolvaliduntil::date AS valid_until,
       isfinite(r.rolvaliduntil) AND r.rolvaliduntil < now() + interval '7 days' AS expires,
       CASE WHEN current_setting('track_counts') = 'on' THEN current_setting('autovacuum')
            ELSE 'off' END AS autovacuum
  FROM pg_roles r, pg_database d
 WHERE r.rolname = session_user AND d.datname = current_database();

-- sessions_of_topologies --
-- How many attempts each topology may have at once, and with how many sessions one of its last txids has
-- staged: how many Spark could use, only its code and its cluster tell.
SELECT p.max_spout_pending + p.max_replay_pending AS attempts,
       coalesce((SELECT max(s.partitions) FROM reliability.sink s
                  WHERE s.topology = p.topology AND s.txid >= p.next_txid - 100), 1) AS staging
  FROM reliability.topology p;
