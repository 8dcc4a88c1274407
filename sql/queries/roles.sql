-- act_as_owner --
-- Take the role of the owner of the ledger until the end of the transaction, if this role may: what is
-- made then is the owner's. No row: there is no ledger yet.
SELECT current_user AS role, owner.rolname AS owner,
       owner.rolname = current_user
       OR CASE WHEN CASE WHEN current_setting('server_version_num')::integer >= 160000
                         THEN pg_has_role(owner.oid, 'SET')
                         ELSE pg_has_role(owner.oid, 'MEMBER') END
               THEN set_config('role', owner.rolname, true) IS NOT NULL
               ELSE false END AS is_owner
  FROM pg_namespace n JOIN pg_roles owner ON owner.oid = n.nspowner
 WHERE n.nspname = 'reliability';

-- act_as --
-- Take a role until the end of the transaction; `none` is that of the session.
SELECT set_config('role', %(role)s, true);

-- roles --
-- The roles of the ledger.
SELECT kind, name FROM reliability.role JOIN pg_roles ON rolname = name ORDER BY kind;

-- statements_for_roles --
-- The statements that make the roles, and the owner of what the ledger has already, in the order in which
-- they have to run; none for what is there. Those that only a superuser may run are left out for others,
-- unless all are asked for. It reads no table of the ledger, which may not be there yet.
WITH names AS (
    SELECT kind, place, %(prefix)s || '_' || kind AS name
      FROM unnest('{owner,coordinator,executor,reader,page}'::text[])
           WITH ORDINALITY AS of(kind, place)),
roles AS (
    SELECT kind, place, name, r.oid AS id FROM names LEFT JOIN pg_roles r ON r.rolname = name),
own AS (SELECT name, coalesce(id, 0) AS id FROM roles WHERE kind = 'owner'),
me AS (SELECT oid, rolsuper FROM pg_roles WHERE rolname = current_user)
SELECT statement FROM (
    SELECT 1 AS place, format('CREATE ROLE %%I NOLOGIN', name) AS statement, place AS number
      FROM roles WHERE id IS NULL
     UNION ALL
    SELECT 2, format('GRANT %%I TO CURRENT_USER', own.name), 0 FROM own CROSS JOIN me
     WHERE NOT %(all)s AND NOT me.rolsuper
       AND NOT CASE WHEN own.id = 0 THEN false
                    WHEN current_setting('server_version_num')::integer >= 160000
                    THEN pg_has_role(own.id, 'SET') AND pg_has_role(own.id, 'USAGE')
                    ELSE pg_has_role(own.id, 'USAGE') END
     UNION ALL
    SELECT 3, format('GRANT %%s ON DATABASE %%I TO %%I', right_name, current_database(), name), place
      FROM roles
      JOIN (VALUES ('owner', 'CREATE'), ('owner', 'TEMPORARY'), ('coordinator', 'TEMPORARY'))
           AS w(kind, right_name) USING (kind)
     WHERE NOT coalesce(has_database_privilege(id, current_database(), right_name), false)
     UNION ALL
    SELECT 4, format('GRANT pg_signal_backend TO %%I', own.name), 0 FROM own CROSS JOIN me
     WHERE (%(all)s OR me.rolsuper)
       AND NOT (own.id <> 0 AND coalesce(pg_has_role(nullif(own.id, 0), 'pg_signal_backend',
                                                     'USAGE'), false))
     UNION ALL
    SELECT 5, format('GRANT %%I TO %%I', c.name, p.name), 0
      FROM roles c JOIN roles p ON c.kind = 'coordinator' AND p.kind = 'page'
     WHERE %(page_acts)s AND NOT coalesce(pg_has_role(p.id, c.id, 'USAGE'), false)
     UNION ALL
    SELECT 6, format('CREATE SCHEMA reliability AUTHORIZATION %%I', own.name), 0 FROM own
     WHERE to_regnamespace('reliability') IS NULL
     UNION ALL
    SELECT 6, format('ALTER SCHEMA %%I OWNER TO %%I', n.nspname, own.name), 0
      FROM pg_namespace n CROSS JOIN own
     WHERE n.nspname IN ('reliability', 'reliability_contribution') AND n.nspowner <> own.id
     UNION ALL
    SELECT 7, format('ALTER TABLE %%I.%%I OWNER TO %%I', n.nspname, c.relname, own.name), 0
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN own
     WHERE n.nspname IN ('reliability', 'reliability_contribution')
       AND c.relkind IN ('r', 'v', 'p') AND c.relowner <> own.id
     UNION ALL
    SELECT 8, format('ALTER ROUTINE %%s OWNER TO %%I', p.oid::regprocedure, own.name), 0
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace CROSS JOIN own
     WHERE n.nspname = 'reliability' AND p.proowner <> own.id) AS each
 ORDER BY place, number, statement;

