-- What a batch that was frozen anew still has of a source item. The rest is in the tables until the
-- txid commits again, and so it belongs to the txid until then: emitted meanwhile, under a txid of its
-- own, it would count twice.
ALTER TABLE reliability.source_item ADD COLUMN refrozen_part int8multirange;
CREATE INDEX source_item_frozen_anew
    ON reliability.source_item (topology, txid) WHERE refrozen_part IS NOT NULL;
