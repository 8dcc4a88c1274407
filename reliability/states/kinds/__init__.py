"""Commit, replay, roll back and verify each kind of state: one module per kind."""

from __future__ import annotations

from reliability.core.state import StateKind
from reliability.states.kinds.append import StoredRows
from reliability.states.kinds.contribution import StoredContributions
from reliability.states.kinds.opaque import StoredOpaque
from reliability.states.kinds.stored import StoredState
from reliability.states.kinds.transactional import StoredTransactional
from reliability.states.kinds.view import ViewedRows
from reliability.states.tables import StateTables

_KINDS: dict[StateKind, type[StoredState]] = {
    StateKind.CONTRIBUTION: StoredContributions,
    StateKind.OPAQUE: StoredOpaque,
    StateKind.TRANSACTIONAL: StoredTransactional,
}


__all__ = ["StoredState", "stored_state"]


def stored_state(tables: StateTables) -> StoredState:
    """Return the implementation for the kind of a state; append has its own."""
    if tables.as_view:
        return ViewedRows(tables)
    if tables.state.is_append:
        return StoredRows(tables)
    return _KINDS[tables.state.kind](tables)
