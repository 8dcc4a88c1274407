-- whole_items --
-- Which of these source items belong to a txid as a whole, or are excluded. Not by "=": Postgres
-- would look for all whole items in the index of the parts.
SELECT item FROM reliability.source_item
 WHERE topology = %(topology)s AND item = ANY(%(items)s) AND part IS NOT DISTINCT FROM '{(,)}'
 UNION
SELECT item FROM reliability.exclusion
 WHERE topology = %(topology)s AND item = ANY(%(items)s) AND ended_at IS NULL;

-- parts_of_item --
-- The parts of a source item and their txids. Txid 0: parts that refrozen batches no longer have;
-- they are not missing, and not free until those txids commit again.
SELECT txid, coalesce(refrozen_part, part)::text AS part FROM reliability.source_item
 WHERE topology = %(topology)s AND item = %(item)s AND refrozen_part IS DISTINCT FROM '{}'
 UNION ALL
SELECT 0, range_agg(part - refrozen_part)::text FROM reliability.source_item
 WHERE topology = %(topology)s AND item = %(item)s AND refrozen_part IS NOT NULL
HAVING count(*) > 0
 ORDER BY txid;

-- last_batch_of_kind --
-- The frozen batch of the last txid whose batch ends with a source item of this kind.
SELECT batch_meta, emitted_xor, emitted_count FROM reliability.transaction
 WHERE topology = %(topology)s AND batch_meta -> -1 ->> 'kind' = %(kind)s
 ORDER BY txid DESC LIMIT 1;

-- included_items --
-- How many exclusions of a topology have been taken back.
SELECT count(*) AS included FROM reliability.exclusion
 WHERE topology = %(topology)s AND ended_at IS NOT NULL;

-- any_part_is_allocated --
-- Whether another run has allocated any of these parts since they were planned, or a person has
-- excluded them.
SELECT EXISTS (
       SELECT FROM reliability.exclusion e
        WHERE e.topology = %(topology)s AND e.item = ANY(%(items)s::text[]) AND e.ended_at IS NULL)
    OR EXISTS (
       SELECT FROM unnest(%(items)s::text[], %(parts)s::int8multirange[]) AS planned(item, part)
         JOIN reliability.source_item s ON s.topology = %(topology)s AND s.item = planned.item
              AND s.part && planned.part) AS is_allocated;

-- are_left_out --
-- Whether none of these txids needs its source: each is skipped, or all its items are excluded.
SELECT count(*) > 0 AND bool_and(
       EXISTS (SELECT FROM reliability.skip k WHERE k.topology = t.topology AND k.txid = t.txid
                  AND k.ended_at IS NULL)
       OR coalesce((
          SELECT bool_and(EXISTS (SELECT FROM reliability.exclusion e
                                   WHERE e.topology = s.topology AND e.item = s.item
                                     AND e.ended_at IS NULL))
            FROM reliability.source_item s WHERE s.topology = t.topology AND s.txid = t.txid),
          false)) AS are_left_out
  FROM reliability.transaction t
 WHERE t.topology = %(topology)s AND t.txid = ANY(%(txids)s::bigint[]);

-- excluded_among --
-- Which of these source items are excluded.
SELECT item FROM reliability.exclusion
 WHERE topology = %(topology)s AND item = ANY(%(items)s::text[]) AND ended_at IS NULL;

-- emitted_intervals --
-- Intervals of earlier emissions that overlap this one. These do not overlap each other, or their
-- emission was refused: of those that start before this one, only the last can reach into it.
SELECT DISTINCT interval_start, interval_end, interval_zone, run_id FROM reliability.transaction
 WHERE topology = %(topology)s
   AND interval_start < %(interval_end)s AND interval_end > %(interval_start)s
   AND interval_start >= coalesce((
       SELECT max(interval_start) FROM reliability.transaction
        WHERE topology = %(topology)s AND interval_start < %(interval_start)s), '-infinity');

-- earlier_txids --
-- The txids that a run has requested, and those of its data interval. Under its id another run may have read
-- another interval and been deleted: what that has done is not asked for again. A run that takes over what
-- others have left asks again for all of it.
SELECT txid FROM reliability.request_outcome
 WHERE topology = %(topology)s AND dag_id = %(dag_id)s AND run_id = %(run_id)s
   AND (%(interval_start)s::timestamptz IS NULL OR %(takes_over)s OR NOT is_done)
 UNION
SELECT txid FROM reliability.transaction
 WHERE topology = %(topology)s
   AND interval_start = %(interval_start)s AND interval_end = %(interval_end)s
 ORDER BY txid;

-- left_txids --
-- Uncommitted txids that no run is working on, and that a person does not hold.
SELECT txid FROM reliability.blocked_transaction
 WHERE topology = %(topology)s AND held_reason IS NULL;

