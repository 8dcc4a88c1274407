"""Commands for the kept contributions: explain a row, verify the tables, compact old ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli.app import (
    FOUND,
    AsJson,
    OneOrAll,
    TopologyName,
    check_known,
    ledger,
    names,
    verb,
    warn,
)
from reliability.cli.bars import states_followed
from reliability.cli.different_rows import DiffFile, check_target, rows_into
from reliability.cli.output import (
    format_differences,
    format_value,
    plain,
    print_json,
    print_line,
    print_table,
)
from reliability.cli.select import FileOption, IntervalOption, check_selection, select_txids
from reliability.cli.terminal import say
from reliability.core.difference import format_cell, format_row
from reliability.core.errors import ReliabilityError

if TYPE_CHECKING:
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.correct.repair import Repaired
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
        print_line(f"now: {format_row(found.row)}")
    columns = list(
        dict.fromkeys(
            column
            for one in found.contributions
            for column in one.values
            if not column.startswith("_")
        )
    )
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
                *(format_cell(one.values[name]) for name in columns),
                one.committed_at,
                one.run_id,
                "this txid and older ones" if one.presence == "compacted" else "",
            )
            for one in found.contributions
        ],
        empty="no txid has contributed to it",
        hide_empty=True,
        least=["run", "committed (UTC)"],
    )


# --- verify --------------------------------------------------------------------------------------


@verb(
    "reliability verify",
    "reliability verify shop --json",
    "reliability verify shop --repair",
    "reliability verify shop --repair --yes --reason 'an UPDATE by hand in the wrong database'",
)
def verify(
    topology: OneOrAll = "",
    repair: Annotated[
        bool, typer.Option("--repair", help="Show what a repair would change; with --yes, do it.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why it is repaired; recorded in the ledger.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Carry the repair out.")] = False,
    diff: DiffFile = None,
    as_json: AsJson = False,
) -> None:
    """Compute every row from the kept contributions, and compare it with its table.

    Exits with 3 if a table differs from its contributions. Blocks no other session. With --repair,
    one topology's tables are brought back to their contributions: changed, missing and surplus
    rows. Without --yes it only shows what would change.
    """
    from reliability.transaction.inspect.verify import verify

    if repair:
        return _repair(topology, reason, diff, yes=yes, as_json=as_json)
    if yes or reason or diff:
        raise typer.BadParameter("--yes, --reason and --diff need --repair")
    with ledger() as connection:
        found: list[tuple[str, Verified]] = []
        with states_followed("verify") as progress:
            for name in names(connection, topology):
                verified = verify(connection, name, progress)
                _record(connection, name, verified)
                found += [(name, one) for one in verified]
    if as_json:
        print_json([{"topology": name, **plain(one)} for name, one in found])
    else:
        _print_verified(found)
    if any(one.is_exact is False for _, one in found):  # None: cannot be determined
        raise typer.Exit(FOUND)


def _repair(topology: str, reason: str, diff: Path | None, *, yes: bool, as_json: bool) -> None:
    from reliability.transaction.correct.repair import repair

    if not topology:
        raise typer.BadParameter("--repair needs a TOPOLOGY")
    if yes and not reason:
        raise typer.BadParameter("--repair --yes needs a --reason")
    if yes and diff:
        raise typer.BadParameter("rows are compared in a dry run: --diff cannot be used with --yes")
    check_target(diff, "")
    with ledger() as connection, ExitStack() as closing:
        check_known(connection, topology)
        observer = None
        if diff:
            observer = closing.enter_context(rows_into(connection, topology, diff, "")).observe
        done = repair(connection, topology, reason, dry_run=not yes, observer=observer)
        if yes:
            _record(connection, topology, None)
    if as_json:
        print_json({"topology": topology, "is_dry_run": not yes, **plain(done)})
    else:
        _print_repaired(topology, done, yes=yes)
    if done.differences and not yes:
        raise typer.Exit(FOUND)


def _record(connection: LedgerConnection, topology: str, found: list[Verified] | None) -> None:
    """Let alerts know; who may only read the ledger verifies all the same."""
    from reliability.transaction.inspect.verify_record import record_repaired, record_verified

    try:
        if found is None:
            record_repaired(connection, topology)
        else:
            record_verified(connection, topology, found)
    except ReliabilityError as error:
        warn(f"the result was not recorded for alerts: {error.what}")


def _print_repaired(topology: str, done: Repaired, *, yes: bool) -> None:
    if not done.differences:
        say(f"{topology}: no row differs from its contributions")
        return
    if yes:
        say(f"{topology} was repaired as c={done.commit_number}. What changed:")
    else:
        say(f"A repair of {topology} would change:")
    for line in format_differences(done.differences):
        say(line)
    if not yes:
        say("To do it:")
        say(f"  reliability verify {topology} --repair --yes --reason '…'")


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
                _format_exact(one),
            )
            for topology, one in found
        ],
        coloured=("missing", "surplus", "different", "exact"),
        least=("database", "rows", "different", "surplus", "missing"),
    )
    for topology, one in found:
        for line in _what_is_wrong(one):
            print_line(f"{topology} {one.state}: {line}")
    for topology in sorted({topology for topology, one in found if one.is_exact is False}):
        print_line(f"What a repair would change: reliability verify {topology} --repair")


def _format_exact(one: Verified) -> str:
    if one.is_exact is None:
        return "nothing to compare it with"
    if one.is_exact and not one.compares_values:
        return "yes, in number"
    return format_value(one.is_exact)


def _what_is_wrong(one: Verified) -> Iterator[str]:
    yield from one.headers
    yield from (row.describe() for row in one.examples)


# --- compact -------------------------------------------------------------------------------------


@verb("reliability compact", "reliability compact shop")
def compact(topology: OneOrAll = "", as_json: AsJson = False) -> None:
    """Fold contributions beyond each state's horizon to one row a key, as every sweep does.

    No row of a table changes. Folded contributions can no longer be replaced or rolled back.
    """
    from reliability.transaction.maintain.compaction import compact

    with ledger() as connection:
        every = names(connection, topology)
        with states_followed("compact") as progress:
            found = [
                (name, one)
                for name in every
                for one in compact(connection, name, progress=progress)
            ]
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
