"""Exclude a source item: attempts read their batches without it, and no run emits it (C9).

The frozen batch and the item's txid stay as they are, so that `include` needs nothing but a replay.
Each attempt gets its batch without the excluded items when it is granted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reliability.core.errors import ExclusionNotPossible
from reliability.core.fold import Fold
from reliability.core.leases import DEFAULT_LEASES
from reliability.core.names import KAFKA_SOURCE, TABLE_SOURCE
from reliability.core.remedy import Remedy
from reliability.core.spout import BatchMeta
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import holding, holding_at_rest
from reliability.transaction.correct.park import NOT_RECORDED
from reliability.transaction.correct.replayable import Replayable
from reliability.transaction.correct.rollback import RunToClear, runs_to_clear

#: How the names of items begin that are parts of a source: what they are, and what to do instead.
_NOT_EXCLUDED = {
    KAFKA_SOURCE: (
        "a topic",
        "messages",
        "leave them out in the process function, and run {replay} for their txids.",
    ),
    TABLE_SOURCE: (
        "a table",
        "rows",
        "delete the rows at the source, and run {refreeze} for their txids.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOfTxids:
    """A source item, and what is to be done for the txids that read it or a part of it.

    :param txids: all of them, the parked and skipped ones too, for which nothing is to be done
    :param to_replay: have committed: a replay takes the item out, or in again
    :param at_work: a run works on these, and begins them again
    :param held: were rolled back: a release comes before the clear
    :param to_clear: the runs that process the others when they are cleared
    """

    item: str
    txids: tuple[int, ...]
    to_replay: tuple[int, ...]
    at_work: tuple[int, ...]
    held: tuple[int, ...]
    to_clear: tuple[RunToClear, ...]

    @property
    def is_nobodys(self) -> bool:
        """Say whether no txid has it, not even a parked or skipped one."""
        return not (self.txids or self.at_work)


def find_item(connection: LedgerConnection, topology: str, name: str, identity: str) -> str:
    """Return the name that the ledger has for a source item.

    :param name: as a person writes it: the whole name, or its last parts
    :param identity: the name that the ledger would give to such a file
    :raises ExclusionNotPossible: several items end with this name; or it means rows of a table,
        messages of a topic, or a file in a feed of changes
    """
    rows = connection.all("items_named", topology=topology, item=name, identity=identity)
    last = connection.first("last_item", topology=topology) or {"item": "", "is_of_feed": False}
    for beginning, (source, what, remedy) in _NOT_EXCLUDED.items():
        if name.startswith(beginning) or last["item"].startswith(beginning):
            raise ExclusionNotPossible(
                f"{topology} reads {source}, and {what} of {source} cannot be excluded",
                remedy=Remedy(remedy, {"topology": topology, "txid": "TXIDS"}),
            )
    items = [row["item"] for row in rows]
    if exact := [item for item in items if item in (name, identity)]:
        return str(exact[0])
    if last["is_of_feed"]:
        raise ExclusionNotPossible(
            f"{topology} reads the changes of a table, of which one file may be several",
            remedy="delete the rows in the table: the next txid takes them out.",
        )
    if len(items) > 1:
        raise ExclusionNotPossible(
            f"several items of {topology} end with {name}: {', '.join(items)}",
            remedy="write one of these names in full.",
        )
    return str(items[0]) if items else identity


def check_exclusion(connection: LedgerConnection, topology: str, item: str) -> ItemOfTxids:
    """Return what excluding an item concerns, or raise why it cannot be excluded.

    :raises ExclusionNotPossible: it is excluded already, or a state could not replay one of its
        txids
    """
    replayable = Replayable.of(connection, topology)
    with holding(connection, topology) as (tx, _):
        return _check(tx, replayable, item)


def exclude(
    connection: LedgerConnection, topology: str, item: str, reason: str, by: str = NOT_RECORDED
) -> ItemOfTxids:
    """Exclude an item from every later attempt and emission, and return what is to be done next.

    Live attempts that read it are fenced. Committed txids still contain it until they are replayed.

    :raises: as check_exclusion
    :raises LedgerBusy: a change of the states is in progress
    """
    replayable = Replayable.of(connection, topology)
    with holding_at_rest(connection, topology) as (tx, _):
        concerned = _check(tx, replayable, item)
        tx.one("begin_exclusion", topology=topology, item=item, reason=reason, excluded_by=by)
        why = f"excluded: {reason}"
        tx.run("fence_what_was_read", topology=topology, txids=[*concerned.at_work], reason=why)
        return concerned


def include(
    connection: LedgerConnection, topology: str, item: str, reason: str, by: str = NOT_RECORDED
) -> ItemOfTxids:
    """Take an exclusion back, and return what is to be done next; without txids, a run emits it.

    Attempts that have left it out and have not committed are fenced.

    :raises ExclusionNotPossible: it is not excluded; or nothing would ever count it, because a
        committed txid that has left it out can no longer be replayed, or the log of a table that it
        is in has been read on
    """
    replayable = Replayable.of(connection, topology)
    with holding_at_rest(connection, topology) as (tx, _):
        is_passed = tx.one("is_passed", topology=topology, item=item)["is_passed"]
        ended = tx.first("end_exclusion", topology=topology, item=item, reason=reason, ended_by=by)
        if ended is None:
            raise ExclusionNotPossible(
                f"{item} is not excluded from {topology}",
                remedy="`reliability status` lists what is excluded.",
            )
        concerned = _item_of_txids(tx, topology, item, is_left_out=True)
        if concerned.is_nobodys and is_passed:
            raise ExclusionNotPossible(
                f"{item} stays excluded: no txid of {topology} has it, and later versions of the "
                "table have been read, so that no run would list it again",
                remedy="add its rows to the table again, in a new version.",
            )
        for txid, why in replayable.refused(tx, concerned.to_replay):
            raise ExclusionNotPossible(
                f"{item} stays excluded: txid {txid} of {topology} has left it out, and a later "
                f"replay would be refused: {why}",
                remedy="deliver it under another name; it gets a txid of its own.",
            )
        why = f"included: {reason}"
        tx.run("fence_what_was_read", topology=topology, txids=[*concerned.txids], reason=why)
        return concerned


def _check(tx: DatabaseTransaction, replayable: Replayable, item: str) -> ItemOfTxids:
    topology = replayable.topology
    if tx.all("excluded_among", topology=topology, items=[item]):
        raise ExclusionNotPossible(
            f"{item} is excluded from {topology} already",
            remedy="`reliability status` says since when and why, and which txids are still to be "
            "replayed for it, as after an exclusion that was interrupted: `reliability replay "
            f"{topology} TXIDS`.",
        )
    concerned = _item_of_txids(tx, topology, item, is_left_out=False)
    for txid, why in replayable.refused(tx, concerned.to_replay):
        raise ExclusionNotPossible(
            f"txid {txid} of {topology} has counted {item}, and a later replay would be refused: "
            f"{why}",
            remedy="deliver the difference as a new file.",
        )
    reading = _reading(tx, topology, item)
    return replace(concerned, at_work=tuple(sorted({*concerned.at_work, *reading})))


def _reading(tx: DatabaseTransaction, topology: str, item: str) -> set[int]:
    """Return the txids of the live attempts that read an item, also of an opaque batch."""
    batches = {
        row["txid"]: BatchMeta.from_json(row["batch_meta"], Fold())
        for row in tx.all("live_batches", topology=topology)
    }
    return {txid for txid, batch in batches.items() if item in {one.source for one in batch.items}}


def _item_of_txids(
    tx: DatabaseTransaction, topology: str, item: str, *, is_left_out: bool
) -> ItemOfTxids:
    """Return what a change concerns.

    :param is_left_out: of the committed txids, those that have left the item out, or the others
    """
    key = {"topology": topology, "item": item}
    rows = tx.all("txids_of_item", request_lease=DEFAULT_LEASES.request, **key)
    read = [row for row in rows if not row["is_empty"]]
    committed = [row for row in read if row["has_committed"] and row["is_left_out"] is is_left_out]
    uncommitted = [row for row in read if not row["has_committed"]]
    undone = [row for row in uncommitted if not row["is_requested"]]
    return ItemOfTxids(
        item=item,
        txids=tuple(row["txid"] for row in rows),
        to_replay=tuple(row["txid"] for row in committed),
        at_work=tuple(row["txid"] for row in uncommitted if row["is_requested"]),
        held=tuple(row["txid"] for row in undone if row["is_held"]),
        to_clear=tuple(runs_to_clear(tx, topology, undone)),
    )
