"""States in Postgres: the SQL of user-defined columns, composed in one place."""
