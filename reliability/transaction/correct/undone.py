"""The runs that have asked for txids on which nobody works any more."""

from __future__ import annotations

from reliability.core.leases import DEFAULT_LEASES
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.transaction.correct.rollback import RunToClear


def undone_runs(tx: DatabaseTransaction, topology: str) -> list[RunToClear]:
    """Return them in the order in which to clear them; a txid that several want once.

    It reads all requests of the topology.
    """
    runs: list[RunToClear] = []
    asked: set[int] = set()
    for dag in tx.all("dags_of_topology", topology=topology):
        rows = undone_of_dag(tx, topology, dag["dag_id"])
        for row in sorted(rows, key=lambda row: row["undone"]):
            txids = tuple(txid for txid in row["undone"] if txid not in asked)
            asked.update(txids)
            if txids:
                runs.append(RunToClear(dag_id=dag["dag_id"], run_id=row["run_id"], txids=txids))
    return sorted(runs, key=lambda run: run.txids)


def undone_of_dag(tx: DatabaseTransaction, topology: str, dag_id: str) -> list[Row]:
    """Return what each run of a DAG has left undone."""
    lease = DEFAULT_LEASES.request
    return tx.all("undone_of_dag", topology=topology, dag_id=dag_id, request_lease=lease)
