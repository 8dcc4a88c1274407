"""The ledger: the one way to Postgres."""
