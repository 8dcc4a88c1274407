"""KafkaSpout, over the mock cluster that librdkafka runs in a process and others reach by TCP.

The mock gives aborted messages to every reader, knows no times, and removes nothing: what depends
on these is played by answers of `KafkaReader` that a test replaces.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from reliability import KafkaSpout
from reliability.core.errors import (
    ExclusionNotPossible,
    InvalidDefinition,
    LibraryMissing,
    SourceChanged,
    SourceUnreadable,
)
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta, Interval, NoItems, only
from reliability.spouts import kafka_client
from reliability.spouts.kafka_client import KafkaReader, properties_of
from reliability.spouts.kafka_range import KafkaRange, fill
from reliability.testing import Source, check_spout
from reliability.testing.allocated import Txids
from reliability.transaction.correct.exclude import find_item
from reliability.transaction.emit.source_items import tell_source
from tests.support.fix_postgres import rows
from tests.support.lake import TOTALS, Values, live_through_six_batches, topology

NAMES = iter(f"topic{number}" for number in count())
START = 1_767_225_600_000  # 2026-01-01


def order_of(message: bytes) -> dict[str, Any]:
    customer, day, price = json.loads(message)
    return {"customer": customer, "day": day, "price": price}


def number_of(message: bytes) -> dict[str, Any]:
    return {"n": int(message)}


ORDERS: Any = {"schema": "customer bigint, day string, price bigint", "decode": order_of}
NUMBERS: Any = {"schema": "n bigint", "decode": number_of}


@pytest.fixture(scope="module")
def cluster():
    """The producer in whose process the cluster runs; it ends with it."""
    producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": "1"})
    [broker] = producer.list_topics(timeout=10).brokers.values()
    return producer, f"{broker.host}:{broker.port}"


@pytest.fixture
def kafka(cluster, monkeypatch):
    producer, address = cluster
    monkeypatch.setenv("RELIABILITY_KAFKA", address)
    return Topic(producer, address, next(NAMES))


class Topic(Source):
    """A topic of which two partitions are written to."""

    def __init__(self, producer: Any, address: str, name: str):
        self.producer, self.address, self.name = producer, address, name
        self.numbers, self.low = count(), dict[int, int]()
        self.spout: Any = None

    def moves(self) -> None:
        """Retention is played otherwise."""

    def send(self, partition: int, *values: str, **more: Any) -> None:
        for value in values:
            self.producer.produce(self.name, value=value, partition=partition, **more)
        assert self.producer.flush(10) == 0

    def append(self, *values: Values) -> None:
        for number, value in enumerate(values):
            self.send(number % 2, json.dumps(value))

    def transaction(self, value: str, *, is_aborted: bool = False) -> None:
        """Write a message in a transaction, whose end is an offset without a message."""
        settings = {"bootstrap.servers": self.address, "transactional.id": f"{self.name} {value}"}
        producer = Producer(settings)
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(self.name, value=value, partition=0)
        producer.flush(10)
        (producer.abort_transaction if is_aborted else producer.commit_transaction)(10)

    def values(self) -> list[str]:
        """Return all messages, read without the spout."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "test", "enable.partition.eof": True}
        )
        found, ended = [], 0
        consumer.assign([TopicPartition(self.name, number, 0) for number in (0, 1)])
        while ended < 2:
            for message in consumer.consume(100, timeout=1):
                ended += message.error() is not None
                found += [] if message.error() else [bytes(message.value() or b"").decode()]
        consumer.close()
        return found

    def group_offsets(self, group: str) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        found = consumer.committed([TopicPartition(self.name, n) for n in (0, 1)], timeout=10)
        consumer.close()
        return [each.offset for each in found]

    # --- as check_spout asks for it --------------------------------------------------------------

    def add(self):
        number = next(self.numbers)
        self.send(number % 2, str(number), str(number), "7")

    def lose(self):
        self.low[0] = 2  # retention

    def rows(self):
        return [{"n": int(value)} for value in self.values()]


@pytest.fixture
def with_retention(kafka, monkeypatch):
    """Let retention have removed what is before `kafka.low`."""
    offsets = KafkaReader.offsets

    def left(reader, topic):
        found = offsets(reader, topic)
        return {n: (max(low, kafka.low.get(n, 0)), high) for n, (low, high) in found.items()}

    monkeypatch.setattr(KafkaReader, "offsets", left)
    return kafka


