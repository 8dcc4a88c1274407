"""KafkaSpout: ranges of offsets of a topic, after Trident's transactional spout for Kafka.

Emission freezes a range for each partition; an attempt, and each replay, reads exactly these
offsets. The ledger alone says which offsets are taken: the spout commits none to Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from reliability.core.errors import InvalidDefinition, SchemaMismatch, SourceChanged
from reliability.core.fold import Fold, reserved
from reliability.core.keys import read_ranges
from reliability.core.lineage import Dataset
from reliability.core.names import check_database
from reliability.core.remedy import Remedy
from reliability.core.spout import AllocatedItems, BatchMeta, Interval, SourceItem, Spout, only
from reliability.deployment.lazy import F, np, pa
from reliability.spark.frames.accounting_columns import with_tuple_ids
from reliability.spark.frames.pieces import frame_of_pieces
from reliability.spark.frames.values import MAX_CHARACTERS_IN_ERROR, check_value
from reliability.spouts.data_file import columns_in
from reliability.spouts.ddl import check_types
from reliability.spouts.kafka_client import READ_COMMITTED, KafkaReader, properties_of
from reliability.spouts.kafka_range import KafkaRange, fill, source_of
from reliability.spouts.same_source import of_same_source
from reliability.spouts.tuple_ids import fold_rows, tuple_ids

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

READ_UNCOMMITTED = "read_uncommitted"
NOW, INTERVAL = "now", "interval"
REFUSE, SKIP = "refuse", "skip"
OFFSETS, READ = "offsets", "read"
MESSAGE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_READ_AT_ONCE = 200_000  # offsets that one Spark task reads
_PLACE = "_reliability_item bigint, _reliability_offset bigint"


@dataclass(frozen=True)
class KafkaSpout(Spout):
    """The messages of a topic.

    :param topic: its name
    :param cluster: which one: RELIABILITY_KAFKA_<NAME> says where it is; by default
        RELIABILITY_KAFKA
    :param until: `now` emits all that is there; `interval` only what was written before the end of
        the run's data interval, by the messages' timestamps, and makes the spout timed
    :param counted: `offsets`: each offset is a message, which an attempt proves. `read`: emission
        reads the offsets once, because compaction or transactions leave gaps
    :param isolation: `read_uncommitted` or `read_committed`, which needs `counted="read"`
    :param lost: what becomes of offsets that retention removed before an emission: `refuse` or
        `skip`
    :param schema: Spark's DDL of what `decode` returns; without it, a row is the message: key,
        value, topic, partition, offset, timestamp, headers
    :param decode: a function of a module that turns a message's value, as bytes, into a dict of
        the schema's columns; it runs in Spark's tasks
    :param group: a consumer group whose offsets follow what has committed, for tools that show lag;
        the library never reads them to decide anything
    :param max_rows_per_batch: the most offsets that a txid has
    :param max_rows_per_partition: the most that it has of one partition
    :param opaque: a new attempt of a txid may read other offsets, until the txid commits
    """

    topic: str
    cluster: str = ""
    until: str = NOW
    counted: str = OFFSETS
    isolation: str = READ_UNCOMMITTED
    lost: str = REFUSE
    schema: str = ""
    decode: Callable[[bytes], dict[str, Any]] | None = field(default=None, repr=False)
    group: str = ""
    max_rows_per_batch: int = 1_000_000
    max_rows_per_partition: int = 1_000_000
    opaque: bool = False

    def __post_init__(self) -> None:
        choices = {
            "until": (NOW, INTERVAL),
            "counted": (OFFSETS, READ),
            "isolation": (READ_UNCOMMITTED, READ_COMMITTED),
            "lost": (REFUSE, SKIP),
        }
        for name, allowed in choices.items():
            if (value := getattr(self, name)) not in allowed:
                raise InvalidDefinition(f"KafkaSpout: {name} {value!r} is not one of {allowed}")
        if self.isolation == READ_COMMITTED and self.counted != READ:
            raise InvalidDefinition(
                'KafkaSpout: isolation="read_committed" leaves offsets out, so it needs '
                'counted="read"'
            )
        if (self.decode is None) != (not self.schema):
            raise InvalidDefinition("KafkaSpout: schema and decode need each other")
        columns = check_types("KafkaSpout", self.schema) if self.schema else ()
        if taken := reserved(name for name, _ in columns):
            raise InvalidDefinition(f"KafkaSpout: the library adds the columns {taken} itself")
        if self.cluster:
            check_database("KafkaSpout: cluster", self.cluster)
        for name in ("max_rows_per_batch", "max_rows_per_partition"):
            if getattr(self, name) < 1:
                raise InvalidDefinition(f"KafkaSpout: {name} must be at least 1")

    @property
    def timed(self) -> bool:
        return self.until == INTERVAL

    def _reader(self) -> KafkaReader:
        return KafkaReader(properties_of(self.cluster), self.isolation, self.cluster)

    # --- emission --------------------------------------------------------------------------------

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[KafkaRange]:
        """List a range for each partition that has new messages.

        With the first of them comes an empty one for each partition of which nothing is read yet:
        it says where that begins, so that what retention removes before it is read is missed.

        :raises SourceChanged: offsets that a txid has, or that none has yet, are gone
        """
        with self._reader() as reader:
            offsets = reader.offsets(self.topic)
            if last := allocated.last(KafkaRange):
                self._own([last])
                self._check_end(reader, last, offsets)
            known = {number: self._known(allocated, number) for number in offsets}
            for number, (_, high) in offsets.items():
                if (end := known[number]) is None or end >= high:
                    continue
                item = allocated.of_source(source_of(self.cluster, self.topic, number))
                if isinstance(item, KafkaRange) and item != last:
                    self._check_end(reader, item, offsets)
            ends = {number: end for number, (_, end) in offsets.items()}
            if interval is not None and self.timed:
                ms = int(interval.end.timestamp() * 1000)
                found = reader.offsets_at(self.topic, list(ends), ms)
                ends = {n: end if found[n] is None else found[n] or 0 for n, end in ends.items()}
        empty, ranges = [], []
        for number, (low, high) in offsets.items():
            first = self._first_of(number, known[number], low, high)
            end = max(first, ends[number])
            item = KafkaRange(
                cluster=self.cluster,
                topic=self.topic,
                partition=number,
                first=first,
                end=end,
                rows=end - first,
            )
            if first < end:
                ranges.append(item)
            elif known[number] is None:
                empty.append(item)
        return [*empty, *ranges] if ranges else []  # last is what can be compared later

    def _known(self, allocated: AllocatedItems, number: int) -> int | None:
        """Return the end of what txids have of a partition; None if they have nothing."""
        taken = allocated.keys(source_of(self.cluster, self.topic, number)).values()
        return max((end for part in taken for _, end in read_ranges(part)), default=None)

    def _check_end(
        self, reader: KafkaReader, item: KafkaRange, offsets: Mapping[int, tuple[int, int]]
    ) -> None:
        bounds = offsets.get(item.partition, (0, 0))
        _check_is_same(reader, item, *bounds, may_lack=self.counted == READ)

    def _first_of(self, number: int, known: int | None, low: int, high: int) -> int:
        """Return the offset behind those that txids have."""
        where = f"partition {number} of topic {self.topic}"
        if known is None:
            return low
        if known > high:
            raise SourceChanged(
                f"{where} ends at offset {high}, and a txid has those up to {known}: the topic was "
                "made anew, or a broker that had not all of it became its leader",
                remedy="find out which messages are lost. A topology with another name begins anew "
                "with the topic as it is.",
            )
        if known < low and self.lost == REFUSE:
            raise SourceChanged(
                f"{where} begins at offset {low}: retention has removed offsets {known} to "
                f"{low - 1}, which no txid has read",
                remedy=Remedy(
                    'set lost="skip" in the KafkaSpout to go on without them, and '
                    "{resume_runs}. Emit more often than retention.ms, or raise that."
                ),
            )
        return max(known, low)

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Fill batches with a piece of each partition in turn, and count what is in them."""
        most = self.max_rows_per_partition, self.max_rows_per_batch
        batches = fill(only(KafkaRange, items), *most)
        if not batches:
            return []
        with self._reader() as reader:
            return [tuple(self._described(reader, each) for each in batch) for batch in batches]

    def _described(self, reader: KafkaReader, item: KafkaRange) -> KafkaRange:
        """Return a range with what is there now: the number of messages, and a time of one."""
        rows = item.span
        if self.counted == READ:
            rows = sum(len(each) for each in reader.indices(*_place(item)))
        last_ms = reader.first_time(*_place_of_last(item))
        first_ms = reader.first_time(*_place(item)) if last_ms == -1 else -1
        return replace(item, rows=rows, last_ms=last_ms, first_ms=first_ms)

    def count(self, items: Sequence[SourceItem]) -> Fold:
        ranges = list(enumerate(only(KafkaRange, items)))
        if self.counted == OFFSETS:
            return Fold.of(fold_rows(ordinal, i.rows, first=i.begin) for ordinal, i in ranges)
        if not ranges:
            return Fold()
        with self._reader() as reader:
            return Fold.of(
                _fold(ordinal, offsets)
                for ordinal, item in ranges
                for offsets in reader.indices(*_place(item))
            )

    # --- attempts --------------------------------------------------------------------------------

    def verify(self, meta: BatchMeta) -> None:
        if meta.items:
            with self._reader() as reader:
                self._check(reader, self._own(meta.items))

    def _own(self, items: Iterable[SourceItem]) -> list[KafkaRange]:
        """Return ranges; raise SourceChanged if one is of another topic or cluster."""
        own = _topic_of(self.cluster, self.topic)
        return of_same_source(KafkaRange, items, lambda i: _topic_of(i.cluster, i.topic), own)

    def _check(self, reader: KafkaReader, items: Sequence[KafkaRange]) -> None:
        """Raise SourceChanged unless the cluster still has these ranges."""
        offsets = reader.offsets(self.topic)
        for item in items:
            if item.begin >= item.end:
                continue
            where = f"partition {item.partition} of topic {item.topic}"
            low, high = offsets.get(item.partition, (0, 0))
            if low > item.begin:
                raise SourceChanged(
                    f"{where} begins at offset {low}: retention removed some of {item.identity}",
                    remedy=Remedy(
                        "run {refreeze}, which leaves them out; retention should last for as "
                        "long as you want to replay."
                    ),
                )
            _check_is_same(reader, item, low, high)

    def refresh(self, meta: BatchMeta) -> list[KafkaRange]:
        """Return the ranges with the messages that are left; what is lost stays taken."""
        if not meta.items:
            return []
        with self._reader() as reader:
            offsets = reader.offsets(self.topic)
            items = []
            for item in self._own(meta.items):
                low, high = offsets.get(item.partition, (item.end, item.end))
                if high < item.end:  # what is there now are other messages
                    low = item.end
                left = replace(item, kept_from=max(min(low, item.end), item.kept_from))
                items.append(self._described(reader, left))
            return items

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Read the ranges in Spark's tasks, each at most 200,000 offsets."""
        pieces = [
            (ordinal, item.partition, first, min(first + _READ_AT_ONCE, item.end))
            for ordinal, item in enumerate(self._own(meta.items))
            for first in range(item.begin, item.end, _READ_AT_ONCE)
        ]
        columns = columns_in(f"{self.schema or MESSAGE}, {_PLACE}")
        empty = spark.range(0).select(*(F.lit(None).cast(t).alias(n) for n, t in columns))
        frame = empty
        if pieces:
            task = _ReadTask(
                topic=self.topic,
                cluster=self.cluster,
                isolation=self.isolation,
                properties=spark.sparkContext.broadcast(properties_of(self.cluster)),
                schema=empty.schema,
                decode=self.decode,
                is_dense=self.counted == OFFSETS,
                types=empty.toArrow().schema,
            )
            frame = frame_of_pieces(spark, pieces, task.read, empty.schema)
        item, offset = (name.split()[0] for name in _PLACE.split(", "))
        return with_tuple_ids(frame, F.col(item), F.col(offset)).drop(item, offset)

    def committed(self, metas: Sequence[BatchMeta]) -> None:
        ends: dict[int, int] = {}
        for item in (item for meta in metas for item in self._own(meta.items)):
            ends[item.partition] = max(ends.get(item.partition, 0), item.end)
        if self.group and ends:
            with self._reader() as reader:
                reader.tell_group(self.group, self.topic, ends)

    def datasets(self, items: Sequence[SourceItem]) -> Sequence[Dataset]:
        servers = properties_of(self.cluster).get("bootstrap.servers", "").split(",")[0]
        rows = sum(item.rows for item in items)
        return [Dataset(namespace=f"kafka://{servers}", name=self.topic, rows=rows)]


