-- The accounts of each state by each attempt that has not failed: emitted = applied + dropped +
-- quarantined, in tuples. A fan-out has staged added_rows more rows than tuples.
-- The attempt was sealed, so what was emitted is what it has acked. The txid may have another batch since:
-- a refreeze replaces it, and an attempt that is parked or skipped has read none.
CREATE OR REPLACE VIEW reliability.accounts AS
SELECT s.topology, s.txid, s.attempt_id, a.status, s.sink AS state, t.verdict,
       aside.applied + aside.dropped + aside.quarantined AS emitted,
       aside.applied,
       aside.dropped, aside.quarantined, aside.added_rows,
       aside.reasons
  FROM reliability.sink s
  JOIN reliability.attempt a USING (topology, txid, attempt_id)
  JOIN reliability.transaction t USING (topology, txid)
 CROSS JOIN LATERAL (
       SELECT (coalesce((SELECT sum(k.count) FROM reliability.ack k
                          WHERE k.topology = s.topology AND k.txid = s.txid
                            AND k.attempt_id = s.attempt_id AND k.sink = s.sink), 0)
               + coalesce(sum(x.count) FILTER (WHERE x.kind = 'FANNED_OUT'), 0))::bigint AS applied,
              coalesce(sum(x.count) FILTER (WHERE x.kind = 'DROPPED'), 0)::bigint AS dropped,
              coalesce(sum(x.count) FILTER (WHERE x.kind = 'QUARANTINED'), 0)::bigint AS quarantined,
              coalesce(sum(-x.count) FILTER (WHERE x.kind = 'FANNED_OUT'), 0)::bigint AS added_rows,
              coalesce(jsonb_agg(jsonb_build_object(
                           'kind', x.kind, 'reason', x.reason, 'count', x.count)
                           ORDER BY x.kind, x.reason), '[]') AS reasons
         FROM reliability.set_aside x
        WHERE x.topology = s.topology AND x.txid = s.txid AND x.attempt_id = s.attempt_id
          AND x.sink = s.sink) AS aside
 WHERE a.status IN ('PROCESSED', 'COMMITTED', 'REPLACED', 'DRY_RUN');
