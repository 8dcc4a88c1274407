"""What the adapters of the checkpoint share: a topology whose states lie in two databases.

A vector's txid counts checkpoints, and so is a commit number here, shifted so that the least of
the vector is 0: a topology that has had as many replays as it takes to be there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reliability.core.checkpoint import CheckpointAction
from reliability.ledger.door import Row
from reliability.transaction.participant import Participant
from tests.conformance.bench import ELSEWHERE, Bench
from tests.fix_postgres import rows
from tests.staged import Staged

ACTIONS = {action.value.replace("_", ""): action for action in CheckpointAction}


def word_of(action: CheckpointAction) -> str:
    """Return what the originals call an action."""
    return action.value.replace("_", "")


def shift_for(txids: Iterable[int]) -> int:
    """Return what makes commit numbers of a vector's txids."""
    return -min(txids)


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


def participant(staged: Staged) -> Participant:
    """Return the database that only takes part."""
    [one] = staged.participants
    return one


def run_in(staged: Staged, database: str, statement: str, **parameters: Any) -> None:
    """Do what no op of the product does: reach a commit number, break something."""
    from psycopg2.sql import SQL

    with staged.participants.door_of(database).transaction() as tx:
        tx.run(SQL(statement), **parameters)


def checkpoint_of(staged: Staged, database: str = "") -> Row:
    """Return a database's checkpoint."""
    [(phase, commit_number, epoch)] = rows(
        staged.participants.door_of(database),
        "SELECT phase, commit_number, epoch FROM reliability.checkpoint"
        " WHERE topology = %(topology)s",
        topology=staged.topology,
    )
    return {"phase": phase, "commit_number": commit_number, "epoch": epoch}
