"""What long work tells of its progress."""

from __future__ import annotations


class StateProgress:
    """Is told how many states are worked on, and which one is now; this one shows nothing."""

    def more(self, states: int) -> None:
        """Note that so many more states will be worked on."""

    def now(self, state: str) -> None:
        """Note that work on this state begins, and that on the one before it has ended."""


UNSEEN = StateProgress()
