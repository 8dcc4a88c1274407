"""Hold a partition's rows back until they can be copied without a wait for their computation.

A transaction that waits for a slow process function prevents vacuum, uses a connection per core,
and may be ended by a timeout. So rows are collected in memory before the transaction begins. If the
first rows come fast, the rest is streamed: Postgres copies while Spark computes. If slow rows fill
the memory, the rest is written to a temporary file first.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from reliability.deployment.lazy import pa

MEMORY_BYTES = 32 << 20
FAST_BYTES_PER_SECOND = 4 << 20
# Fewer bytes prove nothing: Spark may have computed them slowly while this process started.
SAMPLE_BYTES = 2 << 20


class Mode(Enum):
    """What to do with the remaining rows."""

    COLLECT = "collect in memory"
    STREAM = "stream"
    SPILL = "write to a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How much has come so far, and how fast.

    :param size: bytes of all batches
    :param timed: bytes of all batches but the first, which may have waited for a sort or the like
    :param seconds: the time that the timed bytes took
    """

    size: int = 0
    timed: int = 0
    seconds: float = 0.0

    def plus(self, size: int, seconds: float) -> Delivery:
        if not self.size:
            return Delivery(size=size)
        return Delivery(
            size=self.size + size, timed=self.timed + size, seconds=self.seconds + seconds
        )

    def mode(self, *, memory: int, sample: int, fast: int) -> Mode:
        """Decide what to do with the remaining rows.

        :param memory: bytes that may be held in memory
        :param sample: timed bytes from which the speed of the rest can be judged
        :param fast: bytes per second at which Postgres may wait for the rest
        """
        if self.timed >= max(sample, fast * self.seconds):
            return Mode.STREAM
        return Mode.COLLECT if self.size < memory else Mode.SPILL


@contextmanager
def spooled(
    batches: Iterator[pa.RecordBatch], clock: Callable[[], float] = time.monotonic
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Return the same batches once they can be read without long waits; they can be read once."""
    held: deque[pa.RecordBatch] = deque()
    mode = _collect(batches, held, clock)
    if mode is not Mode.SPILL:
        yield chain(_release(held), batches)
        return
    # The file has no name, so it disappears with this process.
    with tempfile.TemporaryFile(dir=_folder()) as file:
        with pa.ipc.new_stream(file, held[0].schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        file.seek(0)
        with pa.ipc.open_stream(file) as stream:
            yield chain(_release(held), stream)


def _collect(
    batches: Iterator[pa.RecordBatch], held: deque[pa.RecordBatch], clock: Callable[[], float]
) -> Mode:
    """Collect batches in memory for as long as their mode is COLLECT; return the next mode."""
    bounds = {"memory": MEMORY_BYTES, "sample": SAMPLE_BYTES, "fast": FAST_BYTES_PER_SECOND}
    delivery = Delivery()
    while (mode := delivery.mode(**bounds)) is Mode.COLLECT:
        start = clock()
        batch = next(batches, None)
        if batch is None:
            return Mode.STREAM
        delivery = delivery.plus(batch.nbytes, clock() - start)
        held.append(batch)
    return mode


def _release(held: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while held:
        yield held.popleft()


def _folder() -> str | None:
    """Return a folder that Spark spills into; None is the host's folder for temporary files."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next(filter(os.path.isdir, folders), None)
