"""Commands for the kept contributions: explain a row, verify the tables, compact old ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated, Any

import typer

from reliability.cli import options
from reliability.cli.app import FAILED, FOUND, ledger, of_each, verb, warn
from reliability.cli.bars import states_followed
from reliability.cli.output import format_differences, format_value, plain
from reliability.cli.parts import Line, Part, Table, answer, right
from reliability.core.column import is_hidden
from reliability.core.difference import format_cell, format_row
from reliability.core.errors import ReliabilityError
from reliability.core.texts import signed
from reliability.deployment.settings import person
from reliability.ledger.connection import LedgerConnection
from reliability.states.headers import RESTORE_ROWS
from reliability.transaction.correct.repair import Repaired, repair
from reliability.transaction.inspect.explain import MAX_ROWS, Explanation
from reliability.transaction.inspect.explain import explain as explain_row
from reliability.transaction.inspect.verify import Verified, record_verified
from reliability.transaction.inspect.verify import verify as verify_tables
from reliability.transaction.maintain.compaction import Compacted
from reliability.transaction.maintain.compaction import compact as compact_states

_KEY = re.compile(r'"((?:[^"]|"")+)"(?:=(.*))?', re.DOTALL)

# --- explain -------------------------------------------------------------------------------------


@verb(
    "reliability explain shop revenue_by_day day=2026-01-02",
    "reliability explain shop exact k=1 word --json",
    "reliability explain shop revenue_by_day day=2026-01-02 --interval 2026-01",
)
def explain(
    topology: options.Topology,
    state: Annotated[str, typer.Argument(metavar="STATE")],
    contents: options.Contents,
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="COLUMN=VALUE", help="The row's key; COLUMN alone means NULL."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a row of a state's table, what each txid contributed to it, and for which run.

    With --interval or --file, only what the txids of that interval or file contributed.
    """
    with ledger(topology) as connection:
        wanted = contents.select(connection, topology).intervals if contents else None
        explanation = explain_row(connection, topology, state, read_key(key or []), txids=wanted)
    where = "it" if explanation.row is not None else "such a row, and the table has none"
    empty = f"no txid has contributed to {where}"
    if wanted is not None:
        empty = "none of these txids has contributed to it, unless that was folded: see `compact`"
    answer(explanation, _explanation(explanation, empty), as_json=as_json)


def read_key(parts: Sequence[str]) -> dict[str, str | None]:
    """Read a row's key; a column without a value is NULL, one with = in its name is in quotes.

    >>> read_key(["k=1", "word"]), read_key(["word=", '"a=b"=c'])
    ({'k': '1', 'word': None}, {'word': '', 'a=b': 'c'})
    """
    key: dict[str, str | None] = {}
    for part in parts:
        if in_quotes := _KEY.fullmatch(part):
            name, value = in_quotes[1].replace('""', '"'), in_quotes[2]
        else:
            name, equals, text = part.partition("=")
            value = text if equals else None
        if name in key:
            raise typer.BadParameter(f"the column {name} is there twice")
        key[name] = value
    return key


_PRESENCE = {"compacted": "this txid and older ones", "adopted": "adopted"}


def _explanation(explanation: Explanation, empty: str) -> Iterator[Part]:
    if explanation.row is not None:
        yield Line(f"now: {format_row(explanation.row)}")
    names = (name for contribution in explanation.contributions for name in contribution.values)
    columns = list(dict.fromkeys(name for name in names if not is_hidden(name)))
    yield Table(
        ("attempt", "interval", *right(columns), "committed (UTC)", "run", ""),
        [
            (
                contribution.attempt,
                contribution.interval,
                *(format_cell(contribution.values[name]) for name in columns),
                contribution.committed_at,
                contribution.run_id,
                _PRESENCE.get(contribution.presence, ""),
            )
            for contribution in explanation.contributions
        ],
        empty=empty,
        hide_empty=True,
        least=["run", "committed (UTC)"],
    )
    if explanation.row is None and len(explanation.contributions) == MAX_ROWS:
        yield Line(f"the oldest {MAX_ROWS:,} rows; --interval or --file shows others")


# --- verify --------------------------------------------------------------------------------------


