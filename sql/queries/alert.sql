-- hold_alerts --
-- Wait for an erasure or a drop, which hold the table: what was read before would be written after it.
LOCK TABLE reliability.alert IN ROW EXCLUSIVE MODE;

-- lock_alerts --
-- One process at a time compares what is found with what is known.
SELECT pg_advisory_xact_lock(hashtextextended('reliability.alert', 0)) AS locked;

-- expired_leases --
-- Attempts whose lease has expired, as long as no other attempt has followed and somebody still wants it;
-- and until it is told, if that was over before anybody looked.
SELECT a.txid, a.attempt_id, a.lease_until AS since
  FROM reliability.attempt a
 WHERE a.topology = %(topology)s AND a.status IN ('PROCESSING', 'SEALING')
   AND a.lease_until < clock_timestamp()
 UNION ALL
SELECT a.txid, a.attempt_id, a.ended_at
  FROM reliability.attempt a
  JOIN reliability.transaction t USING (topology, txid)
 WHERE a.topology = %(topology)s AND a.status = 'FENCED'
   AND a.reason = 'its lease expired: no progress'
   AND ((t.committed_attempt IS NULL OR EXISTS (
            SELECT FROM reliability.request q
             WHERE q.request_id = a.request_id AND q.status = 'OPEN'))
        AND NOT EXISTS (
            SELECT FROM reliability.attempt later WHERE later.topology = a.topology
               AND later.txid = a.txid AND later.attempt_id > a.attempt_id)
        OR a.ended_at > clock_timestamp() - interval '1 hour' AND NOT EXISTS (
            SELECT FROM reliability.alert k JOIN reliability.alert_told USING (alert_id)
             WHERE k.topology = a.topology
               AND k.kind = 'LEASE_EXPIRED' AND k.subject = a.txid || ':' || a.attempt_id))
 ORDER BY txid;

-- open_lags --
-- Which intervals have an alert, and for how long.
SELECT subject, clock_timestamp() - begun_at AS age FROM reliability.alert
 WHERE topology = %(topology)s AND kind = 'LAG' AND ended_at IS NULL;

-- last_in_time --
-- The last txid between each moment and the one before whose interval was emitted before it lagged. NULL:
-- there is none.
SELECT (SELECT t.txid FROM reliability.transaction t
         WHERE t.topology = %(topology)s AND t.interval_start < m.start
           AND t.interval_start >= coalesce(m.previous, '-infinity')
           AND t.emitted_at <= t.interval_end + %(limit)s
         ORDER BY t.interval_start DESC, t.txid DESC LIMIT 1) AS txid
  FROM (SELECT start, lag(start) OVER (ORDER BY start) AS previous
          FROM unnest(%(starts)s::timestamptz[]) AS start) AS m
 ORDER BY start;

-- begin_alert --
-- Record that something begins, unless that is known. No row: it is.
INSERT INTO reliability.alert (topology, kind, subject, what, advice, command, since)
VALUES (%(topology)s, %(kind)s, %(subject)s, %(what)s, %(advice)s, %(command)s,
        coalesce(%(since)s, clock_timestamp()))
ON CONFLICT (topology, kind, subject) WHERE ended_at IS NULL DO NOTHING
RETURNING alert_id;

-- end_alerts --
-- Record that all of a topology has ended that is not found any more.
UPDATE reliability.alert SET ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND ended_at IS NULL
   AND (kind, subject) NOT IN (
       SELECT * FROM unnest(%(kinds)s::text[], %(subjects)s::text[]));

-- alerts_to_tell --
-- Which channel has not been told of what begun, or of the end of what it was told of. Weeks later nobody
-- wants to know any more.
SELECT a.alert_id, a.topology, a.kind, a.what, a.advice, a.command, a.since, a.ended_at, c.channel
  FROM reliability.alert a
 CROSS JOIN unnest(%(channels)s::text[]) AS c(channel)
 WHERE (a.ended_at IS NULL
        OR a.ended_at > clock_timestamp() - interval '7 days' AND EXISTS (
            SELECT FROM reliability.alert_told t
             WHERE t.alert_id = a.alert_id AND t.channel = c.channel AND NOT t.is_over))
   AND NOT EXISTS (
       SELECT FROM reliability.alert_told t
        WHERE t.alert_id = a.alert_id AND t.channel = c.channel
          AND t.is_over = (a.ended_at IS NOT NULL))
 ORDER BY a.alert_id, c.channel;

-- claim_alert --
-- Take it on to tell a channel. No row: another process has, or the topology was dropped.
INSERT INTO reliability.alert_told (alert_id, channel, is_over)
SELECT alert_id, %(channel)s, %(is_over)s
  FROM reliability.alert WHERE alert_id = %(alert_id)s FOR KEY SHARE
ON CONFLICT ON CONSTRAINT told_once DO NOTHING
RETURNING alert_id;

-- unclaim_alert --
-- The channel could not be told: it will be tried again.
DELETE FROM reliability.alert_told
 WHERE alert_id = %(alert_id)s AND channel = %(channel)s AND is_over = %(is_over)s;

-- record_verified --
-- Record what a verification of a table has found, unless its topology was dropped meanwhile, or an
-- alteration has removed its state; the ledger knows those of its own database.
INSERT INTO reliability.verified (topology, database, state, wrong)
SELECT topology, %(database)s, %(state)s, %(wrong)s
  FROM reliability.topology t
 WHERE topology = %(topology)s
   AND (%(database)s <> '' OR EXISTS (
       SELECT FROM reliability.state s
        WHERE s.topology = t.topology AND s.state = %(state)s FOR KEY SHARE))
ON CONFLICT (topology, database, state)
DO UPDATE SET wrong = excluded.wrong, verified_at = clock_timestamp();

-- forget_states_verified_before --
-- Forget what this verification has not read: it was removed, moved to another database, or repaired.
DELETE FROM reliability.verified
 WHERE topology = %(topology)s
   AND (database, state) NOT IN (
       SELECT * FROM unnest(%(databases)s::text[], %(states)s::text[]));

-- verified --
-- What the last verification of each table has found.
SELECT database, state, verified_at, wrong FROM reliability.verified
 WHERE topology = %(topology)s ORDER BY database, state;
