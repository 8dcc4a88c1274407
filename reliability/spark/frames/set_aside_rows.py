"""`drop()`, `quarantine()`, `fan_out()`: rows leave or multiply, and the accounts show it (V8).

Each call notes a frame of what it sets aside, and leaves a mark in the plan of the frame that it
returns. So the driver finds which calls are on the way to which state, and counts them there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import reduce
from itertools import count as counter
from operator import itemgetter
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.erasure import ERASED, NOBODY, ErasedKeys, column_in_spark
from reliability.core.errors import NotInProcessFunction, QuarantineFull, SchemaMismatch
from reliability.core.fold import ACCOUNTING, OWN, Fold
from reliability.core.set_aside import (
    INVALID_VALUE,
    MALFORMED,
    TOLD,
    Kind,
    QuarantinedRow,
    SetAside,
    check_reason,
    combined,
)
from reliability.core.state import State
from reliability.deployment.lazy import F
from reliability.spark.frames.accounting import hide_accounting, show_accounting
from reliability.spark.frames.accounting_columns import FOLD_N, FOLD_X, JSON_OPTIONS
from reliability.spark.frames.columns import column_called
from reliability.spark.frames.erased import erased_columns, is_erased
from reliability.spark.frames.jvm import Plan
from reliability.spark.frames.quarantined import ITEM, ROW, quarantined_rows
from reliability.spark.frames.storable import unstorable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger(__name__)

#: of a quarantined row's columns as JSON
MAX_CONTENTS = 10_000
_MARK = f"{OWN}set_aside_"
_MARK_OF_INPUT = f"{OWN}input_"
_REASON = f"{OWN}reason"
_numbers = counter()


@dataclass(frozen=True, slots=True)
class Noted:
    """One call.

    :param mark: the name of a column that the plans of its results have
    :param reason: empty if the rows have one each, in a column of their own
    :param rows: what is set aside, with `_x` and `_n`
    """

    mark: str
    kind: Kind
    reason: str
    rows: DataFrame


_NOTED: ContextVar[list[Noted] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[list[Noted]]:
    """Collect the calls within the block: the driver's, around a process function."""
    noted: list[Noted] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def drop(frame: DataFrame, condition: Column | str, reason: str) -> DataFrame:
    """Leave out the rows that meet a condition; the accounts show how many, by reason.

    ::

        orders = reliability.drop(batch, "status = 'test'", "test order")

    :param condition: a column, or SQL; a row for which it is NULL stays
    """
    return _without(frame, condition, Kind.DROPPED, reason)


def quarantine(
    frame: DataFrame, condition: Column | str, reason: str, *, mask: Sequence[str] = ()
) -> DataFrame:
    """Leave out the rows that meet a condition, and keep them in the ledger's quarantine.

    They count as quarantined from the commit of their txid on.

    :param condition: a column, or SQL; a row for which it is NULL stays
    :param mask: columns whose values the quarantine must not show, or fields: "user.email"
    :raises SchemaMismatch: the frame does not have one of them
    """
    return _without(frame, condition, Kind.QUARANTINED, reason, mask)


def set_malformed_aside(batch: DataFrame) -> DataFrame:
    """Put the rows into the quarantine that the spout could not read; a column says why."""
    if MALFORMED not in batch.columns:
        return batch
    why = F.col(MALFORMED)
    reasons = [why.getField(name).alias(name) for name in TOLD]
    mark = f"{_MARK_OF_INPUT}malformed"
    leaving, staying = _parted(batch, why.isNotNull(), mark)
    rows = leaving.select(*reasons, "*", why.getField("reason").alias(_REASON)).drop(MALFORMED)
    _calls().append(Noted(mark, Kind.QUARANTINED, "", quarantined_rows(rows, ())))
    return staying.drop(MALFORMED)


def set_unstorable_aside(frame: DataFrame, state: State) -> DataFrame:
    """Put the rows of a state's frame into the quarantine that it cannot store."""
    why = unstorable(frame, state)
    if why is None:
        return frame
    with_reason = frame.withColumn(_REASON, F.concat(F.lit(f"{INVALID_VALUE}: "), why))
    mark = _next_mark()
    leaving, staying = _parted(with_reason, F.col(_REASON).isNotNull(), mark)
    _calls().append(Noted(mark, Kind.QUARANTINED, "", quarantined_rows(leaving, ())))
    return staying.drop(_REASON)


