"""Reports: read the ledger and the tables without changing them."""
