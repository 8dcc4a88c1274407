-- copy_out --
-- NULL is nothing, an empty text is "": the only format that tells them apart and quotes lines.
COPY ({query}) TO STDOUT (FORMAT csv, ENCODING 'UTF8');

-- isolate_source --
-- All that is read of a table at emission is one state of it.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;

-- settle_source --
-- Wait until nobody writes to the table, see it so, and let the writers on: the lock goes with the
-- savepoint, the snapshot stays. Else a row with a smaller key could be committed later. Nothing
-- before the lock may take the snapshot, as any SELECT would. Writers wait in line behind one who
-- waits for the table, so he must not wait long.
SET LOCAL lock_timeout = '3s';
SAVEPOINT reliability;
LOCK TABLE {table} IN SHARE MODE;
SELECT 1;
ROLLBACK TO SAVEPOINT reliability;

-- source_table --
-- What a name stands for; no row: nothing has it. Compared as text: a name that is too long would be
-- cut, and be another table's.
SELECT c.relkind AS kind,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid)
       AS has_children
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s::text AND c.relname = %(table)s::text;

-- source_columns --
-- The columns of a table in their order.
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS is_not_null
  FROM pg_attribute a
 WHERE a.attrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text))
   AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum;

-- source_key_is_unique --
SELECT EXISTS (
       SELECT FROM pg_index i
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text))
          AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1
          AND a.attname = %(key)s) AS is_unique;

-- tuple_id_1 --
-- Of batches that were frozen before there was another: the halves of the key are folded into one,
-- so that no more than 32 bits tell two rows apart.
hashint8extended(source.{key}, 42)

-- tuple_id_2 --
-- All 64 bits of the key count, and the collation of the database does not.
hashtextextended(source.{key}::text COLLATE "C", 42)

-- source_keys --
-- The keys that no txid has, those that came late apart from those behind the last one that a txid
-- has, and the txids of which a key is gone; from one pass over the table. Keys that follow each
-- other without a gap have their number less their place in common; the first place is 0, as the
-- least bigint has none before it. A range without an upper end ends with the greatest bigint. What
-- is not settled yet is no txid's to take, but a key that a txid has is there, however young it
-- looks.
WITH present AS MATERIALIZED (
       SELECT coalesce(range_agg(island.span), '{{}}') AS keys,
              coalesce(range_agg(island.span) FILTER (WHERE island.is_settled), '{{}}') AS settled
         FROM (SELECT int8range(min(numbered.key),
                                nullif(max(numbered.key), 9223372036854775807) + 1) AS span,
                      numbered.is_settled
                 FROM (SELECT found.key, found.is_settled, found.key - (row_number() OVER (
                              PARTITION BY found.is_settled ORDER BY found.key) - 1) AS first
                         FROM (SELECT source.{key}::bigint AS key, {is_settled} AS is_settled
                                 FROM {table} AS source) AS found) AS numbered
                GROUP BY numbered.first, numbered.is_settled) AS island
), taken AS (
       SELECT * FROM unnest(%(txids)s::bigint[], %(parts)s::int8multirange[]) AS t(txid, keys)
), new AS MATERIALIZED (
       SELECT p.settled - coalesce(t.keys, '{{}}') AS keys,
              int8multirange(int8range(NULL, upper(t.keys))) AS covered
         FROM present p, (SELECT range_agg(taken.keys) AS keys FROM taken) AS t
)
SELECT (n.keys * n.covered)::text AS late, (n.keys - n.covered)::text AS fresh,
       coalesce((SELECT array_agg(t.txid ORDER BY t.txid) FROM taken t
                  WHERE NOT t.keys <@ p.keys), '{{}}') AS changed
  FROM new n, present p;

-- older_than_lag --
-- Rows that are so old that nobody is expected to add one before them.
source.{column} < clock_timestamp() - %(lag_seconds)s * interval '1 second'

-- has_wanted_key --
-- Of a row of the table, for a range of keys that is wanted; see source_keys for one without an end.
source.{key} >= lower(wanted.span)
AND source.{key} <= coalesce(upper(wanted.span) - 1, 9223372036854775807)

-- fold_source_keys --
-- The fold of the tuple ids of the rows with these keys, as the source itself has them.
SELECT coalesce(bit_xor(found.id), 0) AS xor, count(*) AS count
  FROM unnest(%(keys)s::int8multirange) AS wanted(span)
 CROSS JOIN LATERAL (SELECT {tuple_id} AS id FROM {table} AS source
                      WHERE {has_wanted_key} OFFSET 0) AS found;

-- present_source_keys --
-- Which of these keys are there now.
SELECT coalesce(range_agg(int8range(found.key, nullif(found.key, 9223372036854775807) + 1)), '{{}}')
       ::text AS keys
  FROM unnest(%(keys)s::int8multirange) AS wanted(span)
 CROSS JOIN LATERAL (SELECT source.{key}::bigint AS key FROM {table} AS source
                      WHERE {has_wanted_key} OFFSET 0) AS found;

-- source_rows --
-- These rows, each with its tuple id. OFFSET 0 makes it one index scan for each range.
SELECT found.*
  FROM unnest(%(keys)s::int8multirange) AS wanted(span)
 CROSS JOIN LATERAL (SELECT {columns}, {tuple_id} FROM {table} AS source
                      WHERE {has_wanted_key} OFFSET 0) AS found;
