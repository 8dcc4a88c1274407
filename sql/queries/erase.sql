-- create_persons --
-- Make the table of the persons: what a COPY brings is in no statement, and so in no log of Postgres.
-- `text` is compared; it is not the value if that is a uuid.
CREATE TEMPORARY TABLE persons (column_name text, value text, text text, in_json text) ON COMMIT DROP;

-- copy_persons --
-- Copy the persons into that table.
COPY pg_temp.persons FROM STDIN (FORMAT csv);

-- shrink_headers --
-- Take erased rows out of the headers of their contributions, and return how many counted. A row of
-- a state that keeps no contributions has the txid that touched it last, and no attempt.
WITH shrunk AS (
       UPDATE reliability.contribution h
          SET rows = greatest(h.rows - gone.rows, 0),
              presence = CASE WHEN h.presence = 'present' AND h.rows <= gone.rows
                              THEN 'empty' ELSE h.presence END
         FROM unnest(%(txids)s::bigint[], %(attempt_ids)s::integer[], %(rows)s::bigint[])
              AS gone(txid, attempt_id, rows)
        WHERE h.topology = %(topology)s AND h.state = %(state)s AND h.txid = gone.txid
          AND h.attempt_id = coalesce(gone.attempt_id, h.attempt_id)
    RETURNING gone.rows)
SELECT coalesce(sum(rows), 0)::bigint AS rows FROM shrunk;

-- forget_digests --
-- Forget the digests of contributions from which rows were erased: they are of these rows, too.
WITH acks AS (
       UPDATE reliability.ack SET digest = 0
        WHERE topology = %(topology)s AND sink = %(state)s AND txid = ANY (%(txids)s::bigint[]))
UPDATE reliability.sink SET contribution_digest = NULL
 WHERE topology = %(topology)s AND sink = %(state)s AND txid = ANY (%(txids)s::bigint[]);

-- hold_what_quotes_rows --
-- Wait for whoever writes rows or examples of an attempt that has been fenced, and let nobody begin.
LOCK TABLE reliability.correction, reliability.quarantined_row, reliability.audit_result,
           reliability.difference, reliability.verified, reliability.alert
        IN SHARE ROW EXCLUSIVE MODE;

-- quarantined_rows_to_judge --
-- The rows of all attempts in which a person's value is, or was before a correction, and those that were
-- cut. A uuid may have dashes anywhere.
SELECT q.txid, q.attempt_id, q.step, q.number, q.contents, q.source, q.is_cut
  FROM reliability.quarantined_row q
 CROSS JOIN LATERAL (SELECT lower(concat_ws(' ', q.contents, q.source)) AS text) AS found
 WHERE q.topology = %(topology)s
   AND (q.is_cut OR EXISTS (
        SELECT FROM pg_temp.persons p
         WHERE position(lower(p.in_json) in found.text) > 0
            OR position(replace(lower(p.in_json), '-', '') in replace(found.text, '-', '')) > 0));

-- erase_quarantined --
-- Delete rows from the quarantine.
DELETE FROM reliability.quarantined_row q
 USING unnest(%(txids)s::bigint[], %(attempt_ids)s::integer[], %(steps)s::text[],
              %(numbers)s::integer[]) AS gone(txid, attempt_id, step, number)
 WHERE q.topology = %(topology)s AND q.txid = gone.txid AND q.attempt_id = gone.attempt_id
   AND q.step = gone.step AND q.number = gone.number;

-- corrections_to_judge --
-- All corrections of a topology, those that have ended too.
SELECT correction_id, was, becomes FROM reliability.correction WHERE topology = %(topology)s;

-- erase_corrections --
-- Delete corrections: their rows are read as they are in the source from now on.
DELETE FROM reliability.correction WHERE correction_id = ANY (%(ids)s::bigint[]);

-- forget_examples --
-- Delete the examples of audits and of rows that were changed by hand, all of the topology: a text
-- that was cut does not say whose row it is. Their numbers stay.
WITH audits AS (
       UPDATE reliability.audit_result SET examples = '{}'
        WHERE topology = %(topology)s AND cardinality(examples) > 0
    RETURNING 1), by_hand AS (
       UPDATE reliability.difference SET by_hand = jsonb_set(by_hand, '{examples}', '[]')
        WHERE topology = %(topology)s AND jsonb_array_length(by_hand -> 'examples') > 0
    RETURNING 1)
SELECT (SELECT count(*) FROM audits) + (SELECT count(*) FROM by_hand) AS examples;

