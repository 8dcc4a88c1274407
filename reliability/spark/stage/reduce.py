"""Reduce a frame to a state's contribution: one row per key, with its part of `_x` and `_n`.

The hash aggregate that computes the values also computes the accounting. The cost is too small to
measure, and a stage that runs again is not counted twice, as it could be with an accumulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reliability.core.column import literal, quoted
from reliability.core.errors import SchemaMismatch
from reliability.core.state import State
from reliability.core.types import fits, is_written_as_json
from reliability.deployment.lazy import F
from reliability.spark.frames.accounting import with_accounting
from reliability.spark.frames.accounting_columns import FOLD_N, FOLD_X, JSON_OPTIONS, ROWS
from reliability.spark.frames.jvm import always
from reliability.spark.frames.storable import all_is_utf8
from reliability.spark.stage.sums import aggregates, types_of_sums, with_sums
from reliability.states.digest import DIGEST
from reliability.states.tables import SINGLE_ROW_KEY, StateTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# frames.FOLD_X and FOLD_N for one row
ROW_X, ROW_N = "coalesce(_x, 0)", "coalesce(_n, 1)"


def accounted_frames(frames: Mapping[str, Any], states: Sequence[State]) -> dict[str, DataFrame]:
    """Return what the process function returned, with the columns `_x` and `_n`.

    :raises SchemaMismatch: it did not return one frame for each state
    :raises FrameWithoutAccounting: a frame does not say which rows of the batch it has (V3)
    """
    wanted = {state.name for state in states}
    if not isinstance(frames, Mapping) or frames.keys() != wanted:
        returned = sorted(frames) if isinstance(frames, Mapping) else type(frames).__name__
        raise SchemaMismatch(
            f"the process function returned {returned}, but the states are {sorted(wanted)}: "
            "return a dict that maps the name of every state to its frame"
        )
    return {
        state.name: with_accounting(f"the frame for state {state.name}", frames[state.name])
        for state in states
    }


def reduce_frame(frame: DataFrame, tables: StateTables) -> DataFrame:
    """Group by the state's key and apply its aggregators; return the columns to stage.

    Besides these it has each row's digest. A state with Append groups nothing: each row of the
    frame is staged as it is.

    :raises SchemaMismatch: a column is missing, or its type does not fit its Postgres type
    """
    staged = with_spark_types(frame, tables)
    types = tables.column_types()
    _check_types(staged_types(frame, staged, tables), types, tables.state)
    written = _as_json(staged, types)
    digest = _digest(dict(written.dtypes), list(types))
    return written.selectExpr("*", f"{digest} AS {quoted(DIGEST)}")


def _digest(types: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the hash of a row's values in SQL.

    It passes over NULL, so that is hashed too, and it takes 123.45 for 12345, so types are.
    """
    options = ", ".join(literal(part) for option in JSON_OPTIONS.items() for part in option)
    values = [
        f"to_json({quoted(name)}, map({options}))"
        if types[name].startswith("array<")
        else quoted(name)
        for name in names
    ]
    hashed = [literal(str([types[name] for name in names])), *values]
    return f"xxhash64({', '.join([*hashed, *(f'isnull({quoted(name)})' for name in names)])})"


def with_spark_types(frame: DataFrame, tables: StateTables) -> DataFrame:
    """Return what `reduce_frame` returns, before any type is compared with Postgres's.

    :raises SchemaMismatch: a column is missing
    """
    state = tables.state
    if missing := sorted(state.reads() - {*frame.columns}):
        raise SchemaMismatch(
            f"state {state.name} needs columns {missing}, but its frame has {frame.columns}"
        )
    if state.is_append:
        values = [f"{column.spark} AS {quoted(column.name)}" for column in state.columns()]
        reduced = frame.selectExpr(
            *map(quoted, state.key), *values, f"{ROW_X} AS _x", f"{ROW_N} AS _n"
        )
    else:
        reduced = _group(frame, state)
    return reduced.selectExpr(*map(quoted, tables.reduced_columns()))


def _group(frame: DataFrame, state: State) -> DataFrame:
    from pyspark.errors import AnalysisException

    types, columns = dict(frame.dtypes), state.columns()
    values = [f"{sql} AS {quoted(name)}" for name, sql in aggregates(columns, types).items()]
    values += [f"{FOLD_X} AS _x", f"{fold_n(frame)} AS _n"]
    # Spark cannot group by a map, and compares a struct's fields where Postgres compares JSON.
    grouped = _as_json(frame, state.key).groupBy(*map(quoted, state.key))
    try:
        reduced = grouped.agg(*map(F.expr, values))
    except AnalysisException:  # it cannot group by some types, which fit no key
        _check_types(types, state.key, state)
        raise
    reduced = with_sums(reduced, columns, types)
    if not state.key:  # without a key, Spark makes one row even of an empty frame
        reduced = reduced.where("_rows > 0").withColumn(SINGLE_ROW_KEY, F.lit(True))
    return reduced


def fold_n(frame: DataFrame) -> str:
    """Return the sum of `_n` in SQL."""
    return ROWS if always(frame, "_n", "1") else FOLD_N


def _as_json(frame: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Write structs, maps and arrays as JSON, which would hide what is not UTF-8: no JSON then."""
    dtypes = dict(frame.dtypes)
    written = {
        name: F.when(
            all_is_utf8(F.col(quoted(name)), dtypes[name]), F.to_json(quoted(name), JSON_OPTIONS)
        ).otherwise(F.col(quoted(name)).cast("string"))
        for name, type_ in types.items()
        if is_written_as_json(dtypes[name], type_)
    }
    return frame.withColumns(written) if written else frame


def staged_types(frame: DataFrame, staged: DataFrame, tables: StateTables) -> dict[str, str]:
    """Return the types of the staged columns; of a sum that is carried as text, that of its values.

    :param frame: what `with_spark_types` has made `staged` of
    """
    return dict(staged.dtypes) | types_of_sums(tables.state.columns(), dict(frame.dtypes))


def _check_types(types: Mapping[str, str], columns: Mapping[str, str], state: State) -> None:
    carried = state.carried()
    for name, type_ in columns.items():
        if not fits(types[name], type_, is_carried=name in carried):
            raise SchemaMismatch(
                f"state {state.name}: column {name} is {type_} in Postgres, and "
                f"{types[name]} in Spark does not fit it"
            )
