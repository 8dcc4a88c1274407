"""What the pages show, read from the ledger in one transaction a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from reliability.core.coordinator import why_waits
from reliability.core.difference import Difference
from reliability.core.errors import ReliabilityError
from reliability.core.spout import Interval
from reliability.core.state import State
from reliability.core.txids import TooManyTxids, parse_txids
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.read_rows import difference_of, ends_of, interval_of
from reliability.transaction.emit.requests import check_committed
from reliability.transaction.inspect.completeness import IntervalStatus, statuses
from reliability.transaction.inspect.overview import overviews
from reliability.transaction.inspect.select import interval_called, select_txids
from reliability.transaction.inspect.txid_state import page_of_txids
from reliability.transaction.topology.databases import TopologyDatabases, open_ledger
from reliability.transaction.topology.declare import states_of
from reliability.transaction.topology.read_standing import read_standing
from reliability_airflow.page.timeline import axis_of, lane

#: how many txids a timeline may show
SIZES = (20, 50, 200)
#: txids whose times are plotted
PLOTTED = 500
#: intervals of a calendar
CALENDAR = 372
_MONTH = timedelta(days=28)
ROLLBACKS = 20
#: contributions to a row that are listed, the last ones
EXPLAINED = 200


def ledger(topology: str = "") -> LedgerConnection:
    """Open the ledger for one request.

    :raises TopologyUnknown: the name is no topology's
    """
    return open_ledger("page", topology)


@contextmanager
def reading(topology: str = "") -> Iterator[DatabaseTransaction]:
    """Begin the transaction in which a page is read."""
    with ledger(topology) as connection, connection.transaction() as tx:
        yield tx


def dags_by_topology(
    topology: str | None = None, dag_id: str | None = None
) -> dict[str, list[str]]:
    """Return the DAGs of a topology, of all that a DAG emits, or of any; the last one first."""
    with reading() as tx:
        rows = tx.all("dags_of_topologies", topology=topology, dag_id=dag_id)
    return {row["topology"]: row["dag_ids"] for row in rows}


def dags_of(topology: str) -> list[str]:
    """Return the DAGs whose runs emit a topology; of an unknown one, that of its name."""
    return dags_by_topology(topology).get(topology, [topology])


def topologies_of_run(dag_id: str, run_id: str) -> list[str]:
    """Return the topologies of which a run has requested txids."""
    with reading() as tx:
        rows = tx.all("topologies_of_run", dag_id=dag_id, run_id=run_id)
    return [row["topology"] for row in rows]


# --- a topology ----------------------------------------------------------------------------------


def read_topology(topology: str, last: int | None, size: int) -> dict[str, Any]:
    """Read a topology with `size` txids up to the last that is given, the newest first.

    `newer` and `older` are the `last` of the pages beside it; None if there is none.

    :raises TopologyUnknown: there is none with this name
    """
    with reading(topology) as tx:
        overview = next(known for known in overviews(tx, topology) if known.topology == topology)
        top = overview.emitted if last is None else min(last, overview.emitted)
        states = page_of_txids(tx, topology, top + 1, size)
        txids = [state.txid for state in states]
        attempts = tx.all("attempts_of_page", topology=topology, txids=txids)
        by_txid = {txid: list(own) for txid, own in groupby(attempts, lambda row: row["txid"])}
        axis = axis_of(attempts)
        return {
            "one": overview,
            "lines": [
                (state, short_state(state.state), len(own), lane(axis, own))
                for state in states
                for own in (by_txid.get(state.txid, []),)
            ],
            "ticks": [*axis.ticks()],
            "size": size,
            "newer": min(top + size, overview.emitted) if top < overview.emitted else None,
            "older": txids[-1] - 1 if txids and txids[-1] > 1 else None,
            "rollbacks": tx.all("rollbacks_of_topology", topology=topology, most=ROLLBACKS),
        }


def short_state(state: str) -> str:
    """Return the state of a txid in one word: how often it was replayed is said elsewhere."""
    return "replayed" if state.startswith("replayed") else state


def read_states(topology: str) -> list[State]:
    """Return the states of a topology, those in other databases too, by name.

    :raises TopologyUnknown: there is none with this name
    """
    with ledger() as connection, TopologyDatabases.of_known(connection, topology) as databases:
        return sorted(states_of(databases), key=lambda state: state.name)


def find_txid(topology: str, text: str) -> int:
    """Return the txid that a person means: its number, or the newest of a time.

    :raises NotFound: it is neither, or there is none
    """
    with ledger() as connection:
        meant = _read_txids(connection, topology, text)
        with connection.transaction() as tx:
            last = last_txid(tx, topology)
            if isinstance(meant, Interval):
                row = tx.first("newest_txid_of_interval", topology=topology, **ends_of(meant))
                found = [row["txid"]] if row else []
            else:
                found = [txid for txid in meant if 1 <= txid <= last]
    if not found:
        raise _nothing_there(text, last)
    return int(found[-1])


def emitting_dag(topology: str) -> tuple[str, bool]:
    """Return the DAG whose runs emit a topology, and whether that has other tasks too."""
    with ledger() as connection:
        row = connection.first("emitting_task", topology=topology)
    return (topology, False) if row is None else (row["dag_id"], row["task_id"] != "emit")


def choose_txids(topology: str, text: str) -> Sequence[int]:
    """Return the committed txids that a person means: by numbers, or all of an interval.

    :raises NotFound: it is neither, or a txid is none of the topology's
    :raises NothingSelected: nothing lies in the interval
    :raises NothingToReplay: one of them has not committed
    """
    with ledger() as connection:
        meant = _read_txids(connection, topology, text)
        if isinstance(meant, Interval):
            meant = [*select_txids(connection, topology, meant).txids]
        with connection.transaction() as tx:
            last = last_txid(tx, topology)
            if any(not 1 <= txid <= last for txid in meant):
                raise _nothing_there(text, last)
            check_committed(tx, topology, meant)
    return meant


def _read_txids(connection: LedgerConnection, topology: str, text: str) -> list[int] | Interval:
    text = text.strip()
    try:
        return parse_txids(text)
    except TooManyTxids as error:
        raise NotFound(str(error), remedy="name fewer.") from error
    except ValueError:  # an interval, then
        pass
    try:
        return interval_called(connection, topology, text)
    except (ReliabilityError, ValueError) as error:
        raise NotFound(
            f"{text[:40]!r} is neither a txid nor an interval",
            remedy="write a number such as 14, several such as 5..6, or a date such as 2013-04.",
        ) from error


def last_txid(tx: DatabaseTransaction, topology: str) -> int:
    """Return the last txid that was allocated; 0 if there is none."""
    return int(tx.one("topology_position", topology=topology)["next_txid"]) - 1


def _nothing_there(text: str, last: int) -> NotFound:
    return NotFound(
        f"there is no txid of {text.strip()[:40]!r}",
        remedy=f"the txids so far are 1..{last}." if last else "nothing has been emitted yet.",
    )


class NotFound(ReliabilityError):
    """There is no such thing."""


def read_series(topology: str, last: int | None) -> dict[str, list[Any]]:
    """Return the times of the last txids as columns."""
    with reading(topology) as tx:
        end = last_txid(tx, topology)
        top = end if last is None else min(last, end)
        rows = tx.all("series_of_topology", topology=topology, first=top - PLOTTED + 1, last=top)
    columns = ("txid", "committed_at", "rows", "lag", "commit", "processing")
    return {name: [row[name] for row in rows] for name in columns}


# --- completeness --------------------------------------------------------------------------------


def read_calendar(topology: str, before: datetime | None) -> dict[str, Any]:
    """Read the last intervals before a moment, and those that lack a commit among them.

    `groups` are by year or month; `older` is where the page before ends, None if there is none;
    `is_cut` says that more intervals are missing than are named.
    """
    with reading(topology) as tx:
        rows = tx.all(
            "accounts_by_interval",
            topology=topology,
            before=before,
            most=CALENDAR + 1,
            **ends_of(None),
        )
        lacking = next(iter(overviews(tx, topology))).lacking
    timed = [row for row in rows[:CALENDAR] if row["interval_start"] is not None]
    is_cut = len(rows) > CALENDAR
    oldest = timed[-1]["interval_start"] if timed else None
    reports = [
        report
        for report in lacking.reports
        if report.interval is not None
        and (before is None or report.interval.start < before)
        and not (is_cut and oldest and report.interval.start < oldest)
    ]
    days = statuses(timed, reports)
    form = "%Y-%m" if all(day.length < _MONTH for day in days) else "%Y"

    def period_of(day: IntervalStatus) -> str:
        return f"{day.interval.local_start:{form}}" if day.interval else ""  # all have one

    return {
        "groups": [(name, list(own)) for name, own in groupby(days, period_of)],
        "older": oldest if is_cut else None,
        "unknown": lacking.unknown,
        "is_cut": lacking.is_cut,
    }


# --- a run ---------------------------------------------------------------------------------------


def read_run(topology: str, dag_id: str, run_id: str) -> list[Mapping[str, Any]]:
    """Return what a run has asked for, and what became of it, by txid.

    :param dag_id: empty for a run of any DAG
    """
    with reading(topology) as tx:
        rows = tx.all("outcome_of_run", topology=topology, dag_id=dag_id or None, run_id=run_id)
        standing = read_standing(tx, topology)
    return [
        {
            **row,
            "interval": interval_of(row),
            "wait": why_waits(standing.snapshot(row["txid"])) if row["status"] == "OPEN" else None,
        }
        for row in rows
    ]


def read_differences(
    topology: str, rows: Sequence[Mapping[str, Any]]
) -> list[tuple[int, Difference]]:
    """Return what a run's attempts changed, or would have changed, by txid and state.

    :param rows: as `read_run` returns them
    """
    done = [row for row in rows if row["is_done"] and row["attempt_id"] is not None]
    if not done:
        return []
    with ledger() as connection, TopologyDatabases.of(connection, topology) as databases:
        changed = databases.rows_of_all(
            "differences_of_attempts",
            topology=topology,
            txids=[row["txid"] for row in done],
            attempt_ids=[row["attempt_id"] for row in done],
        )
    differences = [(row["txid"], difference_of(row)) for row in changed]
    return sorted(differences, key=lambda changed_by: (changed_by[0], changed_by[1].state))