def record(spout: KafkaSpout, txids: Txids, interval: Any = None) -> list[int]:
    batches = spout.cut(spout.plan(interval, txids))
    metas = [BatchMeta(items=items, emitted=spout.count(items)) for items in batches]
    return [txids.record(meta).emitted.count for meta in metas]


@pytest.mark.slow
def test_it_keeps_the_contract(with_retention, spark):
    kafka = with_retention
    kafka.send(0, "1", "1", "1")
    spout = KafkaSpout(kafka.name, **NUMBERS, counted="read", opaque=True)
    tried = check_spout(spout, kafka, spark=spark)
    assert {"a loss and a refreeze", "opaque batches", "all rows"} <= {*tried}


def test_other_limits_emit_nothing_twice_and_a_new_partition_is_read_from_its_beginning(kafka):
    txids, spout = Txids(), KafkaSpout(kafka.name, **NUMBERS, max_rows_per_partition=4)
    for limit, counts in ((4, [4, 1]), (2, [2, 2, 1]), (9, [5])):
        kafka.send(0, *"12345")
        assert record(replace(spout, max_rows_per_partition=limit), txids) == counts
    kafka.send(3, "2", "3")
    assert record(spout, txids) == [2]
    assert [item.partition for item in only(KafkaRange, txids.batches[7].items)] == [3]


@pytest.mark.slow
def test_six_batches_through_all_that_happens(with_retention, pipeline, connection):
    kafka = with_retention
    kafka.spout = KafkaSpout(kafka.name, **ORDERS, max_rows_per_partition=1)
    lived = live_through_six_batches(kafka, pipeline, connection)
    kafka.low[0] = 1
    lived.is_lost(lived.runs[0], 1, r"retention removed some of kafka:.*/0#0-1")
    lived.goes_on()
    lived.check([lived.batches[0][1:], *lived.batches[1:]])


def test_a_row_is_the_message_without_a_schema(kafka, spark):
    key, headers = "k", [("a", b"1"), ("b", None)]
    kafka.send(1, "v", key=key, headers=headers, timestamp=START)
    kafka.producer.produce(kafka.name, value=None, partition=0, timestamp=START + 1)
    kafka.producer.flush(10)
    spout, txids = KafkaSpout(kafka.name), Txids()
    assert record(spout, txids) == [2]
    found = spout.frame(spark, txids.batches[1]).drop("_x", "_n").orderBy("partition").collect()
    assert [tuple(row)[:5] for row in found] == [
        (None, None, kafka.name, 0, 0),
        (b"k", b"v", kafka.name, 1, 0),
    ]
    assert [row["timestamp"].timestamp() for row in found] == [START / 1000 + 0.001, START / 1000]
    assert [tuple(header) for header in found[1]["headers"]] == headers


def test_large_ranges_are_read_by_several_tasks_and_a_bad_value_fails_with_its_place(
    kafka, spark, monkeypatch
):
    """A value that cannot be decoded fails the attempt, with its place."""
    kafka.send(0, *map(str, range(250)))
    monkeypatch.setattr("reliability.spouts.kafka._READ_AT_ONCE", 100)
    spout, txids = KafkaSpout(kafka.name, **NUMBERS), Txids()
    assert record(spout, txids) == [250]
    frame = spout.frame(spark, txids.batches[1])
    assert frame.rdd.getNumPartitions() == 3
    assert Counter(row["n"] for row in frame.collect()) == Counter(range(250))
    kafka.send(1, "1", "one")
    record(spout, txids)
    with pytest.raises(Exception, match=r"decode fails at offset 1 of partition 1 .*ValueError"):
        spout.frame(spark, txids.batches[2]).collect()


# --- gaps ----------------------------------------------------------------------------------------


def test_gaps_are_found_by_an_attempt_or_counted_by_a_read(kafka, pipeline, connection, spark):
    """The end of a transaction is an offset without a message."""
    kafka.transaction('[1, "Mon", 5]')
    kafka.send(0, '[2, "Mon", 7]')
    first = pipeline(topology(KafkaSpout(kafka.name, **ORDERS)))
    assert first.emit(None) == [1]
    with pytest.raises(Exception, match=r'has 2 messages at the 3 offsets.*counted="read"'):
        first.process(1)
    assert rows(connection, TOTALS) == []
    spout = KafkaSpout(kafka.name, **ORDERS, counted="read", isolation="read_committed")
    txids = Txids()
    assert record(spout, txids) == [2]
    *_, item = only(KafkaRange, txids.batches[1].items)
    assert item.span == 3
    frame = spout.frame(spark, txids.batches[1])
    assert sorted(row["price"] for row in frame.collect()) == [5, 7]


