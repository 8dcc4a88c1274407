"""Read Postgres queries into a DataFrame, one Spark task per query, without a JDBC driver.

A task copies its query's rows out as CSV in one short transaction, and converts them to Arrow
afterwards, so the database never waits for Spark.
"""

from __future__ import annotations

import codecs
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from reliability.core.errors import SchemaMismatch
from reliability.core.types import digits_of
from reliability.deployment.address import DatabaseAddress
from reliability.deployment.lazy import T, pa, pc, sql
from reliability.ledger.connection import SPARK_PATIENCE_SECONDS, LedgerConnection
from reliability.ledger.queries import queries as named_queries
from reliability.spark.frames.pieces import frame_of_pieces
from reliability.spark.frames.values import MAX_CHARACTERS_IN_ERROR
from reliability.spark.stage.task_address import task_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CHUNK_BYTES = 4 << 20
_CONVERSION = re.compile(r"column #(\d+): .*invalid value '(.*)'", re.S)


def read_postgres(
    spark: SparkSession,
    address: DatabaseAddress,
    queries: Sequence[str],
    schema: StructType | str,
) -> DataFrame:
    """Return the rows of all queries as one frame, with a partition for each query.

    Each task reads in its own transaction, and again if Spark runs it again. So the rows that the
    queries select must not change meanwhile.

    :param queries: SELECT statements without parameters; their columns are in the schema's order
    :param schema: integers, float, double, decimal, string, date, timestamp (of a timestamptz),
        timestamp_ntz and boolean; any Postgres type may be read as a string
    :raises SchemaMismatch: the schema has another type
    """
    parsed = T.StructType.fromDDL(schema) if isinstance(schema, str) else schema
    wanted = cast("StructType", parsed)
    task = ReadTask(
        address=task_address(spark, address),
        columns=tuple((field.name, field.dataType.simpleString()) for field in wanted),
    )
    _arrow_types(task.columns)  # refuse a type here, not in a task
    return frame_of_pieces(spark, queries, task.read, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """What a Spark task needs, as plain values: Spark pickles it, and it has no secret."""

    address: DatabaseAddress
    columns: tuple[tuple[str, str], ...]

    def read(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one query."""
        # The rows may not fit into a Python worker's memory.
        with tempfile.TemporaryFile() as file:
            rows = _RowFile(cast(BinaryIO, file))
            statement = sql.SQL(named_queries()["copy_out"]).format(query=sql.SQL(query))
            connection = LedgerConnection(
                self.address,
                "reliability read",
                opens_within=SPARK_PATIENCE_SECONDS,
                reads_only=True,
            )
            with connection, connection.transaction(reads_only=True) as tx:
                tx.cursor.copy_expert(statement, rows)
            for chunk in rows.chunks():
                yield from _to_arrow(chunk, self.columns)


class _RowFile:
    """Store the rows that COPY writes, one per call, and return them in chunks of whole rows.

    pyarrow reads in blocks and cannot parse a row that is longer than one; a chunk is one block.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ends = [0]

    def write(self, row: bytes) -> None:
        self._file.write(row)
        end = self._file.tell()
        if end - self._ends[-1] >= CHUNK_BYTES:
            self._ends.append(end)

    def chunks(self) -> Iterator[bytes]:
        self._ends.append(self._file.tell())
        self._file.seek(0)
        for first, last in zip(self._ends, self._ends[1:], strict=False):
            if last > first:
                yield self._file.read(last - first)


def _to_arrow(chunk: bytes, columns: tuple[tuple[str, str], ...]) -> list[pa.RecordBatch]:
    from pyarrow import csv

    types = _arrow_types(columns)
    marked = codecs.BOM_UTF8 + chunk  # Arrow skips one, or else a text's first character
    # pyarrow's own conversion of text to decimals overflows silently.
    parsed = {n: pa.string() if pa.types.is_decimal(type_) else type_ for n, type_ in types.items()}
    try:
        table = csv.read_csv(
            io.BytesIO(marked),
            csv.ReadOptions(column_names=[*types], block_size=len(marked) + 1, use_threads=False),
            # A row of one column that is NULL is an empty line.
            csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            csv.ConvertOptions(
                column_types=parsed,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )
    except pa.ArrowInvalid as error:  # a day or time that Spark does not have, such as infinity
        if (match := _CONVERSION.search(str(error))) is None:
            raise
        name, type_ = columns[int(match[1])]
        raise _unreadable(name, match[2], type_) from error
    for index, (name, type_) in enumerate(types.items()):
        if pa.types.is_decimal(type_):
            table = table.set_column(index, name, _decimals(name, table.column(index), type_))
    return cast("list[pa.RecordBatch]", table.to_batches())


def _decimals(name: str, texts: pa.ChunkedArray, type_: pa.Decimal128Type) -> pa.ChunkedArray:
    """Convert Postgres's text of numbers; raise SchemaMismatch if one would lose a digit."""
    whole = max(type_.precision - type_.scale, 1)
    fits = pc.match_substring_regex(
        texts, rf"^-?\d{{1,{whole}}}(\.\d{{0,{max(type_.scale, 0)}}}0*)?$"
    )
    if pc.all(fits).as_py() is False:
        value = texts.filter(pc.invert(fits))[0].as_py()
        raise _unreadable(name, value, f"decimal({type_.precision},{type_.scale})")
    zeros = rf"(\.\d{{{type_.scale}}})0*$" if type_.scale else r"()\.0*$"
    return pc.replace_substring_regex(texts, zeros, r"\1").cast(type_)


def _unreadable(name: str, value: str, type_: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"column {name}: {value[:MAX_CHARACTERS_IN_ERROR]} is no {type_}, as which it is read; "
        f"types={{'{name}': 'string'}} of the TableSpout or types={{'STATE.{name}': 'string'}} of "
        "the Step reads any value",
    )


def _arrow_types(columns: tuple[tuple[str, str], ...]) -> dict[str, pa.DataType]:
    return {name: _arrow_type(name, type_) for name, type_ in columns}


def _arrow_type(name: str, type_: str) -> pa.DataType:
    types = {
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "boolean": pa.bool_(),
    }
    if type_ in types:
        return types[type_]
    if (digits := digits_of(type_)) is None:
        raise SchemaMismatch(
            f"column {name}: {type_} cannot be read from Postgres",
            remedy="read the column as a string.",
        )
    return pa.decimal128(sum(digits), digits[1])
