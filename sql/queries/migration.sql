-- create_migration_table --
-- The lock makes concurrent migrations wait for each other.
SELECT pg_advisory_xact_lock(hashtext('reliability.migrate'));
CREATE SCHEMA IF NOT EXISTS reliability;
CREATE TABLE IF NOT EXISTS reliability.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    oldest_code integer NOT NULL,  -- the last migration that code must know to go on
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- applied_migrations --
-- The applied migrations.
SELECT number, checksum, oldest_code FROM reliability.migration ORDER BY number;

-- record_migration --
-- Record an applied migration.
INSERT INTO reliability.migration (number, name, checksum, oldest_code)
VALUES (%(number)s, %(name)s, %(checksum)s, %(oldest_code)s);
