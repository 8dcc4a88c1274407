-- limit_statements --
-- Set how long a statement of this transaction may take; 0 is no limit.
SELECT set_config('statement_timeout', %(seconds)s || 's', true);

-- store_audits --
-- Store the audits of a SEALING attempt, with what those of its contribution have found.
WITH stored AS (
       SELECT x.* FROM jsonb_to_recordset(%(audits)s) AS x(
              state text, name text, of text, severity text, query text, digest text,
              violations bigint, examples jsonb, problem text, error_code text)
), versions AS (
       INSERT INTO reliability.audit (digest, name, of, severity, query)
       SELECT DISTINCT ON (digest) digest, name, of, severity, query FROM stored ORDER BY digest
           ON CONFLICT (digest) DO NOTHING
)
INSERT INTO reliability.audit_result
       (topology, txid, attempt_id, state, digest, violations, examples, problem, error_code,
        audited_at)
SELECT a.topology, a.txid, a.attempt_id, s.state, s.digest, s.violations,
       CASE WHEN s.violations IS NOT NULL
            THEN ARRAY(SELECT jsonb_array_elements_text(s.examples)) END,
       s.problem, s.error_code,
       CASE WHEN num_nonnulls(s.violations, s.problem) > 0 THEN clock_timestamp() END
  FROM reliability.attempt a, stored s
 WHERE a.topology = %(topology)s AND a.txid = %(txid)s AND a.attempt_id = %(attempt_id)s
   AND a.nonce = %(nonce)s AND a.status = 'SEALING'
RETURNING state;

-- audits_of_attempt --
-- The audits of an attempt, and what they have found.
SELECT state, audit AS name, of, severity, violations,
       coalesce(examples, '{}') AS examples, problem, error_code
  FROM reliability.audits
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
 ORDER BY state, of, audit;
