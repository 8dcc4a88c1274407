-- release_txids --
-- Let held txids be processed again; the run that emitted each asks again when it is cleared.
UPDATE reliability.transaction t SET held_reason = NULL
 WHERE t.topology = %(topology)s AND t.held_reason IS NOT NULL
   AND (%(txids)s::bigint[] IS NULL OR t.txid = ANY (%(txids)s::bigint[]))
RETURNING t.txid, t.dag_id, t.run_id;

-- history_of_states --
-- Up to which txid each state can take out nothing any more, and where the topology is. Of no state:
-- what the topology has decided to compact, be it folded yet or not, here or in another database.
SELECT s.state, s.compacted_through, p.curr_txid
  FROM reliability.topology p JOIN reliability.state s USING (topology)
 WHERE p.topology = %(topology)s
 UNION ALL
SELECT '', p.compacted_through, p.curr_txid FROM reliability.topology p
 WHERE p.topology = %(topology)s;

-- park_requests --
UPDATE reliability.request
   SET status = 'PARKED', reason = %(reason)s, ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND status IN ('OPEN', 'GIVEN_UP');

-- fence_for_empty --
-- What is processed for a txid that a person passes over, PROCESSED or not, is not wanted any more.
UPDATE reliability.attempt
   SET status = 'FENCED', lease_until = NULL, ended_at = clock_timestamp(),
       reason_code = 'ATTEMPT_FENCED', reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s
   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED');

-- grant_empty_attempt --
-- An attempt of no request. Of an opaque spout's txid that has no batch yet it takes the last one that
-- was cut for it behind what has committed of the txid before, which may have been rolled back since: the
-- batch that it ended with is the same. If there is none, it takes an empty one. A replay reads it, and
-- the next txid follows it. No row: the txid before has not committed, so that it is not settled where
-- this one starts.
INSERT INTO reliability.attempt (topology, txid, attempt_id, lease, lease_until, verdict,
       verdict_reason, batch_meta, emitted_xor, emitted_count, predecessor_attempt)
SELECT t.topology, t.txid,
       (SELECT coalesce(max(a.attempt_id), -1) + 1 FROM reliability.attempt a
         WHERE a.topology = t.topology AND a.txid = t.txid),
       interval '10 minutes', clock_timestamp() + interval '10 minutes', %(verdict)s,
       %(verdict_reason)s,
       CASE WHEN t.batch_meta IS NULL THEN coalesce(cut.batch_meta, '[]') END,
       CASE WHEN t.batch_meta IS NULL THEN coalesce(cut.emitted_xor, 0) END,
       CASE WHEN t.batch_meta IS NULL THEN coalesce(cut.emitted_count, 0) END,
       CASE WHEN t.batch_meta IS NULL THEN before.committed_attempt END
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
   AND (t.batch_meta IS NOT NULL OR t.txid = 1 OR before.committed_attempt IS NOT NULL)
RETURNING attempt_id, nonce::text AS nonce;

-- open_empty_sinks --
-- Nothing is emitted, nothing is staged, for any state of this database.
INSERT INTO reliability.sink (topology, txid, attempt_id, step, sink, ack_val, unacked,
       partitions, staged_rows)
SELECT topology, %(txid)s, %(attempt_id)s, %(step)s, state, 0, 0, 0, 0
  FROM reliability.state WHERE topology = %(topology)s
RETURNING sink;

-- process_empty_attempt --
UPDATE reliability.attempt
   SET status = 'PROCESSED', lease_until = NULL, processed_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status = 'PROCESSING' AND verdict IS NOT NULL
RETURNING attempt_id;

-- dry_run_attempt --
-- The PROCESSED attempt of a dry run, and what a real commit of it would replace.
SELECT a.attempt_id, a.nonce::text AS nonce, t.committed_attempt AS replaced_attempt
  FROM reliability.attempt a
  JOIN reliability.request r USING (request_id)
  JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.request_id = %(request_id)s
   AND a.status = 'PROCESSED' AND r.is_dry_run;

-- forget_dry_run --
-- What was told by who died before the end of the dry run.
DELETE FROM reliability.difference
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND commit_number IS NULL;

-- end_dry_run --
UPDATE reliability.attempt SET status = 'DRY_RUN', ended_at = clock_timestamp()
 WHERE topology = %(topology)s AND txid = %(txid)s AND request_id = %(request_id)s
   AND status = 'PROCESSED'
RETURNING attempt_id;

-- satisfy_dry_run --
UPDATE reliability.request SET status = 'SATISFIED', ended_at = clock_timestamp()
 WHERE request_id = %(request_id)s AND is_dry_run AND status IN ('OPEN', 'GIVEN_UP')
RETURNING request_id;

-- frozen_batch --
SELECT batch_meta, emitted_xor, emitted_count FROM reliability.transaction
 WHERE topology = %(topology)s AND txid = %(txid)s AND batch_meta IS NOT NULL;

-- may_refreeze --
-- Whether the txid has a frozen batch, and was not frozen anew for this reason before.
SELECT t.batch_meta IS NOT NULL AND NOT EXISTS (
       SELECT FROM reliability.refreeze r
        WHERE r.topology = t.topology AND r.txid = t.txid AND r.reason = %(reason)s) AS may
  FROM reliability.transaction t WHERE t.topology = %(topology)s AND t.txid = %(txid)s;

-- batches_before --
-- What the txid read before it was frozen anew.
SELECT batch_meta FROM reliability.refreeze
 WHERE topology = %(topology)s AND txid = %(txid)s ORDER BY refrozen_at DESC;

-- refreeze_batch --
-- While no attempt reads the old batch, and if that is what the caller believes it to be.
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
INSERT INTO reliability.refreeze (topology, txid, batch_meta, reason)
SELECT topology, txid, %(old_batch)s, %(reason)s FROM changed
RETURNING txid;

-- refreeze_parts --
-- Keys of a table that the batch has no more; they belong to the txid until it commits again.
UPDATE reliability.source_item s
   SET refrozen_part = coalesce(
       (SELECT range_agg(now.part)
          FROM unnest(%(items)s::text[], %(parts)s::int8multirange[]) AS now(item, part)
         WHERE now.item = s.item), '{}')
 WHERE s.topology = %(topology)s AND s.txid = %(txid)s AND s.part <> '{(,)}';

-- settle_refrozen_parts --
-- With the commit: what the txid has no more is nobody's, and new rows for whoever emits next.
WITH gone AS (
       DELETE FROM reliability.source_item
        WHERE topology = %(topology)s AND txid = %(txid)s AND refrozen_part = '{}')
UPDATE reliability.source_item SET part = refrozen_part, refrozen_part = NULL
 WHERE topology = %(topology)s AND txid = %(txid)s AND refrozen_part <> '{}';