def set_erased_aside(frame: DataFrame, state: State, erased: ErasedKeys) -> DataFrame:
    """Drop the rows of a state's frame that are an erased person's (H12).

    Others stay that only show one, as the latest value: that becomes NULL.
    """
    for column, names in erased.shown_in(state).items():
        if column in frame.columns:
            shows = is_erased([(column, name) for name in names], erased)
            frame = frame.withColumn(column, F.when(~shows, F.col(quoted(column))))
    columns = [(column_in_spark(state, name), name) for name in erased.columns_of(state)]
    # what is missing is told where the frame is staged
    present = [(column, name) for column, name in columns if column in frame.columns]
    if not present:
        return frame
    mark = _next_mark()
    leaving, staying = _parted(frame, is_erased(present, erased), mark)
    _calls().append(Noted(mark, Kind.DROPPED, ERASED, leaving))
    return staying


def fan_out(frame: DataFrame, column: str) -> DataFrame:
    """Make a row for each element of an array column, which replaces the array.

    It stays one tuple: the XOR of the rows' ids is the tuple's, as in Storm's tuple tree. A row
    whose array is NULL or empty is dropped, with the reason "COLUMN is empty".

    :raises SchemaMismatch: the frame has no such column, or it is not an array
    """
    name = column_called(frame, column)
    if not dict(frame.dtypes)[name].startswith("array<"):
        raise SchemaMismatch(
            f"fan_out(): column {name} is not an array, but {dict(frame.dtypes)[name]}",
            remedy="name an array column; `split()` makes one of a text.",
        )
    array = F.col(quoted(name))
    filled = drop(frame, F.coalesce(F.size(array), F.lit(0)) <= 0, f"{column} is empty")
    mark = _next_mark()
    place, element = f"{mark}_place", f"{mark}_element"
    marked = show_accounting(filled).withColumn(mark, F.size(array))
    # Rows that are added count less than 0. Each element counts as many rows as its tuple: more
    # than one if rows were aggregated before.
    count = F.coalesce("_n", F.lit(1)) * (1 - F.col(mark))
    added = marked.select(F.lit(0).cast("bigint").alias("_x"), count.cast("bigint").alias("_n"))
    _calls().append(Noted(mark, Kind.FANNED_OUT, column, added))
    rows = marked.select("*", F.posexplode(array).alias(place, element))
    rows = rows.withColumns({"_x": _id_in_tree(mark, place), name: F.col(element)})
    return hide_accounting(rows.drop(mark, place, element))


def _id_in_tree(size: str, place: str) -> Column:
    """Return an element's id: a hash of its own, or the first's, which makes up the tuple's."""
    others = F.when(F.col(size) > 1, F.sequence(F.lit(1), F.col(size) - 1))
    xor = F.aggregate(
        F.coalesce(others, F.array().cast("array<int>")),
        F.col("_x"),
        lambda xor_so_far, other: xor_so_far.bitwiseXOR(F.xxhash64("_x", other)),
    )
    return F.when(F.col(place) == 0, xor).otherwise(F.xxhash64("_x", place))


def used_calls(
    calls: Sequence[Noted], frames: Iterable[DataFrame]
) -> tuple[list[Noted], list[Noted]]:
    """Return the calls that are on the way to a state's frame, and the others."""
    marks = [call.mark for call in calls]
    used = {mark for frame in frames for mark in marks_of(frame, marks)}
    unused = [call for call in calls if call.mark not in used]
    for call in unused:
        logger.warning(
            "no state gets the result of a call, so nothing is %s for %r",
            call.kind.value.lower().replace("_", " "),
            call.reason,
        )
    return [call for call in calls if call.mark in used], unused


def evaluate(
    calls: Sequence[Noted], most: int, erased: ErasedKeys = NOBODY
) -> tuple[dict[str, list[SetAside]], list[QuarantinedRow]]:
    """Count what each call sets aside, and read what goes into the quarantine.

    :param most: how many rows may go there; one that several states cannot store counts once
    :param erased: whose rows do not go there: they are dropped
    :returns: mark -> what is set aside, and the quarantined rows
    :raises QuarantineFull: there are more
    """
    set_aside: dict[str, list[SetAside]] = {}
    rows: list[QuarantinedRow] = []
    for call in calls:
        if call.kind is Kind.QUARANTINED:
            quarantined, dropped = _read(call, most, erased)
            rows += quarantined
            # a row that several states cannot store has one id in each of their calls
            if max(len(quarantined) + len(dropped), len({row.fold.xor for row in rows})) > most:
                raise QuarantineFull(
                    f"more than {most} rows are to be quarantined, most recently for "
                    f"{rows[-1].reason if rows else ERASED!r}"
                )
            each = [SetAside(call.kind, row.reason, row.fold) for row in quarantined]
            set_aside[call.mark] = combined([*each, *dropped])
    counted = [call for call in calls if call.kind is not Kind.QUARANTINED]
    for call, fold in zip(counted, _folds(counted), strict=True):
        set_aside[call.mark] = [SetAside(call.kind, call.reason, fold)]
    return set_aside, rows


