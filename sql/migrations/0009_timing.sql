-- When a transaction began, beside when its last statement ran: so that the time of an attempt can be
-- divided. NULL before this release.
ALTER TABLE reliability.ack ADD COLUMN began_at timestamptz;
ALTER TABLE reliability.ack ALTER COLUMN began_at SET DEFAULT now();
ALTER TABLE reliability.commit_log ADD COLUMN began_at timestamptz;
ALTER TABLE reliability.commit_log ALTER COLUMN began_at SET DEFAULT now();

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
