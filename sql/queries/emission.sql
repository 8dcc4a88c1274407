-- known_items --
-- Which of these source items belong to a txid already.
SELECT item, txid FROM reliability.source_item
 WHERE topology = %(topology)s AND item = ANY(%(items)s);

-- emitted_intervals --
-- The intervals that earlier emissions covered and that could touch this one.
SELECT DISTINCT interval_start, interval_end, run_id FROM reliability.transaction
 WHERE topology = %(topology)s
   AND interval_start < %(interval_end)s AND interval_end > %(interval_start)s;

-- txids_of_interval --
SELECT txid FROM reliability.transaction
 WHERE topology = %(topology)s
   AND interval_start = %(interval_start)s AND interval_end = %(interval_end)s;

-- txids_of_run --
SELECT DISTINCT txid FROM reliability.request
 WHERE topology = %(topology)s AND dag_id = %(dag_id)s AND run_id = %(run_id)s;

-- blocked_txid --
-- The oldest uncommitted txid below a bound that is not PROCESSED and that nobody works on.
SELECT o.txid, o.run_id, o.interval_start, o.interval_end,
       (SELECT a.reason FROM reliability.attempt a
         WHERE a.topology = o.topology AND a.txid = o.txid
         ORDER BY a.attempt_id DESC LIMIT 1) AS reason
  FROM reliability.transaction o
 WHERE o.topology = %(topology)s AND o.txid < %(below)s AND o.committed_attempt IS NULL
   AND o.txid <> ALL(%(except)s::bigint[])
   AND NOT EXISTS (SELECT FROM reliability.request r WHERE r.topology = o.topology
                      AND r.txid = o.txid AND r.status = 'OPEN')
   AND NOT EXISTS (SELECT FROM reliability.attempt a WHERE a.topology = o.topology
                      AND a.txid = o.txid AND a.status = 'PROCESSED')
 ORDER BY o.txid LIMIT 1;

-- allocate_txids --
-- Take the next txids from the topology's row, which the caller has locked.
UPDATE reliability.topology SET next_txid = next_txid + %(count)s
 WHERE topology = %(topology)s AND next_txid = %(first)s
RETURNING next_txid;

-- insert_transaction --
INSERT INTO reliability.transaction (topology, txid, batch_meta, emitted_xor, emitted_count,
       interval_start, interval_end, dag_id, run_id)
VALUES (%(topology)s, %(txid)s, %(batch_meta)s, %(emitted_xor)s, %(emitted_count)s,
       %(interval_start)s, %(interval_end)s, %(dag_id)s, %(run_id)s)
RETURNING txid;

-- insert_source_items --
INSERT INTO reliability.source_item (topology, txid, item)
SELECT %(topology)s, %(txid)s, unnest(%(items)s::text[])
RETURNING item;

-- batch_meta --
SELECT batch_meta, emitted_xor, emitted_count FROM reliability.transaction
 WHERE topology = %(topology)s AND txid = %(txid)s;
