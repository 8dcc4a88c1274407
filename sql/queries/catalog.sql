-- table_columns --
-- The columns of a table; no rows if there is no such table. `is_required`: a row cannot be
-- inserted without it. `is_in_view`: the table is a view. `is_lost`: a crash of the server empties it.
SELECT attname AS name, format_type(atttypid, atttypmod) AS type,
       attcollation::regcollation::text AS collation,
       attgenerated <> '' AS is_generated,
       attnotnull AND NOT atthasdef AND attidentity = '' AS is_required,
       relkind = 'v' AS is_in_view, relkind IN ('r', 'p') AS is_in_table,
       relpersistence = 'u' AS is_lost
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

-- view_of_what_counts --
-- Whether a view compares its rows with the headers, which say what counts.
SELECT count(DISTINCT a.attname) = 5 AS asks_headers
  FROM pg_catalog.pg_rewrite r
  JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
  JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
 WHERE r.ev_class = to_regclass(%(table)s) AND d.refclassid = 'pg_catalog.pg_class'::regclass
   AND d.refobjid = 'reliability.contribution'::regclass
   AND a.attname IN ('topology', 'state', 'txid', 'attempt_id', 'rows');

-- schema_exists --
-- Whether a schema exists.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s) AS exists;

-- dependents_of_table --
-- The views, the foreign keys of other tables, and whatever else depends on a table or on the type of
-- its rows; dropping it would fail.
SELECT DISTINCT 'view ' || r.ev_class::regclass::text AS dependent
  FROM pg_catalog.pg_depend d
  JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
 WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
   AND d.refobjid = to_regclass(%(table)s)::oid AND r.ev_class <> d.refobjid
 UNION
SELECT 'foreign key ' || c.conname || ' of ' || c.conrelid::regclass::text
  FROM pg_catalog.pg_constraint c
 WHERE c.contype = 'f' AND c.confrelid = to_regclass(%(table)s)::oid AND c.conrelid <> c.confrelid
 UNION
SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_type t ON t.oid = c.reltype
  JOIN pg_catalog.pg_depend d
       ON d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = c.oid
       OR d.refclassid = 'pg_catalog.pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray)
 WHERE c.oid = to_regclass(%(table)s)::oid AND d.deptype = 'n'
   AND d.classid NOT IN ('pg_catalog.pg_rewrite'::regclass, 'pg_catalog.pg_constraint'::regclass)
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend own  -- it goes with the table
                    WHERE own.classid = d.classid AND own.objid = d.objid
                      AND own.refobjid = c.oid AND own.deptype <> 'n')
 ORDER BY dependent;