-- blocked_txid --
-- The oldest blocked txid of each topology, or of one, below a bound or of all, and why: what its latest
-- request met before an attempt could begin, or why its last attempt ended. Neither says anything about it
-- once it was rolled back and released, or refrozen. What a dry run met stands in its own report.
SELECT o.topology, o.txid, o.dag_id, o.run_id, o.interval_start, o.interval_end, o.interval_zone,
       o.held_reason IS NOT NULL AS is_held,
       why.is_released, why.reason,
       CASE WHEN why.is_known THEN coalesce(asked.problem_code, last.reason_code) END AS reason_code,
       CASE WHEN NOT why.is_known THEN NULL
            WHEN asked.problem IS NOT NULL THEN asked.problem_remedy ELSE last.remedy
       END AS remedy,
       ARRAY(SELECT DISTINCT ARRAY[r.dag_id, r.run_id] FROM reliability.request r
              WHERE r.topology = o.topology AND r.txid = o.txid) AS requested_by,
       coalesce((SELECT max(r.ended_at) FROM reliability.request r
                  WHERE r.topology = o.topology AND r.txid = o.txid), o.emitted_at)
           + p.blocked_timeout < clock_timestamp() AS is_overdue
  FROM reliability.topology p
 CROSS JOIN LATERAL (
       SELECT * FROM reliability.blocked_transaction b
        WHERE b.topology = p.topology AND b.txid < coalesce(%(below)s, p.next_txid)
        ORDER BY b.txid LIMIT 1) AS o
  LEFT JOIN LATERAL (
       SELECT max(f.refrozen_at) AS refrozen_at, max(f.next_attempt) AS next_attempt
         FROM reliability.refreeze f
        WHERE f.topology = o.topology AND f.txid = o.txid) AS source ON true
  LEFT JOIN LATERAL (
       SELECT a.reason, a.reason_code, a.remedy, a.ended_at,
              coalesce(source.next_attempt > a.attempt_id, false) AS is_refrozen
         FROM reliability.attempt a WHERE a.topology = o.topology AND a.txid = o.txid
        ORDER BY a.attempt_id DESC LIMIT 1) AS last ON true
  LEFT JOIN LATERAL (
       SELECT r.problem, r.problem_code, r.problem_remedy FROM reliability.request r
        WHERE r.topology = o.topology AND r.txid = o.txid AND NOT r.is_dry_run
          AND (last.reason_code IS DISTINCT FROM 'ROLLED_BACK' OR r.opened_at > last.ended_at)
          AND coalesce(r.ended_at > source.refrozen_at, true)
        ORDER BY r.request_id DESC LIMIT 1) AS asked ON true
 CROSS JOIN LATERAL (
       SELECT o.held_reason IS NULL AND asked.problem IS NULL
              AND coalesce(last.reason_code = 'ROLLED_BACK', false) AS is_released,
              o.held_reason IS NULL AND (asked.problem IS NOT NULL OR coalesce(
                  last.reason_code <> 'ROLLED_BACK' AND NOT last.is_refrozen, false)) AS is_known,
              CASE WHEN o.held_reason IS NOT NULL THEN 'held: ' || o.held_reason
                   WHEN asked.problem IS NOT NULL THEN asked.problem
                   WHEN last.reason_code = 'ROLLED_BACK'
                   THEN 'released after a rollback, and no run has requested it since'
                   WHEN last.is_refrozen
                   THEN 'refrozen since its last attempt, and no run has requested it since'
                   ELSE coalesce(last.reason, 'no run requests it') END AS reason) AS why
 WHERE %(topology)s::text IS NULL OR p.topology = %(topology)s;

-- allocate_txids --
-- Take the next txids from the topology's row, which the caller has locked.
UPDATE reliability.topology SET next_txid = next_txid + %(count)s
 WHERE topology = %(topology)s AND next_txid = %(first)s
RETURNING next_txid;

-- last_committed_batch --
-- The batch of the newest committed txid that has read something.
SELECT t.txid, t.batch_meta, t.emitted_xor, t.emitted_count
  FROM reliability.topology p
  JOIN reliability.transaction t ON t.topology = p.topology AND t.txid < p.curr_txid
 WHERE p.topology = %(topology)s AND t.batch_meta <> '[]'
 ORDER BY t.txid DESC LIMIT 1;

-- nearest_batch --
-- The batch of the nearest other txid that has read something; a committed one before all others.
SELECT txid, batch_meta, emitted_xor, emitted_count FROM reliability.transaction
 WHERE topology = %(topology)s AND txid <> %(txid)s AND batch_meta <> '[]'
 ORDER BY committed_attempt IS NULL, abs(txid - %(txid)s) LIMIT 1;

-- insert_transaction --
-- Insert a newly emitted txid.
INSERT INTO reliability.transaction (topology, txid, batch_meta, emitted_xor, emitted_count,
       interval_start, interval_end, interval_zone, dag_id, run_id)
VALUES (%(topology)s, %(txid)s, %(batch_meta)s, %(emitted_xor)s, %(emitted_count)s,
       %(interval_start)s, %(interval_end)s, %(interval_zone)s, %(dag_id)s, %(run_id)s)
RETURNING txid;

-- insert_source_items --
-- Store the parts of one item in a txid as one row; Postgres rejects a part that another txid has.
INSERT INTO reliability.source_item (topology, txid, item, part)
SELECT %(topology)s, %(txid)s, item, range_agg(part)
  FROM unnest(%(items)s::text[], %(parts)s::int8multirange[]) AS planned(item, part)
 GROUP BY item
RETURNING item;

-- record_verdict --
-- Record how the emitted side of a txid is verified, before its first commit.
UPDATE reliability.transaction SET verdict = %(verdict)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND committed_attempt IS NULL
   AND verdict IS NULL
RETURNING txid;

-- unfrozen_txids --
-- How many txids of an interval have no batch yet: an opaque spout cuts it when they begin.
SELECT count(*) AS unfrozen FROM reliability.transaction
 WHERE topology = %(topology)s AND committed_attempt IS NULL AND batch_meta IS NULL
   AND interval_start IS NOT DISTINCT FROM %(interval_start)s
   AND interval_end IS NOT DISTINCT FROM %(interval_end)s;
