-- Roles with parts of the rights (S8). Without them one role owns the ledger and all tables.

-- The roles that `reliability migrate --roles` has made; none: there are no roles. A dump may be
-- restored where they do not exist, so only those in pg_roles count.
--
-- owner        owns the schemas of the ledger and the targets; only it makes and changes tables
-- coordinator  the tasks: emits, begins, seals, commits; a person's corrections
-- executor     Spark's tasks: stages rows of an attempt whose nonce it knows, and acks them
-- reader       monitors: reads the ledger, and of rows only the examples in audits and differences
-- page         the page in Airflow: reads all
CREATE TABLE reliability.role (
    kind text PRIMARY KEY,
    name text NOT NULL,
    CONSTRAINT role_kind CHECK (kind IN ('owner', 'coordinator', 'executor', 'reader', 'page'))
);
-- The names are no secret, and a function for any role looks for its own among them.
GRANT SELECT ON reliability.role TO PUBLIC;

-- Record the roles, whose names are the prefix with the kind.
CREATE FUNCTION reliability.record_roles(p_prefix text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO reliability.role (kind, name)
    SELECT kind, p_prefix || '_' || kind
      FROM unnest('{owner,coordinator,executor,reader,page}'::text[]) AS kind
        ON CONFLICT (kind) DO UPDATE SET name = excluded.name
$$;

-- The statements that give the targets to the owner, and the rights to the roles, in the order in
-- which they have to run; none for what is there already. Roles that do not exist yet lack all.
-- p_schemas: schemas for targets beside those of declared states. p_all: also what is for a DBA, on
-- what the owner does not own. as_owner: the owner may run it.
CREATE FUNCTION reliability.role_statements(p_prefix text, p_schemas text[], p_all boolean)
RETURNS TABLE (as_owner boolean, statement text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
WITH roles AS (
    SELECT kind, p_prefix || '_' || kind AS name, r.oid AS id
      FROM unnest('{owner,coordinator,executor,reader,page}'::text[]) AS kind
      LEFT JOIN pg_roles r ON r.rolname = p_prefix || '_' || kind),
owner AS (SELECT name, coalesce(id, 0) AS id FROM roles WHERE kind = 'owner'),
targets AS (  -- partitions, which a person may make, need no right of their own, but the same owner
    SELECT c.oid, c.relnamespace, c.relname, c.relowner,
           CASE WHEN tree.level > 0 THEN 'partition'
                WHEN c.relkind = 'v' THEN 'view' ELSE 'target' END AS part
      FROM reliability.state s
     CROSS JOIN LATERAL parse_ident(s.target_table) AS named(parts)
      JOIN pg_namespace n ON n.nspname = named.parts[1]
      JOIN pg_class whole ON whole.relnamespace = n.oid AND whole.relname = named.parts[2]
      LEFT JOIN pg_partition_tree(whole.oid) AS tree ON true
      JOIN pg_class c ON c.oid = coalesce(tree.relid, whole.oid)),
tables AS (
    SELECT oid, relnamespace, relname, relowner, 'ledger' AS part FROM pg_class
     WHERE relnamespace = 'reliability'::regnamespace AND relkind IN ('r', 'v')
     UNION ALL
    SELECT oid, relnamespace, relname, relowner,
           CASE WHEN relname ~ '^attempt_[0-9]+$' THEN 'attempt' ELSE 'contribution' END
      FROM pg_class
     WHERE relnamespace = 'reliability_contribution'::regnamespace AND relkind IN ('r', 'p')
     UNION ALL
    SELECT * FROM targets),
schemas AS (
    SELECT oid, nspname, nspowner,
           CASE WHEN nspname IN ('reliability', 'reliability_contribution') THEN nspname
                ELSE 'targets' END AS part
      FROM pg_namespace
     WHERE nspname IN ('reliability', 'reliability_contribution') OR nspname = ANY (p_schemas)
        OR oid IN (SELECT relnamespace FROM targets)),
of_schemas(part, kinds, rights) AS (VALUES
    ('targets', '{owner}', 'USAGE, CREATE'),
    ('targets', '{coordinator,page}', 'USAGE'),
    ('reliability', '{coordinator,executor,reader,page}', 'USAGE'),
    ('reliability_contribution', '{coordinator,executor,page}', 'USAGE')),
of_tables(part, kinds, rights, names, columns) AS (VALUES
    ('target', '{coordinator}', 'SELECT, INSERT, UPDATE, DELETE', NULL::text, NULL::text),
    ('target', '{page}', 'SELECT', NULL, NULL),
    ('view', '{coordinator,page}', 'SELECT', NULL, NULL),
    ('contribution', '{coordinator}', 'SELECT, INSERT, DELETE', NULL, NULL),
    ('contribution', '{page}', 'SELECT', NULL, NULL),
    ('attempt', '{coordinator}', 'SELECT, INSERT', NULL, NULL),
    ('ledger', '{coordinator,page,reader}', 'SELECT', NULL, NULL),
    ('ledger', '{reader}', 'SELECT', '{correction}',
     ' (topology, txid, reason, corrected_by, corrected_at, request_id, ended_at)'),
    ('ledger', '{coordinator}', 'INSERT',
     '{attempt_event,audit,code,commit_log,refreeze,request_contact,set_aside}', NULL),
    ('ledger', '{coordinator}', 'UPDATE', '{state}',
     ' (commit_number, compacted_through, keep_txids, keep_age)'),
    ('ledger', '{coordinator}', 'INSERT, UPDATE',
     '{alert,attempt,attempt_step,attempt_table,audit_result,checkpoint,correction,emission,'
     'exclusion,request,server,sink,skip,topology,transaction,tried_time}', NULL),
    ('ledger', '{coordinator}', 'INSERT, DELETE',
     '{alert_told,difference,participant,quarantined_row}', NULL),
    ('ledger', '{coordinator}', 'INSERT, UPDATE, DELETE', '{contribution,schedule,source_item,verified}',
     NULL)),
of_functions(kinds, names) AS (VALUES
    ('{coordinator}', NULL::text),
    ('{executor}', '{acknowledge,existing_ack,read_staged}')),
lacking AS (
    SELECT 1 AS place, s.nspowner = o.id OR s.part <> 'targets' AS as_owner, r.name, right_name,
           right_place, 'SCHEMA' AS what, format('%I', s.nspname) AS object
      FROM schemas s CROSS JOIN owner o
      JOIN of_schemas f ON f.part = s.part
     CROSS JOIN unnest(string_to_array(f.rights, ', ')) WITH ORDINALITY AS w(right_name, right_place)
      JOIN roles r ON r.kind = ANY (f.kinds::text[])
     WHERE (p_all OR s.nspowner = o.id)
       AND NOT coalesce(has_schema_privilege(r.id, s.oid, right_name), false)
     UNION ALL
    SELECT 3, true, r.name, right_name || coalesce(f.columns, ''), right_place, 'TABLE',
           t.oid::regclass::text
      FROM tables t CROSS JOIN owner o
      JOIN of_tables f ON f.part = t.part
       AND (f.names IS NULL OR t.relname = ANY (f.names::text[]))
     CROSS JOIN unnest(string_to_array(f.rights, ', ')) WITH ORDINALITY AS w(right_name, right_place)
      JOIN roles r ON r.kind = ANY (f.kinds::text[])
     WHERE (p_all OR t.relowner = o.id)
       AND NOT (r.kind = 'reader' AND f.columns IS NULL AND t.relname IN (
           'quarantined_row', 'quarantine', 'correction', 'erased_key'))
       AND NOT coalesce(CASE WHEN f.columns IS NULL
                             THEN has_table_privilege(r.id, t.oid, right_name)
                             ELSE has_any_column_privilege(r.id, t.oid, right_name) END, false)
     UNION ALL
    SELECT 4, true, r.name, 'EXECUTE', 1, 'FUNCTION', p.oid::regprocedure::text
      FROM pg_proc p CROSS JOIN owner o
      JOIN of_functions f ON f.names IS NULL OR p.proname = ANY (f.names::text[])
      JOIN roles r ON r.kind = ANY (f.kinds::text[])
     WHERE p.pronamespace = 'reliability'::regnamespace AND (p_all OR p.proowner = o.id)
       AND NOT coalesce(has_function_privilege(r.id, p.oid, 'EXECUTE'), false)
     UNION ALL
    SELECT 5, false, r.name, 'USAGE', 1, 'SEQUENCE', s::text
      FROM targets t CROSS JOIN owner o
     CROSS JOIN reliability.sequences_of_defaults(t.oid) AS s
      JOIN pg_class c ON c.oid = s
      JOIN roles r ON r.kind = 'coordinator'
     WHERE t.part = 'target' AND (p_all OR c.relowner = o.id)
       AND NOT coalesce(has_sequence_privilege(r.id, s::oid, 'USAGE, UPDATE'), false)),
by_object AS (
    SELECT place, as_owner, name, what, object,
           string_agg(right_name, ', ' ORDER BY right_place) AS rights
      FROM lacking GROUP BY place, as_owner, name, what, object)
SELECT as_owner, statement FROM (
    SELECT place, as_owner, name, rights,
           format('GRANT %s ON %s %s TO %I', rights, what,
                  string_agg(object, ', ' ORDER BY object), name) AS statement
      FROM by_object GROUP BY place, as_owner, name, what, rights
     UNION ALL
    SELECT 2, false, '', '', format('ALTER TABLE %s OWNER TO %I', t.oid::regclass, o.name)
      FROM targets t CROSS JOIN owner o WHERE p_all AND t.relowner <> o.id) AS each
 ORDER BY place, name, rights
$$;

-- The statements that give the roles what they lack of the rights on what the owner has; none if there
-- are no roles.
CREATE FUNCTION reliability.lacking_rights() RETURNS TABLE (statement text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.statement FROM reliability.role r
     CROSS JOIN reliability.role_statements(left(r.name, -length('_owner')), '{}', false) AS s
     WHERE r.kind = 'owner'
$$;

-- Run them. The owner calls it when it has made or changed tables.
CREATE FUNCTION reliability.grant_rights() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_statement text;
BEGIN
    FOR v_statement IN SELECT statement FROM reliability.lacking_rights() LOOP
        EXECUTE v_statement;
    END LOOP;
END $$;

-- What runs as the owner is for those only to whom it is granted.
DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN SELECT oid FROM pg_proc
                       WHERE pronamespace = 'reliability'::regnamespace AND prosecdef LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', v_function);
    END LOOP;
END $$;
