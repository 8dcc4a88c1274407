"""Commands that show the position of topologies: status, topologies."""

from __future__ import annotations

import shlex
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
from reliability.core.txids import format_ranges, format_txids, with_verb

if TYPE_CHECKING:
    from reliability.core.state import State
    from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row


@verb("reliability status", "reliability status --json", "reliability status --watch 5")
def status(watch: Watch = None, as_json: AsJson = False) -> None:
    """Show the position of every topology, and what needs a person."""
    if watch is not None:
        return follow(lambda: _page(_read()), watch, as_json=as_json)
    standings = _read()
    if as_json:
        return print_json(standings)
    show(_page(standings))


def _read() -> list[dict[str, Any]]:
    with ledger() as connection, connection.transaction() as tx:
        return [standing_of(tx, row) for row in tx.all("topology_status", topology=None)]


def _page(standings: Sequence[dict[str, Any]]) -> list[Part]:
    """Return the table of topologies, and below it what needs a person."""
    columns = ("emitted", "committed", "processing", "processed")
    table = table_of(
        "",
        {"topology": "left", **dict.fromkeys(columns, "right"), "last change": "right"},
        [
            (one["topology"], *(one[name] for name in columns), _moment(one["last_change_at"]))
            for one in standings
        ],
        coloured=columns,
    )
    lines = [line for one in standings for line in for_a_person(one)]
    return [table, SPACE, *lines] if lines else [table]


def standing_of(tx: DatabaseTransaction, row: Row) -> dict[str, Any]:
    """Return where a topology stands, and what of it needs a person."""
    from reliability.ledger.records import blocked_of
    from reliability.transaction.inspect.intervals import intervals_without_commit

    topology = row["topology"]
    intervals = intervals_without_commit(tx, topology)
    blocked = blocked_of(tx.first("blocked_txid", topology=topology, below=row["next_txid"]))
    return {
        "topology": topology,
        "emitted": row["next_txid"] - 1,
        "committed": row["curr_txid"] - 1,
        "processing": row["processing"],
        "processed": row["processed"],
        "commit_number": row["commit_number"],
        "checkpoint": row["checkpoint"],
        "last_change_at": row["last_change_at"],
        "paused": row["paused_reason"],
        "blocked": blocked,
        "held": [_with_txids(found) for found in tx.all("held_txids", topology=topology)],
        "parked": [_with_txids(found) for found in tx.all("parked_txids", topology=topology)],
        "without_commit": intervals.counts,
        "expected_unknown": intervals.unknown,
        "skipped": [_with_txids(found) for found in tx.all("skipped_txids", topology=topology)],
        "excluded": tx.all("excluded_items", topology=topology),
        "to_replay": [_with_txids(found) for found in tx.all("items_to_replay", topology=topology)],
    }


def _with_txids(row: Row) -> dict[str, Any]:
    return {**row, "txids": format_ranges(row["txids"])}


def _moment(moment: Any) -> str:
    return f"{format_value(moment)[5:16]}"


def for_a_person(one: dict[str, Any]) -> Iterator[Line]:
    """Yield what does not continue by itself, or not at once."""
    topology = one["topology"]
    if one["paused"]:
        text = f" is paused: {one['paused']} (until `reliability resume {topology}`)"
        yield Line(text, ["paused"], topology)
    for text, *marks in _for_a_person(one, topology):
        yield Line(f": {text}", marks, topology)


def _for_a_person(one: dict[str, Any], topology: str) -> Iterator[tuple[str, ...]]:
    """Yield sentences, each with the words in it that say what is the matter."""
    from reliability.transaction.inspect.intervals import format_counts

    if one["checkpoint"] != "COMMITTED":
        yield (
            f"a checkpoint is in phase {one['checkpoint']}; the next task or sweep "
            "finishes it, or says why it cannot",
        )
    for held in one["held"]:
        until = f"until `reliability release {topology}`"
        yield f"{with_verb(held['txids'])} held, {until}: {held['reason']}", "held"
    blocked = one["blocked"]
    if blocked is not None and not one["held"]:
        yield blocked.advice(topology), "blocked"
    if lacking := format_counts(one["without_commit"]):
        yield f"{lacking}; `reliability lag {topology}` lists them", *one["without_commit"]
    if one["expected_unknown"]:
        yield f"expected intervals unknown: {one['expected_unknown']}", "unknown"
    for parked in one["parked"]:
        again = f"reliability replay {topology} {parked['txids']}"
        what = with_verb(parked["txids"])
        how = "empty, as it was skipped," if parked["is_unskipped"] else "parked,"
        yield f"{what} {how} until `{again}`: {parked['reason']}", "parked", "skipped"
    for skipped in one["skipped"]:
        what, back = with_verb(skipped["txids"]), f"reliability unskip {topology} TXID --reason '…'"
        yield f"{what} skipped for good, until `{back}`: {skipped['reason']}", "skipped"
    for excluded in one["excluded"]:
        back = f"reliability include {topology} {shlex.quote(excluded['item'])} --reason '…'"
        yield f"{excluded['item']} excluded, until `{back}`: {excluded['reason']}", "excluded"
    for found in one["to_replay"]:
        what = "is excluded and still counted" if found["is_excluded"] else "is not counted yet"
        again = f"reliability replay {topology} {found['txids']}"
        yield f"{found['item']} {what}: `{again}`", "excluded"


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
