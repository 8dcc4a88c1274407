"""The ledger: the one door to Postgres."""
