-- table_columns --
-- The columns of a table; no rows if there is no such table. `is_required`: a row cannot be
-- inserted without it. `is_in_view`: the table is a view.
SELECT attname AS name, format_type(atttypid, atttypmod) AS type,
       attcollation::regcollation::text AS collation,
       attgenerated <> '' AS is_generated,
       attnotnull AND NOT atthasdef AND attidentity = '' AS is_required,
       relkind = 'v' AS is_in_view, relkind IN ('r', 'p') AS is_in_table
  FROM pg_catalog.pg_attribute
  JOIN pg_catalog.pg_class c ON c.oid = attrelid
 WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
 ORDER BY attnum;

-- unique_keys --
-- The unique keys that ON CONFLICT looks at. It can use one in which NULL is a value like any other;
-- one that is deferrable is in its way.
SELECT array_agg(a.attname::text ORDER BY a.attname) AS columns,
       i.indnullsnotdistinct AND i.indimmediate AS is_usable, NOT i.indimmediate AS is_deferrable,
       (SELECT relname FROM pg_catalog.pg_class WHERE oid = i.indexrelid) AS name
  FROM pg_catalog.pg_index i
  JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
 WHERE i.indrelid = to_regclass(%(table)s) AND i.indisunique AND i.indisvalid
   AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = i.indnatts
 GROUP BY i.indexrelid;

-- schema_exists --
-- Whether a schema exists.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s) AS exists;

-- dependents_of_table --
-- The views and the foreign keys of other tables that depend on a table; dropping it would fail.
SELECT DISTINCT 'view ' || r.ev_class::regclass::text AS dependent
  FROM pg_catalog.pg_depend d
  JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
 WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
   AND d.refobjid = to_regclass(%(table)s)::oid AND r.ev_class <> d.refobjid
 UNION
SELECT 'foreign key ' || c.conname || ' of ' || c.conrelid::regclass::text
  FROM pg_catalog.pg_constraint c
 WHERE c.contype = 'f' AND c.confrelid = to_regclass(%(table)s)::oid AND c.conrelid <> c.confrelid
 ORDER BY dependent;
