-- attempts_of_page --
-- The attempts at some txids with what became of each, for a timeline.
SELECT a.txid, a.attempt_id, a.status, a.reason_code, a.verdict, a.granted_at, a.processed_at,
       a.ended_at, l.kind AS change, l.began_at, l.committed_at, clock_timestamp() AS now
  FROM reliability.attempt a
  LEFT JOIN reliability.commit_log l
         ON l.topology = a.topology AND l.txid = a.txid AND l.attempt_id = a.attempt_id
 WHERE a.topology = %(topology)s AND a.txid = ANY (%(txids)s::bigint[])
 ORDER BY a.txid, a.attempt_id;

-- rollbacks_of_topology --
-- The last rollbacks and repairs of a topology.
SELECT commit_number, kind, txid, reason, committed_at FROM reliability.commit_log
 WHERE topology = %(topology)s AND kind IN ('ROLLBACK', 'REPAIR')
 ORDER BY commit_number DESC LIMIT %(most)s;

-- series_of_topology --
-- For the last txids that have committed: when, how many rows, how long after their emission, and how
-- long the transaction that committed them took, in seconds.
SELECT t.txid, extract(epoch FROM t.committed_at)::float8 AS committed_at,
       CASE WHEN a.verdict IS NULL THEN coalesce(a.emitted_count, t.emitted_count) ELSE 0 END AS rows,
       extract(epoch FROM (SELECT max(f.committed_at) FROM reliability.commit_log f
                            WHERE f.topology = t.topology AND f.txid = t.txid AND f.kind = 'COMMIT')
                          - t.emitted_at)::float8 AS lag,
       extract(epoch FROM l.committed_at - l.began_at)::float8 AS commit,
       extract(epoch FROM a.processed_at - a.granted_at)::float8 AS processing
  FROM reliability.transaction t
  JOIN reliability.attempt a ON a.topology = t.topology AND a.txid = t.txid
       AND a.attempt_id = t.committed_attempt
  LEFT JOIN reliability.commit_log l ON l.topology = t.topology
       AND l.commit_number = t.commit_number
 WHERE t.topology = %(topology)s AND t.committed_attempt IS NOT NULL
   AND t.txid BETWEEN %(first)s AND %(last)s
 ORDER BY t.txid;

-- outcome_of_run --
-- What a run has requested last of each txid, and the attempt that it got: its own, or that of a run which
-- has done it for this one.
SELECT DISTINCT ON (r.txid) r.txid, r.dag_id, r.request_id, r.kind, r.is_dry_run, r.status, r.reason,
       r.opened_at, r.ended_at, o.is_done, a.attempt_id, a.status AS attempt_status, a.reason_code,
       a.reason AS attempt_reason, t.interval_start, t.interval_end, t.interval_zone
  FROM reliability.request r
  JOIN reliability.transaction t USING (topology, txid)
  JOIN reliability.request_outcome o USING (request_id)
  LEFT JOIN LATERAL (
       SELECT * FROM reliability.attempt a WHERE a.topology = r.topology AND a.txid = r.txid
          AND a.attempt_id > r.granted_after
          AND (a.request_id = r.request_id OR NOT r.is_dry_run)
        ORDER BY a.request_id = r.request_id DESC NULLS LAST, a.attempt_id DESC LIMIT 1) AS a ON true
 WHERE r.topology = %(topology)s AND r.dag_id = coalesce(%(dag_id)s, r.dag_id)
   AND r.run_id = %(run_id)s
 ORDER BY r.txid, r.number DESC;

-- differences_of_attempts --
-- What some attempts, such as those of a run, changed in the rows of each state of this database.
SELECT d.txid, d.state, d.rows_added, d.rows_changed, d.rows_removed, d.moved, d.by_hand
  FROM unnest(%(txids)s::bigint[], %(attempt_ids)s::integer[]) AS a(txid, attempt_id)
  JOIN reliability.difference d ON d.topology = %(topology)s AND d.txid = a.txid
       AND d.attempt_id = a.attempt_id
 ORDER BY d.txid, d.difference_id;

-- newest_txid_of_interval --
-- The newest txid whose interval begins in a time, which may be a moment, or before it.
SELECT txid FROM reliability.transaction
 WHERE topology = %(topology)s
   AND (interval_start < %(interval_end)s::timestamptz
        OR interval_start = %(interval_start)s::timestamptz)
 ORDER BY interval_start DESC, txid DESC LIMIT 1;

-- quarantine_of_page --
-- The first rows in quarantine of a txid, and how many it has.
SELECT q.reason, q.step, q.item, q.row, q.contents, q.is_cut, count(*) OVER () AS all_rows
  FROM reliability.quarantine q
 WHERE q.topology = %(topology)s AND q.txid = %(txid)s
 ORDER BY q.step, q.number LIMIT %(most)s;

-- dags_of_topologies --
-- Each topology with the DAGs whose runs have tried to emit it, the last one first; if there are none,
-- with that of its name.
SELECT p.topology, coalesce(e.dag_ids, ARRAY[p.topology]) AS dag_ids
  FROM reliability.topology p
  LEFT JOIN LATERAL (
       SELECT array_agg(own.dag_id ORDER BY own.began_at DESC) AS dag_ids
         FROM (SELECT dag_id, max(began_at) AS began_at FROM reliability.emission
                WHERE topology = p.topology AND dag_id <> 'cli' GROUP BY dag_id) AS own) AS e ON true
 WHERE p.participant IS NULL
   AND p.topology = coalesce(%(topology)s, p.topology)
   AND (%(dag_id)s::text IS NULL OR %(dag_id)s = ANY (coalesce(e.dag_ids, ARRAY[p.topology])))
 ORDER BY p.topology;

-- topologies_of_run --
-- The topologies of which a run has requested txids.
SELECT DISTINCT topology FROM reliability.request
 WHERE dag_id = %(dag_id)s AND run_id = %(run_id)s ORDER BY topology;
