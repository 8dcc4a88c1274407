"""Frozen keys: what identifies a row of the ledger, as parameters of a statement.

`tx.one("...", **key)` passes each of its fields under the field's name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


class StatementKey:
    """Let `**` unpack a frozen dataclass.

    >>> dict(**TxidKey("revenue", 7))
    {'topology': 'revenue', 'txid': 7}
    """

    __slots__ = ()

    def keys(self) -> list[str]:
        return [field.name for field in fields(self)]  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@dataclass(frozen=True, slots=True)
class TxidKey(StatementKey):
    """A transaction of a topology."""

    topology: str
    txid: int


@dataclass(frozen=True, slots=True)
class AttemptKey(StatementKey):
    """An attempt, for those who hold no grant of it."""

    topology: str
    txid: int
    attempt_id: int


@dataclass(frozen=True, slots=True)
class DryRunKey(StatementKey):
    """A request that is a dry run."""

    topology: str
    txid: int
    request_id: int


@dataclass(frozen=True, slots=True)
class StateKey(StatementKey):
    """A state of a topology."""

    topology: str
    state: str
