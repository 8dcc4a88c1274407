"""The runs that have asked for txids on which nobody works any more."""

from __future__ import annotations

from reliability.ledger.connection import DatabaseTransaction
from reliability.transaction.correct.rollback import RunToClear


def undone_runs(tx: DatabaseTransaction, topology: str) -> list[RunToClear]:
    """Return them in the order in which to clear them; a txid that several want once.

    It reads all requests of the topology.
    """
    runs: list[RunToClear] = []
    asked: set[int] = set()
    for dag in tx.all("dags_of_topology", topology=topology):
        rows = tx.all("undone_of_dag", topology=topology, dag_id=dag["dag_id"])
        for row in sorted(rows, key=lambda row: row["undone"]):
            txids = tuple(txid for txid in row["undone"] if txid not in asked)
            asked.update(txids)
            if txids:
                runs.append(RunToClear(dag_id=dag["dag_id"], run_id=row["run_id"], txids=txids))
    return sorted(runs, key=lambda run: run.txids)
