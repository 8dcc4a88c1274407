"""The way out of a commit that is decided and that a database cannot carry out (C6)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import pytest

from reliability import Count, MemorySpout, OpaqueState, State, Topology, TransactionalState
from reliability.core.checkpoint import CheckpointAction
from reliability.core.errors import (
    CheckpointStuck,
    CheckpointTakenOver,
    LedgerUnavailable,
    RollbackNotPossible,
)
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.commit.apply import plan_nothing
from reliability.transaction.commit.checkpoint_driver import driving
from reliability.transaction.commit.committer import drain, read_plan
from reliability.transaction.commit.participant import Participant
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.topology.lifecycle import declare
from tests.support.doomed import EVERY, doomed
from tests.support.fix_postgres import database_of, execute, new_session, rows, run_as_admin
from tests.support.staged import DECIDED, Staged, die_when_decided

WHY = "the east cannot take it"
EVERYWHERE = ("", "east", "west")
#: Which keys each txid has that is committed everywhere.
BY = {1: [1, 2], 2: [2, 3], 3: [3, 4]}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def east(template, shared_connection):
    """A session with a database that will not be able to commit.

    The topologies of these tests share it, the west and the ledger: each test has its own.
    """
    with (
        new_session(template) as east,
        new_session(template) as west,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, session in (("", shared_connection), ("_EAST", east), ("_WEST", west)):
            patch.setenv(f"RELIABILITY_DSN{name}", session.dsn)
        yield east


@pytest.fixture
def connection(shared_connection, east):
    return shared_connection


@pytest.fixture
def stuck(connection):
    return stuck_at(connection, {4: [4, 7]})


def stuck_at(
    connection: LedgerConnection,
    decided: Mapping[int, list[int]],
    *,
    kind: type[State] = State,
    attempt_id: int = 0,
) -> Staged:
    """Three txids are committed; what comes then is decided, in the west, and nowhere else."""
    staged = committed(connection, kind)
    for txid, keys in decided.items():
        staged.process(txid, everywhere(keys), attempt_id)
    die_when_decided(staged)
    constrain(staged, "ADD CONSTRAINT poor CHECK (k <> 7)")
    with pytest.raises(CheckpointStuck, match=r"database east: .*poor"):
        drain(connection, staged.topology)
    return staged


def everywhere(keys: Sequence[int]) -> dict[str, Sequence[int]]:
    return dict.fromkeys(EVERYWHERE, keys)


def committed(connection: LedgerConnection, kind: type[State] = State) -> Staged:
    """A topology with a state in each of three databases; three txids are committed."""
    staged = Staged(connection, f"t{next(_numbers)}", ["east", "west"], kind)
    for txid, keys in BY.items():
        staged.process(txid, everywhere(keys))
    drain(connection, staged.topology)
    return staged


def constrain(staged: Staged, change: str) -> None:
    execute(
        staged.participants.connection_of("east"),
        f"ALTER TABLE public.{staged.topology}_east {change}",
    )


def after(txid: int) -> dict[int, int]:
    """What a reader sees after a txid."""
    keys = sorted(itertools.chain(*(BY[t] for t in range(1, txid + 1))))
    return {key: keys.count(key) for key in keys}


def seen(staged: Staged) -> list[dict[int, int]]:
    return [staged.seen(database) for database in EVERYWHERE]


def assert_all_at(staged: Staged, c: int, txid: int) -> None:
    """Every database shows the state after a txid, is at c, and nothing is under way."""
    assert seen(staged) == [after(txid)] * 3
    for topology, checkpoint, _, states in staged.commit_numbers().values():
        assert (topology, checkpoint, states) == (c, c, c)
    assert staged.phase() == "COMMITTED"


@pytest.mark.parametrize("to_txid", [3, 2, 0])
def test_who_has_the_decided_commit_undoes_it_and_the_others_drop_it(stuck, connection, to_txid):
    """C6."""
    before = seen(stuck)
    assert before == [after(3), after(3), {**after(3), 4: 2, 7: 1}]
    told = roll_back(connection, stuck.topology, to_txid, WHY, dry_run=True)
    assert seen(stuck) == before
    assert stuck.phase() == "COMMITTING"
    done = roll_back(connection, stuck.topology, to_txid, WHY)
    assert set(map(str, done.differences)) == set(map(str, told.differences))
    assert (done.commit_number, done.held, done.dropped) == (5, range(to_txid + 1, 5), 1)
    assert told.dropped == 1
    assert_all_at(stuck, 5, to_txid)
    assert stuck.statuses()["4:0"] == stuck.statuses("east")["4:0"] == "FENCED"
    assert stuck.statuses("west")["4:0"] == "ROLLED_BACK"
    assert {stuck.ask(LOG, name)[0] for name in EVERYWHERE} == {(5, WHY)}
    assert goes_on(stuck, to_txid)


LOG = (
    "SELECT commit_number, reason FROM reliability.commit_log"
    " WHERE kind = 'ROLLBACK' AND topology = %(topology)s ORDER BY commit_number DESC"
)


def goes_on(staged: Staged, to_txid: int) -> bool:
    """What was taken back is processed again and commits, everywhere."""
    release(staged.connection, staged.topology)
    for txid in range(to_txid + 1, 5):
        staged.process(txid, everywhere(BY.get(txid, [1])), attempt_id=1)
    drain(staged.connection, staged.topology)
    expected = {**after(3), 1: 2}
    return seen(staged) == [expected] * 3


def test_what_was_decided_has_to_go_with_it(stuck, connection):
    """C6: else the others would lack what the west keeps."""
    before = seen(stuck)
    refused = r"txid 4 is decided .*roll back to txid 3"
    with pytest.raises(RollbackNotPossible, match=refused):
        roll_back(connection, stuck.topology, 4, WHY, dry_run=True)
    with pytest.raises(RollbackNotPossible, match=refused + r".* database east: .*poor"):
        roll_back(connection, stuck.topology, 4, WHY)
    assert (seen(stuck), stuck.phase()) == (before, "COMMITTING")


def test_a_group_goes_as_one_and_a_replay_with_all_that_came_after_its_txid(connection):
    """C5, C6."""
    staged = stuck_at(connection, {4: [4], 5: [5], 6: [7]})
    assert staged.seen("west")[5] == 1
    with pytest.raises(RollbackNotPossible, match="roll back to txid 3"):
        roll_back(connection, staged.topology, 5, WHY)
    done = roll_back(connection, staged.topology, 3, WHY)
    assert (done.dropped, done.held) == (3, range(4, 7))
    assert_all_at(staged, 7, 3)

    staged = stuck_at(connection, {2: [2, 7]}, attempt_id=1)
    with pytest.raises(RollbackNotPossible, match="txid 2 is decided"):
        roll_back(connection, staged.topology, 2, WHY)
    roll_back(connection, staged.topology, 1, WHY)
    assert_all_at(staged, 5, 1)


def test_what_can_be_committed_after_all_is_committed_first(stuck, connection):
    constrain(stuck, "DROP CONSTRAINT poor")
    done = roll_back(connection, stuck.topology, 2, WHY)
    assert (done.commit_number, done.dropped) == (5, 0)
    assert_all_at(stuck, 5, 2)
    assert stuck.statuses()["4:0"] == stuck.statuses("east")["4:0"] == "ROLLED_BACK"


def test_all_databases_have_to_agree(stuck, connection, east):
    """A database that is away has no voice, and nothing is decided without it."""
    before = seen(stuck)
    stuck.participants.close()
    east.close()
    name = database_of(east.dsn)
    run_as_admin(
        f"ALTER DATABASE {name} ALLOW_CONNECTIONS false",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
    )
    try:
        with pytest.raises(CheckpointStuck, match=r"c=4 is decided .* cannot replace it"):
            roll_back(connection, stuck.topology, 3, WHY)
    finally:
        run_as_admin(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert (seen(stuck), stuck.phase()) == (before, "COMMITTING")
    constrain(stuck, "DROP CONSTRAINT poor")
    drain(connection, stuck.topology)
    assert seen(stuck) == [{**after(3), 4: 2, 7: 1}] * 3


def test_a_state_that_cannot_go_back_leaves_the_decision_as_it_is(connection):
    """H5: the west has it, and a TransactionalState keeps nothing to undo it with."""
    staged = stuck_at(connection, {4: [4, 7]}, kind=TransactionalState)
    before = seen(staged)
    for dry_run in (True, False):
        with pytest.raises(RollbackNotPossible, match=r"database west: .*keeps no history"):
            roll_back(connection, staged.topology, 3, WHY, dry_run=dry_run)
    assert (seen(staged), staged.phase()) == (before, "COMMITTING")


def test_an_opaque_states_one_step_is_used_up_in_every_database(connection):
    """H5: a replay that one of them would refuse is refused before anything runs for it."""
    staged = stuck_at(connection, {4: [4, 7]}, kind=OpaqueState)
    roll_back(connection, staged.topology, 3, WHY)
    assert_all_at(staged, 5, 3)
    used_up = "SELECT compacted_through FROM reliability.state WHERE topology = %(topology)s"
    assert [staged.ask(used_up, name) for name in EVERYWHERE] == [[(3,)]] * 3
    assert goes_on(staged, 3)


def test_where_an_opaque_state_might_have_to_undo_it_txids_commit_one_by_one(connection):
    """C6: it can undo one. Where it lies in the only database there is nothing to undo."""
    with doomed() as fate:
        committed(LedgerConnection(connection.dsn), OpaqueState)
    assert sum(DECIDED in statement for statement in fate.statements) == len(BY)


def test_what_somebody_is_about_to_commit_is_not_taken_for_stuck(connection):
    """Else a dry run would advise to take back a txid too many."""
    staged = committed(connection)
    staged.process(2, everywhere([2]), 1)
    planner = partial(read_plan, staged.topology)
    with ThreadPoolExecutor(1) as thread:
        with driving(staged.participants, patience=10) as driver:
            assert driver.begin_epoch(planner)
            while staged.phase() != "COMMITTING":
                message = driver.next_action(planner)
                assert message is not None
                assert driver.carry_out(message) == {}
            person = LedgerConnection(connection.dsn)
            dry_run = partial(roll_back, person, staged.topology, 2, WHY, dry_run=True)
            told = thread.submit(dry_run)
            assert wait([told], timeout=0.5).not_done
            driver.change(planner)
        assert told.result().dropped == 0
    assert staged.phase() == "COMMITTED"


def test_an_older_driver_commits_nothing_of_what_was_dropped(stuck, connection):
    """C2, C6: it hung before its COMMIT, and comes back when the constraint is gone."""
    with driving(stuck.participants, patience=10) as older:
        assert older.begin_epoch(plan_nothing)
        message = older.next_action(plan_nothing)
        assert message is not None
    roll_back(LedgerConnection(connection.dsn), stuck.topology, 3, WHY)
    constrain(stuck, "DROP CONSTRAINT poor")
    with pytest.raises(CheckpointTakenOver):
        older.carry_out(message)
    assert_all_at(stuck, 5, 3)


@pytest.mark.slow
def test_whatever_round_trip_it_dies_before_it_is_begun_again_or_finished(connection):
    """C2, C6: what was decided last is what the next one finds; nothing lies in between."""
    left = set()
    for at in itertools.count(3, EVERY):
        staged = stuck_at(connection, {4: [4, 7]})
        with doomed(at) as fate:
            roll_back(LedgerConnection(connection.dsn), staged.topology, 3, WHY)
        if not fate.has_died:
            break
        left.add(staged.phase())
        assert seen(staged)[:2] == [after(3)] * 2
        if staged.phase() == "COMMITTED" or is_decided(staged):
            drain(connection, staged.topology)
        else:
            with pytest.raises(CheckpointStuck):
                drain(connection, staged.topology)
            roll_back(connection, staged.topology, 3, WHY)
        assert_all_at(staged, 5, 3)
        staged.participants.close()
    assert at > 100
    assert left == {"COMMITTING", "COMMITTED"}


def is_decided(staged: Staged) -> bool:
    """Say whether the rollback is what was decided last."""
    asked = "SELECT plan FROM reliability.checkpoint WHERE topology = %(topology)s"
    [(plan,)] = staged.ask(asked)
    return bool(plan[0]["kind"] == "ROLLBACK")


def test_a_rollback_that_gets_stuck_gives_way_to_another(stuck, connection):
    """C6: the west has rolled back; the east can do neither that nor what was decided before."""
    with doomed(after='"kind": "ROLLBACK"') as fate:
        roll_back(LedgerConnection(connection.dsn), stuck.topology, 2, WHY)
    assert fate.has_died
    assert is_decided(stuck)
    constrain(stuck, "ADD CONSTRAINT twice CHECK (k <> 3 OR seen = 2)")
    with pytest.raises(CheckpointStuck, match=r"database east: .*twice"):
        drain(connection, stuck.topology)
    assert seen(stuck) == [after(3), after(3), after(2)]
    with pytest.raises(RollbackNotPossible, match="a rollback to txid 2 is decided"):
        roll_back(connection, stuck.topology, 3, WHY)
    with pytest.raises(CheckpointStuck, match=r"c=5 is decided .*twice.*cannot replace it"):
        roll_back(connection, stuck.topology, 2, WHY)
    done = roll_back(connection, stuck.topology, 1, WHY)
    assert (done.dropped, done.held) == (2, range(2, 5))
    assert_all_at(stuck, 6, 1)


def test_the_ledgers_own_database_may_be_the_one_that_cannot(connection):
    staged = Staged(connection, f"t{next(_numbers)}", ["east", "west"])
    staged.process(1, everywhere(BY[1]))
    die_when_decided(staged)
    execute(
        connection, f"ALTER TABLE public.{staged.topology}_here ADD CONSTRAINT poor CHECK (k <> 2)"
    )
    with pytest.raises(CheckpointStuck, match=r"database of the ledger: .*poor"):
        drain(connection, staged.topology)
    assert seen(staged) == [{}, after(1), after(1)]
    roll_back(connection, staged.topology, 0, WHY)
    assert_all_at(staged, 2, 0)


@pytest.mark.parametrize("silent", [2, 99])
def test_a_rollback_gives_way_to_nothing_that_it_has_decided_itself(
    connection, monkeypatch, silent
):
    """Else it would be told of a commit that was dropped, and there was none."""
    staged = committed(connection)
    carry_out, asked = Participant.handle, itertools.count()

    def fail_at_first(self, message, *rest):
        is_commit = message.action is CheckpointAction.COMMIT
        if self.name == "east" and is_commit and next(asked) < silent:
            raise LedgerUnavailable("connection refused")
        return carry_out(self, message, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Participant, "handle", fail_at_first)
        with pytest.raises(CheckpointStuck, match=r"c=4 is decided .* connection refused"):
            roll_back(connection, staged.topology, 1, WHY)
    assert is_decided(staged)
    done = roll_back(connection, staged.topology, 1, WHY)
    assert (done.commit_number, done.dropped) == (4, 0)
    assert_all_at(staged, 4, 1)


def test_each_change_tells_its_own_differences(connection):
    staged = committed(connection)
    staged.process(2, everywhere([50]), 1)
    staged.process(3, everywhere([60, 61]), 1)
    done = drain(connection, staged.topology)
    assert [{one.moved.get("seen", 0) for one in each.differences} for each in done] == [{-1}, {0}]
    assert [len(each.differences) for each in done] == [3, 3]
    staged.process(3, everywhere([3, 4, 5]), 2)
    die_when_decided(staged)
    back = roll_back(connection, staged.topology, 2, WHY)
    assert [one.moved["seen"] for one in back.differences] == [-3] * 3


def test_a_declaration_says_whether_txids_share_a_commit(connection):
    """C5, C6: each one does, whatever the ledger has."""
    states = [
        OpaqueState("grouped_here", values={"n": Count()}),
        State("grouped_east", values={"n": Count()}, database="east"),
    ]
    spout = MemorySpout(schema={"n": "int"}, partitions=[[1]], take=1)
    topology = Topology("grouped", spout=spout, process=everywhere, states=states)
    own = "WHERE topology = 'grouped'"
    groups = f"SELECT groups_commits FROM reliability.topology {own}"
    declare(connection, topology)
    assert rows(connection, groups) == [(False,)]
    execute(connection, f"UPDATE reliability.topology SET groups_commits = true {own}")
    declare(connection, topology)
    assert rows(connection, groups) == [(False,)]
