"""Spouts: what a batch is cut from, and how it is counted at the source, without Spark.

These are the names that a spout of one's own needs; docs/write-a-spout.md shows one.
"""

from reliability.core.errors import (
    NothingToEmit,
    RefreezeNotPossible,
    SchemaMismatch,
    SourceChanged,
    SourceUnreadable,
)
from reliability.core.fold import Fold
from reliability.core.spout import (
    AllocatedItems,
    BatchMeta,
    Interval,
    SourceItem,
    Spout,
    source_item,
)
from reliability.spark.frames.accounting_columns import with_tuple_ids
from reliability.spouts.tuple_ids import fold_rows

__all__ = [
    "AllocatedItems",
    "BatchMeta",
    "Fold",
    "Interval",
    "NothingToEmit",
    "RefreezeNotPossible",
    "SchemaMismatch",
    "SourceChanged",
    "SourceItem",
    "SourceUnreadable",
    "Spout",
    "fold_rows",
    "source_item",
    "with_tuple_ids",
]
