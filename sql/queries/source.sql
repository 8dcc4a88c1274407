-- copy_out --
-- NULL is unquoted and empty, an empty text is "": the only format that distinguishes them and
-- quotes newlines.
COPY ({query}) TO STDOUT (FORMAT csv, ENCODING 'UTF8');

-- isolate_source --
-- All reads of a table at emission see one snapshot.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;

-- settle_source --
-- Wait until no session writes to the table, take the snapshot, and release the lock with the
-- savepoint. Otherwise a row with a smaller key could be committed later. No statement before the
-- lock may take the snapshot, as any SELECT would. Writers queue behind a session that waits for
-- the table, so the wait must be short.
SET LOCAL lock_timeout = '3s';
SAVEPOINT reliability;
LOCK TABLE {table} IN SHARE MODE;
SELECT 1;
ROLLBACK TO SAVEPOINT reliability;

-- source_table --
-- The relation with this name; no row: there is none. Compared as text: a name that is too long
-- would be truncated to that of another table.
SELECT c.relkind AS kind,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid)
       AS has_children
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s::text AND c.relname = %(table)s::text;

-- source_columns --
-- The columns of a table, in order.
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS is_not_null
  FROM pg_attribute a
 WHERE a.attrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text))
   AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum;

-- source_key_is_unique --
-- Whether a unique index has the key as its only column.
SELECT EXISTS (
       SELECT FROM pg_index i
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text))
          AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1
          AND a.attname = %(key)s) AS is_unique;

-- rows_without_key --
-- How many rows of a view have no key of their own, or no time: no index says so.
SELECT count(*) - count(DISTINCT source.{key}) FILTER (WHERE source.{moment} IS NOT NULL) AS count
  FROM {table} AS source;

-- tuple_id --
-- All 64 bits of the key count, as they do not in hashint8extended(), which folds its halves into one;
-- and the collation of the database does not.
hashtextextended(source.{key}::text COLLATE "C", 42)

-- source_keys --
-- The keys that no txid has, with late ones apart from those after the last allocated key, and the
-- txids of which a key is missing; in one pass over the table. Keys without a gap have the same
-- difference between key and position; positions start at 0, because the least bigint has no
-- predecessor. A range without an upper bound ends with the greatest bigint. No txid may take an
-- unsettled key, but a key that a txid has is present, however recent it looks.
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
-- Rows so old that no row is expected to appear before them.
source.{column} < clock_timestamp() - %(lag_seconds)s * interval '1 second'

-- has_wanted_key --
-- Whether a row's key is in a wanted range; see source_keys for a range without an upper bound.
source.{key} >= lower(wanted.span)
AND source.{key} <= coalesce(upper(wanted.span) - 1, 9223372036854775807)

-- fold_source_keys --
-- The fold of the tuple ids of the rows with these keys, computed by the source.
SELECT coalesce(bit_xor(found.id), 0) AS xor, count(*) AS count
  FROM unnest(%(keys)s::int8multirange) AS wanted(span)
 CROSS JOIN LATERAL (SELECT {tuple_id} AS id FROM {table} AS source
                      WHERE {has_wanted_key} OFFSET 0) AS found;

-- present_source_keys --
-- Which of these keys exist now.
SELECT coalesce(range_agg(int8range(found.key, nullif(found.key, 9223372036854775807) + 1)), '{{}}')
       ::text AS keys
  FROM unnest(%(keys)s::int8multirange) AS wanted(span)
 CROSS JOIN LATERAL (SELECT source.{key}::bigint AS key FROM {table} AS source
                      WHERE {has_wanted_key} OFFSET 0) AS found;

-- source_rows --
-- These rows, each with its tuple id. OFFSET 0 gives one index scan for each range.
SELECT found.*
  FROM unnest(%(keys)s::int8multirange) AS wanted(span)
 CROSS JOIN LATERAL (SELECT {columns}, {tuple_id} FROM {table} AS source
                      WHERE {has_wanted_key} OFFSET 0) AS found;

-- settled_until --
-- Up to which microsecond since 1970 no row can appear any more that has its transaction's time, and
-- whether sessions hide when theirs began: from this role, or by track_activities. A prepared transaction began before it
-- was prepared, nobody knows when. A standby does not know the transactions of its primary. An
-- autovacuum may take hours, and commits no row; neither does a walsender.
SELECT (extract(epoch FROM least(
           CASE WHEN pg_is_in_recovery()
                THEN coalesce(pg_last_xact_replay_timestamp(), clock_timestamp())
                ELSE clock_timestamp() END - %(lag_seconds)s * interval '1 second',
           min(a.xact_start) - interval '1 microsecond',
           (SELECT min(p.prepared) - %(lag_seconds)s * interval '1 second'
              FROM pg_prepared_xacts p WHERE p.database = current_database()))) * 1000000)::bigint
       AS until,
       (extract(epoch FROM greatest(clock_timestamp(), pg_last_xact_replay_timestamp())) * 1000000)::bigint AS now,
       bool_or(a.query = '<insufficient privilege>' OR a.state = 'disabled') AS is_hidden,
       min(a.xact_start) AS oldest
  FROM (SELECT xact_start, query, state FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()
           AND (backend_type IN ('walsender', 'autovacuum worker')) IS NOT TRUE) AS a;

-- microseconds --
-- The time of a row's last change as an integer, since 1970.
(extract(epoch FROM source.{moment}) * 1000000)::bigint

-- in_window --
-- Microseconds alone would be rounded beyond 285 years from 1970.
source.{moment} >= timestamptz 'epoch' + %(first)s / 3600000000 * interval '1 hour'
                 + %(first)s %% 3600000000 * interval '1 microsecond'
AND source.{moment} <= timestamptz 'epoch' + %(last)s / 3600000000 * interval '1 hour'
                     + %(last)s %% 3600000000 * interval '1 microsecond'

-- version_id --
-- Of a row as it was changed at a time.
hashtextextended(source.{key}::text COLLATE "C" || ' ' || {microseconds}::text, 42)

-- source_windows --
-- The rows of a window in their order of time, in pieces of about so many rows; rows of one moment
-- stay together.
WITH moment AS (
       SELECT {microseconds} AS at, count(*) AS rows, bit_xor({version_id}) AS xor
         FROM {table} AS source WHERE {in_window} GROUP BY 1
), numbered AS (
       SELECT m.*, div(sum(m.rows) OVER (ORDER BY m.at) - m.rows, %(most)s) AS piece FROM moment m
)
SELECT min(n.at) AS first, max(n.at) AS last, sum(n.rows)::bigint AS count, bit_xor(n.xor) AS xor
  FROM numbered n GROUP BY n.piece ORDER BY n.piece;

-- endless_moments --
-- Whether a row has a time that no window has.
SELECT EXISTS (SELECT FROM {table} AS source
                WHERE source.{moment} IN ('-infinity', 'infinity')
                   OR source.{moment} IS NULL) AS are_there;

-- window_rows --
-- The rows of a window, each with its tuple id.
SELECT {columns}, {version_id} FROM {table} AS source WHERE {in_window};
