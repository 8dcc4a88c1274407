-- The changes of a txid, found without reading the whole log: the page and `show` ask for them.
CREATE INDEX commit_log_by_txid ON reliability.commit_log (topology, txid);
