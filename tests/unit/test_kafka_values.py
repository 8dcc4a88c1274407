"""What `decode` of a KafkaSpout returns is in the batch as it is, or fails the attempt."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from reliability.core.errors import SchemaMismatch
from reliability.deployment.lazy import T, pa
from reliability.spouts.kafka import _ReadTask


class Message:
    def __init__(self, offset: int):
        self.number = offset

    def value(self):
        return str(self.number).encode()

    def offset(self):
        return self.number

    def partition(self):
        return 3

    def topic(self):
        return "orders"


class Reader:
    def messages(self, topic, partition, first, end):
        yield [Message(offset) for offset in range(first, end)]


def read(values: list[Any], spark_type: Any, arrow_type: Any) -> list[Any]:
    """Return what is in the batch of the messages for which decode returns these values."""
    place = [T.StructField(name, T.LongType()) for name in ("item", "offset")]
    arrow_place = [(name, pa.int64()) for name in ("item", "offset")]
    task = _ReadTask(
        topic="orders",
        cluster="",
        isolation="read_uncommitted",
        properties=None,  # type: ignore[arg-type]
        schema=T.StructType([T.StructField("v", spark_type), *place]),
        decode=lambda message: {"v": values[int(message)]},
        is_dense=True,
        types=pa.schema([("v", arrow_type), *arrow_place]),
    )
    batches = task._read(Reader(), 0, 3, 0, len(values))  # type: ignore[arg-type]
    return [row["v"] for batch in batches for row in batch.to_pylist()]


LONG, FLOAT = (T.LongType(), pa.int64()), (T.FloatType(), pa.float32())
DATE = (T.DateType(), pa.date32())
NESTED = (
    T.StructType([T.StructField("a", T.ArrayType(T.LongType()))]),
    pa.struct([("a", pa.list_(pa.int64()))]),
)


@pytest.mark.parametrize(
    ("good", "bad", "types"),
    [
        (1, 1.99, LONG),
        (2.0, -0.5, LONG),
        (1, Decimal("1.5"), LONG),
        (None, float("nan"), LONG),
        (1, "one", LONG),
        (1, 1 << 63, LONG),
        ({"a": [1]}, {"a": [1, 1.5]}, NESTED),
        ({"a": (1,)}, {"a": (1.5,)}, NESTED),
        (1.5, 1e300, FLOAT),
        (float("inf"), True, FLOAT),
        (date(2026, 1, 1), datetime(2026, 1, 1, 23, tzinfo=timezone.utc), DATE),
        (None, 20454, DATE),
        ("a", b"a", (T.StringType(), pa.string())),
        ("a", "\ud800", (T.StringType(), pa.string())),
        (None, 1767225600, (T.TimestampType(), pa.timestamp("us", "UTC"))),
    ],
)
def test_what_decode_returns_is_never_cut_to_its_column(good, bad, types):
    """1.99 became the bigint 1 and 1e300 a float of Infinity; a text raised an error of Arrow's."""
    [found] = read([good], *types)
    assert found == ({"a": [1]} if isinstance(good, dict) else good)
    told = r"column v: .* is not a valid .*, at offset 1 of partition 3 of topic orders"
    with pytest.raises(SchemaMismatch, match=told):
        read([good, bad, good], *types)