def _folds(calls: Sequence[Noted]) -> list[Fold]:
    """Count what each call sets aside, in one job for all.

    After another WITH, Spark would not find what has been evaluated of one (V5).
    """
    if not calls:
        return []
    fold = [F.expr(FOLD_X).alias("_x"), F.expr(FOLD_N).alias("_n")]
    each = [call.rows.agg(*fold, F.lit(place).alias("p")) for place, call in enumerate(calls)]
    all_of_them = reduce(lambda one, other: one.union(other), each)
    jobs = each if Plan.of(all_of_them).has_with else [all_of_them]
    rows = [row for job in jobs for row in job.collect()]
    return [Fold(row["_x"] or 0, row["_n"] or 0) for row in sorted(rows, key=itemgetter("p"))]


def _read(
    call: Noted, most: int, erased: ErasedKeys
) -> tuple[list[QuarantinedRow], list[SetAside]]:
    """Return the rows for the quarantine, and those that are dropped because they are erased."""
    reason = F.lit(call.reason) if call.reason else F.col(_REASON)
    ours = (*ACCOUNTING, ITEM, ROW, _REASON)
    columns = [F.col(quoted(name)) for name in call.rows.columns if name not in ours]
    contents = F.to_json(F.struct(*columns), JSON_OPTIONS)
    rows = call.rows.select(
        reason.alias("reason"),
        F.col(ITEM).alias("item"),
        F.col(ROW).alias("row"),
        F.substring(contents, 1, MAX_CONTENTS).alias("contents"),
        (F.length(contents) > MAX_CONTENTS).alias("is_cut"),
        is_erased(erased_columns(call.rows, erased), erased).alias("is_erased"),
        *ACCOUNTING,
    ).take(most + 1)
    kept: list[QuarantinedRow] = []
    dropped: list[SetAside] = []
    for row in rows:
        fold = Fold(row["_x"] or 0, 1 if row["_n"] is None else row["_n"])
        if row["is_erased"]:
            dropped.append(SetAside(Kind.DROPPED, ERASED, fold))
            continue
        told = {name: row[name] for name in ("reason", "contents", "item", "row", "is_cut")}
        kept.append(QuarantinedRow(fold=fold, **told))
    return kept, dropped


def left_before(frame: DataFrame, calls: Sequence[Noted]) -> list[DataFrame]:
    """Return the rows that were dropped or quarantined on the way to a state's frame."""
    marks = marks_of(frame, [call.mark for call in calls])
    return [call.rows for call in calls if call.mark in marks and call.kind is not Kind.FANNED_OUT]


def cut_off(frame: DataFrame, lacking: Fold, calls: Sequence[Noted]) -> list[str]:
    """Return the reasons of the calls that explain what a state lacks, and that it does not show.

    :param lacking: what was emitted, without what the state has, and what was set aside for it
    """
    marks = marks_of(frame, [call.mark for call in calls])
    unseen = [call for call in calls if call.mark not in marks]
    folds = [(call.reason, fold) for call, fold in zip(unseen, _folds(unseen), strict=True)]
    if folds and Fold.of(fold for _, fold in folds) == lacking:
        return sorted({reason for reason, _ in folds})
    return [reason for reason, fold in folds if fold == lacking][:1]


def mark_staged(frame: DataFrame, state: str) -> DataFrame:
    """Mark the plan of a state's staged rows, which lack what was set aside before them."""
    return frame.withColumn(mark_of(state), F.lit(True)).drop(mark_of(state))


def mark_of(state: str) -> str:
    return f"{_MARK_OF_INPUT}{state}"


def on_the_way(frame: DataFrame, set_aside: Mapping[str, Sequence[SetAside]]) -> list[SetAside]:
    """Return what was set aside, by mark, on the way to a frame, one for each kind and reason."""
    marks = marks_of(frame, list(set_aside))
    return combined(aside for mark in sorted(marks) for aside in set_aside[mark])


