-- The ledger's schemas, one statement per row, in an order that reads well: each table with its
-- indexes and triggers, then the functions, then the views with their columns only: each version of
-- Postgres prints their definitions in its own way.
WITH ours AS (
    SELECT oid, nspname FROM pg_namespace WHERE nspname IN ('reliability', 'reliability_contribution')
), tables AS (
    SELECT c.oid, format('%s.%s', n.nspname, c.relname) AS name
      FROM pg_class c JOIN ours n ON n.oid = c.relnamespace
     WHERE c.relkind = 'r'
), columns AS (
    SELECT a.attrelid AS oid, a.attnum::int AS place,
           concat_ws(' ', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
                     CASE a.attidentity WHEN 'a' THEN 'GENERATED ALWAYS AS IDENTITY' END,
                     CASE WHEN a.attnotnull THEN 'NOT NULL' END,
                     'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)) AS line
      FROM pg_attribute a
      LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
     WHERE a.attnum > 0 AND NOT a.attisdropped
), constraints AS (
    SELECT conrelid AS oid,
           1000 * strpos('pufcx', contype) + row_number() OVER (ORDER BY conname)::int AS place,
           format('CONSTRAINT %s %s', quote_ident(conname), pg_get_constraintdef(oid)) AS line
      FROM pg_constraint WHERE contype IN ('p', 'u', 'f', 'c', 'x')
), lines AS (
    TABLE columns UNION ALL TABLE constraints
), statements AS (
    SELECT 1 AS section, nspname::text AS name, 0 AS place, '' AS part,
           format('CREATE SCHEMA %s;', nspname) AS text
      FROM ours
    UNION ALL
    SELECT 2, t.name, 1, '',
           format(E'CREATE TABLE %s (\n    %s\n);', t.name,
                  string_agg(l.line, E',\n    ' ORDER BY l.place))
      FROM tables t JOIN lines l USING (oid) GROUP BY t.name
    UNION ALL
    SELECT 2, t.name, 2, i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) || ';'
      FROM tables t JOIN pg_index i ON i.indrelid = t.oid
     WHERE NOT EXISTS (SELECT FROM pg_constraint k
                        WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x'))
    UNION ALL
    SELECT 2, t.name, 3, g.tgname,
           format(E'%s;%s', pg_get_triggerdef(g.oid),
                  CASE g.tgenabled WHEN 'A' THEN format(
                      E'\nALTER TABLE %s ENABLE ALWAYS TRIGGER %s;', t.name, g.tgname) END)
      FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid
     WHERE NOT g.tgisinternal
    UNION ALL
    SELECT 3, p.proname, 0, p.oid::text, rtrim(pg_get_functiondef(p.oid), E'\n') || ';'
      FROM pg_proc p JOIN ours n ON n.oid = p.pronamespace
    UNION ALL
    SELECT 4, c.relname, 0, '',
           format(E'CREATE VIEW %s.%s (%s) AS ...;', n.nspname, c.relname,
                  string_agg(a.line, ', ' ORDER BY a.place))
      FROM pg_class c JOIN ours n ON n.oid = c.relnamespace JOIN columns a ON a.oid = c.oid
     WHERE c.relkind = 'v' GROUP BY n.nspname, c.relname
)
SELECT text FROM statements ORDER BY section, name COLLATE "C", place, part COLLATE "C";
