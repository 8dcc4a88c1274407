"""Which rows a state has lost or doubled: looked for only when its accounts do not balance (V1).

The seal would find the difference too. Here the batch is at hand, so the error can name rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.acker import check_emitted
from reliability.core.column import quoted
from reliability.core.errors import RowsUnaccounted
from reliability.core.fold import ACCOUNTING, Fold
from reliability.core.spout import BatchMeta, Verdict
from reliability.spark.accounting import likely_mistakes
from reliability.spark.frames import JSON_OPTIONS
from reliability.spark.quarantined import place_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EXAMPLES = 3
#: of an example's columns as JSON
MAX_CONTENTS = 200


def check_arrived(
    state: str,
    found: Fold,
    meta: BatchMeta,
    batch: DataFrame | None,
    arrived: DataFrame,
    left: Sequence[DataFrame],
) -> None:
    """Raise RowsUnaccounted, with examples, unless all rows of the batch are accounted for.

    :param found: what was staged for the state, and set aside on the way to it
    :param batch: with `_x` and `_n`; None if the step read staged rows
    :param arrived: the state's frame, with `_x` and `_n`
    :param left: the rows that were set aside on the way to it
    """
    try:
        check_emitted(state, meta.emitted, found, meta.verdict)
    except RowsUnaccounted as error:
        told = ""
        if batch is not None and meta.verdict is Verdict.EXACT:
            told = _examples(batch, arrived, left)
        raise RowsUnaccounted("; ".join([error.what + told, *likely_mistakes(arrived)])) from None


def _examples(batch: DataFrame, arrived: DataFrame, left: Sequence[DataFrame]) -> str:
    from pyspark.sql import functions as F

    if arrived.where("_n IS NULL").take(1):
        return "; it has rows that the batch does not have, as an outer join makes them"
    if arrived.where("_n <> 1").take(1):
        return ""  # groups: their rows have no ids of their own any more
    ids = arrived.groupBy("_x").count()
    gone = ids
    for frame in left:
        gone = gone.unionByName(frame.groupBy("_x").count())
    columns = [F.col(quoted(name)) for name in batch.columns if name not in ACCOUNTING]
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
    from pyspark.sql import functions as F

    contents: Column = F.substring(F.to_json("values", JSON_OPTIONS), 1, MAX_CONTENTS)
    found = rows.select("item", "row", contents.alias("contents")).take(EXAMPLES)
    texts = [
        f"row {row['row']} of {row['item']}: {row['contents']}" if row["item"] else row["contents"]
        for row in found
    ]
    return f"; {what}, for example {', '.join(texts)}" if texts else ""
