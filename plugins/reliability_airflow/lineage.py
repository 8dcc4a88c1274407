"""What the tasks of a txid tell OpenLineage, by Airflow's provider for it (docs/monitoring.md).

A task reads it from the ledger when it has ended. The provider calls this in a process of its own,
with a time limit, and only logs what goes wrong: lineage never fails a task.
"""

from __future__ import annotations

from typing import Any

import attr
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    RunFacet,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from reliability.core.coordinator import AttemptStatus
from reliability.core.definitions import Topology
from reliability.core.fold import Fold
from reliability.core.lineage import Dataset, table_dataset
from reliability.core.spout import BatchMeta
from reliability.core.state import State
from reliability.core.txids import format_txids
from reliability.transaction.emit.requests import Run
from reliability.transaction.inspect.attempt_report import AttemptReport, report_for_run
from reliability.transaction.topology.databases import TopologyDatabases, open_ledger

TRANSACTION = "reliability_transaction"
EMISSION = "reliability_emission"
_COUNTS = {AttemptStatus.COMMITTED, AttemptStatus.REPLACED}


@attr.define
class TransactionRunFacet(RunFacet):
    """The attempt that a run got for a txid; if it needed none, the one that counts.

    :param attempt: such as 14:2
    :param kind: COMMIT or REPLAY, of the run whose request it worked for; None for an empty
        attempt, of a txid that is parked or skipped
    :param commit_number: None if the attempt has not committed
    :param rows: of the batch
    :param accounts: by state, its rows applied, dropped and quarantined
    """

    topology: str
    txid: int
    attempt: str
    status: str
    kind: str | None
    is_dry_run: bool
    commit_number: int | None
    rows: int | None
    accounts: dict[str, dict[str, int]]
    reason_code: str | None = None


@attr.define
class EmissionRunFacet(RunFacet):
    """The txids that a run has emitted or will replay, such as 5..8."""

    topology: str
    txids: str
    count: int


def of_emission(topology: Topology, txids: list[int]) -> OperatorLineage[Any, Any]:
    """Return the lineage of the task that emits."""
    facet = EmissionRunFacet(topology=topology.name, txids=format_txids(txids), count=len(txids))
    return OperatorLineage(run_facets={EMISSION: facet})


def of_transaction(
    topology: Topology, txid: int, run: Run, *, commits: bool
) -> OperatorLineage[Any, Any]:
    """Return the lineage of a task of a txid: its attempt, the sources, and the tables.

    :param commits: the task's goal is the commit: if that was reached, the tables are its outputs
    """
    with (
        open_ledger(f"{topology.name} lineage") as connection,
        TopologyDatabases(connection, topology.name, topology.databases) as databases,
    ):
        report = report_for_run(connection, topology.name, txid, run)
        if report is None:
            return OperatorLineage()
        has_committed = commits and report.status in _COUNTS
        items = BatchMeta.from_json(report.items, Fold(0, 0)).items
        return OperatorLineage(
            inputs=[_input(dataset) for dataset in topology.spout.datasets(items)],
            outputs=_outputs(topology, report, databases) if has_committed else [],
            run_facets={TRANSACTION: _facet(report)},
        )


def _facet(report: AttemptReport) -> TransactionRunFacet:
    request = report.request
    return TransactionRunFacet(
        topology=report.topology,
        txid=report.attempt.txid,
        attempt=str(report.attempt),
        status=report.status.value,
        kind=request.kind.value if request else None,
        is_dry_run=request.is_dry_run if request else False,
        commit_number=report.commit_number,
        rows=max((account.emitted for account in report.accounts), default=None),
        accounts={
            account.state: {n: getattr(account, n) for n in ("applied", "dropped", "quarantined")}
            for account in report.accounts
        },
        reason_code=report.reason_code,
    )


def _input(dataset: Dataset) -> InputDataset:
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=dataset.rows, size=dataset.bytes, fileCount=dataset.files
    )
    return InputDataset(
        namespace=dataset.namespace, name=dataset.name, inputFacets={"inputStatistics": statistics}
    )


def _outputs(
    topology: Topology, report: AttemptReport, databases: TopologyDatabases
) -> list[OutputDataset]:
    rows = {state["state"]: state["staged_rows"] or 0 for state in report.states}
    outputs = []
    for state in topology.states:
        server = databases.connection_of(state.database).server()
        dataset = table_dataset(*server, *state.target, rows=rows.get(state.name, 0))
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=dataset.rows
        )
        outputs.append(
            OutputDataset(
                namespace=dataset.namespace,
                name=dataset.name,
                facets={"schema": _columns(state)},
                outputFacets={"outputStatistics": statistics},
            )
        )
    return outputs


def _columns(state: State) -> DatasetFacet:
    """Return the columns that readers see: key and values."""
    types = dict(state.key) | {column.name: column.type for column in state.all_columns()}
    return schema_dataset.SchemaDatasetFacet(
        fields=[
            schema_dataset.SchemaDatasetFacetFields(name=name, type=types.get(name))
            for name in (*state.key, *state.values)
        ]
    )
