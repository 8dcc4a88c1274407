-- release_txids --
-- Release held txids; a clear of the run that emitted each requests it again.
UPDATE reliability.transaction t SET held_reason = NULL
 WHERE t.topology = %(topology)s AND t.held_reason IS NOT NULL
   AND (%(txids)s::bigint[] IS NULL OR t.txid = ANY (%(txids)s::bigint[]))
RETURNING t.txid, t.dag_id, t.run_id, t.interval_start, t.interval_end,
          t.interval_zone;

-- committed_txids_of_run --
-- The committed txids that a clear of a whole run replays: those that it has emitted or requested.
SELECT t.txid FROM reliability.transaction t
 WHERE t.topology = %(topology)s AND t.committed_attempt IS NOT NULL
   AND (t.dag_id = %(dag_id)s AND t.run_id = %(run_id)s
        OR EXISTS (SELECT FROM reliability.request r
                    WHERE r.topology = t.topology AND r.txid = t.txid
                      AND r.dag_id = %(dag_id)s AND r.run_id = %(run_id)s))
 ORDER BY t.txid;

-- history_of_states --
-- The last txid that can no longer be taken out of each state, and the topology's position. With no
-- state: the txid through which the topology has decided to compact, here or in another database,
-- whether it is folded yet or not.
SELECT s.state, s.compacted_through, p.curr_txid
  FROM reliability.topology p JOIN reliability.state s USING (topology)
 WHERE p.topology = %(topology)s
 UNION ALL
SELECT '', p.compacted_through, p.curr_txid FROM reliability.topology p
 WHERE p.topology = %(topology)s;

-- park_requests --
-- Close the requests for a parked txid as not done.
UPDATE reliability.request
   SET status = 'PARKED', reason = %(reason)s, ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND status IN ('OPEN', 'GIVEN_UP');

-- begin_skip --
-- Record that a person has skipped a txid; one that is skipped stays as it is.
INSERT INTO reliability.skip (topology, txid, skipped_by, reason)
VALUES (%(topology)s, %(txid)s, %(skipped_by)s, %(reason)s)
    ON CONFLICT (topology, txid) WHERE ended_at IS NULL DO NOTHING;

-- end_skip --
-- Take the skip of a txid back; no row: it is not skipped.
UPDATE reliability.skip
   SET ended_at = clock_timestamp(), ended_by = %(ended_by)s, ended_reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND ended_at IS NULL
RETURNING txid;

-- skips_of_txids --
-- Which of these txids are skipped, by whom, when and why.
SELECT k.topology, k.txid, k.skipped_at AS at, k.skipped_by AS by, k.reason, t.interval_start,
       t.interval_end, t.interval_zone
  FROM reliability.skip k JOIN reliability.transaction t USING (topology, txid)
 WHERE k.topology = %(topology)s AND k.txid = ANY(%(txids)s::bigint[]) AND k.ended_at IS NULL
 ORDER BY k.txid;

-- has_committed_empty --
-- Whether a txid was parked or skipped and has committed as empty.
SELECT a.attempt_id FROM reliability.attempt a
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.status = 'COMMITTED'
   AND a.verdict IS NOT NULL;

-- fence_what_was_read --
-- Fence every live attempt at some txids, or at all: what it has read has changed. Those that a person parks or
-- skips have no rows.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = %(reason)s
 WHERE topology = %(topology)s AND (%(txids)s::bigint[] IS NULL OR txid = ANY(%(txids)s::bigint[]))
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED') AND verdict IS NULL;

-- items_named --
-- The source items with this name, or whose name ends with it; also those that are excluded.
SELECT DISTINCT item FROM (
       SELECT item FROM reliability.source_item WHERE topology = %(topology)s
        UNION ALL
       SELECT item FROM reliability.exclusion WHERE topology = %(topology)s) AS known
 WHERE item IN (%(item)s, %(identity)s)
    OR right(item, length(%(item)s) + 1) = '/' || %(item)s
 ORDER BY item;

-- last_item --
-- An item of the last batch of a topology, and whether that is of the changes of a table; no row: none is frozen.
SELECT s.item, coalesce(last.batch_meta->0->>'is_named' = 'true', false) AS is_of_feed
  FROM (SELECT topology, txid, batch_meta FROM reliability.transaction
         WHERE topology = %(topology)s AND batch_meta->0 IS NOT NULL
         ORDER BY txid DESC LIMIT 1) AS last
  JOIN reliability.source_item s USING (topology, txid)
 LIMIT 1;

