"""C10 on the real ledger, without Spark: states may change until something has committed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import pytest
from psycopg2.sql import SQL

from reliability import OpaqueState, State
from reliability.core.errors import AttemptFenced, StateDefinitionChanged
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import holding
from reliability.transaction.correct.park import skip
from reliability.transaction.topology import lifecycle
from tests.simulation.contents import BEST
from tests.simulation.source import MONTHS
from tests.support.fix_postgres import execute, rows, wait_until_it_waits
from tests.support.runner import TransactionRunner
from tests.support.words import Words

TEXT = "man man man  apple apple dog"


@pytest.fixture
def old(connection):
    """Two txids are emitted, the second is processed, the first is in work."""
    words = Words(connection, TEXT)
    assert words.emit() == [1, 2]
    words.process(2)
    return words


def changed(old, kind=OpaqueState):
    return Words(old.connection, TEXT, kind=kind)


def statuses(words):
    asked = "SELECT txid, attempt_id, status FROM reliability.attempt ORDER BY 1, 2"
    return {f"{txid}:{number}": status for txid, number, status in rows(words.connection, asked)}


def kind_of(words):
    return rows(words.connection, "SELECT definition ->> 'kind' FROM reliability.state")[0][0]


def test_an_emission_takes_changed_states_while_nothing_has_committed(old):
    """C10: what was sealed for the old states could never commit; it is fenced."""
    zombie = old.begin(1)
    new = changed(old)
    assert new.emit() == [1, 2]
    assert statuses(old) == {"1:0": "FENCED", "2:0": "FENCED"}
    with pytest.raises(AttemptFenced):
        old.stage(zombie)
    new.process(1)
    new.process(2)
    assert new.commit() == ["1:1 as c=1", "2:1 as c=2"]
    assert kind_of(new) == "OPAQUE"
    assert rows(new.connection, "SELECT word, times FROM words ORDER BY 1") == [
        ("apple", 2),
        ("dog", 1),
        ("man", 3),
    ]


def test_a_skip_waits_until_the_changed_states_are_there(old, connection, monkeypatch):
    """C10: it committed between the drop of the old ones and the new ones, which fixed neither."""
    forget, new = lifecycle._forget, changed(old)
    sessions = [LedgerConnection(connection.dsn, name) for name in ("skips", "looks")]
    with (
        ThreadPoolExecutor(1) as person,
        closing(sessions[0]) as skips,
        closing(sessions[1]) as looks,
    ):
        skipped: list[Future[object]] = []

        def forget_beside_a_skip(*arguments):
            forget(*arguments)
            skipped.append(person.submit(skip, skips, "words", 1, "broken"))
            wait_until_it_waits(looks, "skips")

        def hold_behind_the_skip(*arguments):
            for one in skipped:
                one.result(20)
            return holding(*arguments)

        monkeypatch.setattr(lifecycle, "_forget", forget_beside_a_skip)
        monkeypatch.setattr(lifecycle, "holding", hold_behind_the_skip)
        assert new.emit() == [1, 2]
        [one] = skipped
        one.result(20)
    assert kind_of(new) == "OPAQUE"
    new.process(2)
    assert rows(new.connection, "SELECT curr_txid FROM reliability.topology") == [(2,)]
    assert len(new.commit()) == 1


def test_an_attempt_takes_changed_states_while_nothing_has_committed(old):
    """C10: a person corrects the states and clears the one task that failed, not emit."""
    new = changed(old)
    new.process(1)
    assert statuses(old) == {"1:0": "PROCESSED", "2:0": "FENCED"}
    assert new.commit() == ["1:0 as c=1"]


def test_after_a_commit_the_states_are_fixed_and_the_remedy_names_what_to_type(old):
    """C10: the rows of the table were aggregated as the old states say."""
    old.process(1)
    old.commit()
    with pytest.raises(StateDefinitionChanged) as refused:
        changed(old).emit()
    assert "`reliability alter words`" in str(refused.value)
    assert statuses(old) == {"1:0": "COMMITTED", "2:0": "COMMITTED"}


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            "INSERT INTO public.words (word, times, _rows, _txid) VALUES ('mine', 1, 1, 1)",
            "has rows",
        ),
        (
            "CREATE VIEW public.mine AS SELECT word FROM public.words",
            "view public.mine depends on it",
        ),
    ],
)
def test_what_is_somebodys_own_is_not_dropped(old, own, said):
    """C10: only empty tables that nobody else uses are made anew."""
    execute(old.connection, own)
    with pytest.raises(StateDefinitionChanged, match=said):
        changed(old).emit()
    assert kind_of(old) != "OPAQUE"


def test_a_table_that_was_dropped_by_hand_is_made_anew(old):
    """C10: as is common while a pipeline is written."""
    execute(old.connection, "DROP TABLE public.words")
    again = changed(old, State)
    again.process(1)
    assert again.commit() == ["1:0 as c=1"]
    again.show()


def test_states_of_another_database_are_made_anew_there(new_world):
    """C10: what is live in a participant is fenced there, too."""
    world = new_world(databases=2)
    world.work("A", 1, "process")
    changed = world.with_another_value(BEST)
    runner = TransactionRunner(changed, world.connection, world.runner.leases)
    assert runner.emit(MONTHS[0], world.who("A", 0, "emit"), max_batches=1000)[0] == 1
    asked = SQL("SELECT status FROM reliability.attempt WHERE topology = %(topology)s")
    with world.connection_of(BEST) as there:
        for connection in (world.connection, there):
            assert [row["status"] for row in connection.all(asked, topology=world.name)] == [
                "FENCED"
            ]
        [recorded] = there.all("state_definitions", topology=world.name)
    assert "also" in str(recorded["definition"])
