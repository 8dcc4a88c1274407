-- A replay that ended without its attempt is done too if a newer attempt has committed since.

CREATE OR REPLACE VIEW reliability.request_outcome AS
SELECT r.request_id, r.topology, r.txid, r.dag_id, r.run_id, r.number, r.kind, r.is_dry_run,
       r.status, r.reason, r.granted_after,
       r.status = 'SATISFIED'
           OR (r.status IN ('CLOSED', 'GIVEN_UP') AND a.attempt_id IS NOT NULL
               AND a.verdict IS DISTINCT FROM 'PARKED'
               AND (r.kind = 'COMMIT' OR (r.granted_after < a.attempt_id AND NOT r.is_dry_run)))
           AS is_done
  FROM reliability.request r
  JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN reliability.attempt a ON (a.topology, a.txid, a.attempt_id)
                                   = (t.topology, t.txid, t.committed_attempt);
