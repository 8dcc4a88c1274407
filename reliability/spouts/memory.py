"""MemorySpout: rows in the topology's own module, after Storm's MemoryTransactionalSpout.

The rows in the code must not change. If rows disappear, the attempt fails (SOURCE_CHANGED); if a
row is replaced, nobody notices. The spout is untimed: its first run emits everything, later runs
emit what was appended to a partition since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from reliability.core.column import quoted
from reliability.core.errors import InvalidDefinition, SourceChanged
from reliability.core.fold import Fold, reserved
from reliability.core.spout import (
    AllocatedItems,
    BatchMeta,
    Interval,
    SourceItem,
    Spout,
    only,
    source_item,
)
from reliability.deployment.lazy import F
from reliability.spark.frames.values import check_value
from reliability.spouts.tuple_ids import fold_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySlice(SourceItem):
    """Rows [offset, offset + rows) of one partition of a memory spout."""

    kind: ClassVar[str] = "memory"
    partition: int
    offset: int
    rows: int

    @property
    def identity(self) -> str:
        return f"memory:{self.partition}:{self.offset}"


@dataclass(frozen=True)
class MemorySpout(Spout):
    """Partitions of rows.

    :param schema: column name -> type, in the order of a row's values
    :param partitions: rows as tuples, or bare values if the schema has one column
    :param take: the most rows that a batch has of each partition
    :param opaque: a new attempt of a txid may read other rows, until the txid commits
    """

    schema: Mapping[str, str]
    partitions: Sequence[Sequence[Any]]
    take: int
    opaque: bool = False

    def __post_init__(self) -> None:
        if self.take < 1:
            raise InvalidDefinition("MemorySpout: take must be at least 1")
        if taken := reserved(self.schema):
            raise InvalidDefinition(f"MemorySpout: the library adds the columns {taken} itself")

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        """List every new row as an item, so that a change of `take` emits no old row again."""
        rows = [
            MemorySlice(partition=partition, offset=offset, rows=1)
            for partition, rows in enumerate(self.partitions)
            for offset in range(len(rows))
        ]
        known = allocated.which([row.identity for row in rows])
        return [row for row in rows if row.identity not in known]

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Put the next `take` rows of each partition into a batch, until none is left."""
        rows, numbers = only(MemorySlice, items), range(len(self.partitions))
        partitions = [[row for row in rows if row.partition == number] for number in numbers]
        longest = max(map(len, partitions), default=0)
        return [
            tuple(row for part in partitions for row in part[first : first + self.take])
            for first in range(0, longest, self.take)
        ]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        return Fold.of(fold_rows(ordinal, item.rows) for ordinal, item in enumerate(items))

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if the code no longer holds the rows of a slice."""
        for item in only(MemorySlice, meta.items):
            if len(self.rows_of(item)) != item.rows:
                raise SourceChanged(f"{item.identity} no longer has the {item.rows} rows it had")

    def refresh(self, meta: BatchMeta) -> list[SourceItem]:
        """Return the slices with the number of rows that the code now has of each."""
        counts = [(item, len(self.rows_of(item))) for item in only(MemorySlice, meta.items)]
        return [replace(item, rows=rows) for item, rows in counts if rows]

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Return the rows; raise SchemaMismatch if a value does not fit its column."""
        rows = [
            (*row, ordinal, index)
            for ordinal, item in enumerate(only(MemorySlice, meta.items))
            for index, row in enumerate(self.rows_of(item))
        ]
        columns = ", ".join(f"{quoted(name)} {type_}" for name, type_ in self.schema.items())
        schema = spark.createDataFrame([], f"{columns}, _x bigint, _n bigint").schema
        for row in rows:
            for field, value in zip(schema, row, strict=False):  # Spark refuses another length
                check_value(field.name, value, field.dataType)
        frame = spark.createDataFrame(rows, schema)
        # Until here, `_x` holds the ordinal and `_n` the index of the row.
        return frame.withColumns({"_x": F.xxhash64("_x", "_n"), "_n": F.lit(1).cast("bigint")})

    def rows_of(self, item: MemorySlice) -> list[tuple[Any, ...]]:
        if item.partition >= len(self.partitions):
            return []
        rows = self.partitions[item.partition][item.offset : item.offset + item.rows]
        return [row if isinstance(row, tuple) else (row,) for row in rows]
