-- latest_request --
-- The run's latest request for a txid, and the recorded contact of this task and of its downstream
-- tasks. What has ended since this task began does not show that it was cleared.
SELECT r.request_id, r.number, r.kind, r.status, r.granted_after, coalesce(r.reason, '') AS reason,
       r.is_dry_run,
       r.tasks_ended_at IS NOT NULL
       AND r.tasks_ended_at <= coalesce(%(began_at)s, r.tasks_ended_at) AS tasks_ended,
       EXISTS (SELECT FROM reliability.request_contact l
                WHERE l.request_id = r.request_id AND l.task = ANY(%(later_tasks)s::text[])
              ) AS downstream_has_worked,
       c.max_tries, c.try_id, c.clear_number, c.run_started, r.is_done_in_airflow
  FROM reliability.request r
  LEFT JOIN reliability.request_contact c ON c.request_id = r.request_id AND c.task = %(task)s
 WHERE r.topology = %(topology)s AND r.txid = %(txid)s
   AND r.dag_id = %(dag_id)s AND r.run_id = %(run_id)s
 ORDER BY r.number DESC LIMIT 1;

-- facts_for_request --
-- What decides the kind of a new request, and the newest attempt that a replay does not count as
-- its own.
SELECT t.committed_attempt,
       t.committed_attempt IS NOT NULL AND EXISTS (
           SELECT FROM reliability.skip k WHERE k.topology = t.topology AND k.txid = t.txid
              AND k.ended_at IS NULL) AS is_skipped,
       coalesce((SELECT max(a.attempt_id) FROM reliability.attempt a
                  WHERE a.topology = t.topology AND a.txid = t.txid), -1) AS newest_attempt
  FROM reliability.transaction t
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s;

-- end_superseded_requests --
-- The run makes a new request: end its older requests for this txid.
UPDATE reliability.request
   SET status = 'CLOSED', reason = %(reason)s, ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND dag_id = %(dag_id)s AND run_id = %(run_id)s AND status = 'OPEN'
RETURNING request_id;

-- open_request --
-- Open the next request of a run for a txid, or satisfy it at once: nothing processes a txid that has
-- committed as skipped (C8). If a person has said why, that is its reason, until it is closed. Airflow
-- keeps a run's conf: its reason is not that of a commit after what was done for it.
INSERT INTO reliability.request
       (topology, txid, dag_id, run_id, number, kind, granted_after, is_dry_run, reason, status,
        ended_at)
SELECT %(topology)s, %(txid)s, %(dag_id)s, %(run_id)s,
       coalesce(max(number), 0) + 1, %(kind)s, %(granted_after)s, %(is_dry_run)s,
       CASE WHEN %(kind)s = 'COMMIT'
                 AND bool_or(status = 'SATISFIED' AND reason = %(reason)s OR
                             split_part(reason, ' (requested because: ', 2) = %(reason)s || ')')
            THEN NULL ELSE %(reason)s::text END,
       CASE WHEN %(is_skipped)s THEN 'SATISFIED' ELSE 'OPEN' END,
       CASE WHEN %(is_skipped)s THEN clock_timestamp() END
  FROM reliability.request
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND dag_id = %(dag_id)s AND run_id = %(run_id)s
RETURNING request_id, number, kind, status, granted_after, '' AS reason, is_dry_run;

-- satisfy_requests_of_skipped --
-- Satisfy the requests for a txid that has committed as empty and is skipped now, those that parking
-- it has closed too, and a run's last one that its failure had closed.
UPDATE reliability.request q SET status = 'SATISFIED', ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND (status IN ('OPEN', 'GIVEN_UP', 'PARKED')
        OR (status = 'CLOSED' AND NOT is_dry_run AND NOT EXISTS (
            SELECT FROM reliability.request later
             WHERE later.topology = q.topology AND later.txid = q.txid AND later.dag_id = q.dag_id
               AND later.run_id = q.run_id AND later.number > q.number)));

-- reopen_request --
-- Reopen a given-up request whose run shows activity again; no row: it was closed meanwhile.
UPDATE reliability.request
   SET status = 'OPEN', ended_at = NULL, renewed_at = clock_timestamp()
 WHERE request_id = %(request_id)s AND status = 'GIVEN_UP'
RETURNING request_id, number, kind, status, granted_after, '' AS reason, is_dry_run;

-- reopen_requests_of_run --
-- Reopen what else a sweep has given up of the run of a request, unless its tasks for it have ended.
-- Skip locked rows: who ends a request may wait for another one of the run.
UPDATE reliability.request
   SET status = 'OPEN', ended_at = NULL, renewed_at = clock_timestamp()
 WHERE request_id IN (
       SELECT o.request_id
         FROM reliability.request r JOIN reliability.request o USING (topology, dag_id, run_id)
        WHERE r.request_id = %(request_id)s
          AND o.status = 'GIVEN_UP' AND o.tasks_ended_at IS NULL
          AND NOT EXISTS (
              SELECT FROM reliability.request later
               WHERE later.topology = o.topology AND later.txid = o.txid
                 AND later.dag_id = o.dag_id AND later.run_id = o.run_id
                 AND later.number > o.number)
          FOR UPDATE OF o SKIP LOCKED);

-- record_contact --
-- Record the first contact only: later ones are compared with it.
INSERT INTO reliability.request_contact
       (request_id, task, max_tries, try_id, clear_number, run_started)
VALUES (%(request_id)s, %(task)s, %(max_tries)s, %(try_id)s, %(clear_number)s, %(run_started)s)
ON CONFLICT (request_id, task) DO NOTHING;

