"""The row of the table `checkpoint`: read it, and save it by compare-and-set."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from reliability.core.checkpoint import CheckpointState, Phase
from reliability.core.errors import CheckpointMismatch, CheckpointTakenOver
from reliability.core.plan import Plan, dropped_by, planned_from_json
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, Ledger, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A row of the table `checkpoint`."""

    state: CheckpointState
    epoch: int
    plan: Plan = ()


def read_checkpoint(tx: DatabaseTransaction, topology: str) -> SavedCheckpoint:
    return checkpoint_of(tx.one("locked_topology", topology=topology))


def find_checkpoint(tx: DatabaseTransaction, topology: str) -> SavedCheckpoint | None:
    """Return the checkpoint in a database that may have no record of the topology."""
    row = tx.first("locked_topology", topology=topology)
    return checkpoint_of(row) if row is not None else None


def change_at(ledger: Ledger, topology: str, commit_number: int) -> str:
    """Return what a commit number was in a database: "" if nothing has changed its states yet."""
    row = ledger.first("change_at", topology=topology, commit_number=commit_number)
    return row["change"] if row else ""


def check_reached(reached: int, commit_number: int) -> None:
    """Check that a participant has applied what the coordinator had before it was looked at.

    :param reached: its commit number; it commits before the coordinator does
    :raises CheckpointMismatch: it has not: it was restored
    """
    if reached < commit_number:
        raise CheckpointMismatch(f"it has applied c={reached}, but the ledger c={commit_number}")


def checkpoint_of(row: Row) -> SavedCheckpoint:
    """Return the checkpoint in the row that the topology's lock returns."""
    plan = tuple(planned_from_json(item) for item in row["plan"])
    state = CheckpointState(
        Phase(row["phase"]), row["checkpoint_number"], max(len(plan), 1), dropped_by(plan)
    )
    return SavedCheckpoint(state=state, epoch=row["epoch"], plan=plan)


def save_checkpoint(
    tx: DatabaseTransaction, topology: str, old: SavedCheckpoint, new: SavedCheckpoint
) -> None:
    """Replace `old` by `new`; raise CheckpointTakenOver if the row is no longer `old`."""
    row = tx.first(
        "save_checkpoint",
        topology=topology,
        old_phase=old.state.phase.value,
        old_commit_number=old.state.commit_number,
        old_epoch=old.epoch,
        phase=new.state.phase.value,
        commit_number=new.state.commit_number,
        epoch=new.epoch,
        plan=as_json([tx.storable(asdict(change)) for change in new.plan]),
    )
    if row is None:
        raise CheckpointTakenOver(f"the checkpoint of {topology} is no longer {old.state}")
