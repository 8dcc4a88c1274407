"""Whether a topology can return to its states after a txid, as a whole or not at all (H5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reliability.core.plan import Plan, PlannedCommit, PlannedRollback
from reliability.core.state import State, beyond_history


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
        return f"its committed txids are 1 to {last}"
    for state in states:
        if why := state.cannot_go_back(to_txid, last):
            return f"state {state.name} {why}"
    return beyond_history(to_txid + 1, compacted_through)


def drop_refusal(decided: Plan, to_txid: int) -> str | None:
    """Return why a rollback cannot replace a decided change, None if it can.

    Some databases may have applied the change already; the rollback undoes it there.

    >>> from reliability.core.plan import PlannedCommit
    >>> decided = PlannedCommit(
    ...     commit_number=9, txid=7, attempt_id=0, nonce="n", replaced_attempt=None)
    >>> drop_refusal([decided], to_txid=6)
    >>> drop_refusal([decided], to_txid=7)
    'txid 7 is decided and cannot be committed: roll back to txid 6 or earlier'
    """
    for planned in decided:
        if isinstance(planned, PlannedRollback):
            if to_txid > planned.to_txid:
                return (
                    f"a rollback to txid {planned.to_txid} is decided: roll back to it or earlier"
                )
        elif isinstance(planned, PlannedCommit) and to_txid >= planned.txid:
            return (
                f"txid {planned.txid} is decided and cannot be committed: "
                f"roll back to txid {planned.txid - 1} or earlier"
            )
    return None
