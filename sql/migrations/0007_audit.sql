-- Audits of states. Those of a contribution run when an attempt is sealed. Those of a table run
-- inside the transaction that commits, which has not the pipeline's code: so the seal stores them.

-- A version of an audit; a topology has few, however many attempts.
CREATE TABLE reliability.audit (
    digest   text NOT NULL CONSTRAINT audit_once_per_version PRIMARY KEY,  -- of all the rest
    name     text NOT NULL,
    of       text NOT NULL,
    severity text NOT NULL,
    query    text NOT NULL,                               -- each row that it returns is a violation
    CONSTRAINT audit_has_a_name CHECK (name <> ''),
    CONSTRAINT audit_of CHECK (of IN ('contribution', 'table')),
    CONSTRAINT audit_severity CHECK (severity IN ('error', 'warn'))
);

-- An audit of a state by an attempt, and what it has found. One of a table has no result until the
-- attempt commits, is a dry run, or is refused because of it by the only database.
CREATE TABLE reliability.audit_result (
    topology   text    NOT NULL,
    txid       bigint  NOT NULL,
    attempt_id integer NOT NULL,
    state      text    NOT NULL,
    digest     text    NOT NULL REFERENCES reliability.audit (digest),
    violations bigint,
    examples   text[],  -- a few of them, each as JSON, cut if long
    problem    text,    -- Postgres's words, if the query failed
    error_code text,    -- and its SQLSTATE
    audited_at timestamptz,
    CONSTRAINT audit_result_once_per_attempt
        PRIMARY KEY (topology, txid, attempt_id, state, digest),
    FOREIGN KEY (topology, txid, attempt_id, state)
        REFERENCES reliability.sink (topology, txid, attempt_id, sink),
    CONSTRAINT audit_found_violations_or_failed
        CHECK (audited_at IS NULL AND num_nonnulls(violations, examples, problem, error_code) = 0
               OR audited_at IS NOT NULL AND num_nonnulls(violations, problem) = 1
                  AND (violations IS NULL) = (examples IS NULL)
                  AND (problem IS NULL) = (error_code IS NULL)),
    CONSTRAINT violations_are_counted CHECK (violations >= 0)
);

-- What the audits of each attempt have found.
CREATE VIEW reliability.audits AS
SELECT r.topology, r.txid, t.interval_start, t.interval_end, r.attempt_id, a.status, r.state,
       d.name AS audit, d.of, d.severity, r.violations, r.examples, r.problem, r.error_code,
       r.audited_at, d.query
  FROM reliability.audit_result r
  JOIN reliability.audit d USING (digest)
  JOIN reliability.attempt a USING (topology, txid, attempt_id)
  JOIN reliability.transaction t USING (topology, txid);

-- Count the rows of a query, and show three. It can change nothing: all of it is undone, in a
-- transaction that is read only for so long; a function that is STABLE runs nothing but queries;
-- and in a subquery there is no WITH that writes. An error of the query, or the end of its time, is
-- an answer, unless it comes after the answer: that is the exception that undoes. The query's
-- columns may have any names.
CREATE FUNCTION reliability.find_violations(
    p_query text, OUT violations bigint, OUT examples text[], OUT problem text, OUT error_code text
) LANGUAGE plpgsql STABLE
SET standard_conforming_strings = on SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_is_answered boolean := false;
BEGIN
    PERFORM set_config('transaction_read_only', 'on', true);
    EXECUTE 'SELECT count(*), coalesce(array_agg(found.example ORDER BY found.place)'
        ' FILTER (WHERE found.place <= 3), ''{}'') FROM (SELECT row_number() OVER () AS place,'
        ' CASE WHEN row_number() OVER () <= 3 THEN left(row_to_json(one.*)::text, 200) END AS example'
        ' FROM (' || p_query || E'\n) AS one) AS found'
       INTO violations, examples;
    v_is_answered := true;
    RAISE EXCEPTION 'undo it';
EXCEPTION
    WHEN query_canceled OR assert_failure OR OTHERS THEN
        IF NOT v_is_answered THEN
            GET STACKED DIAGNOSTICS error_code = RETURNED_SQLSTATE, problem = MESSAGE_TEXT;
            violations := NULL;
            examples := NULL;
        END IF;
END $$;

-- What an audit of a table has found for the attempts that commit together.
-- Contract: the seal has stored an audit of this name for each of these attempts.
CREATE FUNCTION reliability.record_audit(
    p_topology text, p_txids bigint[], p_attempt_ids integer[], p_state text, p_name text,
    p_violations bigint, p_examples text[], p_problem text, p_error_code text
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_found bigint;
BEGIN
    UPDATE reliability.audit_result r
       SET violations = p_violations, problem = p_problem, error_code = p_error_code,
           examples = CASE WHEN p_problem IS NULL THEN p_examples END,
           audited_at = clock_timestamp()
      FROM unnest(p_txids, p_attempt_ids) AS audited(txid, attempt_id), reliability.audit d
     WHERE r.topology = p_topology AND r.txid = audited.txid
       AND r.attempt_id = audited.attempt_id AND r.state = p_state
       AND d.digest = r.digest AND d.name = p_name AND d.of = 'table';
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('record_audit', v_found, cardinality(p_txids));
END $$;
