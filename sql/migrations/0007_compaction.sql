-- Compaction: contributions beyond a state's horizon are folded to one row a key.

-- A folded row lies with the last of the txids that gave it something. A compacted txid whose keys
-- all came again has no row left, and is not empty.
ALTER TABLE reliability.contribution
    DROP CONSTRAINT empty_contribution_has_no_rows,
    ADD CONSTRAINT empty_contribution_has_no_rows CHECK (
        rows >= 0 AND (presence = 'compacted' OR (presence = 'empty') = (rows = 0)));

-- In the coordinator's ledger: the last txid that some state, in whatever database, compacts. It is
-- decided here before anything is folded; from then on no txid up to this one is replayed, and no
-- rollback goes behind it.
ALTER TABLE reliability.topology
    ADD COLUMN compacted_through bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT only_the_committed_is_compacted CHECK (
        participant IS NOT NULL OR compacted_through < curr_txid);
