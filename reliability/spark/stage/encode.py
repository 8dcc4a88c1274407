"""Encode Arrow batches as the binary rows that COPY reads.

pgpq writes Arrow's own types as Postgres's receive functions read them. A column of another width
is cast first. Where Arrow has no such type, the column becomes the bytes that Postgres expects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reliability.core.errors import SchemaMismatch
from reliability.core.types import MAX_CHARACTERS_OF_A_NUMBER, UUID_FORM, base_type, numeric_form
from reliability.deployment.lazy import np, pa, pc
from reliability.spark.frames.values import MAX_CHARACTERS_IN_ERROR

EMPTY = b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xff"  # a COPY without rows: header, trailer
_EPOCH_MICROSECONDS = 946_684_800_000_000  # from 1970 to 2000, where Postgres's times begin
# Counted from there, these are the numbers of Postgres's -infinity.
_FIRST_DAY = -(1 << 31) + 10_957
_FIRST_MICROSECOND = -(1 << 63) + _EPOCH_MICROSECONDS
_ARROW = {
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "real": "float32",
    "double precision": "float64",
}
# The sign of a number, as numeric_recv reads it.
_NEGATIVE = 0x4000
_NAN = 0xC000
_INFINITE = (0xF000, 0xD000)  # -Infinity, Infinity
_CHARACTERS_AT_ONCE = 1 << 22
_FIRST_YEAR = "correct the value at the source; the first day of Postgres is in 4713 BC."
# An array names the type of its elements, and pgpq names another one for these (pg_type.oid).
_ELEMENTS = {"uuid": 2950, "character varying": 1043, "timestamp with time zone": 1184}


class Chunks:
    """The bytes of an iterator, read as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size` if it is not negative; empty at the end."""
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._chunk = memoryview(chunk)
        size = len(self._chunk) if size < 0 else size
        taken, self._chunk = self._chunk[:size], self._chunk[size:]
        return bytes(taken)


def encode(batches: Iterator[pa.RecordBatch], types: Mapping[str, str]) -> Iterator[bytes]:
    """Yield a binary COPY of the batches' columns.

    :param types: column -> Postgres type, in COPY's order
    :raises SchemaMismatch: a value does not fit its type; others are rejected by Postgres
    """
    import pgpq

    encoder = None
    for batch in batches:
        try:
            columns = [_column(name, batch.column(name), type_) for name, type_ in types.items()]
            rows = pa.RecordBatch.from_arrays(columns, names=list(types))
            if encoder is None:
                encoder = pgpq.ArrowToPostgresBinaryEncoder(rows.schema)
                yield encoder.write_header()
            yield encoder.write_batch(rows)
        except ValueError as error:
            what = f"a value does not fit its column: {error}"
            has_times = any(pa.types.is_temporal(column.type) for column in batch.columns)
            raise SchemaMismatch(what, remedy=_FIRST_YEAR if has_times else None) from error
    yield EMPTY if encoder is None else encoder.finish()


def _column(name: str, column: pa.Array, type_: str) -> pa.Array:
    """Return a column as pgpq writes it for this Postgres type."""
    base, is_array = base_type(type_)
    if not is_array:
        return _scalars(name, column, type_)
    elements = _scalars(name, column.flatten(), type_.removesuffix("[]"))
    if base in _ELEMENTS:
        return _array_bytes(column, elements, _ELEMENTS[base])
    return _lists(column, elements)


def _scalars(name: str, column: pa.Array, type_: str) -> pa.Array:
    base, _ = base_type(type_)
    match base:
        case "smallint" | "integer" | "bigint" | "real" | "double precision":
            return column.cast(getattr(pa, _ARROW[base])())
        case "numeric" if pa.types.is_integer(column.type):
            return column.cast(pa.int64()).cast(pa.decimal128(19, 0))
        case "numeric" if not pa.types.is_decimal(column.type):
            _check_form(name, column, numeric_form(type_), type_)
            return _numbers(column)
        case "uuid":
            _check_form(name, column, UUID_FORM, type_)
            return _uuids(column)
        case "jsonb":  # its format has a version in front
            return _joined(b"\x01", column)
        case "date":
            _check_finite(name, column, _FIRST_DAY)
        case "timestamp without time zone" | "timestamp with time zone":
            _check_finite(name, column, _FIRST_MICROSECOND)
    return column


def _check_finite(name: str, column: pa.Array, infinity: int) -> None:
    """Raise SchemaMismatch for the one value that Postgres would read as -infinity."""
    numbers = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    if pc.any(pc.equal(numbers, pa.scalar(infinity, numbers.type))).as_py():
        raise SchemaMismatch(f"column {name}: a day or time is out of range", remedy=_FIRST_YEAR)


def _check_form(name: str, texts: pa.Array, form: str, type_: str) -> None:
    """Raise SchemaMismatch unless all texts have the form of their type."""
    has_form = pc.match_substring_regex(texts, f"^(?:{form})$")
    is_short = pc.less_equal(pc.utf8_length(texts), MAX_CHARACTERS_OF_A_NUMBER)
    wrong = texts.filter(pc.invert(pc.and_(has_form, is_short)))
    if len(wrong):
        raise SchemaMismatch(
            f"column {name}: {wrong[0].as_py()[:MAX_CHARACTERS_IN_ERROR]!r} is not a valid {type_}",
            remedy="correct the value at the source, or give the column another type.",
        )


def _numbers(column: pa.Array) -> pa.Array:
    """Read the texts of numbers, which may have more digits than Arrow's decimals, or be NaN."""
    longest = pc.max(pc.utf8_length(column)).as_py() or 1
    rows = max(_CHARACTERS_AT_ONCE // longest, 1)
    parts = [_numeric_bytes(column.slice(n, rows)) for n in range(0, len(column), rows)]
    return pa.concat_arrays(parts) if parts else column.cast(pa.large_binary())


def _numeric_bytes(texts: pa.Array) -> pa.Array:
    """Return the numbers as Postgres's numeric_recv reads them.

    A number has a head of four 16-bit integers, and then its digits to the base of 10,000. The head
    says how many of these digits there are, the weight of the first one, the sign, and how many
    decimal digits are shown after the point. numeric_recv removes zeros at both ends, so all
    numbers here have equally many digits before the point, and equally many after it.
    """
    is_finite, is_negative = pc.match_substring_regex(texts, "[0-9]"), pc.starts_with(texts, "-")
    finite = pc.utf8_ltrim(pc.fill_null(pc.if_else(is_finite, texts, "0"), "0"), "+-")
    whole = pc.replace_substring_regex(finite, r"[.].*", "")
    fraction = pc.replace_substring_regex(finite, "^[0-9]+[.]?", "")
    before, after = (-(-pc.max(pc.utf8_length(part)).as_py() // 4) for part in (whole, fraction))
    padded = pc.utf8_lpad(whole, 4 * before, "0"), pc.utf8_rpad(fraction, 4 * after, "0")
    joined = pc.binary_join_element_wise(*padded, pa.scalar("", whole.type)).buffers()[2]
    each = np.frombuffer(joined, np.uint8, len(texts) * 4 * (before + after)).astype(np.int16)
    ones = each.reshape(len(texts), -1, 4) - ord("0")
    digits = ((ones[..., 0] * 10 + ones[..., 1]) * 10 + ones[..., 2]) * 10 + ones[..., 3]
    infinite = pc.if_else(pc.equal(texts, "NaN"), _NAN, pc.if_else(is_negative, *_INFINITE))
    sign = pc.if_else(is_finite, pc.if_else(is_negative, _NEGATIVE, 0), infinite)
    head = [
        np.full(len(texts), before + after),
        np.full(len(texts), before - 1),
        pc.fill_null(sign, 0).to_numpy(),
        pc.utf8_length(fraction).to_numpy(),
    ]
    values = _big_endian(np.hstack([np.stack(head, axis=1), digits]), ">i2")
    return pc.if_else(texts.is_valid(), values, pa.scalar(None, values.type))


def _uuids(column: pa.Array) -> pa.Array:
    """Read strings as Postgres does: braces, hyphens and upper case do not matter."""
    digits = pc.fill_null(pc.replace_substring_regex(column, "[-{}]", ""), "0" * 32)
    data = pa.py_buffer(bytes.fromhex("".join(digits.to_pylist())))
    values = pa.Array.from_buffers(pa.binary(16), len(column), [None, data])
    return pc.if_else(column.is_valid(), values, pa.scalar(None, values.type))


def _lists(column: pa.Array, elements: pa.Array) -> pa.Array:
    offsets = _offsets(column)
    is_missing = pa.concat_arrays([column.is_null(), pa.array([False])])
    offsets = pc.if_else(is_missing, pa.scalar(None, offsets.type), offsets)
    return pa.LargeListArray.from_arrays(offsets, elements)


def _offsets(column: pa.Array) -> pa.Array:
    """Return where each list begins among the elements, and where the last one ends."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int64()))
    return pa.concat_arrays([pa.array([0], pa.int64()), ends])


def _array_bytes(column: pa.Array, elements: pa.Array, oid: int) -> pa.Array:
    """Return what array_recv reads: dimensions, a flag, the elements' type, length and lower bound.

    Each element follows with its length; an array without elements has no dimension.
    """
    payload = _element_bytes(elements)
    size = pc.fill_null(pc.binary_length(payload), -1).to_numpy(zero_copy_only=False)
    framed = _joined(_big_endian(size.reshape(-1, 1)), pc.fill_null(payload, b""))
    lists = pa.LargeListArray.from_arrays(_offsets(column), framed)
    length = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ones = np.ones_like(length)
    head = _big_endian(np.stack([ones, ones, ones * oid, length, ones], axis=1))
    empty = pa.scalar(np.array([0, 0, oid], ">i4").tobytes(), head.type)
    contents = pc.binary_join(lists, pa.scalar(b"", framed.type))
    whole = _joined(pc.if_else(pa.array(length > 0), head, empty), contents)
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, whole.type))


def _element_bytes(elements: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(elements.type):
        return elements.cast(pa.large_binary())
    since_2000 = pc.subtract_checked(elements.cast(pa.int64()), _EPOCH_MICROSECONDS)
    values = _big_endian(pc.fill_null(since_2000, 0).to_numpy().reshape(-1, 1), ">i8")
    return pc.if_else(elements.is_valid(), values, pa.scalar(None, values.type))


def _big_endian(numbers: np.ndarray, type_: str = ">i4") -> pa.Array:
    """Return each row's numbers as bytes."""
    rows, columns = numbers.shape
    width = columns * np.dtype(type_).itemsize
    data = pa.py_buffer(numbers.astype(type_).tobytes())
    return pa.Array.from_buffers(pa.binary(width), rows, [None, data]).cast(pa.large_binary())


def _joined(left: bytes | pa.Array, right: pa.Array) -> pa.Array:
    bytes_ = pa.large_binary()
    before = pa.scalar(left, bytes_) if isinstance(left, bytes) else left.cast(bytes_)
    return pc.binary_join_element_wise(before, right.cast(bytes_), pa.scalar(b"", bytes_))
