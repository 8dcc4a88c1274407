"""What Spark tells of a row's file: which one of the batch it is, and where the row is in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from reliability.deployment.lazy import F
from reliability.spark.frames.accounting_columns import METADATA
from reliability.spark.frames.jvm import has_file_system, hide
from reliability.spouts.file_item import FileItem
from reliability.spouts.file_names import (
    GLOB_IN_SPARK,
    STORES,
    identity_of_uri,
    is_uri,
    locate,
    name_in_spark,
    split_uri,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: up to so many files are told apart by their sizes, which costs less than by their names
FILES_BY_SIZE = 16


def reads_by_spark(spark: SparkSession, path: str) -> bool:
    """Say whether Spark's JVM has a file system for a file."""
    return not is_uri(path) or _scheme(spark, split_uri(path)[0]) is not None


def as_spark_reads(spark: SparkSession, paths: Iterable[str]) -> list[str]:
    """Return where files are, as Spark wants it: it reads a path as a glob.

    Hadoop calls S3 `s3a`, and takes a path without a scheme for one of its default file system.
    """
    places = (_in_hadoop(spark, locate(path)) for path in paths)
    return ["".join(f"\\{c}" if c in GLOB_IN_SPARK else c for c in place) for place in places]


def _in_hadoop(spark: SparkSession, place: str) -> str:
    scheme, found, rest = place.partition("://")
    return f"{_scheme(spark, scheme) or scheme}://{rest}" if found else f"file://{place}"


def _scheme(spark: SparkSession, scheme: str) -> str | None:
    """Return by which scheme Spark reads a store; None if it cannot."""
    schemes = next((schemes for schemes in STORES if scheme in schemes), ())
    return next((s for s in (scheme, *schemes) if has_file_system(spark, s)), None)


def metadata(frame: DataFrame, field: str) -> Column:
    """Return what Spark tells of a row's file; by its name alone it could be a column of its."""
    return frame.metadataColumn(METADATA).getField(field)


def has_metadata(names: Iterable[str]) -> bool:
    """Say whether a column of the user's is called like what Spark tells of a row's file."""
    return METADATA in {name.lower() for name in names}


def place_in(path: Column, row: Column) -> Column:
    """Return what Spark itself would tell first of a row's file.

    :param path: of the file
    :param row: the index of the row in it
    """
    name = F.element_at(F.split(path, "/"), -1)
    return F.struct(path.alias("file_path"), name.alias("file_name"), row.alias("row_index"))


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames; where they come from, in the last column, is hidden.

    Spark hides that of a file's rows itself, and loses it in a union.
    """
    frame = reduce(lambda one, other: one.union(other), frames)
    return hide(frame, [METADATA]) if frame.columns[-1] == METADATA else frame


def ordinal_in(frame: DataFrame, files: Iterable[FileItem], places: Mapping[str, int]) -> Column:
    """Map a row to the ordinal of its file, which is NULL for a file that is not among these.

    Its rows do not balance. A few files of different sizes are told by these: Spark compares a
    number in a twentieth of the time that it takes to look up a path.

    :param places: path -> ordinal
    """
    sizes = {item.size: places[item.path] for item in files}
    if len(sizes) < len(places) or len(places) > FILES_BY_SIZE:
        return _ordinal_by_path(frame, places)
    ordinal_of = F.lit(None).cast("bigint")
    for size, ordinal in sizes.items():
        is_this_file = metadata(frame, "file_size") == size
        ordinal_of = F.when(is_this_file, F.lit(ordinal)).otherwise(ordinal_of)
    return ordinal_of


def _ordinal_by_path(frame: DataFrame, places: Mapping[str, int]) -> Column:
    """Map a row to its file's ordinal, by the whole path: two files may have one base name."""
    by_path = {identity_of_uri(locate(path)): ordinal for path, ordinal in places.items()}
    pairs: list[Column] = []
    for uri in frame.inputFiles():
        # For the same file, _metadata.file_path has file:/… and inputFiles() has file:///…
        as_in_metadata = uri.replace("file:///", "file:/", 1)
        ordinal = by_path.get(identity_of_uri(name_in_spark(uri)))
        pairs += [F.lit(as_in_metadata), F.lit(ordinal).cast("bigint")]
    return F.element_at(F.create_map(*pairs), metadata(frame, "file_path"))
