"""Participants: the target databases of a topology besides the coordinator's own.

Each has the same ledger schema and a mirror of what its states need: the topology's row, the
txids and attempts that were granted to it, their sinks. It acts on messages only, and refuses
those of a driver or an attempt that was given up (C2, C6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

from reliability.core.attempt import Grant
from reliability.core.checkpoint import (
    COORDINATOR,
    Answer,
    CheckpointAction,
    CheckpointState,
    Message,
    Phase,
    judge,
)
from reliability.core.coordinator import AttemptStatus
from reliability.core.difference import Difference
from reliability.core.errors import (
    AttemptFenced,
    CheckpointMismatch,
    ParticipantTaken,
    ReliabilityError,
    StateDefinitionChanged,
)
from reliability.core.plan import Plan
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import (
    PATIENCE_SECONDS,
    check_known,
    lock_mirror,
    lock_topology,
)
from reliability.ledger.migrations import check_migrated
from reliability.settings import database_dsn
from reliability.transaction.commit.plan import (
    SavedCheckpoint,
    carry_out,
    read_checkpoint,
    save_checkpoint,
)
from reliability.transaction.process.attempt import attempt_key
from reliability.transaction.process.opaque import batch_of

ENDED = frozenset({AttemptStatus.FAILED.value, AttemptStatus.FENCED.value})


class Participants:
    """The databases of one topology; sessions are opened when needed and closed together."""

    def __init__(self, connection: LedgerConnection, topology: str, others: Iterable[str]) -> None:
        self.topology = topology
        self.others = tuple(sorted(others))
        self._connections = {COORDINATOR: connection}

    @classmethod
    def of(cls, connection: LedgerConnection, topology: str) -> Participants:
        """Read from the coordinator's ledger which databases take part."""
        with connection.transaction() as tx:
            rows = tx.all("participants", topology=topology)
        return cls(connection, topology, [row["database"] for row in rows])

    @classmethod
    def of_known(cls, connection: LedgerConnection, topology: str) -> Participants:
        """Do the same for a name that a person gave.

        :raises TopologyUnknown: the ledger has no topology of that name
        :raises NotTheCoordinator: this database only takes part in it
        """
        with connection.transaction() as tx:
            check_known(tx, topology)
        return cls.of(connection, topology)

    def __enter__(self) -> Participants:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the sessions that were opened here; the coordinator's stays."""
        for database in self.others:
            if connection := self._connections.pop(database, None):
                connection.close()

    @property
    def coordinator(self) -> LedgerConnection:
        return self._connections[COORDINATOR]

    def connection_of(self, database: str) -> LedgerConnection:
        """Return the session with a database, the coordinator's own for ""."""
        if database not in self._connections:
            name = self.coordinator.application_name
            self._connections[database] = LedgerConnection(
                database_dsn(database), application_name=name
            )
        return self._connections[database]

    def __iter__(self) -> Iterator[Participant]:
        for database in self.others:
            yield Participant(database, self.connection_of(database), self.topology)

    # --- what the processing phase needs ---------------------------------------------------------

    def declare(self) -> None:
        """Make the topology known to every participant; harmless when repeated.

        :raises StateDefinitionChanged: the topology has emitted, with states in other databases
        :raises LedgerNotMigrated: a database has no ledger schema, or an older one
        :raises ParticipantTaken: it is the coordinator's own, known by another name, or takes
            part in a topology of this name of another ledger
        :raises CheckpointMismatch: it has lost what it knew of the topology
        """
        with self.coordinator.transaction() as tx:
            self._record(tx)
            row = tx.one("topology_to_mirror", topology=self.topology)
        for participant in self:
            with naming(participant.name):
                check_migrated(participant.connection)
                participant.mirror_topology(row)

    def _record(self, tx: DatabaseTransaction) -> None:
        """Keep who takes part, for those who commit without the pipeline's code."""
        databases = {"topology": self.topology, "databases": list(self.others)}
        known = [row["database"] for row in tx.all("participants", topology=self.topology)]
        if known == databases["databases"]:
            return
        if lock_topology(tx, self.topology)["next_txid"] > 1:
            raise StateDefinitionChanged(
                f"{self.topology} emitted txids for states in the databases {known}, and has them "
                f"in {databases['databases']} now"
            )
        tx.run("drop_other_participants", **databases)
        tx.run("add_participants", **databases)

    def grant(self, grant: Grant, open_sinks: Callable[[DatabaseTransaction, str], object]) -> None:
        """Give every participant an attempt that the coordinator's ledger has just granted.

        Whatever it knows of this txid's lower attempts is fenced with it; repeated, it changes
        nothing. All of them have it, or an error rises and the attempt is never submitted.

        :param open_sinks: opens the attempt's sinks in a participant, by its name
        :raises AttemptFenced: a newer attempt of the txid was granted meanwhile
        """
        if not self.others:
            return
        with self.coordinator.transaction() as tx:
            row = tx.first("attempt_to_mirror", **attempt_key(grant))
        if row is None:
            raise AttemptFenced(f"attempt {grant} was ended by somebody else")
        for participant in self:
            with naming(participant.name), participant.connection.transaction() as tx:
                if participant.take_grant(tx, grant, row):
                    open_sinks(tx, participant.name)


