-- An OpaqueState can undo one txid only. In one of several databases it must not get several in one
-- physical commit: if another database could not carry that out, there would be no way back (C6).
ALTER TABLE reliability.topology ADD COLUMN groups_commits boolean NOT NULL DEFAULT true;

-- What a topology's states are is known here in part; its next emission says it exactly.
UPDATE reliability.topology p SET groups_commits = false
 WHERE EXISTS (SELECT FROM reliability.participant d WHERE d.topology = p.topology);
