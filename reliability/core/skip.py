"""A txid that a person has skipped for good (C8)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reliability.core.texts import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Who skipped a txid, when and why.

    :param interval: the txid's data interval; empty for an untimed one

    >>> print(Skipped(topology="shop", txid=3, interval="2013-02",
    ...               by="ann@etl", at=datetime(2026, 11, 22), reason="a test file"))
    txid 3 (2013-02) was skipped on 2026-11-22 by ann@etl, because: \
a test file. `reliability unskip shop 3 --reason '…'` takes it back
    """

    topology: str
    txid: int
    interval: str
    by: str
    at: datetime
    reason: str

    def __str__(self) -> str:
        interval = f" ({self.interval})" if self.interval else ""
        return (
            f"txid {self.txid}{interval} was skipped on {self.at:%Y-%m-%d} by {self.by}, because: "
            f"{printable(self.reason)}. "
            f"`reliability unskip {self.topology} {self.txid} --reason '…'` takes it back"
        )
