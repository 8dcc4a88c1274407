-- What a task that fails before an attempt has begun has met: no attempt could tell it.
ALTER TABLE reliability.request
    ADD COLUMN problem_code text,
    ADD COLUMN problem      text,                -- NULL again when an attempt begins
    ADD CONSTRAINT problem_has_a_code CHECK ((problem IS NULL) = (problem_code IS NULL));

-- What a refreeze replaces, beside the batch, for what is told of attempts that have read it. NULL: an
-- earlier release has refrozen it.
ALTER TABLE reliability.refreeze
    ADD COLUMN emitted_xor   bigint,
    ADD COLUMN emitted_count bigint,
    ADD CONSTRAINT emitted_is_whole CHECK ((emitted_xor IS NULL) = (emitted_count IS NULL));

-- What each attempt has read, or reads: its own batch, or the one that was frozen when it was granted. That
-- is the txid's batch only if nobody has refrozen it since.
CREATE VIEW reliability.attempt_batch AS
SELECT a.topology, a.txid, a.attempt_id,
       coalesce(a.batch_meta, until.batch_meta, t.batch_meta) AS batch_meta,
       coalesce(a.emitted_xor, until.emitted_xor, t.emitted_xor) AS emitted_xor,
       coalesce(a.emitted_count, until.emitted_count, t.emitted_count) AS emitted_count
  FROM reliability.attempt a
  JOIN reliability.transaction t USING (topology, txid)
  LEFT JOIN LATERAL (
       SELECT f.batch_meta, f.emitted_xor, f.emitted_count FROM reliability.refreeze f
        WHERE f.topology = a.topology AND f.txid = a.txid AND f.refrozen_at > a.granted_at
        ORDER BY f.refrozen_at LIMIT 1) AS until ON true;

-- Whether an attempt of a dry run reads what a refreeze would freeze, and so without the corrections that
-- the refreeze would end.
ALTER TABLE reliability.attempt ADD COLUMN as_refrozen boolean NOT NULL DEFAULT false;

-- Raise insufficient_privilege, with the GRANTs that are missing, unless this role has the given rights on
-- the tables of states, those on the ledger with which attempts are staged, sealed, committed and tried out,
-- and that to make the temporary tables of a commit.
CREATE FUNCTION reliability.check_rights(p_schemas text[], p_tables text[], p_rights text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_lacking text[];
BEGIN
    SELECT array_agg(lacking.what ORDER BY lacking.place, lacking.what) INTO v_lacking
      FROM (WITH wanted AS (
                SELECT n.oid AS schema_id, n.nspname, c.oid AS table_id, c.relname,
                       string_to_array(asked.rights, ', ') AS rights
                  FROM (SELECT * FROM unnest(p_schemas, p_tables, p_rights)
                        UNION ALL
                        VALUES ('reliability', 'ack', 'SELECT, INSERT'),
                               ('reliability', 'attempt', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'attempt_event', 'INSERT'),
                               ('reliability', 'attempt_step', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'attempt_table', 'SELECT, INSERT, UPDATE, DELETE'),
                               ('reliability', 'audit', 'SELECT, INSERT'),
                               ('reliability', 'audit_result', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'checkpoint', 'SELECT, UPDATE'),
                               ('reliability', 'code', 'SELECT, INSERT'),
                               ('reliability', 'commit_log', 'SELECT, INSERT'),
                               ('reliability', 'contribution', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'correction', 'SELECT'),
                               ('reliability', 'difference', 'SELECT, INSERT, DELETE'),
                               ('reliability', 'exclusion', 'SELECT'),
                               ('reliability', 'quarantined_row', 'SELECT, INSERT, DELETE'),
                               ('reliability', 'request', 'SELECT, UPDATE'),
                               ('reliability', 'set_aside', 'SELECT, INSERT'),
                               ('reliability', 'sink', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'skip', 'SELECT'),
                               ('reliability', 'source_item', 'SELECT, UPDATE, DELETE'),
                               ('reliability', 'state', 'SELECT, UPDATE'),
                               ('reliability', 'topology', 'SELECT, UPDATE'),
                               ('reliability', 'transaction', 'SELECT, UPDATE')
                       ) AS asked(schema, name, rights)
                  JOIN pg_namespace n ON n.nspname = asked.schema
                  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name
            )
            SELECT DISTINCT 1 AS place, format('USAGE ON SCHEMA %I', w.nspname) AS what
              FROM wanted w WHERE NOT has_schema_privilege(w.schema_id, 'USAGE')
             UNION ALL
            SELECT 2, format('%s ON TABLE %I.%I', string_agg(r.name, ', ' ORDER BY r.place),
                             w.nspname, w.relname)
              FROM wanted w, unnest(w.rights) WITH ORDINALITY AS r(name, place)
             WHERE NOT has_table_privilege(w.table_id, r.name)
             GROUP BY w.nspname, w.relname
             UNION ALL
            SELECT 3, format('TEMPORARY ON DATABASE %I', current_database())
             WHERE NOT has_database_privilege(current_database(), 'TEMPORARY')) AS lacking;
    IF v_lacking IS NOT NULL THEN
        RAISE EXCEPTION 'role % lacks %', current_user, array_to_string(v_lacking, '; ')
            USING ERRCODE = 'insufficient_privilege',
                  HINT = (SELECT string_agg(format('GRANT %s TO %I;', what, current_user), ' ')
                            FROM unnest(v_lacking) AS what);
    END IF;
END $$;

-- The ledger's functions find only Postgres's own functions, operators and types without a schema,
-- whatever the path of the session that calls them is: that of an earlier release, of a reader of a view.
DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN SELECT oid FROM pg_catalog.pg_proc
                       WHERE pronamespace = 'reliability'::regnamespace LOOP
        EXECUTE format('ALTER ROUTINE %s SET search_path = pg_catalog, pg_temp', v_function);
    END LOOP;
END $$;
