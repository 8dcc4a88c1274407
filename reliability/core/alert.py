"""What a person should hear of, without looking: docs/monitoring.md."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum


class AlertKind(str, Enum):
    """What an alert is about."""

    BLOCKED = "BLOCKED"  # a txid that no run works on holds up all later ones
    LAG = "LAG"  # intervals have lacked a commit for too long
    LEASE_EXPIRED = "LEASE_EXPIRED"  # an attempt's process died silently
    RUN_UNSATISFIED = "RUN_UNSATISFIED"  # a run ended without what it asked for
    CHANGED_BY_HAND = "CHANGED_BY_HAND"  # a table differs from its contributions


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something of a topology that begins, or that is over.

    :param what: the matter in a sentence
    :param advice: what a person can do about it
    :param command: what to type first
    :param since: since when it has been so, as far as is known
    :param ended_at: when it was found to be over; None if it begins
    """

    topology: str
    kind: AlertKind
    what: str
    advice: str
    command: str
    since: datetime
    ended_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None

    def __str__(self) -> str:
        """Say it in a line.

        >>> at = datetime(2026, 1, 1)
        >>> kind = AlertKind.BLOCKED
        >>> say = dict(topology="shop", kind=kind, what="txid 3 is blocked", since=at)
        >>> print(Alert(**say, advice="Fix the cause.", command="reliability status shop"))
        shop: txid 3 is blocked. Fix the cause. Type: reliability status shop
        >>> print(Alert(**say, advice="", command="", ended_at=at))
        shop: over: txid 3 is blocked
        """
        if self.is_over:
            return f"{self.topology}: over: {self.what}"
        what = self.what if self.what.endswith((".", "!", "?")) else f"{self.what}."
        return f"{self.topology}: {what} {self.advice} Type: {self.command}"
