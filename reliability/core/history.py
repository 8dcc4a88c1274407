"""History: how long each txid's contribution can be replaced."""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.errors import InvalidDefinition


@dataclass(frozen=True)
class History:
    """A state's horizon; contributions beyond it are folded to one row a key.

    With both numbers, what either keeps is kept.

    :param txids: the last so many txids that have committed
    :param days: what has committed, or was last replayed, within so many days
    """

    txids: int | None = None
    days: float | None = None

    def __post_init__(self) -> None:
        if self.txids is None and self.days is None:
            raise InvalidDefinition(
                "a History without txids and days keeps nothing",
                remedy="say History(txids=…) or History(days=…); without one, all is kept.",
            )
        if self.txids is not None and self.txids < 1:
            raise InvalidDefinition("History: txids starts at 1")
        if self.days is not None and self.days <= 0:
            raise InvalidDefinition("History: days is more than 0")
