"""Run a topology's process function once on a sample, and compare the result with its states.

Nothing is written, and no ledger is needed. The functions are those of the driver, so an error here
is the error that the attempt would end with. What only Postgres knows, such as a constraint that a
person added to a table, is not checked.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reliability.core.acker import Sink, check_accounting
from reliability.core.column import Generated
from reliability.core.definitions import Topology
from reliability.core.errors import (
    ReliabilityError,
    RowsUnaccounted,
    SchemaMismatch,
    TextNotStorable,
    UnexpectedAnswer,
)
from reliability.core.fold import ACCOUNTING, OWN, Fold
from reliability.core.graph import Step
from reliability.core.set_aside import SetAside
from reliability.core.spout import Verdict
from reliability.core.state import State
from reliability.core.types import (
    base_type,
    canonical,
    fits,
    greatest_of,
    is_exact,
    numeric_form,
    read_as,
)
from reliability.spark.accounting import likely_mistakes
from reliability.spark.driver import as_error
from reliability.spark.imports import prefer_installed_pyspark, two_releases
from reliability.spark.process import call_process
from reliability.spark.reduce import reduce_frame, staged_types, with_spark_types
from reliability.spark.session import pin_settings, pin_zone, session_builder
from reliability.spark.set_aside_rows import mark_of, mark_staged, on_the_way
from reliability.spark.storable import UUID
from reliability.spark.submit import driver_environment
from reliability.spark.values import translate_value_errors
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from reliability.spouts.sample import Sample

PREVIEW_ROWS = 5
_UUID = re.compile(UUID)
_UNKNOWN = "unknown"  # a mean that Postgres computes, and Spark cannot


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedColumn:
    """A column of a state: its type in the reduced frame and in Postgres.

    :ivar is_generated: Postgres computes it, as a mean from the sum, whose type is `spark`
    """

    name: str
    spark: str
    postgres: str
    is_key: bool
    is_carried: bool = True
    is_generated: bool = False

    @property
    def fits(self) -> bool:
        """Say whether every value of the Spark type fits."""
        return self.is_generated or fits(self.spark, self.postgres, is_carried=self.is_carried)


@dataclass(slots=True, kw_only=True)
class CheckedState:
    """What a state would get of the sample.

    :ivar frame: the columns of the frame that the process function returned, with their types
    :ivar arrived: how many rows of the sample reached the state; None if that is unknown
    :ivar set_aside: what was dropped, quarantined or fanned out on the way, by reason
    :ivar null_keys: key column -> how many rows have NULL there
    :ivar example: a row that was lost or doubled
    :ivar preview: the first rows, reduced by key
    """

    name: str
    frame: list[tuple[str, str]] = field(default_factory=list)
    columns: list[CheckedColumn] = field(default_factory=list)
    arrived: int | None = None
    rows: int = 0
    set_aside: list[SetAside] = field(default_factory=list)
    null_keys: dict[str, int] = field(default_factory=dict)
    example: str = ""
    preview: list[dict[str, Any]] = field(default_factory=list)
    errors: list[ReliabilityError] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Checked:
    """The check of one sample.

    :ivar errors: those that are not about one state
    """

    places: list[str]
    of: int
    rows: int = 0
    source: list[tuple[str, str]] = field(default_factory=list)
    states: list[CheckedState] = field(default_factory=list)
    errors: list[ReliabilityError] = field(default_factory=list)

    def all_errors(self) -> list[ReliabilityError]:
        """Return every error that the real run would raise."""
        return [*self.errors, *(error for state in self.states for error in state.errors)]


# --- the session ---------------------------------------------------------------------------------


@contextmanager
def local_spark(code: Sequence[str]) -> Iterator[SparkSession]:
    """Start Spark in this process; its log goes to a file that is kept only if it does not start.

    A session that is already there is used, and goes on.

    :param code: folders with code of the pipeline that is not installed, for Python functions
    :raises ImportError: pyspark is not installed
    :raises ChildProcessError: Spark does not start, or pyspark is of two releases
    """
    pin_zone()
    prefer_installed_pyspark(sys.path)
    if mixed := two_releases():
        raise ChildProcessError(f"{mixed}. What to do: {mixed.command}")
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        yield active
        return
    _set_environment(code)
    with _stderr_in_file():
        session = (
            session_builder("reliability check")
            .master("local[*]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .getOrCreate()
        )
    try:
        yield session
    finally:
        session.stop()


def _set_environment(code: Sequence[str]) -> None:
    found = driver_environment(os.environ, master="local")
    existing = found.get("PYTHONPATH", "").split(os.pathsep)
    found["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys((*code, *existing))))
    for name in {*os.environ} - {*found}:
        del os.environ[name]
    os.environ.update(found)


@contextmanager
def _stderr_in_file() -> Iterator[None]:
    """Give the JVM that starts within a file as its stderr, for all of its life."""
    handle, name = tempfile.mkstemp(prefix="reliability-check-")
    own = os.dup(2)
    try:
        os.dup2(handle, 2)
        yield
    except Exception as error:
        raise ChildProcessError(f"Spark does not start here: {error}; its log is {name}") from error
    else:
        Path(name).unlink()
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(handle)


# --- the check -----------------------------------------------------------------------------------


def check_sample(spark: SparkSession, topology: Topology, sample: Sample) -> Checked:
    """Process a sample as the driver does; errors are collected, not raised."""
    checked = Checked(places=sample.places, of=sample.of)
    try:
        _Check(spark, topology, sample, checked).run()
    except ReliabilityError as error:
        checked.errors.append(error)
    except Exception as error:  # the process function may raise anything
        checked.errors.append(as_error(error))
    return checked


class _Check:
    def __init__(
        self, spark: SparkSession, topology: Topology, sample: Sample, checked: Checked
    ) -> None:
        self.spark = spark
        self.topology = topology
        self.sample = sample
        self.checked = checked
        self.reduced: dict[str, DataFrame] = {}
        self.set_aside: dict[str, list[SetAside]] = {}
        self.left: set[int] = set()

    def run(self) -> None:
        pin_settings(self.spark)
        with translate_value_errors():
            self.batch = self.sample.frame(self.spark)
            self.checked.source = _types(self.batch)
            self.input = self.batch.collect()
        self.checked.rows = len(self.input)
        self.emitted = self.sample.meta.emitted
        if self.sample.rows is not None:
            self.emitted = _fold(self.input)
        for step in self.topology.steps:
            if not self._can_run(step):
                continue
            with translate_value_errors():
                self._run_step(step)

    def _can_run(self, step: Step) -> bool:
        return all(name in self.reduced for name in step.reads)

    def _run_step(self, step: Step) -> None:
        states = [state for state in self.topology.states if state.name in step.feeds]
        staged = [self._staged(name, step.types_of(name)) for name in step.reads]
        inputs = staged if step.reads else [self.batch]
        emitted = self.emitted.count
        processed = call_process(self.spark, self.topology, step, states, inputs, emitted)
        for frame in processed.left.values():
            self.left.update(row["_x"] for row in frame.select("_x").collect())
        before = {mark_of(name): self.set_aside.get(name, []) for name in step.reads}
        for state in states:
            frame = processed.frames[state.name]
            self.set_aside[state.name] = on_the_way(frame, before | processed.set_aside)
            self.checked.states.append(self._check_state(state, frame))

    def _staged(self, name: str, declared: Mapping[str, str]) -> DataFrame:
        """Return what a later step reads of a state."""
        from pyspark.sql import functions as F

        state = next(state for state in self.topology.states if state.name == name)
        types = StateTables(self.topology.name, state).column_types()
        read = {name: read_as(type_) for name, type_ in types.items()} | {**declared}
        columns = [F.col(f"`{c}`").cast(type_).alias(c) for c, type_ in read.items()]
        return mark_staged(self.reduced[name].select(*columns, *ACCOUNTING), name)

    def _check_state(self, state: State, frame: DataFrame) -> CheckedState:
        found = CheckedState(name=state.name, frame=_types(frame))
        try:
            with translate_value_errors():
                self._reduce(state, frame, found)
        except ReliabilityError as error:
            found.errors.append(error)
        except Exception as error:
            found.errors.append(as_error(error))
        return found

    def _reduce(self, state: State, frame: DataFrame, found: CheckedState) -> None:
        tables = StateTables(self.topology.name, state)
        types = staged_types(frame, with_spark_types(frame, tables), tables)
        found.columns = [
            CheckedColumn(
                name=name,
                spark=types[name],
                postgres=postgres,
                is_key=name in tables.key,
                is_carried=name in state.carried(),
            )
            for name, postgres in tables.column_types().items()
        ]
        generated = [c for c in state.all_columns() if isinstance(c, Generated)]
        for column in generated:  # its sum follows it
            place = list(tables.target_columns()).index(column.name)
            found.columns.insert(place, _checked_mean(column, found.columns[place]))
        reduced = reduce_frame(frame, tables)
        rows = _with_means(reduced, generated, types).collect()
        found.rows = len(rows)
        names = [*state.key, *state.values]
        found.preview = [_shown(row, names, generated) for row in rows[:PREVIEW_ROWS]]
        found.null_keys = {
            name: count for name in state.key if (count := sum(row[name] is None for row in rows))
        }
        found.errors += _value_errors(state.name, found.columns, rows)
        self._account(state, frame, _fold(rows), found)
        self.reduced[state.name] = reduced

    def _account(self, state: State, frame: DataFrame, staged: Fold, found: CheckedState) -> None:
        found.arrived = staged.count
        aside = found.set_aside = self.set_aside[state.name]
        left_out = Fold.of(one.fold for one in aside)
        sink = Sink(
            name=state.name,
            step=self.topology.step_of(state.name),
            partitions=1,
            acked_partitions=(0,),
            unacked=self.emitted - (staged + left_out),
            set_aside=left_out,
        )
        verdict = self.sample.meta.verdict
        try:
            check_accounting(self.emitted, [sink], {state.name: staged}, verdict)
        except RowsUnaccounted as error:
            told = "; ".join([error.what, *likely_mistakes(frame)])
            found.errors.append(RowsUnaccounted(told))
            found.example = self._example(frame, verdict)

    def _example(self, frame: DataFrame, verdict: Verdict) -> str:
        """Return a row that was lost or doubled; empty if the function has aggregated rows."""
        arrived = frame.select(*ACCOUNTING).collect()
        if any(row["_n"] not in (1, None) for row in arrived):
            return ""
        if any(row["_x"] is None for row in arrived):
            return "a row that the source does not have, with NULL in _x: an outer join made it"
        times = Counter(row["_x"] for row in arrived)
        for what, is_it in (("lost", 0), ("doubled", 2)):
            for row in self.input:
                if row["_x"] not in self.left and min(times[row["_x"]], 2) == is_it:
                    return f"{what}: {_described(row)}"
        return ""


def _types(frame: DataFrame) -> list[tuple[str, str]]:
    return [(name, type_) for name, type_ in frame.dtypes if name not in ACCOUNTING]


def _fold(rows: Sequence[Row]) -> Fold:
    return Fold.of(Fold(row["_x"], row["_n"]) for row in rows)


def _described(row: Row) -> str:
    values = {name: value for name, value in row.asDict().items() if name not in ACCOUNTING}
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _checked_mean(mean: Generated, total: CheckedColumn) -> CheckedColumn:
    return CheckedColumn(
        name=mean.name, spark=total.spark, postgres=mean.type, is_key=False, is_generated=True
    )


def _with_means(
    reduced: DataFrame, means: Sequence[Generated], types: Mapping[str, str]
) -> DataFrame:
    """Compute what Postgres generates, with as many digits before the point as Spark has.

    A mean with more digits is NULL and marked as unknown.

    :param types: as `staged_types` returns them
    """
    from pyspark.sql import functions as F

    found = dict(reduced.dtypes)
    numbers = {
        name: f"try_cast({name} AS {_widest(type_)})"
        for name, type_ in types.items()
        if type_.startswith("decimal(") and found[name] == "string"
    }
    computed, unknown = {}, {}
    for mean in means:
        value = re.sub(r"\w+", lambda name: numbers.get(name[0], name[0]), mean.expression)
        computed[mean.name] = F.expr(f"try_cast({value} AS {_widest(read_as(mean.type))})")
        parts = [f"{name} IS NOT NULL" for name in re.findall(r"\w+", value) if name in found]
        unknown[_mark_of_unknown(mean)] = F.expr(" AND ".join([f"`{mean.name}` IS NULL", *parts]))
    return reduced.withColumns(computed).withColumns(unknown)


def _widest(type_: str) -> str:
    return re.sub(r"\(\d+,", "(38,", type_)


def _mark_of_unknown(mean: Generated) -> str:
    return f"{OWN}unknown_{mean.name}"


def _shown(row: Row, names: Sequence[str], means: Sequence[Generated]) -> dict[str, Any]:
    unknown = {mean.name for mean in means if row[_mark_of_unknown(mean)]}
    return {name: _UNKNOWN if name in unknown else row[name] for name in names}


# --- values that Postgres would reject -----------------------------------------------------------


def _value_errors(
    state: str, columns: Sequence[CheckedColumn], rows: Sequence[Row]
) -> Iterator[ReliabilityError]:
    """Yield at most one error for each column."""
    for column in columns:
        for row in rows:
            if error := _value_error(row[column.name], column.postgres):
                error_type, why = error
                yield error_type(f"state {state}: column {column.name}: {why}")
                break


def _value_error(value: Any, postgres: str) -> tuple[type[ReliabilityError], str] | None:
    if isinstance(value, list):
        errors = (_value_error(element, postgres.removesuffix("[]")) for element in value)
        return next((error for error in errors if error), None)
    if isinstance(value, str):
        return _text_error(value, canonical(postgres))
    if isinstance(value, int | Decimal) and is_exact(postgres):
        greatest = greatest_of(postgres)
        if greatest is not None and abs(Decimal(value)) > Decimal(greatest):
            return UnexpectedAnswer, f"{value} is too large for {postgres}"
    return None


def _text_error(value: str, postgres: str) -> tuple[type[ReliabilityError], str] | None:
    if "\0" in value:
        return TextNotStorable, "a text has the character NUL, which Postgres cannot store"
    if base_type(postgres)[0] == "numeric" and not re.fullmatch(numeric_form(postgres), value):
        return SchemaMismatch, f"{value[:60]!r} is not a valid {postgres}"
    if postgres == "uuid" and not _UUID.fullmatch(value):
        return UnexpectedAnswer, f"{value[:60]!r} is not a uuid"
    if postgres == "jsonb":
        try:
            found = json.loads(value)
        except ValueError:
            return UnexpectedAnswer, f"{value[:60]!r} is not JSON"
        if "\0" in json.dumps(found, ensure_ascii=False) or "\\u0000" in value:
            return TextNotStorable, "a JSON value has the character NUL"
    return None