-- txids_of_item --
-- The txids that read an item or a part of it, with the runs that emitted them, and whether any run still
-- wants each. One that is skipped, or whose empty attempt counts or waits for its turn, `is_empty`.
SELECT t.txid, t.dag_id, t.run_id, t.interval_start, t.interval_end, t.interval_zone,
       t.committed_attempt IS NOT NULL AS has_committed,
       t.held_reason IS NOT NULL AS is_held,
       EXISTS (SELECT FROM reliability.skip k WHERE k.topology = t.topology AND k.txid = t.txid
                  AND k.ended_at IS NULL)
       OR EXISTS (SELECT FROM reliability.attempt a WHERE a.topology = t.topology AND a.txid = t.txid
                     AND a.verdict IS NOT NULL AND a.status IN ('PROCESSED', 'COMMITTED')) AS is_empty,
       EXISTS (SELECT FROM reliability.request r WHERE r.topology = t.topology AND r.txid = t.txid
                  AND r.status = 'OPEN'
                  AND r.renewed_at >= clock_timestamp() - %(request_lease)s * interval '1 second'
              ) AS is_requested,
       EXISTS (SELECT FROM reliability.excluded_item x WHERE x.topology = s.topology
                  AND x.item = s.item AND x.txid = s.txid AND x.is_left_out) AS is_left_out
  FROM reliability.source_item s JOIN reliability.transaction t USING (topology, txid)
 WHERE s.topology = %(topology)s AND s.item = %(item)s
 ORDER BY t.txid;

-- live_batches --
-- What the live attempts of a topology read.
SELECT a.txid, coalesce(a.batch_meta, t.batch_meta) AS batch_meta
  FROM reliability.attempt a JOIN reliability.transaction t USING (topology, txid)
 WHERE a.topology = %(topology)s AND a.status IN ('PROCESSING', 'SEALING', 'PROCESSED')
   AND a.verdict IS NULL
 ORDER BY a.txid;

-- begin_exclusion --
-- Record that a person has excluded a source item.
INSERT INTO reliability.exclusion (topology, item, excluded_by, reason, after_txid)
SELECT %(topology)s, %(item)s, %(excluded_by)s, %(reason)s, coalesce(max(txid), 0)
  FROM reliability.transaction WHERE topology = %(topology)s
RETURNING item;

-- is_passed --
-- Whether a spout that reads a log of versions may have read on since an item was excluded: it never
-- lists an earlier version again. An opaque batch may have been cut since, whatever its txid.
SELECT EXISTS (
    SELECT FROM reliability.exclusion e
      JOIN reliability.topology t ON t.topology = e.topology
     CROSS JOIN LATERAL (
           SELECT x.txid, coalesce(x.batch_meta, a.batch_meta) AS batch_meta
             FROM reliability.transaction x LEFT JOIN reliability.attempt a USING (topology, txid)
            WHERE x.topology = e.topology AND coalesce(x.batch_meta, a.batch_meta)->0 IS NOT NULL
            ORDER BY x.txid DESC LIMIT 1) last
     WHERE e.topology = %(topology)s AND e.item = %(item)s AND e.ended_at IS NULL
       AND last.batch_meta->0->>'behind' IS NOT NULL
       AND (last.txid > e.after_txid OR t.spout_kind = 'OPAQUE')) AS is_passed;

-- end_exclusion --
-- Take an exclusion back; no row: the item is not excluded.
UPDATE reliability.exclusion
   SET ended_at = clock_timestamp(), ended_by = %(ended_by)s, ended_reason = %(reason)s
 WHERE topology = %(topology)s AND item = %(item)s AND ended_at IS NULL
RETURNING item;

-- batch_of_empty_attempt --
-- What the grant of an empty attempt has to know: the newest attempt, and, if an opaque spout's txid has
-- no batch yet, the last one that was cut for it after the committed batch of the previous txid, which
-- may have been rolled back since: the batch that it ended with is the same. If there is none, it takes
-- an empty one. A replay reads it, and the next txid follows it. No row: the previous txid has not
-- committed, so it is not settled where this one starts.
SELECT (SELECT max(a.attempt_id) FROM reliability.attempt a
         WHERE a.topology = t.topology AND a.txid = t.txid) AS newest_attempt,
       CASE WHEN t.batch_meta IS NULL THEN coalesce(cut.batch_meta, '[]') END::text AS batch_meta,
       CASE WHEN t.batch_meta IS NULL THEN coalesce(cut.emitted_xor, 0) END AS emitted_xor,
       CASE WHEN t.batch_meta IS NULL THEN coalesce(cut.emitted_count, 0) END AS emitted_count,
       CASE WHEN t.batch_meta IS NULL THEN before.committed_attempt END AS predecessor_attempt
  FROM reliability.transaction t
  LEFT JOIN reliability.transaction before
         ON before.topology = t.topology AND before.txid = t.txid - 1
  LEFT JOIN LATERAL (
       SELECT a.batch_meta, a.emitted_xor, a.emitted_count FROM reliability.attempt a
        WHERE a.topology = t.topology AND a.txid = t.txid AND a.batch_meta IS NOT NULL
          AND (t.txid = 1 OR EXISTS (
               SELECT FROM reliability.attempt b
                WHERE b.topology = t.topology AND b.txid = t.txid - 1
                  AND b.attempt_id = a.predecessor_attempt
                  AND b.status IN ('COMMITTED', 'REPLACED', 'ROLLED_BACK')))
        ORDER BY a.attempt_id DESC LIMIT 1) AS cut ON true
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s
   AND (t.batch_meta IS NOT NULL OR t.txid = 1 OR before.committed_attempt IS NOT NULL);