-- forget_texts --
-- Replace texts of the ledger that quote rows, or have a person's value as a word.
WITH words AS (
       SELECT '(^|[^[:alnum:]])' || regexp_replace(value, '([^[:alnum:]])', E'\\\\\\1', 'g')
              || '($|[^[:alnum:]])' AS pattern, lower(value) AS value
         FROM (SELECT value FROM pg_temp.persons UNION SELECT text FROM pg_temp.persons) AS person
), attempts AS (
       UPDATE reliability.attempt a SET reason = %(instead)s, remedy = NULL
        WHERE a.topology = %(topology)s AND a.reason <> %(instead)s
          AND (a.reason_code = ANY (%(quoting)s::text[])
               OR EXISTS (SELECT FROM words, concat_ws(' ', a.reason, a.remedy) AS text
                           WHERE position(value in lower(text)) > 0 AND text ~* pattern))
    RETURNING 1
), problems AS (
       UPDATE reliability.request r SET problem = %(instead)s, problem_remedy = NULL
        WHERE r.topology = %(topology)s AND r.problem <> %(instead)s
          AND (r.problem_code = ANY (%(quoting)s::text[])
               OR EXISTS (SELECT FROM words, concat_ws(' ', r.problem, r.problem_remedy) AS text
                           WHERE position(value in lower(text)) > 0 AND text ~* pattern))
    RETURNING 1
), emissions AS (
       UPDATE reliability.emission e SET reason = %(instead)s, remedy = NULL
        WHERE e.topology = %(topology)s AND e.reason <> %(instead)s
          AND EXISTS (SELECT FROM words, concat_ws(' ', e.reason, e.remedy) AS text
                       WHERE position(value in lower(text)) > 0 AND text ~* pattern)
    RETURNING 1
), events AS (
       UPDATE reliability.attempt_event a SET reason = %(instead)s
        WHERE a.topology = %(topology)s AND a.reason <> %(instead)s
          AND (a.reason_code = ANY (%(quoting)s::text[])
               OR EXISTS (SELECT FROM words WHERE position(value in lower(a.reason)) > 0
                                            AND a.reason ~* pattern))
    RETURNING 1
), audits AS (
       UPDATE reliability.audit_result a SET problem = %(instead)s
        WHERE a.topology = %(topology)s
          AND EXISTS (SELECT FROM words WHERE position(value in lower(a.problem)) > 0
                                            AND a.problem ~* pattern)
    RETURNING 1
), verified AS (
       UPDATE reliability.verified v SET wrong = %(instead)s
        WHERE v.topology = %(topology)s AND EXISTS (SELECT FROM words WHERE position(value in lower(v.wrong)) > 0
                                            AND v.wrong ~* pattern)
    RETURNING 1
), alerts AS (
       UPDATE reliability.alert a SET what = %(instead)s, advice = ''
        WHERE a.topology = %(topology)s
          AND (EXISTS (SELECT FROM unnest(%(quoting)s::text[]) AS code
                        WHERE position('[' || code || ']' IN a.what) > 0)
               OR EXISTS (SELECT FROM words, concat_ws(' ', a.what, a.advice) AS text
                           WHERE position(value in lower(text)) > 0 AND text ~* pattern))
    RETURNING 1
)
SELECT (SELECT count(*) FROM attempts) + (SELECT count(*) FROM events)
       + (SELECT count(*) FROM audits) + (SELECT count(*) FROM verified)
       + (SELECT count(*) FROM problems) + (SELECT count(*) FROM emissions)
       + (SELECT count(*) FROM alerts) AS texts;

-- erased_keys --
-- The hashes of the persons whose rows every attempt of a topology leaves out.
SELECT column_name, salt, key_hash FROM reliability.erased_key
 WHERE topology = %(topology)s ORDER BY column_name, key_hash;

-- record_erasure --
-- Record what was erased, and the hashes that are new.
WITH erasure AS (
       INSERT INTO reliability.erasure (topology, erased_by, reason, commit_number, counts)
       SELECT topology, %(by)s, %(reason)s, commit_number, %(counts)s
         FROM reliability.topology WHERE topology = %(topology)s
    RETURNING erasure_id), keys AS (
       INSERT INTO reliability.erased_key (topology, column_name, salt, key_hash, erasure_id)
       SELECT %(topology)s, k.column_name, %(salt)s, k.key_hash, erasure_id
         FROM erasure, unnest(%(columns)s::text[], %(hashes)s::text[]) AS k(column_name, key_hash)
           ON CONFLICT DO NOTHING)
SELECT erasure_id FROM erasure;

-- erasures --
-- What was erased of a topology, when, by whom and why, and the hashes of the persons, NULL for a role that
-- may not read them.
SELECT e.erased_at, e.erased_by, e.reason, e.commit_number, e.counts,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('column', k.column_name, 'hash', k.key_hash)
                                  ORDER BY k.column_name, k.key_hash), '[]')
          FROM reliability.erased_person k WHERE k.erasure_id = e.erasure_id) AS keys
  FROM reliability.erasure e WHERE e.topology = %(topology)s ORDER BY e.erasure_id;