class Participant:
    """One target database, as the coordinator's side speaks to it."""

    def __init__(self, name: str, connection: LedgerConnection, topology: str) -> None:
        self.name = name
        self.connection = connection
        self.topology = topology

    def mirror_topology(self, row: Row) -> None:
        """Make the topology known here, unless this database is not free for it."""
        place = {"topology": self.topology}
        with self.connection.transaction() as tx:
            known = tx.first("mirrored_topology", **place)
            if known is None and row["commit_number"] > 0:
                raise CheckpointMismatch(
                    f"it knows nothing of {self.topology}, and the coordinator is at "
                    f"c={row['commit_number']}"
                )
            tx.run("mirror_topology", row=row["row"], database=self.name)
            known = tx.one("mirrored_topology", **place)
        if known["topology_id"] != row["topology_id"]:
            raise ParticipantTaken(f"it has a topology {self.topology} of another ledger")
        if known["participant"] != self.name:
            called = (
                f"is called {known['participant']}" if known["participant"] else "is its ledger"
            )
            raise ParticipantTaken(f"this database of {self.topology} {called} already")

    def take_grant(self, tx: DatabaseTransaction, grant: Grant, row: Row) -> bool:
        """Mirror an attempt, after fencing the lower ones; False if it is here already (C6)."""
        place = attempt_key(grant)
        lock_mirror(tx, self.topology)
        known = tx.first("greatest_attempt", topology=self.topology, txid=grant.attempt.txid)
        if known is not None and known["attempt_id"] >= grant.attempt.attempt_id:
            if known["nonce"] != grant.nonce or known["status"] in ENDED:
                raise AttemptFenced(
                    f"{grant} comes late: attempt {grant.attempt.txid}:{known['attempt_id']} is "
                    f"known here, {known['status']}"
                )
            return False
        verdict = batch_of(row).verdict.value
        tx.run("mirror_transaction", transaction_row=row["transaction_row"], verdict=verdict)
        tx.one("reach_txid", **place)
        tx.run("fence_lower_attempts", **place)
        tx.one("mirror_attempt", attempt_row=row["attempt_row"])
        return True

    # --- the checkpoint --------------------------------------------------------------------------

    def carry_out(
        self, message: Message, plan: Plan, patience: int = PATIENCE_SECONDS
    ) -> list[Difference]:
        """Do what the checkpoint's driver asks; to return, with what was changed, is to vote yes.

        PREPARE runs the whole commit, checks it as COMMIT would, and rolls it back.

        :raises CheckpointTakenOver: the message is a driver's that was given up
        :raises CheckpointMismatch: this database is not where the driver believes it is
        """
        match message.action:
            case CheckpointAction.PREPARE:
                with rolled_back(self.connection) as tx:
                    return self._apply(tx, message, plan, patience)
            case CheckpointAction.COMMIT:
                with self.connection.transaction() as tx:
                    return self._apply(tx, message, plan, patience)
            case CheckpointAction.ROLLBACK | CheckpointAction.INIT_STATE:
                with self.connection.transaction() as tx:
                    self._judge(tx, message, patience)
                    tx.run("enter_epoch", topology=self.topology, epoch=message.epoch)
        return []

    def _apply(
        self, tx: DatabaseTransaction, message: Message, plan: Plan, patience: int
    ) -> list[Difference]:
        known, answer = self._judge(tx, message, patience)
        differences: list[Difference] = []
        if answer is Answer.APPLY:
            if len(plan) != message.size:  # else c would move without its changes
                raise CheckpointMismatch(f"{message.size} commits were announced, not {len(plan)}")
            differences = carry_out(tx, self.topology, plan)
            state = CheckpointState(Phase.COMMITTED, message.commit_number)
            save_checkpoint(
                tx, self.topology, known, SavedCheckpoint(state=state, epoch=message.epoch)
            )
        return differences

    def _judge(
        self, tx: DatabaseTransaction, message: Message, patience: int
    ) -> tuple[SavedCheckpoint, Answer]:
        lock_mirror(tx, self.topology, patience)
        known = read_checkpoint(tx, self.topology)
        last = known.state.commit_number
        return known, judge(message, last=last, known_epoch=known.epoch)


class _RolledBack(Exception):
    """Everything went well, and was rolled back."""


@contextmanager
def rolled_back(connection: LedgerConnection) -> Iterator[DatabaseTransaction]:
    """Open a transaction that is checked as COMMIT would check it, and then rolled back."""
    try:
        with connection.transaction() as tx:
            yield tx
            tx.run("check_constraints")
            raise _RolledBack
    except _RolledBack:
        pass


@contextmanager
def naming(database: str) -> Iterator[None]:
    """Say in an error of this package which database it is about."""
    try:
        yield
    except ReliabilityError as error:
        raise named(error, database) from error


def named(error: ReliabilityError, database: str) -> ReliabilityError:
    """Return the error with the name of the database that it is about."""
    return type(error)(f"database {shown(database)}: {error.what}", remedy=error.remedy)


def shown(database: str) -> str:
    """Return a database's name for a person."""
    return database or "of the ledger"
