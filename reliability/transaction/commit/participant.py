"""A participant in a physical commit: it carries out a message of the checkpoint's driver.

It refuses messages from a driver that was replaced, and about a fenced attempt (C2, C6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from reliability.core.audits import refuse_violations
from reliability.core.checkpoint import (
    Answer,
    CheckpointAction,
    CheckpointState,
    Message,
    Phase,
    judge,
)
from reliability.core.difference import Difference
from reliability.core.errors import CheckpointMismatch
from reliability.core.plan import Plan
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, lock_mirror
from reliability.states.audit_sql import log_violations
from reliability.transaction.commit.apply import apply_plan
from reliability.transaction.commit.saved_checkpoint import (
    SavedCheckpoint,
    change_at,
    checkpoint_of,
    save_checkpoint,
)


class Participant:
    """One target database, as the checkpoint's driver sees it."""

    def __init__(self, connection: LedgerConnection, topology: str) -> None:
        self.name = connection.database
        self.connection = connection
        self.topology = topology

    def handle(
        self,
        message: Message,
        plan: Plan,
        patience: int = PATIENCE_SECONDS,
        change: str | None = None,
    ) -> Sequence[Difference]:
        """Carry out a message; a return is a yes vote, with the differences that were made.

        PREPARE runs the whole commit, checks it as COMMIT would, and rolls it back. Violations of
        audits are a no to PREPARE; what is decided, they do not refuse (C12).

        :param change: what the message's commit number was in the coordinator's ledger, if this
            database has to have made the same change: it may have been restored, and gone on
        :raises CheckpointTakenOver: the message is from a driver that was replaced
        :raises CheckpointMismatch: this database has not applied what the driver expects
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
                    c = message.commit_number
                    if change not in (None, change_at(tx, self.topology, c)):
                        raise CheckpointMismatch(
                            f"its c={c} is another change than the coordinator's"
                        )
                    tx.run("enter_epoch", topology=self.topology, epoch=message.epoch)
        return ()

    def _apply(
        self, tx: DatabaseTransaction, message: Message, plan: Plan, patience: int
    ) -> Sequence[Difference]:
        known, answer = self._judge(tx, message, patience)
        differences: Sequence[Difference] = ()
        if answer is Answer.APPLY:
            if len(plan) != message.size:  # never advance c without its changes
                raise CheckpointMismatch(
                    f"the message has {message.size} commits, but its plan has {len(plan)}"
                )
            applied = apply_plan(tx, self.topology, plan)
            if message.action is CheckpointAction.PREPARE:
                refuse_violations(applied.audits)
            else:
                log_violations(f"{self.topology} c={message.commit_number}", applied.audits)
            differences = applied.differences
            state = CheckpointState(Phase.COMMITTED, message.commit_number)
            save_checkpoint(
                tx, self.topology, known, SavedCheckpoint(state=state, epoch=message.epoch)
            )
        return differences

    def _judge(
        self, tx: DatabaseTransaction, message: Message, patience: int
    ) -> tuple[SavedCheckpoint, Answer]:
        known = checkpoint_of(lock_mirror(tx, self.topology, patience))
        last = known.state.commit_number
        return known, judge(message, last=last, known_epoch=known.epoch)


class _RolledBack(Exception):
    """Raised to roll back a transaction that succeeded."""


@contextmanager
def rolled_back(connection: LedgerConnection) -> Iterator[DatabaseTransaction]:
    """Open a transaction, check it as COMMIT would, and roll it back."""
    with suppress(_RolledBack), connection.transaction() as tx:
        yield tx
        tx.run("check_constraints")
        raise _RolledBack