def marks_of(frame: DataFrame, marks: Sequence[str]) -> set[str]:
    """Return which marks are on the way of the rows that a frame accounts for.

    A mark that is only in the other side of a join, or in a subquery, is not. That of the only
    input always is: a checkpoint has a plan of its own, which shows no marks.

    :param frame: it has the columns `_x` and `_n`
    """
    of_inputs = [mark for mark in marks if mark.startswith(_MARK_OF_INPUT)]
    always = {*of_inputs} if len(of_inputs) == 1 else set[str]()
    if always >= {*marks}:
        return always
    plan = Plan.of(frame)
    return always | _Way(frozenset(marks)).marks_of(plan, plan.ids("_x"))


@dataclass(frozen=True, slots=True)
class _Way:
    """Follows columns down a plan.

    :param relations: those of the WITH clauses that were met, by their numbers
    """

    marks: frozenset[str]
    relations: dict[int, Plan] = field(default_factory=dict)

    def marks_of(self, plan: Plan, wanted: set[int]) -> set[str]:
        """Return the marks of a plan that are on the way of columns with these ids."""
        marks = {attribute.name for attribute in plan.output} & self.marks
        for source, ids in self._sources(plan, wanted):
            marks |= self.marks_of(source, ids)
        return marks

    def _sources(self, plan: Plan, wanted: set[int]) -> Iterator[tuple[Plan, set[int]]]:
        """Return the plans that some columns come from, with those columns there."""
        children, name = plan.children, plan.name
        if name == "WithCTE":
            *definitions, query = children
            self.relations.update((each.relation, each) for each in definitions)
            yield query, wanted
        elif name == "CTERelationRef":
            yield from _in_place(plan, [self.relations[plan.relation]], wanted)
        elif name in ("Union", "UnionLoop"):
            yield from _in_place(plan, children, wanted)
        else:
            yield from _origins(plan, children, wanted)


def _in_place(
    plan: Plan, sources: Iterable[Plan], wanted: set[int]
) -> Iterator[tuple[Plan, set[int]]]:
    """Return plans with their columns that stand where the wanted ones do."""
    places = [place for place, column in enumerate(plan.output) if column.id in wanted]
    for source in sources:
        own = source.output
        yield source, {own[place].id for place in places}


def _origins(plan: Plan, children: Sequence[Plan], wanted: set[int]) -> list[tuple[Plan, set[int]]]:
    """Return the children from which columns are passed on or made, with those columns there."""
    named = set[int]().union(*(child.ids("_x") for child in children))
    made_from = set[int]().union(*(made.references for made in plan.makers_of(wanted)))
    needed = wanted | (made_from & named or made_from)
    origins = [(child, needed & child.ids()) for child in children]
    if not any(ids for _, ids in origins):
        # a function has made the columns anew, or explode() has taken them out of an array
        needed = named or plan.reads
        origins = [(child, needed & child.ids()) for child in children]
    return [(child, ids) for child, ids in origins if ids]


def _without(
    frame: DataFrame, condition: Column | str, kind: Kind, reason: str, mask: Sequence[str] = ()
) -> DataFrame:
    text = check_reason(reason)
    leaves = F.expr(condition) if isinstance(condition, str) else condition
    mark = _next_mark()
    shown = show_accounting(frame)
    leaving, staying = _parted(shown, F.coalesce(leaves, F.lit(False)), mark)
    if kind is Kind.QUARANTINED:
        leaving = quarantined_rows(leaving, mask)
    _calls().append(Noted(mark, kind, text, leaving))
    return hide_accounting(staying)


def _parted(frame: DataFrame, leaves: Column, mark: str) -> tuple[DataFrame, DataFrame]:
    """Return the rows that leave, and those that stay.

    The condition is a column of both, so that one evaluation decides (V5).
    """
    marked = frame.withColumn(mark, leaves)
    return marked.where(F.col(mark)).drop(mark), marked.where(~F.col(mark)).drop(mark)


def _next_mark() -> str:
    """Return a mark that no other call of this process has: `check` has steps in one plan."""
    _calls()
    return f"{_MARK}{next(_numbers)}"


def _calls() -> list[Noted]:
    calls = _NOTED.get()
    if calls is None:
        raise NotInProcessFunction("drop(), quarantine() or fan_out() was called elsewhere")
    return calls