@dataclass(frozen=True, kw_only=True)
class _ReadTask:
    """What a Spark task needs; the properties, with their secrets, come to it by a broadcast."""

    topic: str
    cluster: str
    isolation: str
    properties: Broadcast[dict[str, str]]
    schema: StructType
    decode: Callable[[bytes], dict[str, Any]] | None
    is_dense: bool
    types: pa.Schema

    def read(self, piece: tuple[int, int, int, int]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a piece: ordinal of the item, partition, first offset and end."""
        with KafkaReader(self.properties.value, self.isolation, self.cluster) as reader:
            yield from self._read(reader, *piece)

    def _read(
        self, reader: KafkaReader, ordinal: int, partition: int, first: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        found = 0
        for messages in reader.messages(self.topic, partition, first, end):
            found += len(messages)
            rows = [(*self._row(message), ordinal, message.offset()) for message in messages]
            columns = zip(*rows, strict=True)
            arrays = [
                self._array(number, values, messages) for number, values in enumerate(columns)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.types)
        if self.is_dense and found != end - first:
            raise SourceChanged(
                f"partition {partition} of topic {self.topic} has {found} messages at the "
                f"{end - first} offsets from {first} on: compaction or transactions leave gaps",
                remedy='set counted="read" in the KafkaSpout, and emit by a topology with another '
                "name, or skip the txid.",
            )

    def _array(self, number: int, values: Sequence[Any], messages: Sequence[Any]) -> pa.Array:
        """Convert a column; raise SchemaMismatch if one would change or is no such value."""
        column = self.schema[number]
        try:
            for value in values if self.decode else ():
                check_value(column.name, value, column.dataType)
            return pa.array(values, self.types.field(number).type)
        except Exception as error:  # Python's or Arrow's own, without the place
            if len(values) > 1:
                for value, message in zip(values, messages, strict=True):
                    self._array(number, [value], [message])
                raise
            raise SchemaMismatch(
                f"column {column.name}: {repr(values[0])[:MAX_CHARACTERS_IN_ERROR]} is not a valid "
                f"{column.dataType.simpleString()}, at {_where(messages[0])}",
                remedy="let decode return a value of the column's type, or what marks the message "
                "as malformed; or correct the column in the spout's schema.",
            ) from error

    def _row(self, message: Any) -> tuple[Any, ...]:
        if self.decode is None:
            headers = [{"key": key, "value": value} for key, value in message.headers() or ()]
            ms = np.datetime64(message.timestamp()[1], "ms").astype("datetime64[us]").item()
            place = (message.topic(), message.partition(), message.offset(), ms)
            return (message.key(), message.value(), *place, headers)
        try:
            values = self.decode(message.value())
            return tuple(values.get(name) for name in self.schema.names[:-2])
        except Exception as error:  # a user's function may raise anything
            raise SchemaMismatch(
                f"decode fails at {_where(message)}: {type(error).__name__}: {error}",
                remedy="mend the function, or let it return what marks the message as malformed.",
            ) from error


def _check_is_same(
    reader: KafkaReader, item: KafkaRange, low: int, high: int, *, may_lack: bool = False
) -> None:
    """Raise SourceChanged if the partition has other messages than those of a range.

    What retention has removed cannot be compared.

    :param may_lack: nor can what compaction has removed
    """
    if high < item.end:
        raise SourceChanged(
            f"partition {item.partition} of topic {item.topic} ends at offset {high}, before the "
            f"end of {item.identity}: the topic was made anew, or has lost messages"
        )
    which, expected, place = "last", item.last_ms, _place_of_last(item)
    if expected == -1:
        which, expected, place = "first", item.first_ms, _place(item)
    *_, first, end = place
    if not low <= first < end:
        return
    found = reader.first_time(*place)
    if found != expected and not (may_lack and found == -1):
        raise SourceChanged(
            f"the {which} message of {item.identity} was written at another time: the topic was "
            "made anew or compacted, or a broker that had not all of it became its leader"
        )


def _where(message: Any) -> str:
    place = f"offset {message.offset()} of partition {message.partition()}"
    return f"{place} of topic {message.topic()}"


def _topic_of(cluster: str, topic: str) -> str:
    return f"topic {topic}{f' of cluster {cluster}' if cluster else ''}"


def _place(item: KafkaRange) -> tuple[str, int, int, int]:
    return item.topic, item.partition, item.begin, item.end


def _place_of_last(item: KafkaRange) -> tuple[str, int, int, int]:
    return item.topic, item.partition, max(item.begin, item.end - 1), item.end


def _fold(ordinal: int, offsets: Any) -> Fold:
    xor = np.bitwise_xor.reduce(tuple_ids(ordinal, offsets)) if len(offsets) else np.uint64(0)
    return Fold(int(xor.astype(np.int64)), len(offsets))