@verb(
    "reliability verify",
    "reliability verify shop --json",
    "reliability verify shop --repair",
    "reliability verify shop --repair --yes --reason 'an UPDATE by hand in the wrong database'",
)
def verify(
    diff: options.Diff,
    topology: options.OneOrAll = "",
    repair: Annotated[
        bool, typer.Option("--repair", help="Show what a repair would change; with --yes, do it.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why it is repaired; recorded in the ledger.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Carry the repair out.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Compute every row from the kept contributions, and compare it with its table.

    Exits with 3 if a table differs from its contributions. Blocks no other session. With --repair,
    one topology's tables are brought back to their contributions: changed, missing and surplus
    rows. Without --yes it only shows what would change.
    """
    if repair:
        return _repair(topology, reason, diff, yes=yes, as_json=as_json)
    if yes or reason or diff:
        raise typer.BadParameter("--yes, --reason and --diff need --repair")
    with ledger() as connection:

        def verify_one(name: str) -> list[tuple[str, Verified]]:
            verified = verify_tables(connection, name, progress)
            _record(connection, name, verified)
            return [(name, state) for state in verified]

        failed: list[str] = []
        with states_followed("verify") as progress:
            results = [*chain.from_iterable(of_each(connection, topology, verify_one, failed))]
    is_wrong = any(state.is_exact is False for _, state in results)  # None: cannot be determined
    code = FAILED if failed else FOUND if is_wrong else 0
    answer(_by_topology(results), _verified(results), as_json=as_json, code=code)


def _repair(topology: str, reason: str, diff: options.Diff, *, yes: bool, as_json: bool) -> None:
    if not topology:
        raise typer.BadParameter("--repair needs a TOPOLOGY")
    if yes and not reason:
        raise typer.BadParameter("--repair --yes needs a --reason")
    if yes and diff:
        raise typer.BadParameter("rows are compared in a dry run: --diff cannot be used with --yes")
    with ledger(topology) as connection, diff.opened(connection, topology, dry_run=True) as rows:
        observer = rows.observe if rows else None
        # before the repair, so that no error hides what was done
        others = verify_tables(connection, topology, not_repaired_only=True)
        done = repair(
            connection, topology, signed(reason, person()), dry_run=not yes, observer=observer
        )
        if yes:
            _record(connection, topology, others)
    left = [one for one in others if one.is_exact is False]
    answer(
        {"topology": topology, "is_dry_run": not yes, **plain(done), "not_repaired": left},
        [*_repaired(topology, done, yes=yes), *_wrong_rows([(topology, one) for one in left])],
        as_json=as_json,
        code=FOUND if left or (done.differences and not yes) else 0,
    )


def _record(connection: LedgerConnection, topology: str, verified: list[Verified]) -> None:
    """Let alerts know; who may only read the ledger verifies all the same."""
    try:
        record_verified(connection, topology, verified)
    except ReliabilityError as error:
        warn(f"the result was not recorded for alerts: {error.what}")


def _repaired(topology: str, done: Repaired, *, yes: bool) -> Iterator[str]:
    if not done.differences:
        yield f"{topology}: no row differs from its contributions"
        return
    if yes:
        yield f"{topology} was repaired as c={done.commit_number}. What changed:"
    else:
        yield f"A repair of {topology} would change:"
    yield from format_differences(done.differences)
    if not yes:
        yield "To do it:"
        yield f"  reliability verify {topology} --repair --yes --reason '…'"


def _by_topology(results: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [{"topology": name, **plain(result)} for name, result in results]


def _verified(results: Sequence[tuple[str, Verified]]) -> Iterator[Part]:
    counts = ("rows", "missing", "surplus", "different")
    yield Table(
        ("topology", "state", "database", *right(counts), "exact"),
        [
            (
                topology,
                state.state,
                state.database or "the ledger's",
                *(getattr(state, name) for name in counts),
                _format_exact(state),
            )
            for topology, state in results
        ],
        coloured=("missing", "surplus", "different", "exact"),
        least=("database", "rows", "different", "surplus", "missing"),
    )
    yield from _wrong_rows(results)
    wrong = {name for name, state in results if state.is_exact is False and state.compares_values}
    for topology in sorted(wrong):
        yield Line(f"What a repair would change: reliability verify {topology} --repair")


def _wrong_rows(results: Sequence[tuple[str, Verified]]) -> Iterator[Line]:
    for topology, state in results:
        for line in (*state.headers, *(row.describe() for row in state.examples)):
            yield Line(f"{topology} {state.state}: {line}")
    if any(state.is_exact is False and not state.compares_values for _, state in results):
        yield Line(f"Appended rows are not repaired: {RESTORE_ROWS}")


def _format_exact(state: Verified) -> str:
    if state.is_exact is None:
        return "nothing to compare it with"
    if state.is_exact and not state.compares_values:
        return "yes, in number"
    return format_value(state.is_exact)


# --- compact -------------------------------------------------------------------------------------


@verb("reliability compact", "reliability compact shop")
def compact(topology: options.OneOrAll = "", as_json: options.AsJson = False) -> None:
    """Fold contributions beyond each state's horizon to one row a key, as every sweep does.

    No row of a table changes. Folded contributions can no longer be replaced or rolled back.
    """
    failed: list[str] = []
    with ledger() as connection:

        def compact_one(name: str) -> list[tuple[str, Compacted]]:
            compacted = compact_states(connection, name, progress=progress)
            return [(name, state) for state in compacted]

        with states_followed("compact") as progress:
            results = [*chain.from_iterable(of_each(connection, topology, compact_one, failed))]
    counts = right(("compacted through", "txids now", "rows before", "after"))
    page = Table(
        ("topology", "state", *counts, "held up by"),
        [
            (
                name,
                state.state,
                str(state.through),
                state.txids,
                state.rows_before,
                state.rows_after,
                f"txid {state.held_up_by}" if state.held_up_by is not None else "",
            )
            for name, state in results
        ],
        empty="nothing was compacted"
        if failed
        else "no state has a horizon: all contributions are kept",
    )
    answer(_by_topology(results), [page], as_json=as_json, code=FAILED if failed else 0)
