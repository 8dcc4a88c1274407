-- Rules that several queries need, written once.

-- Each request, and whether its run has got what it requested. A commit that it asked for is also
-- done if the txid has committed since for another run or by a skip, unless it was parked.
CREATE VIEW reliability.request_outcome AS
SELECT r.request_id, r.topology, r.txid, r.dag_id, r.run_id, r.number, r.kind, r.is_dry_run,
       r.status, r.reason, r.granted_after,
       r.status = 'SATISFIED'
           OR (r.status IN ('CLOSED', 'GIVEN_UP') AND r.kind = 'COMMIT'
               AND a.attempt_id IS NOT NULL AND a.verdict IS DISTINCT FROM 'PARKED') AS is_done
  FROM reliability.request r
  JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                   = (t.topology, t.txid, t.committed_attempt);

-- Uncommitted txids that are not PROCESSED and that no run is working on, or that are held: those
-- behind them wait (E2).
CREATE VIEW reliability.blocked_transaction AS
SELECT t.topology, t.txid, t.interval_start, t.interval_end, t.dag_id, t.run_id, t.emitted_at,
       t.held_reason
  FROM reliability.transaction t
 WHERE t.committed_attempt IS NULL
   AND (t.held_reason IS NOT NULL
        OR NOT EXISTS (SELECT FROM reliability.request r WHERE r.topology = t.topology
                          AND r.txid = t.txid AND r.status = 'OPEN')
           AND NOT EXISTS (SELECT FROM reliability.attempt a WHERE a.topology = t.topology
                              AND a.txid = t.txid AND a.status = 'PROCESSED'));
