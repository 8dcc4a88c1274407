"""Hold a partition's rows back until they can be copied without waiting for who computes them.

A transaction that waits for a slow process function keeps Postgres from vacuuming, takes a
connection for each core, and may be ended by a timeout. So rows are collected in memory before it
begins. When some have come, and fast, the rest is streamed: Postgres copies while Spark computes.
When slow ones are more than fits into memory, the rest is written to a temporary file first.
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
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_BYTES = 32 << 20
FAST_BYTES_PER_SECOND = 4 << 20
# Less may have been computed while this process started, however slowly, and come at once.
TELLING_BYTES = 2 << 20


class Step(Enum):
    """What to do with the rows that are still to come."""

    COLLECT = "collect in memory"
    STREAM = "stream"
    SPILL = "write to a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How batches have come so far.

    :param size: bytes of all batches
    :param timed: bytes of all but the first; whatever has to end before there is a first row, such
        as a sort, says nothing of the rows behind it
    :param seconds: how long those were waited for
    """

    size: int = 0
    timed: int = 0
    seconds: float = 0.0

    def plus(self, size: int, seconds: float) -> Delivery:
        """Return it with one batch more."""
        if not self.size:
            return Delivery(size=size)
        return Delivery(
            size=self.size + size, timed=self.timed + size, seconds=self.seconds + seconds
        )

    def next_step(self, *, memory: int, telling: int, fast: int) -> Step:
        """Decide what to do next.

        :param memory: bytes that may be held in memory
        :param telling: so many bytes tell how fast the others will come
        :param fast: bytes a second that Postgres may wait for
        """
        if self.timed >= max(telling, fast * self.seconds):
            return Step.STREAM
        return Step.COLLECT if self.size < memory else Step.SPILL


@contextmanager
def spooled(
    batches: Iterator[pa.RecordBatch], clock: Callable[[], float] = time.monotonic
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Give the same batches when they can be read without long waits, and then once only."""
    held: deque[pa.RecordBatch] = deque()
    step = _collect(batches, held, clock)
    if step is not Step.SPILL:
        yield chain(_taken(held), batches)
        return
    # It has no name: whatever becomes of this process, the file goes with it.
    with tempfile.TemporaryFile(dir=_folder()) as file:
        _write(file, held[0].schema, batches)
        yield chain(_taken(held), _read(file))


def _collect(
    batches: Iterator[pa.RecordBatch], held: deque[pa.RecordBatch], clock: Callable[[], float]
) -> Step:
    """Collect in memory until that is full or all is there; return what to do with the rest."""
    bounds = {"memory": MEMORY_BYTES, "telling": TELLING_BYTES, "fast": FAST_BYTES_PER_SECOND}
    delivery = Delivery()
    while (step := delivery.next_step(**bounds)) is Step.COLLECT:
        asked = clock()
        batch = next(batches, None)
        if batch is None:
            return Step.STREAM
        delivery = delivery.plus(batch.nbytes, clock() - asked)
        held.append(batch)
    return step


def _taken(held: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches and let go of them."""
    while held:
        yield held.popleft()


def _write(file: IO[bytes], schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(file, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


def _read(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    file.seek(0)
    with pa.ipc.open_stream(file) as stream:
        yield from stream


def _folder() -> str | None:
    """Return one of the folders that Spark spills into; the host's own for such files else."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next(filter(os.path.isdir, folders), None)
