"""Many txids that wait for the first, written into the ledger by a few statements."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg2.sql import SQL

from reliability.core.coordinator import Goal, Work
from reliability.ledger.connection import LedgerConnection

COMMIT = Work(goal=Goal.COMMITTED, task="commit", steps={"process": ()})
EMIT = SQL("""
    INSERT INTO reliability.topology (topology, next_txid, max_spout_pending)
    SELECT 'many_' || n, %(txids)s + 1, 1 FROM generate_series(1, %(topologies)s) AS n;
    INSERT INTO reliability.transaction (topology, txid, batch_meta, emitted_xor, emitted_count,
                                         dag_id, run_id)
    SELECT topology, txid, '[]', 0, 0, topology, 'run ' || txid
      FROM reliability.topology, generate_series(1, %(txids)s) AS txid
""")
REQUEST = SQL("""
    INSERT INTO reliability.request (topology, txid, dag_id, run_id, number, kind, granted_after)
    SELECT topology, txid, dag_id, run_id, 1, 'COMMIT', -1 FROM reliability.transaction
    RETURNING topology, txid, request_id
""")
PROCESS_THE_FIRST = SQL("""
    INSERT INTO reliability.attempt (topology, txid, attempt_id, request_id, lease, lease_until)
    SELECT topology, txid, 0, request_id, '1 h', now() + interval '1 h' FROM reliability.request
     WHERE txid = 1;
    INSERT INTO reliability.attempt_step (topology, txid, attempt_id, step, status, claimed_by,
                                          claimed_at)
    SELECT topology, txid, 0, 'process', 'RUNNING', 'process', now() FROM reliability.attempt;
    ANALYZE reliability.transaction, reliability.request, reliability.attempt
""")


@dataclass(frozen=True)
class Waiting:
    """A commit task that waits for its txid's turn."""

    topology: str
    txid: int
    request_id: int
    work: Work = COMMIT


def many_waiting(connection: LedgerConnection, topologies: int, txids: int) -> list[Waiting]:
    """Emit so many txids of so many topologies, each by a run of its own; txid 1 is in process."""
    with connection.transaction() as tx:
        tx.run(EMIT, topologies=topologies, txids=txids)
        requests = tx.all(REQUEST)
        tx.run(PROCESS_THE_FIRST)
    return [Waiting(r["topology"], r["txid"], r["request_id"]) for r in requests]
