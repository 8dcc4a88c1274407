"""The frame of a batch of files: Parquet, text whose records are numbered, or only counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from reliability.core.column import quoted
from reliability.core.errors import FileRefused, SchemaMismatch, SourceUnreadable
from reliability.core.spout import BatchMeta, Verdict
from reliability.spark.frames import METADATA, check_source_columns, with_tuple_ids
from reliability.spark.values import as_text, as_typed
from reliability.spouts.drift import REFUSE, batch_columns, by_columns
from reliability.spouts.drift_frame import converted, united
from reliability.spouts.file_item import FileItem, ordinals
from reliability.spouts.file_names import GLOB_IN_SPARK, locate, name_in_spark
from reliability.spouts.filesystem import find_files
from reliability.spouts.parquet import check_one_schema, read_file
from reliability.spouts.patterns import match_any_interval
from reliability.spouts.records import TextFormat
from reliability.spouts.text import line_end
from reliability.spouts.text_frame import text_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType


#: up to so many files are told apart by their sizes, which costs less than by their names
FILES_BY_SIZE = 16


class Format(Protocol):
    """How the files of a spout are read."""

    @property
    def format(self) -> str: ...
    @property
    def schema(self) -> str: ...
    @property
    def header(self) -> bool: ...
    @property
    def pattern(self) -> str: ...
    @property
    def text(self) -> TextFormat: ...
    @property
    def mask_malformed(self) -> bool: ...
    @property
    def drift(self) -> str: ...


def file_frame(spark: SparkSession, spout: Format, meta: BatchMeta) -> DataFrame:
    """Read a batch of files.

    It may have none: an opaque spout's, one whose files are all excluded, or one that was refrozen
    after its files were deleted.

    :raises SchemaMismatch: it has none, and nothing tells the columns
    """
    if not meta.items:
        return _empty_frame(spark, spout)
    if meta.verdict is Verdict.COUNTED:
        return _counted_text(spark, spout, meta)
    if spout.format != "parquet":
        return text_frame(spark, spout.text, spout.schema, meta, is_masked=spout.mask_malformed)
    return _parquet_frame(spark, spout, meta)


def _parquet_frame(spark: SparkSession, spout: Format, meta: BatchMeta) -> DataFrame:
    if spout.drift != REFUSE:
        return _drifting_frame(spark, spout, meta)
    if len(paths := ordinals(meta.items)) > 1:
        check_one_schema(read_file(path) for path in paths)
    frame = spark.read.parquet(*_paths(meta))
    if spout.schema:
        _check_schema(spark, spout.schema, frame)
    return _accounted(frame, meta)


def _drifting_frame(spark: SparkSession, spout: Format, meta: BatchMeta) -> DataFrame:
    """Read files of other columns than the declared ones, each by its own columns (E8)."""
    files = [read_file(path) for path in ordinals(meta.items)]
    wanted = batch_columns(files, spout.schema, spout.drift)
    read = {
        own: spark.read.parquet(*[_literal_path(locate(item.path)) for item in alike])
        for own, alike in by_columns(files).items()
    }
    schemas = [spark.createDataFrame([], spout.schema).schema, *(f.schema for f in read.values())]
    in_spark = {f.dataType.simpleString(): f.dataType for schema in schemas for f in schema}
    return united(
        [converted(_accounted(f, meta), own, wanted, in_spark) for own, f in read.items()]
    )


def _accounted(frame: DataFrame, meta: BatchMeta) -> DataFrame:
    ordinal = _ordinal_of_file(frame, meta)
    row = _metadata(frame, "row_index")
    return with_tuple_ids(frame.where(_is_in_batch(meta, ordinal, row)), ordinal, row)


def _counted_text(spark: SparkSession, spout: Format, meta: BatchMeta) -> DataFrame:
    """Read text by Spark's own readers; a record that does not fit the schema is an error.

    The hash covers every column. Otherwise Spark would not convert a column that no state uses,
    and an invalid value in it would pass.
    """
    from pyspark.sql import functions as F

    schema = spark.createDataFrame([], spout.schema).schema
    check_source_columns(schema.names)
    reader = spark.read.schema(as_text(schema)).option("mode", "FAILFAST")
    reader = reader.option("columnNameOfCorruptRecord", _unused_name(schema.names))
    is_csv = spout.format == "csv"
    read = _read_csv(reader, spout, meta) if is_csv else [reader.json(_paths(meta))]
    frames = [as_typed(frame, schema, is_base64=not is_csv) for frame in read]
    row = F.xxhash64(F.monotonically_increasing_id(), *[F.col(quoted(c)) for c in schema.names])
    accounted = [with_tuple_ids(frame, _ordinal_of_file(frame, meta), row) for frame in frames]
    return reduce(lambda one, other: one.union(other), accounted)


def _read_csv(reader: DataFrameReader, spout: Format, meta: BatchMeta) -> Iterator[DataFrame]:
    """Read RFC 4180 as Python's csv module counts it; a header must match the schema.

    Spark gets the line end of each file. Otherwise it would choose the first one that it finds,
    even inside quotes, and keep half of the others in the values.
    """
    from pyspark.sql import functions as F

    ends: dict[str, list[str]] = {}
    for path in ordinals(meta.items):
        ends.setdefault(line_end(path), []).append(_literal_path(locate(path)))
    reader = reader.options(header=spout.header, enforceSchema=not spout.header)
    for end, paths in ends.items():
        frame = reader.options(multiLine=True, escape='"', lineSep=end).csv(paths)
        if end == "\r\n":  # a line end inside quotes becomes \n, as in any other file
            values = {
                c: F.replace(F.col(quoted(c)), F.lit(end), F.lit("\n")) for c in frame.columns
            }
            frame = frame.withColumns(values)
        yield frame


def _unused_name(columns: Sequence[str]) -> str:
    # Spark would fill a column of this name itself, with NULL.
    return max(("_", *columns), key=len) + "_"


def _empty_frame(spark: SparkSession, spout: Format) -> DataFrame:
    from pyspark.sql import functions as F

    schema = spout.schema or _schema_of_any_file(spark, spout.pattern)
    return with_tuple_ids(spark.createDataFrame([], schema), F.lit(0), F.lit(0))


def _schema_of_any_file(spark: SparkSession, pattern: str) -> StructType:
    """Return the columns of the last readable file of the pattern, whatever its interval."""
    for path in sorted(find_files(match_any_interval(pattern)), reverse=True):
        with suppress(SourceUnreadable, FileRefused):
            read_file(path)
            return spark.read.parquet(_literal_path(locate(path))).schema
    raise SchemaMismatch(
        f"the batch has no files, and no file matches {match_any_interval(pattern)}, so nothing "
        "tells its columns",
        remedy="set schema= in the FileSpout, restore a file, or run `reliability skip` for the "
        "txid.",
    )


def _paths(meta: BatchMeta) -> list[str]:
    return [_literal_path(locate(path)) for path in ordinals(meta.items)]


def _literal_path(path: str) -> str:
    # Spark reads a path as a glob.
    return "".join(f"\\{c}" if c in GLOB_IN_SPARK else c for c in path)


def _check_schema(spark: SparkSession, schema: str, frame: DataFrame) -> None:
    wanted = spark.createDataFrame([], schema)
    if wanted.dtypes != frame.dtypes:
        raise SchemaMismatch(
            f"the files have the columns {frame.dtypes}, the spout's schema has {wanted.dtypes}",
            remedy="correct the spout's schema, or the files at the source.",
        )


def _ordinal_of_file(frame: DataFrame, meta: BatchMeta) -> Column:
    """Map a row to its file's ordinal; a file that is not in the batch has a NULL ordinal.

    Its rows do not balance. A few files of different sizes are told by these: Spark compares a
    number in a twentieth of the time that it takes to look up a path.
    """
    from pyspark.sql import functions as F

    places = ordinals(meta.items)
    sizes = {i.size: places[i.path] for i in meta.items if isinstance(i, FileItem)}
    if len(sizes) < len(places) or len(places) > FILES_BY_SIZE:
        return _ordinal_by_path(frame, meta)
    found = F.lit(None).cast("bigint")
    for size, ordinal in sizes.items():
        found = F.when(_metadata(frame, "file_size") == size, F.lit(ordinal)).otherwise(found)
    return found


def _ordinal_by_path(frame: DataFrame, meta: BatchMeta) -> Column:
    """Map a row to its file's ordinal, by the whole path: two files may have one base name."""
    from pyspark.sql import functions as F

    by_path = {locate(path): ordinal for path, ordinal in ordinals(meta.items).items()}
    pairs: list[Column] = []
    for uri in frame.inputFiles():
        # For the same file, _metadata.file_path has file:/… and inputFiles() has file:///…
        as_in_metadata = uri.replace("file:///", "file:/", 1)
        ordinal = by_path.get(name_in_spark(uri))
        pairs += [F.lit(as_in_metadata), F.lit(ordinal).cast("bigint")]
    return F.element_at(F.create_map(*pairs), _metadata(frame, "file_path"))


def _metadata(frame: DataFrame, field: str) -> Column:
    # By its name alone it could be a column of the file.
    return frame.metadataColumn(METADATA).getField(field)


def _is_in_batch(meta: BatchMeta, ordinal: Column, row: Column) -> Column:
    """Say whether a row is in one of the row groups that the batch has of its file."""
    from pyspark.sql import functions as F

    by_path = ordinals(meta.items)
    pieces = [i for i in meta.items if isinstance(i, FileItem) and not i.is_whole]
    found = ~ordinal.isin([by_path[piece.path] for piece in pieces]) if pieces else F.lit(True)
    for piece in pieces:
        rows = row.between(piece.first_row, piece.first_row + piece.rows - 1)
        found = found | ((ordinal == by_path[piece.path]) & rows)
    return found
