"""Encode Arrow batches as the CSV that COPY reads: the other way, to compare the binary one with.

Every string is quoted, NULL is empty.

pyarrow writes scalars in a form that Postgres reads. Arrays and bytes become strings in Postgres's
own notation first.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def encode_csv(batch: pa.RecordBatch) -> io.BytesIO:
    """Return the rows of a batch as CSV, positioned at the start."""
    import pyarrow as pa
    from pyarrow import csv

    columns = [_for_postgres(column) for column in batch.columns]
    rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    buffer = io.BytesIO()
    csv.write_csv(rows, buffer, csv.WriteOptions(include_header=False))
    buffer.seek(0)
    return buffer


def _for_postgres(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _array_literals(column)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array(
            [None if value is None else "\\x" + value.hex() for value in column.to_pylist()],
            pa.large_string(),
        )
    return _in_utc(column)


def _in_utc(column: pa.Array) -> pa.Array:
    # pyarrow writes offsets in minutes; before about 1900, offsets of zones other than UTC had
    # seconds, which would be lost.
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp(column.type.unit, "UTC"))
    return column


def _array_literals(column: pa.Array) -> pa.Array:
    """Write arrays of scalars as {"a","b",NULL}; the quotes make every element unambiguous.

    >>> import pyarrow as pa
    >>> _array_literals(pa.array([["a,b", None, "NULL"], [], None])).to_pylist()
    ['{"a,b",NULL,"NULL"}', '{}', None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    elements = _quoted(column.flatten())
    comma = pa.scalar(",", elements.type)
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, elements), comma)
    literals = _enclosed("{", joined, "}")
    return pc.if_else(column.is_valid(), literals, pa.scalar(None, literals.type))


def _quoted(elements: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = _in_utc(elements).cast(pa.large_string())
    for character in ("\\", '"'):
        text = pc.replace_substring(text, character, "\\" + character)
    return pc.fill_null(_enclosed('"', text, '"'), "NULL")


def _enclosed(left: str, text: pa.Array, right: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    before, after, nothing = (pa.scalar(part, text.type) for part in (left, right, ""))
    return pc.binary_join_element_wise(before, text, after, nothing)
