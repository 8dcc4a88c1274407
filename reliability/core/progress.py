"""What long work tells of its progress."""

from __future__ import annotations


class StateProgress:
    """Is told how many states are worked on, and which one is now; this one shows nothing."""

    def more(self, states: int) -> None:
        """Note that so many more states will be worked on."""

    def now(self, state: str) -> None:
        """Note that work on this state begins, and that on the one before it has ended."""


UNSEEN = StateProgress()


class TxidProgress:
    """Is told by several threads what becomes of replayed txids; this one shows nothing."""

    def expect(self, txids: int) -> None:
        """Note how many there are."""

    def say(self, text: str, txid: int) -> None:
        """Note what has happened with a txid, or what it waits for."""

    def done(self, txid: int) -> None:
        """Count a txid as done."""
