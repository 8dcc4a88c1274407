-- server_encoding --
-- How this database stores texts.
SELECT current_database() AS database, current_setting('server_encoding') AS encoding;

-- create_migration_table --
-- Two at once would both create it, and both migrate: the lock makes the second one wait.
SELECT pg_advisory_xact_lock(hashtext('reliability.migrate'));
CREATE SCHEMA IF NOT EXISTS reliability;
CREATE TABLE IF NOT EXISTS reliability.migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- applied_migrations --
SELECT number, checksum FROM reliability.migration ORDER BY number;

-- record_migration --
INSERT INTO reliability.migration (number, name, checksum)
VALUES (%(number)s, %(name)s, %(checksum)s);
