"""Well-formed CSV in blocks that end with a record, for Arrow: ten times as fast as Python.

Arrow would cut a file anywhere, and then loses a line feed behind a carriage return, or a record
beside a NUL. So this module cuts, at a line end outside quotes.
"""

from __future__ import annotations

from collections.abc import Iterator

from reliability.deployment.lazy import np, pa, pc
from reliability.spouts.records import BYTE_ORDER_MARK, open_text
from reliability.spouts.text import Csv

#: characters that are parsed at once, at least
BLOCK = 1 << 22
_MARK = BYTE_ORDER_MARK.encode()
_QUOTE, _LINE_FEED, _COMMA = b'"\n,'
_BEFORE_QUOTE = (_COMMA, _LINE_FEED, _QUOTE)


class NotRegular(ValueError):
    """A quote stands inside a field without quotes, or Arrow reads other fields: Python must read.

    It is valid CSV all the same.
    """


def read_blocks(path: str, text: Csv, width: int) -> Iterator[list[pa.Array]]:
    """Yield columns of CSV whose records are known to be well-formed; an empty field is NULL.

    :raises NotRegular: Arrow cannot read it, or a record has another number of fields
    """
    is_windows: bool | None = None
    has_header = text.header
    for block in _blocks(path, text.encoding):
        if is_windows is None:
            is_windows = block[: _ends(block)[0]].endswith(b"\r\n")  # as the first record ends
        records = block.lstrip(b"\r\n")
        if not records:
            continue
        try:
            table = _parsed(records, width, skipped=int(has_header))
        except pa.ArrowInvalid as error:
            raise NotRegular(str(error)) from error
        has_header = False
        values = [column.combine_chunks() for column in table.columns]
        if is_windows:  # a line end inside quotes becomes \n, as in any other file
            values = [pc.replace_substring(value, "\r\n", "\n") for value in values]
        yield values


def _parsed(block: bytes, width: int, skipped: int) -> pa.Table:
    from pyarrow import csv

    names = [str(place) for place in range(width)]
    marked = _MARK + block  # Arrow skips one, or else a text's first character
    return csv.read_csv(
        pa.BufferReader(marked),
        csv.ReadOptions(
            use_threads=False,
            block_size=len(marked) + 1,
            column_names=names,
            skip_rows_after_names=skipped,
        ),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


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
    with open_text(path, encoding) as text:
        yield text.read(BLOCK).removeprefix(BYTE_ORDER_MARK).encode()
        while part := text.read(BLOCK):
            yield part.encode()


def _ends(data: bytes) -> np.ndarray:
    """Return where records end, from the beginning of one: behind each line feed outside quotes.

    :raises NotRegular: a quote opens inside a field
    """
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