-- dry_run_attempt --
-- The PROCESSED attempt of a dry run, and what a real commit of it would replace.
SELECT a.attempt_id, a.nonce::text AS nonce, t.committed_attempt AS replaced_attempt
  FROM reliability.attempt a
  JOIN reliability.request r USING (request_id)
  JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.request_id = %(request_id)s
   AND a.status = 'PROCESSED' AND r.is_dry_run;

-- forget_dry_run --
-- Delete differences that a process recorded and then died before the dry run ended.
DELETE FROM reliability.difference
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND commit_number IS NULL;

-- end_dry_run --
-- End the PROCESSED attempt of a dry run.
UPDATE reliability.attempt SET status = 'DRY_RUN', ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND request_id = %(request_id)s
   AND status = 'PROCESSED'
RETURNING attempt_id;

-- satisfy_dry_run --
-- Satisfy the request of a dry run.
UPDATE reliability.request SET status = 'SATISFIED', ended_at = clock_timestamp()
 WHERE request_id = %(request_id)s AND is_dry_run AND status IN ('OPEN', 'GIVEN_UP')
RETURNING request_id;

-- frozen_batches --
-- The frozen batches of these txids.
SELECT batch_meta, emitted_xor, emitted_count FROM reliability.transaction
 WHERE topology = %(topology)s AND txid = ANY(%(txids)s) AND batch_meta IS NOT NULL
 ORDER BY txid;

-- may_refreeze --
-- Whether the txid has a frozen batch, is not skipped, and was not refrozen for this reason before.
SELECT t.batch_meta IS NOT NULL AND NOT EXISTS (
       SELECT FROM reliability.refreeze r
        WHERE r.topology = t.topology AND r.txid = t.txid AND r.reason = %(reason)s)
       AND NOT EXISTS (
       SELECT FROM reliability.skip k
        WHERE k.topology = t.topology AND k.txid = t.txid AND k.ended_at IS NULL) AS may
  FROM reliability.transaction t WHERE t.topology = %(topology)s AND t.txid = %(txid)s;

-- refreeze_batch --
-- Replace the batch if no attempt reads the old one and it is still what the caller has read. The old one
-- is kept, with what was emitted of it: this sees the row as it was before the update.
WITH changed AS (
       UPDATE reliability.transaction t
          SET batch_meta = %(batch_meta)s, emitted_xor = %(emitted_xor)s,
              emitted_count = %(emitted_count)s, verdict = %(verdict)s
        WHERE t.topology = %(topology)s AND t.txid = %(txid)s
          AND t.batch_meta = %(old_batch)s::jsonb
          AND NOT EXISTS (SELECT FROM reliability.attempt a
                           WHERE a.topology = t.topology AND a.txid = t.txid
                             AND a.status IN ('PROCESSING', 'SEALING', 'PROCESSED'))
    RETURNING t.topology, t.txid)
INSERT INTO reliability.refreeze (topology, txid, next_attempt, batch_meta, emitted_xor, emitted_count,
       reason)
SELECT t.topology, t.txid, coalesce((SELECT max(a.attempt_id) + 1 FROM reliability.attempt a
                                      WHERE a.topology = t.topology AND a.txid = t.txid), 0),
       t.batch_meta, t.emitted_xor, t.emitted_count, %(reason)s
  FROM reliability.transaction t JOIN changed USING (topology, txid)
RETURNING txid;

-- refreeze_parts --
-- Keys of a table that the batch no longer has; they belong to the txid until it commits again.
UPDATE reliability.source_item s
   SET refrozen_part = coalesce(
       (SELECT range_agg(now.part)
          FROM unnest(%(items)s::text[], %(parts)s::int8multirange[]) AS now(item, part)
         WHERE now.item = s.item), '{}')
 WHERE s.topology = %(topology)s AND s.txid = %(txid)s AND s.part <> '{(,)}';

-- intervals_against_dates --
-- The txids of later intervals up to a txid, and those of earlier intervals after it: later and earlier
-- than a time, or than the txid's interval. Txids follow the order of emission (E3).
SELECT t.txid, t.interval_start, t.interval_end, t.interval_zone, t.txid <= %(to_txid)s AS stays
  FROM reliability.transaction t
  LEFT JOIN reliability.transaction o ON o.topology = t.topology AND o.txid = %(to_txid)s
 WHERE t.topology = %(topology)s
   AND CASE WHEN t.txid <= %(to_txid)s
            THEN t.interval_start >= coalesce(%(interval_end)s::timestamptz, o.interval_end)
            ELSE t.interval_end <= coalesce(%(interval_start)s::timestamptz, o.interval_start) END
 ORDER BY t.interval_start, t.txid;
