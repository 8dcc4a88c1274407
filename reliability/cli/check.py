"""`reliability check`: run the process function once on a sample, before anything is emitted."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import (
    FOUND,
    AsJson,
    Module,
    NotPossible,
    TopologyName,
    code_folders,
    ledger,
    topology_from_code,
    verb,
)
from reliability.cli.output import format_value, print_json
from reliability.cli.terminal import hanging, say
from reliability.core.errors import (
    DataIntervalMissing,
    LedgerNotMigrated,
    LedgerRefusedLogin,
    LedgerUnavailable,
    NothingToEmit,
    ReliabilityError,
    TopologyUnknown,
)
from reliability.core.texts import printable

if TYPE_CHECKING:
    from reliability.core.definitions import Topology
    from reliability.core.spout import Interval
    from reliability.spark.check import Checked, CheckedState
    from reliability.spouts.sample import Sample

WIDTH = 80
_NO_LEDGER = (LedgerNotMigrated, LedgerRefusedLogin, LedgerUnavailable, TopologyUnknown)


@verb(
    "reliability check shop --module spark_apps.shop",
    "reliability check shop data/2013-03.parquet",
    "reliability check shop --interval 2013-03 --rows 100000",
)
def check(
    topology: TopologyName,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files or globs; by default the spout's first batch."),
    ] = None,
    module: Module = "",
    interval: Annotated[
        str, typer.Option(help="Take the first batch of this interval: 2013-03, 2013-03-01.")
    ] = "",
    rows: Annotated[int, typer.Option(min=1, help="The most rows of a sample.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Run the process function once on a sample, in this process, and write nothing.

    Prints the columns of the source, what each state would get, and the errors that the real run
    would raise. It needs no ledger if --module is given.
    """
    read = _interval(interval)
    loaded = _load(topology, module)
    try:
        checked = _check_all(loaded, read, files or [], rows)
    except ImportError as error:
        raise NotPossible(f"{error}. What to do: install pyspark on this host.") from error
    except ChildProcessError as error:
        raise NotPossible(str(error)) from error
    if as_json:
        print_json({"topology": topology, "samples": [_plain(one) for one in checked]})
    else:
        _print_all(checked)
    if any(one.all_errors() for one in checked):
        raise typer.Exit(FOUND)


def _interval(text: str) -> Interval | None:
    from reliability.core.spout import Interval

    try:
        return Interval.parse(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(f"--interval: {error}") from error


def _load(topology: str, module: str) -> Topology:
    if not module:
        try:
            with ledger() as connection:
                return topology_from_code(connection, topology)
        except _NO_LEDGER as error:
            raise NotPossible(
                f"the module of {topology} is not known: {error.what}. What to do: give it with "
                "--module."
            ) from error
    return topology_from_code(None, topology, module)


def _check_all(
    topology: Topology, interval: Interval | None, files: Sequence[str], rows: int
) -> list[Checked]:
    from reliability.spark.check import Checked, check_sample, local_spark

    found = _samples(topology, interval, files, rows)
    if len(files) > 1 and any(isinstance(one, Checked) for one in found):
        # one file that is refused must not hide what is wrong with the others
        alone = [one for file in files for one in _samples(topology, interval, [file], rows)]
        found = alone if any(isinstance(one, Checked) for one in alone) else found
    refused = [one for one in found if isinstance(one, Checked)]
    if len(refused) == len(found):
        return refused
    with local_spark(code_folders()) as spark:
        return [
            one if isinstance(one, Checked) else check_sample(spark, topology, one) for one in found
        ]


def _samples(
    topology: Topology, interval: Interval | None, files: Sequence[str], rows: int
) -> list[Sample | Checked]:
    """Return the samples to check, or why there is none."""
    from reliability.spark.check import Checked
    from reliability.spouts.sample import take_samples

    try:
        return [*take_samples(topology.spout, interval, files, rows)]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except (DataIntervalMissing, NothingToEmit):  # there is nothing to check
        raise
    except ReliabilityError as error:
        error.fill_in(topology=topology.name)
        return [Checked(places=list(files), of=0, errors=[error])]


# --- for a program -------------------------------------------------------------------------------


def _plain(checked: Checked) -> dict[str, Any]:
    return {
        "items": checked.places,
        "rows": checked.rows,
        "of": checked.of,
        "columns": dict(checked.source),
        "states": [_plain_state(state) for state in checked.states],
        "errors": [_plain_error(error) for error in checked.all_errors()],
    }


def _plain_state(state: CheckedState) -> dict[str, Any]:
    return {
        "state": state.name,
        "frame": dict(state.frame),
        "columns": [
            {"column": c.name, "spark": c.spark, "postgres": c.postgres, "key": c.is_key,
             "fits": c.fits}
            for c in state.columns
        ],
        "arrived": state.arrived,
        "set_aside": [
            {"kind": aside.kind.value, "reason": aside.reason, "count": aside.fold.count}
            for aside in state.set_aside
        ],
        "rows": state.rows,
        "null_keys": state.null_keys,
        "example": state.example or None,
        "preview": state.preview,
    }  # fmt: skip


def _plain_error(error: ReliabilityError) -> dict[str, str]:
    return {"code": error.code, "what": error.what, "todo": error.remedy}


# --- for a person --------------------------------------------------------------------------------


def _print_all(checked: Sequence[Checked]) -> None:
    for one in checked:
        _print(one)
    errors = [error for one in checked for error in one.all_errors()]
    say(*(line for error in errors for line in hanging(str(error))) if errors else ["ok"])


def _print(checked: Checked) -> None:
    if not checked.source:
        return
    of = f"the first {checked.rows:,} of {checked.of:,} rows"
    say(", ".join(checked.places))
    say(of if checked.rows < checked.of else f"all of its {_rows(checked.rows)}")
    _table(("column", "in Spark"), checked.source)
    for state in checked.states:
        _print_state(state, checked.rows)


def _print_state(state: CheckedState, emitted: int) -> None:
    say(f"state {state.name}")
    if state.columns:
        _table(
            ("column", "in Spark", "in Postgres", ""),
            [
                (
                    f"{c.name} (key)" if c.is_key else c.name,
                    c.spark,
                    c.postgres,
                    "" if c.fits else "does not fit",
                )
                for c in state.columns
                if not c.name.startswith("_")
            ],
        )
    else:
        _table(("column of the frame", "in Spark"), state.frame)
    if state.arrived is not None:
        say(f"  {state.arrived:,} of {_rows(emitted)} arrive, as {_rows(state.rows)}")
    for aside in state.set_aside:
        verb = aside.kind.value.lower().replace("_", " ")
        say(f"  {_rows(abs(aside.fold.count))} {verb}: {aside.reason}"[:WIDTH])
    if state.example:
        say(f"  {state.example}"[:WIDTH])
    for name, count in state.null_keys.items():
        say(f"  {name} is NULL in {count:,} of them: NULL is a key like any other")
    if state.preview:
        _table(list(state.preview[0]), map(_or_null, state.preview))
        if state.rows > len(state.preview):
            say(f"  and {state.rows - len(state.preview):,} more")


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _or_null(row: Mapping[str, object]) -> list[object]:
    return ["NULL" if value is None else value for value in row.values()]


def _table(headings: Iterable[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table that is at most 80 columns wide; long values are cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 0, 0, 2), header_style="bold")
    for heading in headings:
        table.add_column(Text(printable(heading)), no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(printable(format_value(value))) for value in row))
    Console(file=sys.stdout, width=WIDTH, highlight=False).print(table)
