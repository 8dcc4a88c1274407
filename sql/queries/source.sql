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

-- source_columns --
-- The columns of a table in their order; none: there is no such table.
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

-- source_keys --
-- The keys that no txid has, those that came late apart from those behind the last one that a txid
-- has, and the txids of which a key is gone; from one pass over the table. Keys that follow each
-- other without a gap have their number less their place in common. What is not settled yet is no
-- txid's to take, but a key that a txid has is there, however young it looks.
WITH present AS MATERIALIZED (
       SELECT coalesce(range_agg(int8range(first, last, '[]')), '{{}}') AS keys,
              coalesce(range_agg(int8range(first, last, '[]')) FILTER (WHERE is_settled), '{{}}')
              AS settled
         FROM (SELECT min(key) AS first, max(key) AS last, is_settled
                 FROM (SELECT key, is_settled, key - row_number() OVER (
                              PARTITION BY is_settled ORDER BY key) AS island
                         FROM (SELECT {key}::bigint AS key, {is_settled} AS is_settled
                                 FROM {table}) AS keys) AS numbered
                GROUP BY island, is_settled) AS islands
), taken AS (
       SELECT * FROM unnest(%(txids)s::bigint[], %(parts)s::int8multirange[]) AS t(txid, keys)
), new AS MATERIALIZED (
       SELECT p.settled - coalesce(t.keys, '{{}}') AS keys,
              int8multirange(int8range(NULL, upper(t.keys))) AS covered
         FROM present p, (SELECT range_agg(keys) AS keys FROM taken) AS t
)
SELECT (n.keys * n.covered)::text AS late, (n.keys - n.covered)::text AS fresh,
       coalesce((SELECT array_agg(t.txid ORDER BY t.txid) FROM taken t
                  WHERE NOT t.keys <@ p.keys), '{{}}') AS changed
  FROM new n, present p;

-- older_than_lag --
-- Rows that are so old that nobody is expected to add one before them.
{column} < clock_timestamp() - %(lag_seconds)s * interval '1 second'

-- fold_source_keys --
-- The fold of the tuple ids of the rows with these keys, as the source itself has them.
SELECT coalesce(bit_xor(s.id), 0) AS xor, count(*) AS count
  FROM unnest(%(keys)s::int8multirange) AS r
 CROSS JOIN LATERAL (SELECT hashint8extended({key}, 42) AS id FROM {table}
                      WHERE {key} >= lower(r) AND {key} < upper(r) OFFSET 0) AS s;

-- present_source_keys --
-- Which of these keys are there now.
SELECT coalesce(range_agg(int8range(s.key, s.key, '[]')), '{{}}')::text AS keys
  FROM unnest(%(keys)s::int8multirange) AS r
 CROSS JOIN LATERAL (SELECT {key}::bigint AS key FROM {table}
                      WHERE {key} >= lower(r) AND {key} < upper(r) OFFSET 0) AS s;

-- source_rows --
-- These rows, each with its tuple id. OFFSET 0 makes it one index scan for each range.
SELECT s.*
  FROM unnest({keys}::int8multirange) AS r
 CROSS JOIN LATERAL (SELECT {columns}, hashint8extended({key}, 42) AS _x FROM {table}
                      WHERE {key} >= lower(r) AND {key} < upper(r) OFFSET 0) AS s;
