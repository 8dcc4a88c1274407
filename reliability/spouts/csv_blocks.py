"""Well-formed CSV in blocks that end with a record, for Arrow: ten times as fast as Python.

Arrow would cut a file anywhere, and then loses a line feed behind a carriage return, or a record
beside a NUL. So this module cuts, at a line end outside quotes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reliability.spouts.filesystem import open_filesystem
from reliability.spouts.records import BYTE_ORDER_MARK, UTF_8, TextFormat, open_text

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

#: bytes that are parsed at once, at least
BLOCK = 1 << 22
_MARK = b"\xef\xbb\xbf"
_QUOTE, _LINE_FEED, _COMMA = b'"\n,'
_BEFORE_QUOTE = (_COMMA, _LINE_FEED, _QUOTE)


class NotRegular(ValueError):
    """A quote stands inside a field without quotes, or Arrow reads other fields: Python must read.

    It is valid CSV all the same.
    """


def read_blocks(path: str, text: TextFormat, width: int) -> Iterator[pa.RecordBatch]:
    """Read CSV whose records are known to be well-formed; an empty field is NULL.

    :raises NotRegular: Arrow cannot read it, or a record has another number of fields
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    is_windows: bool | None = None
    has_header = text.header
    for block in _blocks(path, text.encoding):
        if is_windows is None:
            is_windows = block[: _ends(block)[0]].endswith(b"\r\n")  # as the first record ends
        rest = block
        if has_header:
            rest = _without_first_record(block)
            has_header = len(rest) == len(block)
        if not rest.strip(b"\r\n"):
            continue
        try:
            values = [column.combine_chunks() for column in _parsed(rest, width).columns]
        except pa.ArrowInvalid as error:
            raise NotRegular(str(error)) from error
        if is_windows:  # a line end inside quotes becomes \n, as in any other file
            values = [pc.replace_substring(value, "\r\n", "\n") for value in values]
        yield pa.RecordBatch.from_arrays(values, names=_names(width))


def _parsed(block: bytes, width: int) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    if block.startswith(_MARK):
        raise NotRegular("Arrow takes this character for a byte order mark")
    return csv.read_csv(
        pa.BufferReader(block),
        csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=_names(width)),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict.fromkeys(_names(width), pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _names(width: int) -> list[str]:
    return [str(place) for place in range(width)]


def _blocks(path: str, encoding: str) -> Iterator[bytes]:
    """Yield the file in UTF-8, in parts that end with a record."""
    rest = b""
    for data in _chunks(path, encoding):
        rest += data
        if len(ends := _ends(rest)):
            yield rest[: ends[-1]]
            rest = rest[ends[-1] :]
    if rest:
        yield rest + b"\n"


def _chunks(path: str, encoding: str) -> Iterator[bytes]:
    if encoding != UTF_8:
        with open_text(path, encoding) as text:
            yield text.read(BLOCK).removeprefix(BYTE_ORDER_MARK).encode()
            while found := text.read(BLOCK):
                yield found.encode()
        return
    filesystem, inner = open_filesystem(path)
    with filesystem.open_input_stream(inner) as stream:
        first = stream.read(BLOCK)
        yield first.removeprefix(_MARK)
        while data := stream.read(BLOCK):
            yield data


def _without_first_record(block: bytes) -> bytes:
    """Return what follows the first record, which is not an empty line; all if there is none."""
    start = 0
    for end in _ends(block):
        if block[start:end].strip(b"\r\n"):
            return block[end:]
        start = end
    return block


def _ends(data: bytes) -> np.ndarray:
    """Return where records end, from the beginning of one: behind each line feed outside quotes.

    :raises NotRegular: a quote opens inside a field
    """
    import numpy as np

    read = np.frombuffer(data, np.uint8)
    feeds = np.flatnonzero(read == _LINE_FEED)
    quotes = np.flatnonzero(read == _QUOTE)
    if len(quotes):
        opening = quotes[::2]
        before = read[opening[opening > 0] - 1]
        if not np.isin(before, _BEFORE_QUOTE).all():
            raise NotRegular("a quote stands inside a field")
        feeds = feeds[np.searchsorted(quotes, feeds) % 2 == 0]
    return feeds + 1
