"""What is asked of a Kafka cluster; only this module uses the library confluent-kafka.

RELIABILITY_KAFKA, or RELIABILITY_KAFKA_<NAME> of a named cluster, has the bootstrap servers, or
names a file with properties of librdkafka, one `name=value` a line. Secrets stay in the file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from reliability.core.errors import SourceChanged, SourceUnreadable
from reliability.core.names import upper_name
from reliability.deployment.lazy import library, np

VARIABLE = "RELIABILITY_KAFKA"
ASK_SECONDS = 15.0  # for one answer of a broker
STALL_SECONDS = 60.0  # a partition that gives nothing for so long fails the attempt
POLL_SECONDS = 0.5
AT_ONCE = 10_000  # messages
READ_COMMITTED = "read_committed"
_CHECK = "check the cluster, and that the topic is there."
# What the offsets of a batch rest on. Nothing is committed, and a missing offset is an error.
_OWN = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "allow.auto.create.topics": "false",
    "fetch.wait.max.ms": "10",  # what is read is there, and nobody waits for more
    "group.id": "reliability",
}


def variable_of(cluster: str) -> str:
    """Return the name of the variable that says where a cluster is."""
    return f"{VARIABLE}_{upper_name(cluster)}" if cluster else VARIABLE


def properties_of(cluster: str) -> dict[str, str]:
    """Return librdkafka's properties of a cluster, with its secrets.

    :raises SourceUnreadable: nothing says where it is, or its file cannot be read
    """
    variable = variable_of(cluster)
    text = os.environ.get(variable, "")
    remedy = f"set {variable} to bootstrap servers, or to the path of a file with properties."
    if not text:
        raise SourceUnreadable(f"{variable} is not set, which says where Kafka is", remedy=remedy)
    if "/" not in text:
        return {"bootstrap.servers": text}
    try:
        with open(text, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except OSError as error:
        raise SourceUnreadable(f"{variable}: {error}", remedy=remedy) from error
    pairs = [line.partition("=") for line in lines if line and line[0] not in "#!"]
    return {name.strip(): value.strip() for name, _, value in pairs}


class KafkaReader:
    """Reads offsets and messages of a cluster; it commits nothing.

    :param properties: as `properties_of` returns them
    :param isolation: `read_committed` or `read_uncommitted`
    :param cluster: whose properties they are
    :raises LibraryMissing: the library is not installed
    :raises SourceUnreadable: librdkafka refuses the properties
    """

    def __init__(self, properties: Mapping[str, str], isolation: str, cluster: str = "") -> None:
        self._library = library("confluent_kafka", "kafka", "a KafkaSpout")
        self._properties = {**properties, **_OWN, "isolation.level": isolation}
        self._isolation = isolation
        try:
            self._consumer = self._library.Consumer({**self._properties, "log_level": "3"})
        except self._library.KafkaException as error:
            variable = variable_of(cluster)
            raise SourceUnreadable(
                f"librdkafka refuses the properties of {variable}: {error.args[0].str()}",
                remedy=f"correct {variable}, or the file that it names.",
            ) from error

    def tell_group(self, group: str, topic: str, ends: Mapping[int, int]) -> None:
        """Let a consumer group's offsets reach these, for tools that show lag; none goes back."""
        part = self._library.TopicPartition
        consumer = self._library.Consumer({**self._properties, "group.id": group})
        try:
            with self._asking(topic):
                asked = [part(topic, number) for number in ends]
                now = consumer.committed(asked, timeout=ASK_SECONDS)
                later = [
                    part(topic, each.partition, ends[each.partition])
                    for each in now
                    if ends[each.partition] > each.offset
                ]
                if later:
                    consumer.commit(offsets=later, asynchronous=False)
        finally:
            consumer.close()

    def __enter__(self) -> KafkaReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the first offset of each partition and the one behind the last.

        With read_committed, that is behind the last transaction that has ended.

        :raises SourceUnreadable: there is no such topic, or the cluster does not answer
        """
        kafka = self._library
        admin = library("confluent_kafka.admin", "kafka", "a KafkaSpout")
        with self._asking(topic):
            found = self._consumer.list_topics(topic, timeout=ASK_SECONDS).topics[topic]
            if found.error is not None:
                raise kafka.KafkaException(found.error)
            parts = [kafka.TopicPartition(topic, number) for number in sorted(found.partitions)]
            level = kafka.IsolationLevel[self._isolation.upper()]
            client = admin.AdminClient(
                {k: v for k, v in self._properties.items() if k not in (*_OWN, "isolation.level")}
            )
            ends = [
                {
                    part.partition: answer.result(timeout=ASK_SECONDS).offset
                    for part, answer in client.list_offsets(
                        dict.fromkeys(parts, spec()), isolation_level=level
                    ).items()
                }
                for spec in (admin.OffsetSpec.earliest, admin.OffsetSpec.latest)
            ]
        return {number: (ends[0][number], ends[1][number]) for number in ends[0]}

    def offsets_at(self, topic: str, partitions: Sequence[int], ms: int) -> dict[int, int | None]:
        """Return the first offset of each partition whose message is not before a time.

        None stands for a partition without one.

        :param ms: milliseconds since 1970
        """
        part = self._library.TopicPartition
        with self._asking(topic):
            asked = [part(topic, number, ms) for number in partitions]
            found = self._consumer.offsets_for_times(asked, timeout=ASK_SECONDS)
        return {each.partition: each.offset if each.offset >= 0 else None for each in found}

    def messages(self, topic: str, partition: int, first: int, end: int) -> Iterator[list[Any]]:
        """Yield the messages with offsets [first, end), some at a time.

        :raises SourceChanged: the partition does not have the first of these offsets
        :raises SourceUnreadable: it gives no more of them
        """
        if first >= end:
            return
        kafka = self._library
        where = f"partition {partition} of topic {topic}"
        self._consumer.assign([kafka.TopicPartition(topic, partition, first)])
        reached, seen = first, time.monotonic()
        while reached < end:
            found = []
            for message in self._next():
                error = message.error()
                if error is None:
                    reached = message.offset() + 1
                    found += [message] if message.offset() < end else []
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    reached = max(reached, message.offset())
                elif error.code() == kafka.KafkaError._AUTO_OFFSET_RESET:
                    raise SourceChanged(f"{where} has no offset {first} any more")
                else:
                    raise SourceUnreadable(f"{where} cannot be read: {error.str()}", remedy=_CHECK)
                seen = time.monotonic()
            if found:
                yield found
                seen = time.monotonic()  # its reader may be slow
            if time.monotonic() - seen > STALL_SECONDS:
                raise SourceUnreadable(
                    f"{where} gives nothing from offset {reached} on, and should end at {end}",
                    remedy=_CHECK,
                )

    def _next(self) -> list[Any]:
        """Return the messages and events that are there, waiting for the first of them."""
        first = self._consumer.poll(POLL_SECONDS)
        return [] if first is None else [first, *self._consumer.consume(AT_ONCE, timeout=0)]

    def indices(self, topic: str, partition: int, first: int, end: int) -> Iterator[Any]:
        """Yield the offsets in [first, end) that have messages, as arrays of numpy."""
        for found in self.messages(topic, partition, first, end):
            yield np.array([message.offset() for message in found], dtype=np.uint64)

    def first_time(self, topic: str, partition: int, first: int, end: int) -> int:
        """Return when the first message in [first, end) was written, -1 if there is none.

        :return: milliseconds since 1970
        """
        for found in self.messages(topic, partition, first, end):
            return int(found[0].timestamp()[1])
        return -1

    @contextmanager
    def _asking(self, topic: str) -> Iterator[None]:
        try:
            yield
        except (self._library.KafkaException, TimeoutError) as error:
            told = error.args[0].str() if getattr(error, "args", None) else "it does not answer"
            raise SourceUnreadable(
                f"topic {topic} cannot be read: {told}", remedy=_CHECK
            ) from error
