"""The accounts of an attempt: emitted = applied + dropped + quarantined, for each state (V8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliability.core.attempt import Grant
from reliability.core.definitions import Topology
from reliability.core.set_aside import Kind
from reliability.core.statement_key import AttemptKey
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.topology.databases import TopologyDatabases

_LEFT = (Kind.DROPPED, Kind.QUARANTINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The rows of a batch and a state, in tuples of the source.

    :param verdict: how the emitted side is verified; None for a batch of the attempt's own
    :param added_rows: how many more rows than tuples a fan-out has made
    :param reasons: kind, reason and count of all that was set aside
    """

    state: str
    verdict: str | None
    emitted: int
    applied: int
    dropped: int
    quarantined: int
    added_rows: int
    reasons: Sequence[Mapping[str, Any]]

    def __str__(self) -> str:
        parts = [f"{self.applied:,} applied"]
        parts += [
            f"{reason['count']:,} {kind.value.lower()} ({reason['reason']})"
            for kind in _LEFT
            for reason in self.reasons
            if reason["kind"] == kind.value
        ]
        more = f", as {self.applied + self.added_rows:,} rows" if self.added_rows else ""
        return f"{self.state}: {self.emitted:,} emitted = {' + '.join(parts)}{more}"


def accounts_of(connection: LedgerConnection, topology: Topology, grant: Grant) -> list[Account]:
    """Return the accounts of a sealed attempt, in the order of the topology's states."""
    by_state: dict[str, Account] = {}
    with TopologyDatabases(connection, topology.name, topology.databases) as databases:
        for database in databases.all:
            by_state |= _read(database, grant)
    return [by_state[state.name] for state in topology.states if state.name in by_state]


def _read(connection: LedgerConnection, grant: Grant) -> dict[str, Account]:
    key = AttemptKey(grant.topology, grant.attempt.txid, grant.attempt.attempt_id)
    return {row["state"]: Account(**row) for row in connection.all("accounts", **key)}
