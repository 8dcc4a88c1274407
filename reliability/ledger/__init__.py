"""The ledger: all access to Postgres."""