def test_a_range_without_any_message_is_an_item_of_no_rows(kafka, spark):
    kafka.transaction("1")
    spout = KafkaSpout(kafka.name, **NUMBERS, counted="read", max_rows_per_partition=1)
    txids = Txids()
    assert record(spout, txids) == [1, 0]
    spout.verify(txids.batches[2])
    assert spout.frame(spark, txids.batches[2]).count() == 0
    assert record(spout, txids) == []


# --- what happens to a topic ---------------------------------------------------------------------


def test_offsets_that_retention_removed_before_an_emission_are_refused_or_skipped(with_retention):
    kafka, txids = with_retention, Txids()
    spout = KafkaSpout(kafka.name, **NUMBERS)
    kafka.send(0, "1", "2")
    record(spout, txids)
    kafka.send(0, "3", "4", "5")
    kafka.low[0] = 4
    with pytest.raises(SourceChanged, match=r"removed offsets 2 to 3.*lost=\"skip\""):
        record(spout, txids)
    assert record(replace(spout, lost="skip"), txids) == [1]
    kafka.send(0, "6")
    kafka.low[0] = 5  # what txids have may go
    assert record(spout, txids) == [1]
    with pytest.raises(SourceChanged, match=r"retention removed some of kafka:.*#0-2"):
        spout.verify(txids.batches[1])
    txids.refreeze(1, BatchMeta(items=tuple(spout.refresh(txids.batches[1])), emitted=Fold()))
    assert {item.rows for item in txids.batches[1].items} == {0}
    spout.verify(txids.batches[1])
    kafka.send(1, "1", "2", "3")  # it was empty at the first emission
    kafka.low[1] = 2
    with pytest.raises(SourceChanged, match=r"partition 1 .* removed offsets 0 to 1"):
        record(spout, txids)


def test_a_batch_is_read_from_its_own_topic_and_cluster_or_not_at_all(kafka, monkeypatch, spark):
    """E6: with another topic= its offsets were read there, and the accounts balanced."""
    txids, spout = Txids(), KafkaSpout(kafka.name, **NUMBERS)
    kafka.send(0, "1", "2")
    record(spout, txids)
    kafka.name = f"{kafka.name}v2"
    kafka.send(0, "3", "4")
    monkeypatch.setenv("RELIABILITY_KAFKA_EU", kafka.address)
    for other in (replace(spout, topic=kafka.name), replace(spout, cluster="eu")):
        reads = (
            lambda other=other: other.plan(None, txids),
            lambda other=other: other.verify(txids.batches[1]),
            lambda other=other: other.refresh(txids.batches[1]),
            lambda other=other: other.frame(spark, txids.batches[1]),
        )
        for read in reads:
            with pytest.raises(
                SourceChanged, match=r"txids have read topic topic\d+, and the spout"
            ):
                read()


def test_messages_of_a_topic_are_not_excluded(kafka, python_pipeline, connection):
    """C9: it was recorded, and each emission then waited for others that emitted the same."""
    kafka.send(0, "1")
    python_pipeline(topology(KafkaSpout(kafka.name, **ORDERS))).emit(None)
    for name in (f"kafka:{kafka.name}/0", f"{kafka.name}/0"):
        with pytest.raises(ExclusionNotPossible, match="messages of a topic cannot be excluded"):
            find_item(connection, "orders", name, name)


