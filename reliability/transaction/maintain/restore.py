"""After a restore: are the databases of a topology where its ledger expects them (C2, C6)?"""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.checkpoint import Phase
from reliability.core.errors import ReliabilityError
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import lock_mirror
from reliability.transaction.commit.apply import apply_plan
from reliability.transaction.commit.participant import rolled_back
from reliability.transaction.commit.saved_checkpoint import (
    SavedCheckpoint,
    change_at,
    find_checkpoint,
    read_checkpoint,
)
from reliability.transaction.topology.databases import TopologyDatabases


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The position of a target database, and the positions that the checkpoint allows.

    :param is_same: its last change is the coordinator's too, if both are there
    """

    topology: str
    database: str
    commit_number: int | None
    expected: tuple[int, ...]
    is_same: bool
    epoch: int
    error: str = ""

    @property
    def agrees(self) -> bool:
        return self.commit_number in self.expected and self.is_same

    def __str__(self) -> str:
        number = self.commit_number
        if number in self.expected:
            return (
                f"{self.topology}: c={number} of database {self.database} is another change than "
                "the ledger's: restore all of its databases to the same moment; until then the "
                "topology does not commit"
            )
        position = "has no record of it" if number is None else f"is at c={number}"
        return (
            f"{self.topology}: database {self.database} {position}, but must be at "
            f"c={' or '.join(map(str, self.expected))}: restore all of its databases to the same "
            "commit number; until then the topology does not commit"
        )


def compare_databases(connection: LedgerConnection, topology: str) -> list[Compared]:
    """Compare the databases of a topology with its ledger, which catches up with their epochs."""
    with connection.transaction() as tx:
        saved = read_checkpoint(tx, topology)
        c = saved.state.commit_number
        change = change_at(tx, topology, c) if saved.state.is_at_rest else None
    with TopologyDatabases.of(connection, topology) as participants:
        compared = [_where_is(database, topology, saved, change) for database in participants]
    # else each driver is refused until it has caught up with the epochs of the lost ones
    epoch = max((one.epoch for one in compared), default=0)
    connection.run("enter_epoch", topology=topology, epoch=epoch)
    return compared


def _where_is(
    database: LedgerConnection, topology: str, saved: SavedCheckpoint, change: str | None
) -> Compared:
    number, epoch, expected, is_same, why = None, 0, saved.state.participants_at, True, ""
    try:
        with database.transaction() as tx:
            there = find_checkpoint(tx, topology)
            if there is not None:
                number, epoch = there.state.commit_number, there.epoch
                is_same = change in (None, change_at(tx, topology, number))
        *before, _ = saved.state.participants_at
        if saved.state.phase is Phase.COMMITTING and number in before:
            with rolled_back(database) as tx:  # what is decided may have been staged since
                lock_mirror(tx, topology)
                apply_plan(tx, topology, saved.plan)
    except ReliabilityError as error:
        expected, why = (), str(error)
    return Compared(
        topology=topology,
        database=database.database,
        commit_number=number,
        expected=expected,
        is_same=is_same,
        epoch=epoch,
        error=why,
    )
