-- dependents_of_columns --
-- What depends on some columns of a table, beside the state's own columns. A dropped column takes
-- along what `goes_with_it` and is stopped by the rest; a new type is stopped by what `fixes_type`.
SELECT DISTINCT a.attname AS name, d.deptype <> 'n' AS goes_with_it,
       d.objsubid <> 0 OR d.classid NOT IN ('pg_catalog.pg_class'::regclass,
           'pg_catalog.pg_constraint'::regclass, 'pg_catalog.pg_statistic_ext'::regclass) AS fixes_type,
       CASE WHEN r.ev_class IS NULL THEN pg_describe_object(d.classid, d.objid, d.objsubid)
            ELSE 'view ' || r.ev_class::regclass::text END AS dependent
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::regclass
       AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
  LEFT JOIN pg_catalog.pg_rewrite r
       ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
  LEFT JOIN pg_catalog.pg_attrdef g
       ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND g.oid = d.objid
  LEFT JOIN pg_catalog.pg_attribute own ON own.attrelid = a.attrelid
       AND own.attnum = coalesce(g.adnum,
           CASE WHEN d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = a.attrelid
                THEN nullif(d.objsubid, 0) END)
 WHERE a.attrelid = to_regclass(%(table)s) AND a.attname = ANY (%(columns)s)
   AND NOT coalesce(own.attname = ANY (%(own)s), false)
 UNION
SELECT attname, true, false, 'the grants on column ' || attname
  FROM pg_catalog.pg_attribute
 WHERE attrelid = to_regclass(%(table)s) AND attname = ANY (%(columns)s) AND attacl IS NOT NULL
 ORDER BY name, dependent;

-- redefine_state --
-- Take the new definition of a state; compare the old one.
UPDATE reliability.state
   SET definition = %(definition)s, definition_digest = %(definition_digest)s
 WHERE topology = %(topology)s AND state = %(state)s AND definition_digest = %(digest_before)s
RETURNING state;

-- insert_empty_contributions --
-- Give a state that is added later an empty contribution of every txid that has committed: a replay
-- replaces it.
INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
SELECT topology, %(state)s, txid, committed_attempt, 'empty', 0 FROM reliability.transaction
 WHERE topology = %(topology)s AND committed_attempt IS NOT NULL;

-- remove_state --
-- Remove the record of a state of the ledger's database, with its headers, its adoption and what was found
-- of its table; foreign keys are checked at the end.
WITH headers AS (DELETE FROM reliability.contribution
                  WHERE topology = %(topology)s AND state = %(state)s),
adoptions AS (DELETE FROM reliability.adoption
               WHERE topology = %(topology)s AND state = %(state)s),
verified AS (DELETE FROM reliability.verified
              WHERE topology = %(topology)s AND database = '' AND state = %(state)s)
DELETE FROM reliability.state
 WHERE topology = %(topology)s AND state = %(state)s AND definition_digest = %(digest_before)s
RETURNING state;

-- record_alteration --
-- Record how a state has changed, and after which commit.
INSERT INTO reliability.alteration
       (topology, state, reason, commit_number, counts_from, differences, statements, added,
        definition_before, digest_before, definition_after, digest_after)
SELECT topology, %(state)s, %(reason)s, commit_number, curr_txid, %(differences)s::text[],
       %(statements)s::text[], %(added)s::text[], %(definition_before)s, %(digest_before)s,
       %(definition_after)s, %(digest_after)s
  FROM reliability.topology WHERE topology = %(topology)s
RETURNING alteration_id;

-- alteration_after_code --
-- The last alteration that took away a definition which the code still has. A state that the code
-- does not have has no digest in it.
SELECT state, altered_at, reason FROM reliability.alteration
 WHERE topology = %(topology)s AND state = ANY (%(states)s)
   AND digest_before IS NOT DISTINCT FROM %(digests)s::jsonb ->> state
   AND NOT EXISTS (SELECT FROM reliability.state s
                    WHERE s.topology = alteration.topology AND s.state = alteration.state
                      AND s.definition_digest = %(digests)s::jsonb ->> s.state)
 ORDER BY alteration_id DESC LIMIT 1;

-- alterations --
-- The alterations of a topology, the last one first.
SELECT state, altered_at, reason, commit_number, counts_from, differences, statements, added
  FROM reliability.alteration WHERE topology = %(topology)s ORDER BY alteration_id DESC;

-- added_values --
-- The values that were added while their topology had committed txids, each by its last alteration.
SELECT DISTINCT ON (a.state, v.value) a.state, v.value, a.commit_number, a.counts_from
  FROM reliability.alteration a
 CROSS JOIN unnest(a.added) AS v(value)
  JOIN reliability.state s ON s.topology = a.topology AND s.state = a.state
 WHERE a.topology = %(topology)s
   AND EXISTS (SELECT FROM jsonb_array_elements(s.definition -> 'values') d
                WHERE d ->> 0 = v.value)
 ORDER BY a.state, v.value, a.alteration_id DESC;

-- txids_committed_through --
-- Txids that have not committed again since a commit number, without those that count as empty.
SELECT t.txid FROM reliability.transaction t
  JOIN reliability.attempt a ON a.topology = t.topology AND a.txid = t.txid
       AND a.attempt_id = t.committed_attempt
 WHERE t.topology = %(topology)s AND t.commit_number <= %(commit_number)s AND a.verdict IS NULL
 ORDER BY t.txid;

-- values_without_txid --
-- The values that were added after a txid last committed, and do not contain it.
SELECT DISTINCT a.state, v.value
  FROM reliability.transaction t
  JOIN reliability.attempt own ON own.topology = t.topology AND own.txid = t.txid
       AND own.attempt_id = t.committed_attempt AND own.verdict IS NULL
  JOIN reliability.alteration a ON a.topology = t.topology AND t.commit_number <= a.commit_number
 CROSS JOIN unnest(a.added) AS v(value)
  JOIN reliability.state s ON s.topology = a.topology AND s.state = a.state
 WHERE t.topology = %(topology)s AND t.txid = %(txid)s
   AND EXISTS (SELECT FROM jsonb_array_elements(s.definition -> 'values') d
                WHERE d ->> 0 = v.value)
 ORDER BY a.state, v.value;
