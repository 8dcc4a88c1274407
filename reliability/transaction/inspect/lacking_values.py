"""Which values were added to states that live, and which committed txids they do not contain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from reliability.core.state import State
from reliability.core.txids import format_txids, with_noun
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.topology.alter import lacking_txids
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingValue:
    """A value that was added later, and the committed txids that it does not contain.

    :param counts_from: the first txid that committed after it was added
    :param fillable: txids that a replay adds to it
    :param unfillable: txids that can no longer be replayed
    :param next_step: how it gets the fillable ones
    """

    state: str
    value: str
    counts_from: int
    fillable: tuple[int, ...]
    unfillable: tuple[int, ...]
    next_step: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        txids = {n: format_txids(getattr(self, n)) for n in ("fillable", "unfillable")}
        return {**asdict(self), **txids}


def lacking_values(connection: LedgerConnection, topology: str) -> list[LackingValue]:
    """Return the values that do not contain every committed txid.

    :raises LedgerUnavailable: a database with states of the topology does not answer
    """
    with connection.transaction() as tx:
        added = tx.all("added_values", topology=topology)
    if not added:
        return []
    states = _states(connection, topology)
    values = []
    with connection.transaction() as tx:
        curr_txid = tx.one("topology_position", topology=topology)["curr_txid"]
        for row in added:
            fillable, unfillable = lacking_txids(
                tx, topology, states, curr_txid=curr_txid, commit_number=row["commit_number"]
            )
            values.append(
                LackingValue(
                    state=row["state"],
                    value=row["value"],
                    counts_from=row["counts_from"],
                    fillable=fillable,
                    unfillable=unfillable,
                    next_step=how_to_fill(topology, fillable, unfillable),
                )
            )
    return [value for value in values if value.fillable or value.unfillable]


def _states(connection: LedgerConnection, topology: str) -> list[State]:
    with TopologyDatabases.of_known(connection, topology) as databases:
        return [
            tables.state
            for database in databases.all
            for tables in declared_tables(database, topology)
        ]


def how_to_fill(topology: str, fillable: Iterable[int], unfillable: Iterable[int]) -> str:
    """Say how values that were added later get the txids that they lack; empty if they lack none.

    >>> how_to_fill("shop", [4, 5], [1, 2, 3])
    '`reliability replay shop 4..5` fills it in; txids 1..3 cannot be replayed any more'
    """
    fills, lost = format_txids(fillable), format_txids(unfillable)
    return "; ".join(
        [
            *([f"`reliability replay {topology} {fills}` fills it in"] if fills else []),
            *([f"{with_noun(lost)} cannot be replayed any more"] if lost else []),
        ]
    )
