-- what_goes_with_topology --
-- How much of a topology a person is about to drop.
SELECT next_txid - 1 AS emitted, curr_txid - 1 AS committed
  FROM reliability.topology WHERE topology = %(topology)s;

-- topologies_that_read_table --
-- Other topologies whose batches have rows of a table of the ledger's own database.
SELECT DISTINCT topology FROM reliability.source_item
 WHERE item = %(source)s AND topology <> %(topology)s ORDER BY topology;

-- forget_topology --
-- Delete everything that the ledger of a database has of a topology, in one statement: foreign keys
-- are checked at its end.
WITH acks AS (DELETE FROM reliability.ack WHERE topology = %(topology)s),
     aside AS (DELETE FROM reliability.set_aside WHERE topology = %(topology)s),
     corrections AS (DELETE FROM reliability.correction WHERE topology = %(topology)s),
     quarantined AS (DELETE FROM reliability.quarantined_row WHERE topology = %(topology)s),
     audits AS (DELETE FROM reliability.audit_result WHERE topology = %(topology)s),
     sinks AS (DELETE FROM reliability.sink WHERE topology = %(topology)s),
     tables AS (DELETE FROM reliability.attempt_table WHERE topology = %(topology)s),
     steps AS (DELETE FROM reliability.attempt_step WHERE topology = %(topology)s),
     events AS (DELETE FROM reliability.attempt_event WHERE topology = %(topology)s),
     log AS (DELETE FROM reliability.commit_log WHERE topology = %(topology)s),
     contributions AS (DELETE FROM reliability.contribution WHERE topology = %(topology)s),
     differences AS (DELETE FROM reliability.difference WHERE topology = %(topology)s),
     alterations AS (DELETE FROM reliability.alteration WHERE topology = %(topology)s),
     refreezes AS (DELETE FROM reliability.refreeze WHERE topology = %(topology)s),
     items AS (DELETE FROM reliability.source_item WHERE topology = %(topology)s),
     skips AS (DELETE FROM reliability.skip WHERE topology = %(topology)s),
     exclusions AS (DELETE FROM reliability.exclusion WHERE topology = %(topology)s),
     emissions AS (DELETE FROM reliability.emission WHERE topology = %(topology)s),
     told AS (DELETE FROM reliability.alert_told d USING reliability.alert a
               WHERE a.alert_id = d.alert_id AND a.topology = %(topology)s),
     alerts AS (DELETE FROM reliability.alert WHERE topology = %(topology)s),
     verified AS (DELETE FROM reliability.verified WHERE topology = %(topology)s),
     schedules AS (DELETE FROM reliability.schedule WHERE topology = %(topology)s),
     contacts AS (DELETE FROM reliability.request_contact c USING reliability.request r
                   WHERE r.request_id = c.request_id AND r.topology = %(topology)s),
     attempts AS (DELETE FROM reliability.attempt WHERE topology = %(topology)s),
     requests AS (DELETE FROM reliability.request WHERE topology = %(topology)s),
     transactions AS (DELETE FROM reliability.transaction WHERE topology = %(topology)s),
     states AS (DELETE FROM reliability.state WHERE topology = %(topology)s),
     checkpoints AS (DELETE FROM reliability.checkpoint WHERE topology = %(topology)s),
     participants AS (DELETE FROM reliability.participant WHERE topology = %(topology)s)
DELETE FROM reliability.topology WHERE topology = %(topology)s
RETURNING topology;
