-- table_to_adopt --
-- A table or view whose rows a state may adopt, with its columns; no row: there is none. A state can
-- take over only an ordinary table, with columns that a commit can write. With SELECT alone, it can be
-- read and not be kept from others; only who has its owner's role may change it.
SELECT c.relkind = 'r' AND c.relpersistence = 'p' AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid))
       AS is_ordinary,
       c.relkind IN ('r', 'p')
       AND has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE') AS is_lockable,
       (SELECT min(r.rulename) FROM pg_catalog.pg_rewrite r
         WHERE r.ev_class = c.oid AND r.is_instead AND r.ev_type <> '1' AND r.ev_enabled <> 'D') AS rule,
       pg_has_role(c.relowner, 'USAGE') AS is_own,
       quote_ident(pg_get_userbyid(c.relowner)) AS owner, quote_ident(current_user) AS role,
       (SELECT jsonb_agg(jsonb_build_object(
                   'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
                   'is_written', a.attgenerated = '' AND a.attidentity <> 'a',
                   'is_required', a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
                   'collation', CASE WHEN a.attcollation <> t.typcollation
                                     THEN format('%%s.%%I', o.collnamespace::regnamespace, o.collname) END,
                   'takes_unlike_for_equal', NOT o.collisdeterministic)
                   ORDER BY a.attnum)
          FROM pg_catalog.pg_attribute a
          JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
          LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
  FROM pg_catalog.pg_class c
 WHERE c.oid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text));

-- adoption --
-- Which table a state has adopted, and when.
SELECT adopted_table, rows, adopted_at, adopted_by, reason FROM reliability.adoption
 WHERE topology = %(topology)s AND state = %(state)s;

-- record_adoption --
-- Record that rows of a table are the contribution of txid 0, which can never be taken out.
WITH header AS (
       INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
       SELECT %(topology)s, %(state)s, 0, 0, 'compacted', %(rows)s WHERE %(rows)s > 0)
INSERT INTO reliability.adoption (topology, state, adopted_table, rows, adopted_by, reason)
VALUES (%(topology)s, %(state)s, %(adopted_table)s, %(rows)s, %(adopted_by)s, %(reason)s)
RETURNING state;