-- hold_request --
-- Lock an open request before an attempt is granted, so that no sweep gives it up; no row: it is
-- not open. What an earlier try met before an attempt could begin is over.
UPDATE reliability.request
   SET renewed_at = clock_timestamp(), problem_code = NULL, problem = NULL, problem_remedy = NULL
 WHERE request_id = %(request_id)s AND status = 'OPEN'
RETURNING request_id;

-- record_problem --
-- Record why a task failed before an attempt had begun.
UPDATE reliability.request
   SET problem_code = %(reason_code)s, problem = %(reason)s, problem_remedy = %(remedy)s
 WHERE request_id = %(request_id)s AND status = 'OPEN';

-- renew_requests_of_runs --
-- Renew all open requests of the runs of these requests: one sign of life counts for the whole run.
-- Skip locked rows, so that no two renewals wait for each other.
UPDATE reliability.request SET renewed_at = clock_timestamp()
 WHERE request_id IN (
       SELECT o.request_id
         FROM (SELECT DISTINCT topology, dag_id, run_id FROM reliability.request
                WHERE request_id = ANY(%(request_ids)s::bigint[])) AS r
         JOIN reliability.request o USING (topology, dag_id, run_id)
        WHERE o.status = 'OPEN'
          FOR UPDATE OF o SKIP LOCKED);

-- record_tasks_ended --
-- All tasks of a run have ended for one txid, or for all of them: a task that comes later was
-- cleared.
UPDATE reliability.request
   SET tasks_ended_at = coalesce(tasks_ended_at, clock_timestamp()),
       is_done_in_airflow = is_done_in_airflow OR %(has_succeeded)s
 WHERE topology = %(topology)s AND dag_id = %(dag_id)s AND run_id = %(run_id)s
   AND (%(txid)s::bigint IS NULL OR txid = %(txid)s::bigint)
   AND (tasks_ended_at IS NULL OR is_done_in_airflow < %(has_succeeded)s);

-- close_request --
-- Close a request that is not satisfied.
UPDATE reliability.request
   SET status = 'CLOSED', reason = %(reason)s, ended_at = clock_timestamp()
 WHERE request_id = %(request_id)s AND status IN ('OPEN', 'GIVEN_UP')
RETURNING request_id;

-- latest_requests_of_run --
-- The run's latest request for each txid, and why its last try failed.
SELECT DISTINCT ON (r.txid) r.txid, r.request_id, r.status, r.is_dry_run, r.is_done,
       asked.is_done_in_airflow,
       coalesce(asked.problem_code, a.reason_code) AS problem_code,
       coalesce(asked.problem, a.reason) AS problem
  FROM reliability.request_outcome r
  JOIN reliability.request asked USING (request_id)
  LEFT JOIN LATERAL (
       SELECT reason_code, reason FROM reliability.attempt
        WHERE topology = r.topology AND txid = r.txid AND request_id = r.request_id
        ORDER BY attempt_id DESC LIMIT 1) AS a ON true
 WHERE r.topology = %(topology)s AND r.dag_id = %(dag_id)s AND r.run_id = %(run_id)s
 ORDER BY r.txid, r.number DESC;

-- runs_without_their_txids --
-- Runs that ended without their txids, which no other run has done since. A person may have marked
-- such a run as success in Airflow. Who has typed `reliability replay` has seen it end.
SELECT r.dag_id, r.run_id, r.topology,
       range_agg(int8range(r.txid, r.txid, '[]'))::text AS txids, max(r.ended_at) AS ended_at
  FROM reliability.request r
  JOIN reliability.transaction t USING (topology, txid)
 WHERE r.status IN ('CLOSED', 'GIVEN_UP') AND NOT r.is_dry_run AND t.held_reason IS NULL
   AND (r.kind, r.dag_id) <> ('REPLAY', 'cli')
   AND (t.committed_attempt IS NULL OR (r.kind = 'REPLAY' AND t.committed_attempt <= r.granted_after))
   AND NOT EXISTS (   -- parked or skipped, and waiting for its turn to commit
       SELECT FROM reliability.attempt a
        WHERE a.topology = r.topology AND a.txid = r.txid
          AND a.status = 'PROCESSED' AND a.verdict IS NOT NULL)
   AND NOT EXISTS (
       SELECT FROM reliability.request later
        WHERE later.topology = r.topology AND later.txid = r.txid
          AND later.dag_id = r.dag_id AND later.run_id = r.run_id
          AND later.request_id > r.request_id AND NOT later.is_dry_run)
 GROUP BY r.dag_id, r.run_id, r.topology ORDER BY min(r.request_id);

-- silent_requests --
-- Open requests that no task or trigger of their run has renewed for a whole request lease.
SELECT request_id FROM reliability.request
 WHERE topology = %(topology)s AND status = 'OPEN'
   AND renewed_at < clock_timestamp() - %(request_lease)s * interval '1 second';

-- give_up_request --
-- Give up a request if its run is still silent.
UPDATE reliability.request SET status = 'GIVEN_UP', ended_at = clock_timestamp()
 WHERE request_id = %(request_id)s AND status = 'OPEN'
   AND renewed_at < clock_timestamp() - %(request_lease)s * interval '1 second'
RETURNING request_id;

-- requests_that_changed --
-- Which of these requests are no longer open, and those whose status the caller does not know yet.
SELECT request_id, number, kind, status, granted_after, coalesce(reason, '') AS reason, is_dry_run,
       dag_id, run_id
  FROM reliability.request
 WHERE request_id = ANY(%(known)s::bigint[]) AND status <> 'OPEN'
    OR request_id = ANY(%(unknown)s::bigint[]);
