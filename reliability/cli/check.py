"""`reliability check`: run the process function once on a sample, before anything is emitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli import options
from reliability.cli.app import FOUND, code_folders, ledger, topology_from_code, verb
from reliability.cli.parts import Line, Part, Table, answer
from reliability.cli.terminal import hanging
from reliability.core.column import is_hidden
from reliability.core.definitions import Topology
from reliability.core.errors import (
    DataIntervalMissing,
    LedgerNotMigrated,
    LedgerRefusedLogin,
    LedgerUnavailable,
    NothingToEmit,
    NotPossible,
    ReliabilityError,
    SourceUnreadable,
    TopologyUnknown,
)
from reliability.core.spout import Interval
from reliability.spouts.sample import HasNoFiles, Sample, take_samples

if TYPE_CHECKING:
    from reliability.spark.check import Checked, CheckedState

_NO_LEDGER = (LedgerNotMigrated, LedgerRefusedLogin, LedgerUnavailable, TopologyUnknown)


@verb(
    "reliability check shop --module spark_apps.shop",
    "reliability check shop data/2013-03.parquet",
    "reliability check shop --interval 2013-03 --rows 100000",
)
def check(
    topology: options.Topology,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files or globs; by default the spout's first batch."),
    ] = None,
    module: options.Module = "",
    interval: Annotated[
        str, typer.Option(help="Take the first batch of this interval: 2013-03, 2013-03-01.")
    ] = "",
    rows: Annotated[int, typer.Option(min=1, help="The most rows of a sample.")] = 1000,
    as_json: options.AsJson = False,
) -> None:
    """Run the process function once on a sample, in this process, and write nothing.

    Prints the columns of the source, what each state would get, and the errors that the real run
    would raise. It needs no ledger if --module is given.
    """
    loaded = _load(topology, module)
    read = options.read_interval(interval, loaded.spout.time_zone)
    try:
        checked = _check_all(loaded, read, files or [], rows)
    except ImportError as error:
        lacks = (error.name or "pyspark").partition(".")[0]
        raise NotPossible(str(error), f"install {lacks} on this host.") from error
    code = FOUND if any(sample.errors for sample in checked) else 0
    document = {"topology": topology, "samples": checked}
    answer(document, _page(checked), as_json=as_json, code=code)


def _load(topology: str, module: str) -> Topology:
    if module:
        return topology_from_code(None, topology, module)
    try:
        with ledger() as connection:
            return topology_from_code(connection, topology)
    except _NO_LEDGER as error:
        raise NotPossible(
            f"the module of {topology} is not known: {error.what}", "give it with --module."
        ) from error


def _check_all(
    topology: Topology, interval: Interval | None, files: Sequence[str], rows: int
) -> list[Checked]:
    from reliability.spark.check import Checked, check_sample, local_spark

    samples = _samples(topology, interval, files, rows)
    if len(files) > 1 and any(isinstance(sample, Checked) for sample in samples):
        # one file that is refused must not hide what is wrong with the others
        alone = [sample for file in files for sample in _samples(topology, interval, [file], rows)]
        samples = alone if any(isinstance(sample, Checked) for sample in alone) else samples
    refused = [sample for sample in samples if isinstance(sample, Checked)]
    if len(refused) == len(samples):
        return refused
    with local_spark(code_folders()) as spark:
        return [
            sample if isinstance(sample, Checked) else check_sample(spark, topology, sample)
            for sample in samples
        ]


def _samples(
    topology: Topology, interval: Interval | None, files: Sequence[str], rows: int
) -> list[Sample | Checked]:
    """Return the samples to check, or why there is none."""
    from reliability.spark.check import Checked

    try:
        return [*take_samples(topology.spout, interval, files, rows)]
    except HasNoFiles as error:
        raise typer.BadParameter(str(error)) from error
    except (DataIntervalMissing, NothingToEmit, ImportError):  # there is nothing to check
        raise
    except ReliabilityError as error:
        refused = error
    except Exception as error:  # a user's spout may raise anything
        refused = SourceUnreadable(f"{type(error).__name__}: {error}")
    return [Checked(items=list(files), of=0, errors=[refused.about(topology=topology.name)])]


# --- for a person --------------------------------------------------------------------------------


def _page(samples: Sequence[Checked]) -> Iterator[Part | str]:
    for sample in samples:
        if sample.columns:
            of = f"the first {sample.rows:,} of {sample.of:,} rows"
            yield ", ".join(sample.items)
            yield of if sample.rows < sample.of else f"all of its {_rows(sample.rows)}"
            yield Table(("column", "in Spark"), sample.columns.items())
        for state in sample.states:
            yield from _state(state, sample.rows)
    errors = [line for sample in samples for error in sample.errors for line in hanging(str(error))]
    yield from errors or ["ok"]


def _state(state: CheckedState, emitted: int) -> Iterator[Part]:
    if state.columns:
        rows = [
            (
                f"{c.column} (key)" if c.is_key else c.column,
                c.spark,
                c.postgres,
                "" if c.fits else "does not fit",
            )
            for c in state.columns
            if not is_hidden(c.column)
        ]
        yield Table(("column", "in Spark", "in Postgres", ""), rows, title=f"state {state.state}")
    else:
        headings = ("column of the frame", "in Spark")
        yield Table(headings, state.frame.items(), title=f"state {state.state}")
    if state.arrived is not None:
        yield Line(f"  {state.arrived:,} of {_rows(emitted)} arrive, as {_rows(state.rows)}")
    for aside in state.set_aside:
        became = aside["kind"].lower().replace("_", " ")
        yield Line(f"  {_rows(abs(aside['count']))} {became}: {aside['reason']}", hang=4)
    for name, count in state.null_keys.items():
        yield Line(f"  {name} is NULL in {count:,} of them: NULL is a key like any other")
    if state.preview:
        preview = [
            ["NULL" if value is None else value for value in row.values()] for row in state.preview
        ]
        yield Table([*state.preview[0]], preview)
        if (more := state.rows - len(state.preview)) > 0:
            yield Line(f"  and {more:,} more")


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"
