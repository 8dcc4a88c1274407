"""Commands that show the position of topologies: status, topologies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import typer

from reliability.cli import options
from reliability.cli.app import FAILED, ledger, of_each, verb, warn
from reliability.cli.live import follow
from reliability.cli.output import format_value
from reliability.cli.parts import SPACE, Line, Part, Table, answer, entries, right
from reliability.core.errors import ReliabilityError
from reliability.core.names import name_of_table
from reliability.core.state import State
from reliability.ledger.connection import LedgerConnection, Row
from reliability.states.tables import CONTRIBUTION_SCHEMA
from reliability.transaction.inspect.overview import (
    Condition,
    ForAPerson,
    Overview,
    for_a_person,
    overviews,
)
from reliability.transaction.topology.alter import lacking_values
from reliability.transaction.topology.databases import TopologyDatabases


@verb("reliability status", "reliability status --json", "reliability status --watch 5")
def status(watch: options.Watch = None, as_json: options.AsJson = False) -> None:
    """Show the position of every topology, and what needs a person."""
    if watch is not None:
        return follow(lambda: _page(_read()), watch, as_json=as_json)
    found_topologies = _read()
    answer(found_topologies, _page(found_topologies), as_json=as_json)


def _read() -> list[Overview]:
    with ledger() as connection, connection.transaction() as tx:
        return overviews(tx)


def _page(found_topologies: Sequence[Overview]) -> list[Part]:
    """Return the table of topologies, and below it what needs a person."""
    columns = ("emitted", "committed", "processing", "processed")
    rows = [
        (
            topology.topology,
            *(getattr(topology, name) for name in columns),
            format_value(topology.last_change_at)[5:16],
        )
        for topology in found_topologies
    ]
    table = Table(("topology", *right(columns), ">last change"), rows, coloured=columns)
    lines = [
        line_of(topology.topology, note)
        for topology in found_topologies
        for note in for_a_person(topology)
    ]
    return [table, SPACE, *lines] if lines else [table]


def line_of(topology: str, note: ForAPerson) -> Line:
    """Return a note of a topology."""
    between = " is " if note.condition is Condition.PAUSED else ": "
    return Line(f"{between}{note.text}", note.marks, topology)


# --- topologies ----------------------------------------------------------------------------------


@verb("reliability topologies", "reliability topologies shop --json")
def topologies(topology: options.OneOrAll = "", as_json: options.AsJson = False) -> None:
    """Show the topologies: their code, window, states and databases."""
    failures: list[str] = []
    with ledger() as connection:
        found_topologies = of_each(
            connection, topology, lambda name: _describe(connection, name, failures)
        )
    page = chain.from_iterable(map(_describe_for_people, found_topologies))
    answer(found_topologies, page, as_json=as_json)
    for failure in failures:
        warn(failure)
    if failures:
        raise typer.Exit(FAILED)


def _describe(connection: LedgerConnection, topology: str, failures: list[str]) -> dict[str, Any]:
    """Read what there is of a topology; what is in a database that is unavailable is left out."""

    def or_nothing(read: Callable[[], list[Any]]) -> list[Any]:
        try:
            return read()
        except ReliabilityError as error:
            failures.append(f"{topology}: {error}")
            return []

    row = connection.one("topology_position", topology=topology)
    with TopologyDatabases.of(connection, topology) as participants:

        def states_in(database: str) -> list[Row]:
            return participants.connection_of(database).all("states", topology=topology)

        databases = list(participants.others)
        return {
            **row,
            "databases": databases,
            "states": [
                _describe_state(row, database)
                for database in ("", *databases)
                for row in or_nothing(partial(states_in, database))
            ],
            "alterations": connection.all("alterations", topology=topology),
            "erasures": connection.all("erasures", topology=topology),
            "lacking": or_nothing(partial(lacking_values, connection, topology)),
        }


def _describe_state(row: Row, database: str) -> dict[str, Any]:
    state = State.from_definition(row["definition"])
    return {
        "state": state.name,
        "kind": state.kind.value,
        "database": database,
        "table": name_of_table(*state.target),
        "contributions": name_of_table(CONTRIBUTION_SCHEMA, row["contribution_table"]),
        "key": dict(state.key),
        "values": list(state.values),
        "is_append": state.is_append,
        **{n: row[n] for n in ("commit_number", "keep_txids", "keep_age", "compacted_through")},
    }


def _describe_for_people(details: dict[str, Any]) -> Iterator[Part]:
    end = details["curr_txid"] + details["max_spout_pending"]
    yield Line(
        f"{details['topology']}: module {details['module'] or 'unknown'}, "
        f"{details['spout_kind'].lower()} spout, window [{details['curr_txid']}, {end}), "
        f"{details['max_replay_pending']} replays at once, c={details['commit_number']}"
    )
    rows = [
        (
            state["state"],
            state["kind"].lower(),
            state["table"],
            ", ".join(state["key"]) or ("none" if state["is_append"] else "one row"),
            ", ".join(state["values"]),
            state["database"] or "the ledger's",
            state["contributions"],
        )
        for state in details["states"]
    ]
    yield Table(("state", "kind", "table", "key", "values", "database", "contributions"), rows)
    yield from entries(
        "alterations (UTC)",
        [
            (
                f"{format_value(row['altered_at'])}  {row['state']}, before txid "
                f"{row['counts_from']}: {row['reason']}",
                *row["differences"],
            )
            for row in details["alterations"]
        ],
    )
    yield from entries(
        "erasures (UTC)",
        [
            (
                f"{format_value(row['erased_at'])}  {len(row['keys']):,} new keys, by "
                f"{row['erased_by']}: {row['reason']}",
                *(f"{key['column']} {key['hash'] or ''}".rstrip() for key in row["keys"]),
            )
            for row in details["erasures"]
        ],
    )
    yield from entries(
        "values that lack txids",
        [
            (f"{value.state}.{value.value} counts from txid {value.counts_from}", value.next_step)
            for value in details["lacking"]
        ],
    )
