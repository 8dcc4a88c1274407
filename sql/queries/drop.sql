-- topologies_that_read_table --
-- Other topologies whose batches have rows of a table of the ledger's own database.
SELECT DISTINCT topology FROM reliability.source_item
 WHERE item = %(source)s AND topology <> %(topology)s ORDER BY topology;
