"""Commands for the kept contributions: explain a row, verify the tables, compact old ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import FOUND, AsJson, OneOrAll, TopologyName, ledger, names, verb
from reliability.cli.output import followed, format_value, plain, print_json, print_table
from reliability.cli.select import FileOption, IntervalOption, check_selection, select_txids

if TYPE_CHECKING:
    from reliability.transaction.inspect.explain import Explanation
    from reliability.transaction.inspect.verify import Verified


# --- explain -------------------------------------------------------------------------------------


@verb(
    "reliability explain shop revenue_by_day day=2026-01-02",
    "reliability explain shop exact k=1 word --json",
    "reliability explain shop revenue_by_day day=2026-01-02 --interval 2026-01",
)
def explain(
    topology: TopologyName,
    state: Annotated[str, typer.Argument(metavar="STATE")],
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="COLUMN=VALUE", help="The row's key; COLUMN alone means NULL."),
    ] = None,
    interval: IntervalOption = "",
    file: FileOption = "",
    as_json: AsJson = False,
) -> None:
    """Show a row of a state's table, what each txid contributed to it, and for which run.

    With --interval or --file, only what the txids of that interval or file contributed.
    """
    from reliability.transaction.inspect.explain import explain

    check_selection("", interval, file, optional=True)
    with ledger() as connection:
        found = explain(connection, topology, state, read_key(key or []))
        if interval or file:
            own = select_txids(connection, topology, "", interval, file)
            own.show()
            found = replace(
                found,
                contributions=tuple(
                    one for one in found.contributions if one.attempt.txid in own.intervals
                ),
            )
    if as_json:
        print_json(found)
    else:
        _print_explanation(found)


def read_key(parts: Sequence[str]) -> dict[str, str | None]:
    """Read a row's key; a column without a value is NULL.

    >>> read_key(["k=1", "word"]), read_key(["word="])
    ({'k': '1', 'word': None}, {'word': ''})
    """
    pairs = (part.partition("=") for part in parts)
    return {name: value if equals else None for name, equals, value in pairs}


def _print_explanation(found: Explanation) -> None:
    if found.row is not None:
        typer.echo(f"now: {_format_values(found.row)}")
    columns = list(dict.fromkeys(c for one in found.contributions for c in _visible(one.values)))
    print_table(
        "",
        {
            "attempt": "left",
            "interval": "left",
            **dict.fromkeys(columns, "right"),
            "committed (UTC)": "left",
            "run": "left",
            "": "left",
        },
        [
            (
                one.attempt,
                one.interval,
                *(_value(one.values[name]) for name in columns),
                one.committed_at,
                one.run_id,
                "this txid and older ones" if one.presence == "compacted" else "",
            )
            for one in found.contributions
        ],
        empty="no txid has contributed to it",
        hide_empty=True,
    )


def _visible(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not name.startswith("_")}


def _format_values(values: Mapping[str, Any] | None) -> str:
    if values is None:
        return "no row"
    return ", ".join(f"{name} {_value(value)}" for name, value in _visible(values).items())


def _value(value: Any) -> str:
    return "NULL" if value is None else str(value)


# --- verify --------------------------------------------------------------------------------------


@verb("reliability verify", "reliability verify shop --json")
def verify(topology: OneOrAll = "", as_json: AsJson = False) -> None:
    """Compute every row from the kept contributions, and compare it with its table.

    Exits with 3 if a table differs from its contributions. Blocks no other session.
    """
    from reliability.transaction.inspect.verify import verify

    with ledger() as connection:
        every = followed(names(connection, topology), "verify")
        found = [(name, one) for name in every for one in verify(connection, name)]
    if as_json:
        print_json([{"topology": name, **plain(one)} for name, one in found])
    else:
        _print_verified(found)
    if any(one.is_exact is False for _, one in found):  # None: cannot be determined
        raise typer.Exit(FOUND)


def _print_verified(found: Sequence[tuple[str, Verified]]) -> None:
    counts = ("rows", "missing", "surplus", "different")
    print_table(
        "",
        {
            "topology": "left",
            "state": "left",
            "database": "left",
            **dict.fromkeys(counts, "right"),
            "exact": "left",
        },
        [
            (
                topology,
                one.state,
                one.database or "the ledger's",
                *(getattr(one, name) for name in counts),
                "nothing to compare it with"
                if one.is_exact is None
                else format_value(one.is_exact),
            )
            for topology, one in found
        ],
    )
    for topology, one in found:
        for line in _what_is_wrong(one):
            typer.echo(f"{topology} {one.state}: {line}")


def _what_is_wrong(one: Verified) -> Iterator[str]:
    yield from one.headers
    for row in one.examples:
        key = ", ".join(f"{name}={_value(value)}" for name, value in row.key.items()) or "its row"
        yield f"{key}: expected {_format_values(row.expected)}; found {_format_values(row.found)}"


# --- compact -------------------------------------------------------------------------------------


@verb("reliability compact", "reliability compact shop")
def compact(topology: OneOrAll = "", as_json: AsJson = False) -> None:
    """Fold contributions beyond each state's horizon to one row a key, as every sweep does.

    No row of a table changes. Folded contributions can no longer be replaced or rolled back.
    """
    from reliability.transaction.maintain.compaction import compact

    with ledger() as connection:
        every = followed(names(connection, topology), "compact")
        found = [(name, one) for name in every for one in compact(connection, name)]
    if as_json:
        return print_json([{"topology": name, **plain(one)} for name, one in found])
    print_table(
        "",
        {
            "topology": "left",
            "state": "left",
            "compacted through": "right",
            "txids now": "right",
            "rows before": "right",
            "after": "right",
            "held up by": "left",
        },
        [
            (
                name,
                one.state,
                str(one.through),
                one.txids,
                one.rows_before,
                one.rows_after,
                f"txid {one.held_up_by}" if one.held_up_by is not None else "",
            )
            for name, one in found
        ],
        empty="no state has a horizon: all contributions are kept",
    )