def test_a_topic_that_was_made_anew_is_found(kafka, monkeypatch):
    txids, spout = Txids(), KafkaSpout(kafka.name, **NUMBERS)
    kafka.send(0, "1", "2", "3")
    record(spout, txids)
    shorter = KafkaSpout(f"{kafka.name}x", **NUMBERS)
    kafka.name = shorter.topic
    kafka.send(0, "1")
    moved = {item: replace(item, topic=shorter.topic) for item in txids.batches[1].items}
    txids.refreeze(1, replace(txids.batches[1], items=tuple(moved.values())))
    with pytest.raises(SourceChanged, match=r"ends at offset 1, before the end of kafka:.*#0-3"):
        record(shorter, txids)
    kafka.send(0, "2", "3", "4", timestamp=START)
    with pytest.raises(SourceChanged, match="was written at another time"):
        record(shorter, txids)
    *_, item = shorter.refresh(txids.batches[1])
    assert item.rows == 3  # a person who says so takes what is there
    monkeypatch.setattr(KafkaReader, "offsets", lambda *_: {0: (0, 1)})
    *_, lost = shorter.refresh(txids.batches[1])  # nothing of it is asked for
    assert (lost.rows, lost.last_ms, lost.first_ms) == (0, -1, -1)


def test_the_end_of_each_partition_is_compared_with_what_txids_have(kafka, monkeypatch):
    """E6: one had lost its end, and had grown past it; others came at offsets that a txid has."""
    txids, spout = Txids(), KafkaSpout(kafka.name, **NUMBERS)
    for partition in (0, 1):
        kafka.send(partition, "1", "2", timestamp=START)
    record(spout, txids)
    kafka.send(1, "3", timestamp=START)
    record(spout, txids)  # the last range is of partition 1
    kafka.send(0, "3")
    first_time = KafkaReader.first_time
    with monkeypatch.context() as patch:
        patch.setattr(
            KafkaReader, "first_time", lambda *own: first_time(*own) + (own[2:] == (0, 1, 2))
        )
        with pytest.raises(SourceChanged, match=r"last message of .*/0#0-2 was written at another"):
            record(spout, txids)
        with pytest.raises(SourceChanged, match="a broker that had not all of it"):
            spout.verify(txids.batches[1])
    assert record(spout, txids) == [1]


def test_compaction_of_what_a_txid_has_stops_no_emission(kafka, monkeypatch):
    """What it is compared by was gone, so the topic was said to be another one."""
    spout, txids = KafkaSpout(kafka.name, **NUMBERS, counted="read"), Txids()
    for ms, value in enumerate("123"):
        kafka.send(0, value, timestamp=START + ms)
    assert record(spout, txids) == [3]
    kafka.send(0, "4", "5")
    messages, removed = KafkaReader.messages, {2}

    def compacted(*args):
        for some in messages(*args):
            yield from filter(None, [[each for each in some if each.offset() not in removed]])

    monkeypatch.setattr(KafkaReader, "messages", compacted)
    assert [(each.first, each.end) for each in spout.plan(None, txids)] == [(3, 5)]
    told = "made anew or compacted"
    with pytest.raises(SourceChanged, match=told):  # an attempt would lack a row
        spout.verify(txids.batches[1])
    with pytest.raises(SourceChanged, match=told):
        replace(spout, counted="offsets").plan(None, txids)
    removed.clear()
    *_, item = txids.batches[1].items
    another = replace(item, last_ms=START - 1)  # of a topic that was made anew
    txids.refreeze(1, replace(txids.batches[1], items=(another,)))
    with pytest.raises(SourceChanged, match=told):
        spout.plan(None, txids)


def test_an_interval_ends_by_the_messages_times(kafka, monkeypatch):
    """The mock knows no times, so the cluster's answer is played."""
    kafka.send(0, "1", "2", "3")
    kafka.send(1, "4")
    day = Interval.parse("2026-01-01")
    asked: list[int] = []

    def offsets_at(reader, topic, partitions, ms):
        asked.append(ms)
        return {number: 2 if number == 0 else None for number in partitions}

    monkeypatch.setattr(KafkaReader, "offsets_at", offsets_at)
    spout, txids = KafkaSpout(kafka.name, **NUMBERS, until="interval"), Txids()
    assert spout.timed
    assert record(spout, txids, day) == [3]
    assert asked == [START + 86_400_000]
    assert record(spout, txids, day) == []
    assert record(replace(spout, until="now"), txids) == [1]


def test_a_partition_that_stalls_fails(kafka, monkeypatch):
    kafka.send(0, "1")
    monkeypatch.setattr(kafka_client, "STALL_SECONDS", 1.0)
    for first, end, error, what in (
        (0, 9, SourceUnreadable, "gives nothing from offset 1 on, and should"),
        (99, 100, SourceChanged, "has no offset 99 any more"),
    ):
        with (
            KafkaReader(properties_of(""), "read_uncommitted") as reader,
            pytest.raises(error, match=what),
        ):
            list(reader.messages(kafka.name, 0, first, end))


