"""Commit, replay, roll back and verify each kind of state: one module per kind."""

from __future__ import annotations

from reliability.core.state import State, StateKind
from reliability.states.kinds.append import StoredRows
from reliability.states.kinds.contribution import StoredContributions
from reliability.states.kinds.opaque import StoredOpaque
from reliability.states.kinds.stored import StoredState
from reliability.states.kinds.transactional import StoredTransactional
from reliability.states.kinds.view import ViewedRows

_KINDS: dict[StateKind, type[StoredState]] = {
    StateKind.CONTRIBUTION: StoredContributions,
    StateKind.OPAQUE: StoredOpaque,
    StateKind.TRANSACTIONAL: StoredTransactional,
}


def stored_state(topology: str, state: State) -> StoredState:
    """Return the tables of a state, and how its kind changes them; appended rows have two kinds."""
    if state.is_append:
        return (ViewedRows if state.as_view else StoredRows)(topology, state)
    return _KINDS[state.kind](topology, state)


__all__ = ["StoredState", "stored_state"]
