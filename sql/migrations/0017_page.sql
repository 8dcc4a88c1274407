-- For the page in Airflow.

-- The changes of a txid, found without reading the whole log.
CREATE INDEX commit_log_by_txid ON reliability.commit_log (topology, txid);

-- Where Spark shows the application of a step while it runs. NULL: it has no UI, or an older release ran it.
ALTER TABLE reliability.attempt_step ADD COLUMN ui_url text;
