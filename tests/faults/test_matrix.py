"""A part of the matrix of faults in each suite; `make test-faults` runs all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reliability.ledger.queries import queries
from tests.faults.matrix import COMMITTING, WORKED, Matrix, Scenario, last_of
from tests.faults.proxy import Change, FaultKind, named_statements, statement_beginnings
from tests.faults.run import server

#: What decides that a txid has committed, and that it is processed; of the last txid. To the latter
#: happens one fault of each effect: its change is lost, is made unseen, meets another's.
DECIDING = {
    "advance_checkpoint": tuple(FaultKind),
    "end_seal": (FaultKind.KILLED, FaultKind.LOST, FaultKind.FROZEN, FaultKind.TWICE),
}
NEVER = Change("fence_live_attempt", 1000)
BY_HAND = Scenario("by hand", "change_by_hand", WORKED, moves_only=False, verifies=False)


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    with server() as matrix:
        yield matrix


@pytest.mark.timeout(300)
def test_whatever_happens_to_a_commit_its_txid_counts_once(matrix):
    """G1, G2, G3, G8: by real processes, while a reader looks at all tables.

    A fault that does not happen is no proof.
    """
    *tried, never = matrix.outcomes(
        COMMITTING,
        lambda changes: [*last_of(*DECIDING)(changes), NEVER],
        lambda change: DECIDING.get(change.statement, [FaultKind.CUT]),
    )
    assert len(tried) == sum(map(len, DECIDING.values()))
    assert [outcome for outcome in tried if outcome.wrong] == []
    assert never.wrong == "the fault has not happened"
    assert matrix.snapshots > 100


def test_what_counts_twice_after_a_lost_answer_is_found(matrix):
    """An UPDATE by hand is not exactly-once: who tries it again adds it again."""
    twice = {FaultKind.LOST, FaultKind.KILLED_AFTER, FaultKind.TWICE}
    once = {FaultKind.REFUSED, FaultKind.CUT, FaultKind.KILLED}
    outcomes = matrix.outcomes(BY_HAND, kinds=lambda _: [*twice, *once])
    assert {one.kind for one in outcomes if one.wrong} == twice


def test_statements_are_known_by_their_names():
    together = ";\n".join(queries()[name] for name in ("begin", "pin_settings", "commit"))
    assert named_statements(together) == ["begin", "pin_settings", "commit"]


def test_no_two_statements_have_one_beginning():
    beginnings = [beginning for beginning, _ in statement_beginnings()]
    assert len(set(beginnings)) == len(beginnings)
    assert [
        b for b in beginnings for other in beginnings if b != other and other.startswith(b)
    ] == []
