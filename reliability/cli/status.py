"""Commands that show the position of topologies: status, topologies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from reliability.cli.app import FAILED, AsJson, OneOrAll, ledger, names, rows_of, verb, warn
from reliability.cli.live import Watch, follow
from reliability.cli.output import (
    format_value,
    print_entries,
    print_json,
    print_line,
    print_table,
    table_of,
)
from reliability.cli.parts import SPACE, Line, Part, show
from reliability.core.txids import format_txids

if TYPE_CHECKING:
    from reliability.core.state import State
    from reliability.ledger.connection import LedgerConnection, Row
    from reliability.transaction.inspect.overview import ForAPerson, Overview, Waiting


@verb("reliability status", "reliability status --json", "reliability status --watch 5")
def status(watch: Watch = None, as_json: AsJson = False) -> None:
    """Show the position of every topology, and what needs a person."""
    if watch is not None:
        return follow(lambda: _page(_read()), watch, as_json=as_json)
    found = _read()
    if as_json:
        return print_json([_plain(one) for one in found])
    show(_page(found))


def _read() -> list[Overview]:
    from reliability.transaction.inspect.overview import overviews

    with ledger() as connection, connection.transaction() as tx:
        return overviews(tx)


def _page(found: Sequence[Overview]) -> list[Part]:
    """Return the table of topologies, and below it what needs a person."""
    columns = ("emitted", "committed", "processing", "processed")
    table = table_of(
        "",
        {"topology": "left", **dict.fromkeys(columns, "right"), "last change": "right"},
        [
            (one.topology, *(getattr(one, name) for name in columns), _moment(one.last_change_at))
            for one in found
        ],
        coloured=columns,
    )
    lines = [line for one in found for line in lines_of(one)]
    return [table, SPACE, *lines] if lines else [table]


def _plain(one: Overview) -> dict[str, Any]:
    return {
        "topology": one.topology,
        "emitted": one.emitted,
        "committed": one.committed,
        "processing": one.processing,
        "processed": one.processed,
        "commit_number": one.commit_number,
        "checkpoint": one.checkpoint,
        "last_change_at": one.last_change_at,
        "paused": one.paused,
        "blocked": one.blocked,
        "waiting": [_plain_wait(waiting) for waiting in one.waiting],
        "held": one.held,
        "parked": one.parked,
        "without_commit": one.lacking.counts,
        "expected_unknown": one.lacking.unknown,
        "skipped": one.skipped,
        "excluded": one.excluded,
        "to_replay": one.to_replay,
    }


def _plain_wait(waiting: Waiting) -> dict[str, Any]:
    reason = waiting.wait.reason
    return {
        "txids": waiting.txids,
        "are_replays": waiting.are_replays,
        "for": reason.what.value,
        "behind": format_txids(reason.behind),
        "most": reason.most,
        "blocked": waiting.wait.blocked and waiting.wait.blocked.txid,
        "text": str(waiting),
    }


def _moment(moment: Any) -> str:
    return f"{format_value(moment)[5:16]}"


def lines_of(one: Overview) -> Iterator[Line]:
    """Yield what does not continue by itself, or not at once."""
    from reliability.transaction.inspect.overview import for_a_person

    for note in for_a_person(one):
        yield line_of(one.topology, note)


def line_of(topology: str, note: ForAPerson) -> Line:
    """Return a note of a topology."""
    from reliability.transaction.inspect.overview import Condition

    between = " is " if note.condition is Condition.PAUSED else ": "
    return Line(f"{between}{note.text}", note.marks, topology)


# --- topologies ----------------------------------------------------------------------------------


@verb("reliability topologies", "reliability topologies shop --json")
def topologies(topology: OneOrAll = "", as_json: AsJson = False) -> None:
    """Show the topologies: their code, window, states and databases."""
    failures: list[str] = []
    with ledger() as connection:
        found = [_describe(connection, name, failures) for name in names(connection, topology)]
    if as_json:
        print_json(found)
    else:
        for one in found:
            _print_topology(one)
    for failure in failures:
        warn(failure)
    if failures:
        raise typer.Exit(FAILED)


def _describe(connection: LedgerConnection, topology: str, failures: list[str]) -> dict[str, Any]:
    from reliability.transaction.topology.databases import TopologyDatabases

    (row,) = rows_of(connection, "topology_details", topology=topology)
    with TopologyDatabases.of(connection, topology) as participants:
        databases = list(participants.others)
        return {
            **row,
            "databases": databases,
            "states": [
                state
                for database in ("", *databases)
                for state in _states_in(participants, topology, database, failures)
            ],
            "alterations": rows_of(connection, "alterations", topology=topology),
            "lacking": _lacking(connection, topology, failures),
        }


def _lacking(
    connection: LedgerConnection, topology: str, failures: list[str]
) -> list[dict[str, Any]]:
    """Read which values lack txids; if a database is unavailable, nobody can say."""
    from reliability.core.errors import ReliabilityError
    from reliability.transaction.inspect.lacking_values import how_to_fill, lacking_values

    try:
        found = lacking_values(connection, topology)
    except ReliabilityError as error:
        failures.append(f"{topology}: {error}")
        return []
    return [
        {
            "state": one.state,
            "value": one.value,
            "counts_from": one.counts_from,
            "fillable": format_txids(one.fillable),
            "unfillable": format_txids(one.unfillable),
            "next_step": how_to_fill(topology, one.fillable, one.unfillable),
        }
        for one in found
    ]


def _states_in(
    participants: Any, topology: str, database: str, failures: list[str]
) -> Iterator[dict[str, Any]]:
    """Read the states of one database; if it is unavailable, the others are still shown."""
    from reliability.core.errors import ReliabilityError
    from reliability.core.state import State
    from reliability.transaction.topology.databases import naming_database

    try:
        with naming_database(database):
            rows = rows_of(participants.connection_of(database), "state_details", topology=topology)
    except ReliabilityError as error:
        failures.append(f"{topology}: {error}")
        return
    for row in rows:
        yield _describe_state(State.from_definition(row["definition"]), row, database)


def _describe_state(state: State, row: Row, database: str) -> dict[str, Any]:
    return {
        "state": state.name,
        "kind": state.kind.value,
        "database": database,
        "table": ".".join(state.target),
        "key": dict(state.key),
        "values": list(state.values),
        "is_append": state.is_append,
        "commit_number": row["commit_number"],
        "keep_txids": row["keep_txids"],
        "keep_age": row["keep_age"],
        "compacted_through": row["compacted_through"],
    }


def _print_topology(one: dict[str, Any]) -> None:
    end = one["curr_txid"] + one["max_spout_pending"]
    print_line(
        f"{one['topology']}: module {one['module'] or 'unknown'}, {one['spout_kind'].lower()} "
        f"spout, window [{one['curr_txid']}, {end}), {one['max_replay_pending']} replays at once, "
        f"c={one['commit_number']}"
    )
    print_table(
        "",
        dict.fromkeys(("state", "kind", "table", "key", "values", "database"), "left"),
        [
            (
                state["state"],
                state["kind"].lower(),
                state["table"],
                ", ".join(state["key"]) or ("none" if state["is_append"] else "one row"),
                ", ".join(state["values"]),
                state["database"] or "the ledger's",
            )
            for state in one["states"]
        ],
    )
    print_entries(
        "alterations (UTC)",
        [
            (
                f"{format_value(row['altered_at'])}  {row['state']}, before txid "
                f"{row['counts_from']}: {row['reason']}",
                *row["differences"],
            )
            for row in one["alterations"]
        ],
    )
    print_entries(
        "values that lack txids",
        [
            (
                f"{row['state']}.{row['value']} counts from txid {row['counts_from']}",
                row["next_step"],
            )
            for row in one["lacking"]
        ],
    )
