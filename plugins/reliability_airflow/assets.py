"""An asset for each state, which a commit or a replay updates: a DAG can be scheduled on it.

The task that commits a txid tells it, once the ledger shows that the txid counts. So the events go
through an alias: the outlets of a task are updated whenever the task succeeds, also by a dry run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from reliability.core.definitions import Topology

if TYPE_CHECKING:
    from reliability.core.difference import Difference
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.emit.requests import Run


def state_asset(topology: Topology | str, state: str) -> Asset:
    """Return the asset of a state, to schedule a DAG on; a name will do where the code is not.

    :raises ValueError: the topology is given, and has no such state
    """
    if isinstance(topology, Topology):
        if state not in (names := [each.name for each in topology.states]):
            raise ValueError(f"topology {topology.name} has no state {state}; it has {names}")
        topology = topology.name
    path = f"{quote(topology, safe='')}/{quote(state, safe='')}"
    return Asset(name=path, uri=f"reliability://{path}", group="reliability")


def alias_of(topology: Topology) -> AssetAlias:
    """Return the outlet of the tasks that tell what a topology has committed."""
    return AssetAlias(f"reliability/{quote(topology.name, safe='')}", group="reliability")


def tell_commit(
    context: Mapping[str, Any], connection: LedgerConnection, topology: Topology, txid: int
) -> None:
    """Update the asset of each state, if what the task's run asked for the txid counts now."""
    from reliability_airflow.context import run_of

    for state, extra in changes_of(connection, topology.name, txid, run_of(context)).items():
        asset = state_asset(topology, state)
        context["outlet_events"][alias_of(topology)].add(asset, extra=extra)


def changes_of(
    connection: LedgerConnection, topology: str, txid: int, run: Run
) -> dict[str, dict[str, Any]]:
    """Return what the attempt that a run got for a txid changed, by state, as plain data.

    The interval is named as a run of another topology that is scheduled on the asset reads it.

    :return: without the states that a replay left as they were; empty if nothing of it counts: it
        is parked or skipped, or rolled back since
    """
    from reliability.core.coordinator import AttemptStatus
    from reliability.core.periods import UTC
    from reliability.transaction.inspect.attempt_report import report_for_run
    from reliability.transaction.process.begin import interval
    from reliability_airflow.context import INTERVAL

    report = report_for_run(connection, topology, txid, run)
    if report is None or report.status is not AttemptStatus.COMMITTED or report.verdict is not None:
        return {}
    read = interval(connection, topology, txid)
    # With its time zone: another topology has its own for what names none.
    named = {INTERVAL: f"{read} UTC" if read.zone == UTC else str(read)} if read else {}
    differences = {difference.state: difference for difference in report.differences}
    changes: dict[str, dict[str, Any]] = {}
    for state in report.states:
        difference = differences.get(state["state"])
        if difference is not None and difference.is_nothing:
            continue
        changes[state["state"]] = {
            "topology": topology,
            "txid": txid,
            **named,
            "attempt": str(report.attempt),
            "commit_number": report.commit_number,
            "rows": state["staged_rows"],
            "difference": _plain(difference) if difference else None,
        }
    return changes


def _plain(difference: Difference) -> dict[str, Any]:
    return {
        "rows_added": difference.rows_added,
        "rows_changed": difference.rows_changed,
        "rows_removed": difference.rows_removed,
        "moved": {name: str(value) for name, value in difference.moved.items()},
    }
