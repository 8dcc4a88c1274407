-- An item may belong to several txids in parts: the row groups of a file, the keys of a table.
-- A part of an item belongs to one of them for ever, whatever a spout's limits are at the time.

ALTER TABLE reliability.source_item
    ADD COLUMN part int8multirange NOT NULL DEFAULT '{(,)}',  -- all of it, rows, or keys
    DROP CONSTRAINT source_item_belongs_to_one_txid,
    ADD PRIMARY KEY (topology, item, txid),
    ADD CONSTRAINT source_item_part_has_something CHECK (NOT isempty(part)),
    -- GiST knows no equality of texts without an extension: a hash, as a range of one number, is
    -- compared instead. Two items of one hash (one in 2^63) would exclude each other: an error,
    -- never a row that counts twice. The shift keeps the range's upper bound a bigint.
    ADD CONSTRAINT source_item_belongs_to_one_txid EXCLUDE USING gist (
        int8range(hashtextextended(topology || '/' || item, 0) >> 1,
                  hashtextextended(topology || '/' || item, 0) >> 1, '[]') WITH &&,
        part WITH &&);
ALTER TABLE reliability.source_item ALTER COLUMN part DROP DEFAULT;

-- How the emitted side of a batch is verified: by XOR and count, or, where the source has no row
-- index, by count. NULL while an opaque spout's txid has no batch of its own.
ALTER TABLE reliability.transaction ADD COLUMN verified text;
UPDATE reliability.transaction SET verified = 'EXACT' WHERE batch_meta IS NOT NULL;
ALTER TABLE reliability.transaction
    ADD CONSTRAINT verdict CHECK (verified IN ('EXACT', 'COUNTED')),
    ADD CONSTRAINT committed_batch_has_a_verdict CHECK (
        committed_attempt IS NULL OR verified IS NOT NULL);
