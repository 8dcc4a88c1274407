"""Read a source in Spark's tasks, piece by piece, through Arrow: files, row groups, queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from reliability.deployment.lazy import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Piece = TypeVar("Piece")
_PER_CORE = 4


def frame_of_pieces(
    spark: SparkSession,
    pieces: Sequence[Piece],
    read: Callable[[Piece], Iterator[pa.RecordBatch]],
    schema: StructType | str,
    *,
    shares_tasks: bool = False,
) -> DataFrame:
    """Return the rows of pieces of a source, in a partition for each piece.

    :param read: returns the rows of a piece; Spark pickles it, and the pieces
    :param shares_tasks: a task may read several pieces: there are at most four tasks for each core
    """
    if not pieces:
        return spark.createDataFrame([], schema)
    tasks = len(pieces)
    if shares_tasks:
        tasks = min(tasks, _PER_CORE * spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(pieces), 1, tasks)
    return numbers.mapInArrow(_ReadPieces(pieces, read), schema)


@dataclass(frozen=True, slots=True)
class _ReadPieces(Generic[Piece]):
    pieces: Sequence[Piece]
    read: Callable[[Piece], Iterator[pa.RecordBatch]]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the pieces with these numbers."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self.read(self.pieces[number])
