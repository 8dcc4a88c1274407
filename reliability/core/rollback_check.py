"""Whether a topology can return to its states after a txid, as a whole or not at all (H5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reliability.core.plan import ChangeKind, Plan
from reliability.core.spout import Interval
from reliability.core.state import State, beyond_history
from reliability.core.txids import format_txids, with_noun

_NAMED = 10  # intervals


def rollback_refusal(
    states: Sequence[State], to_txid: int, curr_txid: int, compacted_through: Mapping[str, int]
) -> str | None:
    """Return why the topology cannot return to `to_txid`, None if it can.

    :param compacted_through: state -> the last txid that can no longer be taken out of it; 0 if
        all of them can

    >>> from reliability import Count, OpaqueState
    >>> opaque = OpaqueState("totals", values={"n": Count()})
    >>> rollback_refusal([opaque], to_txid=6, curr_txid=8, compacted_through={})
    >>> rollback_refusal([opaque], to_txid=5, curr_txid=8, compacted_through={})
    'state totals is an OpaqueState, which can go back to txid 6 only'
    >>> rollback_refusal([opaque], to_txid=7, curr_txid=8, compacted_through={})
    'txid 7 is the last committed txid already'
    """
    last = curr_txid - 1
    if to_txid == last:
        return f"txid {last} is the last committed txid already"
    if not 0 <= to_txid < last:
        return f"its committed txids are 1 to {last}" if last else "none of its txids has committed"
    for state in states:
        if why := state.cannot_go_back(to_txid, last):
            return f"state {state.name} {why}"
    return beyond_history(to_txid + 1, compacted_through)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstDates:
    """What a rollback does that its interval does not say: txids follow the order of emission.

    :param later_that_stay: later intervals whose txids were emitted before, with these txids
    :param earlier_that_go: earlier intervals whose txids were emitted after, with these txids

    >>> april, august = Interval.parse("2013-04"), Interval.parse("2013-08")
    >>> for line in AgainstDates(later_that_stay={august: [1, 2]}, earlier_that_go={}).lines():
    ...     print(line)
    Txids follow the order of emission, not of dates:
      later intervals that stay: 2013-08 (txids 1..2)
    """

    later_that_stay: Mapping[Interval, Sequence[int]]
    earlier_that_go: Mapping[Interval, Sequence[int]]

    def lines(self) -> Iterator[str]:
        """Yield what a person should read before the rollback; nothing if dates agree with it."""
        if self.later_that_stay or self.earlier_that_go:
            yield "Txids follow the order of emission, not of dates:"
        if self.later_that_stay:
            yield f"  later intervals that stay: {_named(self.later_that_stay)}"
        if self.earlier_that_go:
            yield f"  earlier intervals that go: {_named(self.earlier_that_go)}"


def _named(found: Mapping[Interval, Sequence[int]]) -> str:
    named = [f"{one} ({with_noun(format_txids(txids))})" for one, txids in found.items()]
    more = f" and {len(named) - _NAMED:,} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more


def drop_refusal(decided: Plan, to_txid: int) -> str | None:
    """Return why a rollback cannot replace a decided change, None if it can.

    Some databases may have applied the change already; the rollback undoes it there.

    >>> from reliability.core.plan import PlannedChange
    >>> decided = PlannedChange(topology="shop", commit_number=9, txid=7, attempt_id=0, nonce="n")
    >>> drop_refusal([decided], to_txid=6)
    >>> drop_refusal([decided], to_txid=7)
    'txid 7 is decided and cannot be committed: roll back to txid 6 or earlier'
    """
    for change in decided:
        txid = change.txid
        if change.kind is ChangeKind.ROLLBACK and to_txid > txid:
            return f"a rollback to txid {txid} is decided: roll back to it or earlier"
        if change.attempt is not None and to_txid >= txid:
            why = f"txid {txid} is decided and cannot be committed"
            return f"{why}: roll back to txid {txid - 1} or earlier"
    return None
