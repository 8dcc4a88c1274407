"""Whether a topology can go back to what it was after a txid: as a whole or not at all (H5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reliability.core.state import State, StateKind, beyond_history


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
        if state.kind is StateKind.TRANSACTIONAL:
            return f"state {state.name} is a TransactionalState, which keeps no history"
        if state.kind is StateKind.OPAQUE and to_txid != last - 1:
            return (
                f"state {state.name} is an OpaqueState, which can go back to txid {last - 1} only"
            )
    return beyond_history(to_txid + 1, compacted_through)
