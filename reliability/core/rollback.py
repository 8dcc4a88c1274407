"""Whether a topology can go back to what it was after a txid: as a whole or not at all (H5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reliability.core.plan import Plan, PlannedRollback
from reliability.core.state import State, beyond_history


def rollback_refusal(
    states: Sequence[State], to_txid: int, curr_txid: int, compacted_through: Mapping[str, int]
) -> str | None:
    """Return why the topology cannot go back to `to_txid`, None if it can.

    :param compacted_through: state -> the last txid that it can take out no more; 0 if it can take
        out all of them

    >>> from reliability import Count, OpaqueState
    >>> opaque = OpaqueState("totals", values={"n": Count()})
    >>> rollback_refusal([opaque], to_txid=6, curr_txid=8, compacted_through={})
    >>> rollback_refusal([opaque], to_txid=5, curr_txid=8, compacted_through={})
    'state totals is an OpaqueState, which can go back to txid 6 only'
    >>> rollback_refusal([opaque], to_txid=7, curr_txid=8, compacted_through={})
    'it is there: txid 7 is the last that committed'
    """
    last = curr_txid - 1
    if to_txid == last:
        return f"it is there: txid {last} is the last that committed"
    if not 0 <= to_txid < last:
        return f"its committed txids are 1 to {last}"
    for state in states:
        if why := state.cannot_go_back(to_txid, last):
            return f"state {state.name} {why}"
    return beyond_history(to_txid + 1, compacted_through)


def drop_refusal(decided: Plan, to_txid: int) -> str | None:
    """Return why a rollback cannot take the place of what is decided, None if it can.

    Some databases may have it already: whoever has it undoes it as a part of the rollback.

    >>> from reliability.core.plan import PlannedCommit
    >>> decided = PlannedCommit(
    ...     commit_number=9, txid=7, attempt_id=0, nonce="n", replaced_attempt=None)
    >>> drop_refusal([decided], to_txid=6)
    >>> drop_refusal([decided], to_txid=7)
    'txid 7 is decided and cannot be committed: go back to txid 6 or before'
    """
    for planned in decided:
        if isinstance(planned, PlannedRollback):
            if to_txid > planned.to_txid:
                return f"a rollback to txid {planned.to_txid} is decided: go back to it or before"
        elif to_txid >= planned.txid:
            return (
                f"txid {planned.txid} is decided and cannot be committed: "
                f"go back to txid {planned.txid - 1} or before"
            )
    return None
