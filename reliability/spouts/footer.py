"""The footer of a Parquet file: the number of rows of each row group, and the columns."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from typing import Any

from reliability.core.errors import FileRefused, ReliabilityError, SourceUnreadable
from reliability.deployment.lazy import pa, pq
from reliability.spouts.file_format import refused
from reliability.spouts.file_item import FileItem
from reliability.spouts.file_names import locate
from reliability.spouts.filesystem import open_filesystem, stat
from reliability.spouts.parquet_columns import columns_of, why_unreadable

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
SIGNATURE_BYTES = 28  # what follows a plain footer if columns are encrypted
# Most footers are read by one request. pyarrow does not repeat a request that a busy store has
# refused if the answer is longer than what it asked for, so nothing short is asked for.
AT_ONCE = 64 * 1024
UNCHANGED_SECONDS = 300  # a file that nobody has written to for so long is not being written
_DELIVER = "deliver the complete file again"


class _NotParquet(Exception):
    """The contents of a file are not those of a complete Parquet file."""


def read_file(path: str) -> FileItem:
    """Describe a Parquet file; raises as `read_with_groups`."""
    return read_with_groups(path)[0]


def read_with_groups(path: str) -> tuple[FileItem, list[FileItem]]:
    """Describe a Parquet file as a whole, and each of its row groups that has rows.

    :raises SourceUnreadable: the file is missing, or incomplete and possibly still being written
    :raises FileRefused: it is incomplete for good, or Spark cannot read it
    """
    try:
        info = stat(path)
        filesystem, inner = open_filesystem(path)
        with filesystem.open_input_file(inner) as file:
            tail = _read_tail(path, file)
    except (OSError, pa.ArrowException) as error:
        raise SourceUnreadable(f"{locate(path)} cannot be read: {error}") from error
    except _NotParquet as error:
        raise _incomplete(path, info.mtime_ns, error) from error
    length = len(tail).to_bytes(4, "little")
    try:
        footer = pq.read_metadata(pa.BufferReader(MAGIC + tail + length + MAGIC))
    except (OSError, pa.ArrowException) as error:
        raise _incomplete(path, info.mtime_ns, error) from error
    # pyarrow ends the process if it looks at the metadata of an encrypted column.
    if len(tail) - footer.serialized_size == SIGNATURE_BYTES:
        raise _encrypted(path)
    if why := why_unreadable(footer):
        what, remedy = why
        raise refused(path, f"{locate(path)}: {what}", remedy)
    whole = FileItem(
        path=path,
        **info._asdict(),
        rows=footer.num_rows,
        footer_digest=hashlib.sha256(tail).hexdigest()[:16],
        columns=columns_of(footer),
    )
    return whole, _groups(whole, footer)


def _incomplete(path: str, mtime_ns: int, error: Exception) -> ReliabilityError:
    what = f"{locate(path)} is not a complete Parquet file: {error}"
    is_final = time.time_ns() - mtime_ns > UNCHANGED_SECONDS * 10**9
    return refused(path, what, _DELIVER) if is_final else SourceUnreadable(what)


def _encrypted(path: str) -> FileRefused:
    remedy = "deliver it without Parquet's encryption, and encrypt the storage instead"
    return refused(path, f"{locate(path)} is encrypted", remedy)


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


def _read_tail(path: str, file: Any) -> bytes:
    """Return the bytes of a Parquet footer: schema, row groups, offsets and statistics."""
    size = file.seek(0, 2)
    file.seek(max(size - AT_ONCE, 0))
    end: bytes = file.read(AT_ONCE)
    length = int.from_bytes(end[-8:-4], "little")
    if end[-4:] == ENCRYPTED_MAGIC:
        raise _encrypted(path)
    if end[-4:] != MAGIC or length + 12 > size:
        raise _NotParquet("it does not end as a Parquet file does; it may be truncated")
    if length + 8 > len(end):
        file.seek(size - 8 - length)
        end = file.read(length + 8)
    return end[-8 - length : -8]
