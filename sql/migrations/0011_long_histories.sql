-- So that no query of a task, a sweep or `reliability status` reads every txid that has ever committed.
-- Each index has only rows that wait for something; most txids are in none.
CREATE INDEX uncommitted_transaction ON reliability.transaction (topology, txid)
    WHERE committed_attempt IS NULL;
CREATE INDEX attempt_to_clean ON reliability.attempt (topology, txid, attempt_id)
    WHERE cleaned_at IS NULL
      AND status IN ('FAILED', 'FENCED', 'REPLACED', 'DRY_RUN', 'ROLLED_BACK');
CREATE INDEX attempt_with_verdict ON reliability.attempt (topology, txid)
    WHERE verdict IS NOT NULL;
