-- The sequences of which defaults of a table take numbers, such as that of a person's `serial`: who
-- inserts rows needs USAGE or UPDATE. GENERATED AS IDENTITY is no default, and needs no right.
CREATE FUNCTION reliability.sequences_of_defaults(p_table oid) RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT s.oid FROM pg_attrdef d
      JOIN pg_depend u ON u.classid = 'pg_attrdef'::regclass AND u.objid = d.oid
                      AND u.refclassid = 'pg_class'::regclass
      JOIN pg_class s ON s.oid = u.refobjid AND s.relkind = 'S'
     WHERE d.adrelid = p_table
$$;

-- Raise insufficient_privilege, with the GRANTs that are missing, unless this role has the given
-- rights on the tables of states, those on sequences of their defaults, those on the ledger with
-- which attempts are staged, sealed, committed and tried out, and that to make the temporary tables
-- of a commit. If the ledger has roles, the GRANT is that of the coordinator's role.
CREATE FUNCTION reliability.check_rights(p_schemas text[], p_tables text[], p_rights text[])
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_lacking text[];
BEGIN
    SELECT array_agg(lacking.what ORDER BY lacking.place, lacking.what) INTO v_lacking
      FROM (WITH wanted AS (
                SELECT n.oid AS schema_id, n.nspname, c.oid AS table_id, c.relname,
                       string_to_array(asked.rights, ', ') AS rights
                  FROM (SELECT * FROM unnest(p_schemas, p_tables, p_rights)
                        UNION ALL
                        SELECT 'reliability', unnest(of_ledger.names::text[]), of_ledger.rights
                          FROM (VALUES
                               ('INSERT', '{attempt_event}'),
                               ('SELECT', '{ack,correction,exclusion,skip}'),
                               ('SELECT, INSERT', '{audit,code,commit_log,set_aside}'),
                               ('SELECT, INSERT, DELETE', '{difference,quarantined_row}'),
                               ('SELECT, INSERT, UPDATE',
                                '{attempt,attempt_step,attempt_table,audit_result,contribution,'
                                'sink}'),
                               ('SELECT, UPDATE',
                                '{checkpoint,request,state,topology,transaction}'),
                               ('SELECT, UPDATE, DELETE', '{source_item}')
                               ) AS of_ledger(rights, names)
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
             WHERE NOT CASE WHEN w.nspname = 'reliability' AND r.name <> 'DELETE'
                            THEN has_any_column_privilege(w.table_id, r.name)
                            ELSE has_table_privilege(w.table_id, r.name) END
             GROUP BY w.nspname, w.relname
             UNION ALL
            SELECT 3, format('USAGE ON SEQUENCE %s', s) FROM wanted w
             CROSS JOIN reliability.sequences_of_defaults(w.table_id) AS s
             WHERE w.nspname <> 'reliability' AND NOT has_sequence_privilege(s, 'USAGE, UPDATE')
             UNION ALL
            SELECT 4, format('EXECUTE ON FUNCTION %s', p.oid::regprocedure) FROM pg_proc p
             WHERE p.pronamespace = 'reliability'::regnamespace AND p.prosecdef
               AND NOT has_function_privilege(p.oid, 'EXECUTE')
             UNION ALL
            SELECT 5, format('TEMPORARY ON DATABASE %I', current_database())
             WHERE NOT has_database_privilege(current_database(), 'TEMPORARY')) AS lacking;
    IF v_lacking IS NOT NULL THEN
        RAISE EXCEPTION 'role % lacks %', current_user, array_to_string(v_lacking, '; ')
            USING ERRCODE = 'insufficient_privilege',
                  HINT = coalesce(
                      (SELECT format('GRANT %I TO %I;', rolname, current_user)
                         FROM reliability.role JOIN pg_roles r ON rolname = name
                        WHERE kind = 'coordinator' AND NOT pg_has_role(r.oid, 'USAGE')),
                      (SELECT string_agg(format('GRANT %s TO %I;', what, current_user), ' ')
                         FROM unnest(v_lacking) AS what));
    END IF;
END $$;
