"""Read the position of a topology: for one txid and its task, or for all who wait or look.

Without the topology's lock it may be outdated at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reliability.core.coordinator import Snapshot
from reliability.core.definitions import Topology
from reliability.core.errors import NoRequest, TopologyUnknown
from reliability.core.request import Request
from reliability.core.standing import Standing
from reliability.core.state import replay_refusal
from reliability.ledger.connection import DatabaseTransaction, Ledger, Row
from reliability.ledger.read_rows import blocked_of, interval_of, request_of, standing_of
from reliability.states.headers import compacted_through


def read_standing(tx: DatabaseTransaction, topology: str) -> Standing:
    """Read what decides about all txids of a topology.

    :raises TopologyUnknown: the ledger has no such topology
    """
    standing = find_standing(tx, topology)
    if standing is None:
        raise TopologyUnknown(f"the ledger has no topology called {topology}")
    return standing


def find_standing(tx: DatabaseTransaction, topology: str) -> Standing | None:
    """Do the same for who only looks; None if there is no such topology, or no longer."""
    return find_standings(tx, topology).get(topology)


def find_standings(tx: DatabaseTransaction, topology: str | None) -> dict[str, Standing]:
    """Do the same for one topology, or for all, by name."""
    rows = tx.all("standing", topology=topology, txid=None, request_id=None)
    blocked = {
        row["topology"]: blocked_of(row)
        for row in tx.all("blocked_txid", topology=topology, below=None)
    }
    return {
        row["topology"]: replace(standing_of(row), blocked=blocked.get(row["topology"]))
        for row in rows
    }


def read_txid(
    ledger: Ledger, topology: Topology, txid: int, request_id: int
) -> tuple[Snapshot, Request, Row]:
    """Read what decides about a request for one txid, and what a begin has to know.

    :param ledger: under the topology's lock in a transaction, otherwise in one round trip
    :param topology: its states may refuse a replay (H5)
    """
    name = topology.name
    row = ledger.one("standing", topology=name, txid=txid, request_id=request_id)
    if row["request"] is None:
        raise NoRequest(f"request {request_id} is gone: {name} was dropped and made again")
    standing, refusal = standing_of(row), None
    if txid > standing.curr_txid:  # otherwise no older txid is uncommitted
        blocked = ledger.first("blocked_txid", topology=name, below=txid)
        standing = replace(standing, blocked=blocked_of(blocked))
    if txid < standing.curr_txid:
        through = compacted_through(ledger, name)
        refusal = replay_refusal(topology.states, txid, standing.curr_txid, through)
    snapshot = replace(standing.snapshot(txid), interval=interval_of(row), replay_refusal=refusal)
    return snapshot, request_of(row["request"]), row


def read_requests(
    tx: DatabaseTransaction, known: Iterable[int], unknown: Iterable[int]
) -> list[Request]:
    """Read those of these requests that are no longer open, and all whose status is unknown."""
    rows = tx.all("requests_that_changed", known=list(known), unknown=list(unknown))
    return [request_of(row) for row in rows]
