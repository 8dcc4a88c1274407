"""C10 on the real ledger, without Spark: states may change until something has committed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import pytest
from psycopg2.sql import SQL

from reliability import Count, MemorySpout, OpaqueState, State, Topology
from reliability.core.errors import AttemptFenced, StateDefinitionChanged
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import holding
from reliability.transaction.correct.park import skip
from reliability.transaction.topology import lifecycle
from reliability.transaction.topology.lifecycle import declare
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
    """C10: a person corrects the states and clears the one task that failed, not emit.

    After a commit the rows of the table are aggregated as the states say, and these are fixed.
    """
    new = changed(old)
    new.process(1)
    assert statuses(old) == {"1:0": "PROCESSED", "2:0": "FENCED"}
    assert new.commit() == ["1:0 as c=1"]
    with pytest.raises(StateDefinitionChanged) as refused:
        changed(old, State).emit()
    assert "`reliability alter words`" in str(refused.value)
    assert statuses(old) == {"1:0": "COMMITTED", "2:0": "FENCED"}


def test_what_is_somebodys_own_is_not_dropped(old):
    """C10: only empty tables that nobody else uses are made anew, and those that are gone."""
    row = "INSERT INTO public.words (word, times, _rows, _txid) VALUES ('mine', 1, 1, 1)"
    view = "CREATE VIEW public.mine AS SELECT word FROM public.words"
    for own, said in (
        (row, "has rows"),
        (f"DELETE FROM public.words; {view}", "view public.mine depends on it"),
    ):
        execute(old.connection, own)
        with pytest.raises(StateDefinitionChanged, match=said):
            changed(old).emit()
        assert kind_of(old) != "OPAQUE"
    execute(old.connection, "DROP TABLE public.words CASCADE")  # as is common at first
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
        [recorded] = there.all("states", topology=world.name)
    assert "also" in str(recorded["definition"])


PLACES = {"here": "", "there": "east", "far": "warehouse"}
DEFINITIONS = "SELECT definition::text FROM reliability.state"


@pytest.mark.parametrize("stays", ["here", "far"])
def test_no_database_takes_changed_states_before_all_can(connection, east, warehouse, stays):
    """C10: a skip would have committed with some of them, and fixed the mixture."""

    def declare_by(key):
        values = {"n": Count()}
        states = [State(name, key, values, database=where) for name, where in PLACES.items()]
        spout = MemorySpout({"k": "bigint"}, [[1]], 1)
        declare(connection, Topology("shop", spout, states, process=lambda _: {}))

    declare_by({"k": "bigint"})
    recorded = rows(east, DEFINITIONS)
    where = {"here": connection, "far": warehouse}[stays]
    execute(where, f"CREATE VIEW public.mine AS TABLE public.{stays}")
    with pytest.raises(StateDefinitionChanged, match=r"view .* depends on it"):
        declare_by({"word": "text"})
    assert rows(east, DEFINITIONS) == recorded