-- role_statements_of_ledger --
-- What the roles lack of their rights, see reliability.role_statements.
SELECT as_owner, statement
  FROM reliability.role_statements(%(prefix)s, %(schemas)s::text[], true)
  WITH ORDINALITY AS s(as_owner, statement, place) ORDER BY place;

-- begin_script --
-- Begin a script for a person's session, whose own path might lead to another function.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

-- run_role_statements --
-- Run these statements, as a superuser; for a script.
DO $roles$
DECLARE
    v_statement text;
BEGIN
    FOR v_statement IN
        SELECT s.statement
          FROM reliability.role_statements(%(prefix)s, %(schemas)s::text[], true)
               WITH ORDINALITY AS s(as_owner, statement, place) ORDER BY s.place LOOP
        EXECUTE v_statement;
    END LOOP;
END $roles$;

-- grant_rights --
-- Give the roles of the ledger their rights on what its owner has just made.
SELECT reliability.grant_rights();

-- lacks_rights --
-- Say if `grant_rights` has something to grant.
SELECT EXISTS (SELECT FROM reliability.lacking_rights()) AS lacks;

-- role_facts --
-- The role of this session, the owner of the ledger, its roles, and the kinds of those that this session has.
SELECT quote_ident(current_user) AS role, quote_ident(pg_get_userbyid(n.nspowner)) AS owner,
       coalesce((SELECT jsonb_object_agg(kind, quote_ident(name))
                   FROM reliability.role JOIN pg_roles ON rolname = name), '{}') AS roles,
       ARRAY(SELECT kind FROM reliability.role JOIN pg_roles r ON r.rolname = name
              WHERE pg_has_role(r.oid, 'USAGE') ORDER BY kind) AS own
  FROM pg_namespace n WHERE n.nspname = 'reliability';

-- schemas_without_create --
-- The schemas of targets in which no table can be made by who makes them: the owner of the ledger, if that has
-- roles, otherwise this role.
SELECT DISTINCT quote_ident(n.nspname) AS schema, quote_ident(maker.rolname) AS role
  FROM reliability.state s
 CROSS JOIN LATERAL parse_ident(s.target_table) AS named(parts)
  JOIN pg_namespace n ON n.nspname = named.parts[1]
  JOIN pg_namespace l ON l.nspname = 'reliability'
  JOIN pg_roles maker ON CASE WHEN EXISTS (SELECT FROM reliability.role
                                             JOIN pg_roles ON rolname = name)
                              THEN maker.oid = l.nspowner ELSE maker.rolname = current_user END
 WHERE NOT has_schema_privilege(maker.oid, n.oid, 'CREATE') ORDER BY schema;

-- executor_facts --
-- What the role of executors may do, as far as catalogs tell, which any role may read.
SELECT quote_ident(current_user) AS role, quote_ident(owner.rolname) AS owner,
       has_schema_privilege(n.oid, 'USAGE') AND EXISTS (
           SELECT FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proname = 'acknowledge'
              AND has_function_privilege(p.oid, 'EXECUTE')) AS may_stage,
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
                WHERE s.nspname IN ('reliability', 'reliability_contribution') AND c.relkind = 'r'
                  AND (has_table_privilege(c.oid, 'INSERT') OR has_table_privilege(c.oid, 'UPDATE')
                       OR has_table_privilege(c.oid, 'DELETE'))) AS may_commit,
       pg_has_role(owner.oid, (SELECT oid FROM pg_roles WHERE rolname = current_user), 'USAGE')
       OR pg_has_role(owner.oid, 'pg_signal_backend', 'USAGE') AS may_be_ended
  FROM pg_namespace n JOIN pg_roles owner ON owner.oid = n.nspowner
 WHERE n.nspname = 'reliability';
