-- How long a txid waits behind one that no run is working on, before its task fails (E2).
ALTER TABLE reliability.topology ADD COLUMN blocked_timeout interval NOT NULL DEFAULT '7 days';
