"""History: how long the contribution of each txid can be replaced."""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.errors import InvalidDefinition


@dataclass(frozen=True)
class History:
    """A state's horizon; contributions beyond it are folded to one row a key.

    With both numbers, the longer applies.

    :param txids: keep the last `txids` committed txids
    :param days: keep what was committed or last replayed within the last `days` days
    """

    txids: int | None = None
    days: float | None = None

    def __post_init__(self) -> None:
        if self.txids is None and self.days is None:
            raise InvalidDefinition(
                "a History without txids and days keeps nothing",
                remedy="write History(txids=…) or History(days=…); without keep=, all is kept.",
            )
        if self.txids is not None and self.txids < 1:
            raise InvalidDefinition("History: txids must be at least 1")
        if self.days is not None and self.days <= 0:
            raise InvalidDefinition("History: days must be more than 0")