def test_a_group_follows_what_has_committed(
    kafka, python_pipeline, connection, monkeypatch, caplog
):
    """The run's last task tells; a replay takes nothing back, and an error changes nothing."""
    kafka.send(0, "1", "2", "3")
    kafka.send(1, "4")
    spout = KafkaSpout(kafka.name, **NUMBERS, max_rows_per_partition=2, group="lag")
    first = python_pipeline(topology(spout))
    assert first.emit(None) == [1, 2]
    told = partial(tell_source, connection, first.runner.topology)
    for txids, ends in (([1], [2, 1]), ([2], [3, 1]), ([1], [3, 1])):
        told(txids)
        assert kafka.group_offsets("lag") == ends
    monkeypatch.setenv("RELIABILITY_KAFKA", "")
    told([1])
    assert "was not told what has committed" in caplog.text


# --- where it is ---------------------------------------------------------------------------------


def test_the_address_is_a_variable_or_a_file_with_its_secrets(tmp_path, monkeypatch):
    monkeypatch.delenv("RELIABILITY_KAFKA", raising=False)
    with pytest.raises(SourceUnreadable, match="RELIABILITY_KAFKA_EU_1 is not set"):
        properties_of("eu-1")
    file = tmp_path / "eu.properties"
    monkeypatch.setenv("RELIABILITY_KAFKA_EU_1", str(file))
    with pytest.raises(SourceUnreadable, match="No such file"):
        properties_of("eu-1")
    file.write_text("# ours\nbootstrap.servers = a:1,b:2\nsasl.password=x=y\n")
    assert properties_of("eu-1") == {"bootstrap.servers": "a:1,b:2", "sasl.password": "x=y"}
    file.write_text("bootstrap.servers=a:1\nssl.truststore=x\n")
    told = r'of RELIABILITY_KAFKA_EU_1: .*"ssl\.truststore".* or the file that it names'
    with pytest.raises(SourceUnreadable, match=told):
        KafkaSpout("orders", cluster="eu-1").plan(None, NoItems())


def test_what_cannot_be_reached_is_said(kafka, monkeypatch):
    with pytest.raises(SourceUnreadable, match=r"topic nothing cannot be read: .*Unknown topic"):
        KafkaSpout("nothing").plan(None, NoItems())
    monkeypatch.setattr(kafka_client, "ASK_SECONDS", 1.0)
    monkeypatch.setenv("RELIABILITY_KAFKA", "127.0.0.1:1")
    with pytest.raises(SourceUnreadable, match="topic nothing cannot be read"):
        KafkaSpout("nothing").plan(None, NoItems())
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(LibraryMissing, match=r"package confluent_kafka.*reliability\[kafka\]"):
        KafkaSpout("nothing").plan(None, NoItems())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"until": "then"}, "until 'then' is not one of"),
        ({"isolation": "read_committed"}, 'needs counted="read"'),
        ({"schema": "n bigint"}, "schema and decode need each other"),
        ({"schema": "_n bigint", "decode": number_of}, "adds the columns"),
        ({"schema": "n bigint NOT NULL", "decode": number_of}, "types of the schema: n"),
        ({"cluster": "ä"}, "not a valid name"),
        ({"max_rows_per_partition": 0}, "max_rows_per_partition must be at least 1"),
    ],
)
def test_a_wrong_definition_is_refused(options, what):
    with pytest.raises(InvalidDefinition, match=what):
        KafkaSpout("orders", **options)


@pytest.mark.parametrize(
    ("spans", "of_partition", "most", "batches"),
    [
        ([5, 2], 2, 9, [[2, 2], [2], [1]]),
        ([5, 2], 9, 3, [[3], [2], [2]]),
        ([1, 1, 1], 9, 2, [[1, 1], [1]]),
        ([], 1, 1, []),
    ],
)
def test_batches_have_a_piece_of_each_partition(spans, of_partition, most, batches):
    ranges = [
        KafkaRange(cluster="", topic="t", partition=n, first=0, end=span, rows=span)
        for n, span in enumerate(spans)
    ]
    found = fill(ranges, of_partition, most)
    assert [[each.span for each in one] for one in found] == batches
