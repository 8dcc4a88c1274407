"""Which rows a state has lost or doubled: looked for only when its accounts do not balance (V1).

The seal would find the difference too. Here the batch is at hand, so the error can name rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.acker import check_emitted
from reliability.core.column import quoted
from reliability.core.errors import RowsUnaccounted
from reliability.core.fold import ACCOUNTING, Fold
from reliability.core.set_aside import MALFORMED
from reliability.core.spout import BatchMeta, Verdict
from reliability.deployment.lazy import F
from reliability.spark.frames.accounting import likely_mistakes
from reliability.spark.frames.accounting_columns import JSON_OPTIONS
from reliability.spark.frames.jvm import is_gone
from reliability.spark.frames.quarantined import place_of
from reliability.spark.frames.set_aside_rows import Noted, cut_off, left_before

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger(__name__)
EXAMPLES = 3
#: of an example's columns as JSON
MAX_CONTENTS = 200
_CUT_OFF = (
    "call drop(), quarantine() and fan_out() after localCheckpoint() or a detour through an RDD, "
    "not before."
)


def check_arrived(
    state: str,
    accounted: Fold,
    meta: BatchMeta,
    batch: DataFrame | None,
    arrived: DataFrame,
    calls: Sequence[Noted],
) -> None:
    """Raise RowsUnaccounted, with examples, unless all rows of the batch are accounted for.

    :param accounted: what was staged for the state, and set aside on the way to it
    :param batch: None if the step read staged rows, or none may be shown
    :param arrived: the state's frame
    :param calls: those that have set rows aside, on the way to it or not
    """
    try:
        check_emitted(state, meta.emitted, accounted, meta.verdict)
    except RowsUnaccounted as error:
        examples = ""
        if batch is not None and meta.verdict is Verdict.EXACT:
            examples = _examples(batch, arrived, left_before(arrived, calls))
        raise _explained(error.what + examples, meta.emitted - accounted, arrived, calls) from None


def _explained(
    what: str, lacking: Fold, arrived: DataFrame, calls: Sequence[Noted]
) -> RowsUnaccounted:
    """Return the error with what may have lost or doubled the rows, and what to write."""
    try:
        reasons = cut_off(arrived, lacking, calls)
    except Exception as error:  # it must not hide that rows are lacking
        if is_gone(error):
            raise
        logger.warning("cannot say which call set these rows aside: %s", error)
        reasons = []
    if reasons:
        named = ", ".join(map(repr, reasons))
        what = f"{what}; these rows were set aside for {named}, and the frame no longer shows that"
        return RowsUnaccounted(what, remedy=_CUT_OFF)
    return RowsUnaccounted("; ".join([what, *likely_mistakes(arrived)]))


def _examples(batch: DataFrame, arrived: DataFrame, left: Sequence[DataFrame]) -> str:
    if arrived.where("_n IS NULL").take(1):
        return "; it has rows that the batch does not have, as an outer join makes them"
    if arrived.where("_n <> 1").take(1):
        return ""  # groups: their rows have no ids of their own any more
    ids = arrived.groupBy("_x").count()
    gone = ids
    for frame in left:
        gone = gone.unionByName(frame.groupBy("_x").count())
    hidden = (*ACCOUNTING, MALFORMED)
    columns = [F.col(quoted(name)) for name in batch.columns if name not in hidden]
    located = batch.select(
        "_x",
        place_of(batch, "file_name").alias("item"),
        place_of(batch, "row_index").alias("row"),
        F.struct(*columns).alias("values"),  # a source may call its columns like anything
    )
    lost = located.join(gone, "_x", "left_anti")
    doubled = located.join(ids.where(F.col("count") > 1), "_x", "left_semi")
    return _told("lost", lost) + _told("doubled", doubled)


def _told(what: str, rows: DataFrame) -> str:
    contents: Column = F.substring(F.to_json("values", JSON_OPTIONS), 1, MAX_CONTENTS)
    shown = rows.select("item", "row", contents.alias("contents")).take(EXAMPLES)
    texts = [
        f"row {row['row']} of {row['item']}: {row['contents']}" if row["item"] else row["contents"]
        for row in shown
    ]
    return f"; {what}, for example {', '.join(texts)}" if texts else ""
