"""KafkaRange: a range of offsets of one partition of a topic, as a batch has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from reliability.core.names import KAFKA_SOURCE
from reliability.core.spout import SourceItem, source_item


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRange(SourceItem):
    """The offsets [first, end) of a partition. An empty range only records where one begins.

    :param cluster: its name in the deployment; empty for the default one
    :param rows: how many messages are there, which is not always how many offsets
    :param last_ms: when the message at the last offset was written, in milliseconds since 1970; it
        tells a topic from one that was made anew, or has lost its end. -1 if there is none, as at
        the end of a transaction
    :param first_ms: then likewise of the first message; -1 if there is none
    :param kept_from: nothing before this offset is read: retention had removed it when the txid was
        refrozen
    """

    kind: ClassVar[str] = "kafka"
    cluster: str
    topic: str
    partition: int
    first: int
    end: int
    rows: int
    last_ms: int = -1
    first_ms: int = -1
    kept_from: int = 0

    @property
    def identity(self) -> str:
        return f"{self.source}#{self.first}-{self.end}"

    @property
    def source(self) -> str:
        return source_of(self.cluster, self.topic, self.partition)

    @property
    def part(self) -> str:
        """An empty range claims the offset before it, which no txid reads: no part is empty."""
        return f"{{[{min(self.first, self.end - 1)},{self.end})}}"

    @property
    def begin(self) -> int:
        """The first offset that is read."""
        return max(self.first, self.kept_from)

    @property
    def span(self) -> int:
        return self.end - self.begin

    def split(self, most: int) -> list[KafkaRange]:
        """Cut it into ranges of at most so many offsets; the rows are yet to be counted."""
        starts = range(self.first, self.end, most) or [self.first]
        return [replace(self, first=s, end=min(s + most, self.end)) for s in starts]


def source_of(cluster: str, topic: str, partition: int) -> str:
    """Return the name of a partition in the ledger.

    >>> source_of("", "orders", 3), source_of("eu", "orders", 3)
    ('kafka:orders/3', 'kafka:eu/orders/3')
    """
    return f"{KAFKA_SOURCE}{cluster}{'/' if cluster else ''}{topic}/{partition}"


def fill(
    ranges: Iterable[KafkaRange], most_of_partition: int, most: int
) -> list[tuple[KafkaRange, ...]]:
    """Cut ranges into batches, a piece of each partition in turn, as Trident does.

    :param most_of_partition: the most offsets that a batch has of one partition
    :param most: the most that it has of all
    """
    queues = [each.split(min(most_of_partition, most)) for each in ranges]
    batches: list[tuple[KafkaRange, ...]] = []
    for turn in range(max(map(len, queues), default=0)):
        batch: list[KafkaRange] = []
        for piece in (queue[turn] for queue in queues if turn < len(queue)):
            if batch and sum(each.span for each in (*batch, piece)) > most:
                batches.append(tuple(batch))
                batch = []
            batch.append(piece)
        batches.append(tuple(batch))
    return batches
