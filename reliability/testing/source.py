"""What a test says of the source under a spout, and what it is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reliability.core.spout import Interval


class Source(ABC):
    """The source under a spout, as a test changes it.

    Override `change` and `lose` if such a thing can happen to the source at all.

    :ivar interval: of the run for which a timed spout emits
    """

    interval: Interval | None = None

    @abstractmethod
    def add(self) -> None:
        """Add something that a batch can have; each call adds something else."""

    def change(self) -> None:
        """Give something that was added other rows, and leave it where it was."""
        raise NotImplementedError

    def lose(self) -> None:
        """Remove something that was added, was not changed, and is still there."""
        raise NotImplementedError

    def rows(self) -> Iterable[Mapping[str, Any]] | None:
        """Return all rows that were added, read without the spout; None if nothing tells them.

        It is asked before anything is changed or lost.
        """
        return None


class SpoutBroken(AssertionError):
    """A spout does not keep what docs/write-a-spout.md asks of it.

    :ivar broken: what it breaks, a sentence each
    """

    def __init__(self, spout: object, broken: Sequence[str]) -> None:
        self.broken = tuple(broken)
        lines = "".join(f"\n- {sentence}" for sentence in self.broken)
        super().__init__(f"{type(spout).__name__} breaks the contract of spouts:{lines}")
