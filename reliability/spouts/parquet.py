"""Parquet files at the source: the footer has the number of rows of each row group."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reliability.core.errors import SchemaMismatch, SourceUnreadable
from reliability.core.spout import BatchMeta
from reliability.spouts.file_item import FileItem
from reliability.spouts.filesystem import open_filesystem, stat
from reliability.spouts.names import locate

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MAGIC = b"PAR1"


def read_file(path: str) -> FileItem:
    """Describe a Parquet file; raise SourceUnreadable if it is missing or not complete."""
    return read_with_groups(path)[0]


def read_with_groups(path: str) -> tuple[FileItem, list[FileItem]]:
    """Describe a Parquet file as a whole, and each of its row groups that has rows.

    :raises SourceUnreadable: the file is missing or not complete
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        info = stat(path)
        filesystem, inner = open_filesystem(path)
        with filesystem.open_input_file(inner) as file:
            digest = _footer_digest(file)
            footer = pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise SourceUnreadable(f"{locate(path)} is not a complete Parquet file: {error}") from error
    whole = FileItem(
        path=path,
        size=info.size,
        mtime_ns=info.mtime_ns,
        etag=info.etag,
        rows=footer.num_rows,
        footer_digest=digest,
    )
    return whole, _groups(whole, footer)


def _groups(whole: FileItem, footer: pq.FileMetaData) -> list[FileItem]:
    groups = []
    first_row = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = range(group.num_columns)
        groups.append(
            replace(
                whole,
                first_group=number,
                last_group=number + 1,
                first_row=first_row,
                rows=group.num_rows,
                group_bytes=sum(group.column(n).total_compressed_size for n in columns),
            )
        )
        first_row += group.num_rows
    return [group for group in groups if group.rows]


def _footer_digest(file: Any) -> str:
    """Return a digest of a Parquet footer: schema, row groups, offsets and statistics."""
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length + 12 > size:
        raise OSError("it does not end as a Parquet file does; it may be truncated")
    file.seek(size - 8 - length)
    return hashlib.sha256(file.read(length)).hexdigest()[:16]


def check_one_schema(meta: BatchMeta) -> None:
    """Raise SchemaMismatch if the files of a batch differ in their columns.

    Spark reads all of them by the schema of the first, and reads missing columns as NULL.
    """
    import pyarrow.parquet as pq

    schemas: list[tuple[str, Any]] = []
    for path in dict.fromkeys(item.path for item in meta.items if isinstance(item, FileItem)):
        filesystem, inner = open_filesystem(path)
        schemas.append((path, pq.read_schema(inner, filesystem=filesystem)))
    for path, schema in schemas[1:]:
        if not schema.equals(schemas[0][1]):
            raise SchemaMismatch(
                f"{path} and {schemas[0][0]} have different columns",
                remedy="correct the files at the source, or put one file into each batch with "
                "max_files_per_batch=1.",
            )
