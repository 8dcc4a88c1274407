"""Run a topology's process function once on a sample, and compare the result with its states.

Nothing is written, and no ledger is needed. The functions are those of the driver, so an error here
is the error that the attempt would end with. What only Postgres knows, such as a constraint that a
person added to a table, is not checked.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reliability.core.column import Generated, filled, places, quoted
from reliability.core.definitions import Topology
from reliability.core.errors import (
    NotPossible,
    ReliabilityError,
    SchemaMismatch,
    TextNotStorable,
    UnexpectedAnswer,
)
from reliability.core.fold import ACCOUNTING, OWN, Fold
from reliability.core.graph import Step
from reliability.core.set_aside import SetAside
from reliability.core.spout import BatchMeta
from reliability.core.state import State
from reliability.core.types import base_type, fits, read_as
from reliability.deployment.lazy import F
from reliability.spark.driver import as_error
from reliability.spark.driver_environment import OPTIONS, driver_environment, quick_options
from reliability.spark.frames.set_aside_rows import Noted, mark_of, mark_staged, on_the_way
from reliability.spark.frames.storable import is_unstorable, or_false
from reliability.spark.frames.unaccounted import check_arrived
from reliability.spark.frames.values import translate_value_errors
from reliability.spark.imports import prefer_installed_pyspark, two_releases
from reliability.spark.process import call_process, prepare
from reliability.spark.session import pin_zone, session_builder
from reliability.spark.stage.reduce import reduce_frame, staged_types, with_spark_types
from reliability.spark.supported import check_release
from reliability.states.kinds import stored_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from reliability.spouts.sample import Sample

PREVIEW_ROWS = 5
_SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_IS_UNKNOWN, _UNSTORABLE = f"{OWN}unknown_", f"{OWN}unstorable_"  # columns that mark others
_DATES = re.compile(r"^((?:array<)*)(?:date|timestamp|timestamp_ntz)(>*)$")
_UNKNOWN = "unknown"  # a mean that Postgres computes, and Spark cannot


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedColumn:
    """A column of a state: its type in the reduced frame and in Postgres.

    :ivar spark: of a mean, which Postgres computes, the type of the sum
    :ivar fits: every value of the Spark type fits
    """

    column: str
    spark: str
    postgres: str
    is_key: bool
    fits: bool


@dataclass(slots=True, kw_only=True)
class CheckedState:
    """What a state would get of the sample.

    :ivar frame: the columns of the frame that the process function returned, with their types
    :ivar arrived: how many rows of the sample reached the state; None if that is unknown
    :ivar set_aside: what was dropped, quarantined or fanned out on the way, by reason
    :ivar null_keys: key column -> how many rows have NULL there
    :ivar preview: the first rows, reduced by key
    """

    state: str
    frame: dict[str, str]
    columns: list[CheckedColumn] = field(default_factory=list)
    arrived: int | None = None
    rows: int = 0
    set_aside: list[dict[str, Any]] = field(default_factory=list)
    null_keys: dict[str, int] = field(default_factory=dict)
    preview: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Checked:
    """The check of one sample.

    :ivar columns: of the source, with their types
    :ivar errors: every error that the real run would raise
    """

    items: list[str]
    of: int
    rows: int = 0
    columns: dict[str, str] = field(default_factory=dict)
    states: list[CheckedState] = field(default_factory=list)
    errors: list[ReliabilityError] = field(default_factory=list)


# --- the session ---------------------------------------------------------------------------------


@contextmanager
def local_spark(code: Sequence[str]) -> Iterator[SparkSession]:
    """Start Spark in this process; its log goes to a file that is kept only if it does not start.

    A session that is already there is used, and goes on.

    :param code: folders with code of the pipeline that is not installed, for Python functions
    :raises ImportError: pyspark is not installed
    :raises NotPossible: Spark does not start, or pyspark is of two releases
    """
    pin_zone()
    prefer_installed_pyspark(sys.path)
    if mixed := two_releases():
        raise NotPossible(str(mixed), mixed.command)
    import pyspark
    from pyspark.sql import SparkSession

    check_release(pyspark.__version__)
    if (active := SparkSession.getActiveSession()) is not None:
        yield active
        return
    environment = driver_environment(os.environ, code, master="local")
    environment[OPTIONS] = quick_options(environment)
    for name in {*os.environ} - {*environment}:
        del os.environ[name]
    os.environ.update(environment)
    with _stderr_in_file():
        builder = session_builder("reliability check").master("local[*]")
        session = builder.config(map=_SETTINGS).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _stderr_in_file() -> Iterator[None]:
    """Give the JVM that starts within a file as its stderr, for all of its life."""
    handle, name = tempfile.mkstemp(prefix="reliability-check-")
    own = os.dup(2)
    try:
        os.dup2(handle, 2)
        yield
    except Exception as error:
        raise NotPossible(f"Spark does not start here: {error}; its log is {name}") from error
    else:
        Path(name).unlink()
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(handle)


# --- the check -----------------------------------------------------------------------------------


def check_sample(spark: SparkSession, topology: Topology, sample: Sample) -> Checked:
    """Process a sample as the driver does; errors are collected, not raised."""
    checked = Checked(items=sample.places, of=sample.of)
    try:
        _Check(spark, topology, sample, checked).run()
    except Exception as error:  # the process function may raise anything
        checked.errors.append(as_error(error))
    return checked


@dataclass(slots=True)
class _Check:
    """The check of a sample, while it goes on.

    :param meta: of the batch, with what the sample has of it
    :param reduced: state -> its rows, reduced by key
    :param calls: those that have set rows aside so far
    """

    spark: SparkSession
    topology: Topology
    sample: Sample
    checked: Checked
    batch: DataFrame = field(init=False)
    meta: BatchMeta = field(init=False)
    reduced: dict[str, DataFrame] = field(default_factory=dict)
    set_aside: dict[str, list[SetAside]] = field(default_factory=dict)
    calls: list[Noted] = field(default_factory=list)

    def run(self) -> None:
        prepare(self.spark)
        with translate_value_errors():
            self.batch = self.sample.frame(self.spark)
            self.checked.columns = _types(self.batch)
            rows = self.batch.select(*ACCOUNTING).collect()  # Python has no year 10000
        self.checked.rows = len(rows)
        self.meta = self.sample.meta
        if self.sample.rows is not None:
            self.meta = replace(self.meta, emitted=_fold(rows))
        for step in self.topology.steps:
            if all(name in self.reduced for name in step.reads):
                with translate_value_errors():
                    self._run_step(step)

    def _run_step(self, step: Step) -> None:
        staged = [self._staged(name, step) for name in step.reads]
        inputs = staged if step.reads else [self.batch]
        processed = call_process(self.spark, self.topology, step, inputs, self.meta.emitted.count)
        self.calls += processed.calls
        before = {mark_of(name): self.set_aside.get(name, []) for name in step.reads}
        for state in self.topology.states:
            if (frame := processed.frames.get(state.name)) is not None:
                self.set_aside[state.name] = on_the_way(frame, before | processed.set_aside)
                self.checked.states.append(self._check_state(state, frame))

    def _staged(self, name: str, step: Step) -> DataFrame:
        state = next(state for state in self.topology.states if state.name == name)
        types = stored_state(self.topology.name, state).column_types()
        read = {name: read_as(type_) for name, type_ in types.items()} | step.types_of(name, types)
        columns = [F.col(quoted(c)).cast(type_).alias(c) for c, type_ in read.items()]
        return mark_staged(self.reduced[name].select(*columns, *ACCOUNTING), name)

    def _check_state(self, state: State, frame: DataFrame) -> CheckedState:
        checked = CheckedState(state=state.name, frame=_types(frame))
        try:
            with translate_value_errors():
                self._reduce(state, frame, checked)
        except Exception as error:
            self.checked.errors.append(as_error(error))
        return checked

    def _reduce(self, state: State, frame: DataFrame, checked: CheckedState) -> None:
        tables = stored_state(self.topology.name, state)
        types = staged_types(frame, with_spark_types(frame, tables), tables)
        carried = state.carried()
        checked.columns = [
            CheckedColumn(
                column=name,
                spark=types[name],
                postgres=postgres,
                is_key=name in tables.key,
                fits=fits(types[name], postgres, is_carried=name in carried),
            )
            for name, postgres in tables.column_types().items()
        ]
        generated = [c for c in state.all_columns() if isinstance(c, Generated)]
        for column in generated:  # its sum follows it
            place = list(tables.target_columns()).index(column.name)
            total = checked.columns[place]
            mean = replace(total, column=column.name, postgres=column.type, fits=True)
            checked.columns.insert(place, mean)
        reduced = self.reduced[state.name] = reduce_frame(frame, tables)
        shown = _with_means(reduced, generated, types)
        rows = _with_dates_as_text(_with_unstorable(shown, checked.columns)).collect()
        checked.rows = len(rows)
        names = [*state.key, *state.values]
        checked.preview = [_shown(row, names, generated) for row in rows[:PREVIEW_ROWS]]
        checked.null_keys = {
            name: count for name in state.key if (count := sum(row[name] is None for row in rows))
        }
        self.checked.errors += _value_errors(state.name, checked.columns, rows)
        staged = _fold(rows)
        checked.arrived = staged.count
        set_aside = self.set_aside[state.name]
        checked.set_aside = [
            {"kind": a.kind.value, "reason": a.reason, "count": a.fold.count} for a in set_aside
        ]
        accounted = Fold.of([staged, *(aside.fold for aside in set_aside)])
        check_arrived(state.name, accounted, self.meta, self.batch, frame, self.calls)


def _types(frame: DataFrame) -> dict[str, str]:
    return {name: type_ for name, type_ in frame.dtypes if name not in ACCOUNTING}


def _fold(rows: Sequence[Row]) -> Fold:
    return Fold.of(Fold(row["_x"], row["_n"]) for row in rows)


def _with_means(
    reduced: DataFrame, means: Sequence[Generated], types: Mapping[str, str]
) -> DataFrame:
    """Compute what Postgres generates, with as many digits before the point as Spark has.

    A mean with more digits is NULL and marked as unknown.
    """
    dtypes = dict(reduced.dtypes)
    numbers = {
        name: f"try_cast({quoted(name)} AS {_widest(type_)})"
        for name, type_ in types.items()
        if type_.startswith("decimal(") and dtypes[name] == "string"
    }
    computed, unknown = {}, {}
    for mean in means:
        value = filled(mean.expression, lambda name: numbers.get(name, quoted(name)))
        computed[mean.name] = F.expr(f"try_cast({value} AS {_widest(read_as(mean.type))})")
        parts = [f"{quoted(name)} IS NOT NULL" for _, name in places(mean.expression)]
        unknown[f"{_IS_UNKNOWN}{mean.name}"] = F.expr(
            " AND ".join([f"{quoted(mean.name)} IS NULL", *parts])
        )
    return reduced.withColumns(computed).withColumns(unknown)


def _widest(type_: str) -> str:
    return re.sub(r"\(\d+,", "(38,", type_)


def _shown(row: Row, names: Sequence[str], means: Sequence[Generated]) -> dict[str, Any]:
    unknown = {mean.name for mean in means if row[f"{_IS_UNKNOWN}{mean.name}"]}
    return {name: _UNKNOWN if name in unknown else row[name] for name in names}


def _with_dates_as_text(frame: DataFrame) -> DataFrame:
    """Python has no year 10000, which Spark and Postgres have."""
    texts = {
        name: _DATES.sub(r"\1string\2", type_)
        for name, type_ in frame.dtypes
        if _DATES.match(type_)
    }
    return frame.withColumns({n: F.col(quoted(n)).cast(type_) for n, type_ in texts.items()})


# --- values that Postgres would reject -----------------------------------------------------------


def _with_unstorable(frame: DataFrame, columns: Sequence[CheckedColumn]) -> DataFrame:
    """Mark the values that Postgres cannot store, in another column for each."""
    types = dict(frame.dtypes)
    marks = {}
    for c in columns:
        is_wrong = is_unstorable(F.col(quoted(c.column)), types[c.column], c.postgres)
        marks[f"{_UNSTORABLE}{c.column}"] = or_false(is_wrong)
    return frame.withColumns(marks)


def _value_errors(
    state: str, columns: Sequence[CheckedColumn], rows: Sequence[Row]
) -> Iterator[ReliabilityError]:
    """Yield at most one error for each column."""
    for column in columns:
        wrong = [row[column.column] for row in rows if row[f"{_UNSTORABLE}{column.column}"]]
        if wrong:
            shown = wrong[0] if isinstance(wrong[0], Decimal) else f"{wrong[0]!r:.60}"
            yield _error_type(wrong[0], column.postgres)(
                f"state {state}: column {column.column}: {shown} is not a valid {column.postgres}"
            )


def _error_type(value: object, postgres: str) -> type[ReliabilityError]:
    """Return the type of the error with which the real run would end."""
    base, _ = base_type(postgres)
    if base in ("text", "character varying") or "\\u0000" in str(value):
        return TextNotStorable
    is_refused_by_postgres = base == "jsonb" or isinstance(value, int | Decimal)
    return UnexpectedAnswer if is_refused_by_postgres else SchemaMismatch
