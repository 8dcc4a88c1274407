"""Reduce a frame to a state's contribution: one row a key, with its part of `_x` and `_n`.

The accounting is computed in the same hash aggregate as the values: it costs nothing that can
be measured, and unlike an accumulator it cannot count a retried stage twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reliability.core.attempt import Grant
from reliability.core.definitions import State
from reliability.core.errors import SchemaMismatch
from reliability.core.types import fits
from reliability.spark.frames import FOLD_N, FOLD_X, check_accounting_columns
from reliability.states.tables import SINGLE_ROW_KEY, StateTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_frames(frames: Mapping[str, Any], states: Sequence[State]) -> None:
    """Raise unless the process function returned one frame with accounting for every state."""
    wanted = {state.name for state in states}
    if not isinstance(frames, Mapping) or frames.keys() != wanted:
        returned = sorted(frames) if isinstance(frames, Mapping) else type(frames).__name__
        raise SchemaMismatch(
            f"the process function returned {returned}, the states are {sorted(wanted)}",
            remedy="return a dict with a frame for every state, by its name.",
        )
    for state in states:
        check_accounting_columns(state.name, frames[state.name])


def reduce_frame(frame: DataFrame, tables: StateTables, grant: Grant) -> DataFrame:
    """Group by the state's key and apply its aggregators; columns in the order of COPY."""
    from pyspark.sql import functions as F

    state = tables.state
    _check_columns(frame, state)
    reduced = frame.groupBy(*state.key).agg(
        *[F.expr(column.spark).alias(column.name) for column in state.columns()],
        F.expr(FOLD_X).alias("_x"),
        F.expr(FOLD_N).alias("_n"),
    )
    if not state.key:  # without a key Spark makes a row out of nothing, and we need its name
        reduced = reduced.where("_rows > 0").withColumn(SINGLE_ROW_KEY, F.lit(True))
    staged = reduced.withColumns(
        {"_txid": F.lit(grant.attempt.txid), "_attempt_id": F.lit(grant.attempt.attempt_id)}
    ).select(*tables.staged_columns())
    _check_types(staged, tables)
    return staged


def _check_columns(frame: DataFrame, state: State) -> None:
    read = {getattr(value, "column", None) for value in state.values.values()}
    missing = sorted(({*state.key, *read} - {None}) - {*frame.columns}, key=str)
    if missing:
        raise SchemaMismatch(
            f"state {state.name} needs columns {missing}, its frame has {frame.columns}"
        )


def _check_types(staged: DataFrame, tables: StateTables) -> None:
    found = dict(staged.dtypes)
    for name, type_ in tables.column_types().items():
        if not fits(found[name], type_):
            raise SchemaMismatch(
                f"state {tables.state.name}: column {name} is {type_} in Postgres, and "
                f"{found[name]} in Spark does not fit it"
            )
