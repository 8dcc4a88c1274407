"""Reports: read the ledger and the tables, change nothing."""
