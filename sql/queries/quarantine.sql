-- quarantine_by_reason --
-- How many rows are in quarantine, by txid and reason.
SELECT topology, txid, interval_start, interval_end, interval_zone, step, reason, count(*) AS rows,
       min(committed_at) AS committed_at
  FROM reliability.quarantine
 WHERE %(topology)s = '' OR topology = %(topology)s
 GROUP BY topology, txid, interval_start, interval_end, interval_zone, step, reason
 ORDER BY topology, txid, step, reason;

-- quarantined_rows --
-- The rows in quarantine of some txids, as `quarantine show --json` prints them.
SELECT txid, interval_start, interval_end, interval_zone, step, number, reason, item, row, contents,
       is_cut, xor, count, committed_at, source
  FROM reliability.quarantine
 WHERE topology = %(topology)s AND (%(txids)s::bigint[] IS NULL OR txid = ANY(%(txids)s::bigint[]))
 ORDER BY txid, step, number;

-- correction_of_row --
-- What is read instead of some values of a row now, if a person has corrected it.
SELECT was, becomes FROM reliability.correction
 WHERE topology = %(topology)s AND txid = %(txid)s AND coalesce(item, '') = coalesce(%(item)s, '')
   AND coalesce("row", xor) = coalesce(%(row)s::bigint, %(xor)s) AND ended_at IS NULL AND request_id IS NULL;

-- end_correction --
-- End the correction of a row, before another one takes its place; there may be none.
UPDATE reliability.correction SET ended_at = clock_timestamp(), ended_reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND coalesce(item, '') = coalesce(%(item)s, '')
   AND coalesce("row", xor) = coalesce(%(row)s::bigint, %(xor)s) AND ended_at IS NULL AND request_id IS NULL;

-- record_correction --
-- Record what is read instead of some values of a row.
INSERT INTO reliability.correction
       (topology, txid, xor, item, row, was, becomes, reason, corrected_by, request_id)
VALUES (%(topology)s, %(txid)s, %(xor)s, %(item)s, %(row)s, %(was)s, %(becomes)s, %(reason)s, %(by)s,
        %(request_id)s);

-- corrected_txids --
-- Which of these txids have corrections that count, and whether each is skipped.
SELECT c.txid, EXISTS (SELECT FROM reliability.skip k
                        WHERE k.topology = c.topology AND k.txid = c.txid
                          AND k.ended_at IS NULL) AS is_skipped
  FROM reliability.correction c
 WHERE c.topology = %(topology)s AND c.txid = ANY(%(txids)s::bigint[]) AND c.ended_at IS NULL
   AND c.request_id IS NULL
 GROUP BY c.topology, c.txid ORDER BY c.txid;

-- end_corrections_of_txid --
-- End the corrections of a txid: its batch is another one now, or a person takes them back.
UPDATE reliability.correction SET ended_at = clock_timestamp(), ended_reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND ended_at IS NULL
RETURNING request_id IS NOT NULL AS is_dry_run;

-- corrections_of_attempt --
-- What an attempt reads instead of what is in its source; a dry run's own come last. A dry run that reads
-- what a refreeze would freeze has none: the refreeze would end them.
SELECT c.xor, c.item, c.row, c.was, c.becomes
  FROM reliability.correction c
  JOIN reliability.attempt a ON a.topology = c.topology AND a.txid = c.txid
       AND a.attempt_id = %(attempt_id)s
 WHERE c.topology = %(topology)s AND c.txid = %(txid)s AND c.ended_at IS NULL
   AND (c.request_id IS NULL OR c.request_id = a.request_id)
   AND NOT a.as_refrozen
 ORDER BY c.request_id NULLS FIRST, c.correction_id;

-- corrections_of_txid --
-- The corrections of a txid that count, by reason, oldest first.
SELECT count(*) AS rows, reason, corrected_by, max(corrected_at) AS corrected_at
  FROM reliability.correction
 WHERE topology = %(topology)s AND txid = %(txid)s AND ended_at IS NULL AND request_id IS NULL
 GROUP BY reason, corrected_by ORDER BY corrected_at;
