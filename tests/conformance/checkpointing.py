"""What the adapters of the checkpoint share: a topology whose states lie in two databases.

A vector's txid counts checkpoints, and so is a commit number here, shifted so that the least of
the vector is 0: a topology that has had as many replays as it takes to be there.
"""

from __future__ import annotations

from typing import Any

from psycopg2.sql import SQL

from reliability.core.attempt import Grant
from reliability.core.checkpoint import CheckpointAction, Message
from reliability.core.errors import ReliabilityError
from reliability.core.plan import Plan, PlannedChange
from reliability.ledger.connection import Row
from reliability.transaction.commit.participant import Participant
from tests.conformance.bench import ELSEWHERE, Bench
from tests.support.fix_postgres import rows
from tests.support.staged import Staged

EPOCH = 1
ACTIONS = {action.value.replace("_", ""): action for action in CheckpointAction}


def word_of(action: CheckpointAction) -> str:
    """Return what the originals call an action."""
    return action.value.replace("_", "")


def two_databases(bench: Bench, *, commit_number: int, kind: type[Staged] = Staged) -> Staged:
    """Return a topology with a state here and one elsewhere, both at a commit number."""
    staged = kind(bench.new_door(), bench.name(), [ELSEWHERE])
    bench.ends_with_vector(staged.participants.close)
    for database in ("", ELSEWHERE):
        for table in ("topology", "state", "checkpoint"):
            run_in(
                staged,
                database,
                f"UPDATE reliability.{table} SET commit_number = %(c)s"
                " WHERE topology = %(topology)s",
                c=commit_number,
                topology=staged.topology,
            )
    return staged


def run_in(staged: Staged, database: str, statement: str, **parameters: Any) -> None:
    """Do what no op of the product does: reach a commit number, break something."""
    with staged.participants.connection_of(database).transaction() as tx:
        tx.run(SQL(statement), **parameters)


def checkpoint_of(staged: Staged, database: str = "") -> Row:
    """Return a database's checkpoint."""
    [(phase, commit_number, epoch)] = rows(
        staged.participants.connection_of(database),
        "SELECT phase, commit_number, epoch FROM reliability.checkpoint"
        " WHERE topology = %(topology)s",
        topology=staged.topology,
    )
    return {"phase": phase, "commit_number": commit_number, "epoch": epoch}


class Member:
    """A participant, and what is asked of it."""

    def __init__(
        self, bench: Bench, commit_number: int, shift: int, kind: type[Staged] = Staged
    ) -> None:
        self.shift = shift
        self.staged = two_databases(bench, commit_number=commit_number, kind=kind)
        [elsewhere] = self.staged.participants
        self.participant = Participant(elsewhere, self.staged.topology)
        self.next_txid = 1
        self.grant: Grant | None = None

    def message(self, action: CheckpointAction, txid: int) -> Message:
        return Message(action=action, commit_number=txid + self.shift, size=1, epoch=EPOCH)

    def last(self) -> int:
        """Return the last commit number that it has applied."""
        return int(checkpoint_of(self.staged, ELSEWHERE)["commit_number"])

    def plan(self, commit_number: int) -> Plan:
        """Return the plan for a commit number: the next txid that has not committed."""
        if self.grant is None:
            return ()
        attempt = self.grant.attempt
        return (
            PlannedChange(
                topology=self.staged.topology,
                commit_number=commit_number,
                txid=attempt.txid,
                attempt_id=attempt.attempt_id,
                nonce=self.grant.nonce,
            ),
        )

    def ask(self, message: Message, patience: int = 1) -> bool:
        """Ask it; say whether it did, or answers that it has it."""
        before = self.last()
        try:
            self.participant.handle(message, self.plan(message.commit_number), patience)
        except ReliabilityError:
            return False
        if self.last() > before:
            self.next_txid += 1
            self.grant = None
        return True
