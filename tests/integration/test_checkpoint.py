"""The checkpoint over two databases: both or none, after whatever death (C2, C5, C6, G3)."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import pytest

from dev.services.environment import Environment
from reliability.core.checkpoint import CheckpointAction, Message
from reliability.core.errors import (
    AttemptFenced,
    CheckpointMismatch,
    CheckpointStuck,
    CheckpointTakenOver,
    LedgerBusy,
    LedgerNotMigrated,
    LedgerRefusedLogin,
    LedgerUnavailable,
    NotTheCoordinator,
    ParkNotPossible,
    ParticipantTaken,
    StateDefinitionChanged,
    UnexpectedAnswer,
)
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate
from reliability.transaction.commit import checkpoint_driver
from reliability.transaction.commit import committer as commit
from reliability.transaction.commit.apply import AppliedPlan, Planner, RefusedPlan
from reliability.transaction.commit.checkpoint_driver import Checkpoint, driving
from reliability.transaction.commit.committer import drain, read_plan
from reliability.transaction.commit.participant import Participant
from reliability.transaction.correct.park import park
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain.sweep import sweep, topologies
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.lifecycle import pause, resume
from reliability.transaction.topology.participants import (
    declare_participants,
    mirror_grant,
    take_grant,
)
from tests.support.doomed import EVERY, Fate, doomed
from tests.support.fix_postgres import (
    database_of,
    execute,
    new_database,
    new_session,
    rows,
    run_as_admin,
)
from tests.support.staged import Staged, die_when_decided, other_nonce

EAST = "east"
SOON: Any = 0.1  # seconds
_names = itertools.count(1)


@pytest.fixture(scope="module")
def pair(template):
    """Two databases in one server: the ledger's own, and one in the east."""
    with new_database(template) as here, new_database(template) as east:
        yield here, east


@pytest.fixture
def east(pair, monkeypatch):
    """The name of the second database, where RELIABILITY_DSN_EAST leads."""
    monkeypatch.setenv("RELIABILITY_DSN", pair[0])
    monkeypatch.setenv("RELIABILITY_DSN_EAST", pair[1])
    return database_of(pair[1])


@pytest.fixture
def connection(pair, east):
    """A session with the ledger of all tests here; each has topologies of its own."""
    connection = LedgerConnection(pair[0], application_name="test")
    yield connection
    connection.close()


@pytest.fixture
def staged(connection):
    """A topology with a state here and one in the east."""
    staged = make(connection)
    yield staged
    staged.participants.close()


def make(connection: LedgerConnection) -> Staged:
    return Staged(connection, f"t{next(_names)}", [EAST])


def both(*keys: int) -> dict[str, list[int]]:
    return {"": list(keys), EAST: list(keys)}


def run(staged: Staged, statement: str, database: str = EAST) -> None:
    execute(staged.participants.connection_of(database), statement)


def refuse(staged: Staged, database: str = EAST) -> None:
    """Let a database refuse the key 7."""
    run(
        staged,
        f"ALTER TABLE {table(staged, database)} ADD CONSTRAINT poor CHECK (k <> 7)",
        database,
    )


def accept(staged: Staged) -> None:
    run(staged, f"ALTER TABLE {table(staged)} DROP CONSTRAINT poor")


def table(staged: Staged, database: str = EAST) -> str:
    return f"public.{staged.topology}_{database or 'here'}"


def another_driver(staged: Staged) -> Checkpoint:
    """A driver on a session of its own, which has begun its epoch."""
    session = LedgerConnection(staged.connection.dsn)
    driver = Checkpoint(TopologyDatabases.of(session, staged.topology), patience=5)
    assert driver.begin_epoch(whatever_is_due(driver))
    return driver


def end(staged: Staged, status: str) -> None:
    """End the live attempts in the ledger, of which no participant has heard."""
    run(
        staged,
        f"UPDATE reliability.attempt SET status = '{status}', lease_until = NULL,"
        f" reason_code = 'X' WHERE topology = '{staged.topology}'",
        "",
    )


def assert_all_at(staged: Staged, c: int) -> None:
    """Every database, every state and every log is at c, and nothing is under way."""
    assert staged.commit_numbers() == {"": (c, c, c, c), EAST: (c, c, c, c)}
    assert staged.phase() == "COMMITTED"


# --- both or none --------------------------------------------------------------------------------


def test_a_group_is_one_checkpoint_and_a_replay_another(staged, connection):
    staged.process(2, both(2))
    assert drain(connection, staged.topology) == []  # before its turn
    assert staged.seen(EAST) == {}
    staged.process(1, both(1, 2))
    staged.process(3, both(3))
    with doomed() as fate:
        drain(LedgerConnection(connection.dsn), staged.topology)
    assert phases_saved(fate) == [
        "COMMITTED",  # the driver's epoch
        "PREPARING",
        "COMMITTED",  # the participant, rolled back
        "COMMITTING",
        "COMMITTED",  # the participant
        "COMMITTED",
    ]
    staged.process(2, both(5), attempt_id=1)
    staged.process(4, both(4))
    done = drain(connection, staged.topology)
    assert [(str(c.attempt), c.replaced_attempt) for c in done] == [("2:1", 0), ("4:0", None)]
    assert staged.seen() == staged.seen(EAST) == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}
    assert_all_at(staged, 5)


def phases_saved(fate: Fate) -> list[str]:
    save = "UPDATE reliability.checkpoint SET phase = '"
    return [s.removeprefix(save).split("'")[0] for s in fate.statements if s.startswith(save)]


# --- C6: votes -----------------------------------------------------------------------------------


def test_a_vote_that_the_data_refuse_leaves_both_as_they_were_and_fails_the_guilty(
    staged, connection
):
    """C5, C6: txid 2 is guilty, in the participant; 1 goes through, 3 waits behind 2."""
    refuse(staged)
    for txid, key in ((1, 1), (2, 7), (3, 3)):
        staged.process(txid, both(key))
    with pytest.raises(UnexpectedAnswer, match=r"database east: .*poor"):
        drain(connection, staged.topology, own_txid=2)
    assert staged.statuses() == {"1:0": "COMMITTED", "2:0": "FAILED", "3:0": "PROCESSED"}
    assert_all_at(staged, 1)
    accept(staged)
    staged.process(2, both(7), attempt_id=1)
    assert staged.statuses(EAST)["2:0"] == "FENCED"
    drain(connection, staged.topology)
    assert staged.seen() == staged.seen(EAST) == {1: 1, 3: 1, 7: 1}


def test_the_coordinators_own_database_votes_too(staged, connection):
    refuse(staged, "")
    staged.process(1, both(7))
    with pytest.raises(UnexpectedAnswer, match=r"database of the ledger: .*poor"):
        drain(connection, staged.topology, own_txid=1)
    assert_all_at(staged, 0)


def test_a_vote_checks_deferred_constraints_as_commit_would(staged, connection):
    run(
        staged,
        f"CREATE TABLE public.{staged.topology}_known (k bigint PRIMARY KEY);"
        f"ALTER TABLE public.{staged.topology}_east ADD CONSTRAINT known FOREIGN KEY (k)"
        f" REFERENCES public.{staged.topology}_known DEFERRABLE INITIALLY DEFERRED",
    )
    staged.process(1, both(1))
    with pytest.raises(UnexpectedAnswer, match="known"):
        drain(connection, staged.topology, own_txid=1)
    assert_all_at(staged, 0)


def test_a_database_that_is_down_fails_nobodys_attempt(staged, connection, east):
    """A database that is away is no fault of the data: the attempt stays PROCESSED."""
    staged.process(1, both(1))
    staged.participants.close()
    with away(east), pytest.raises(LedgerUnavailable, match="database east"):
        drain(connection, staged.topology, own_txid=1)
    assert staged.statuses() == {"1:0": "PROCESSED"}
    drain(connection, staged.topology)
    assert_all_at(staged, 1)


@contextmanager
def away(name: str) -> Iterator[None]:
    """A database takes no sessions inside the block."""
    run_as_admin(
        f"ALTER DATABASE {name} ALLOW_CONNECTIONS false",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
    )
    try:
        yield
    finally:
        run_as_admin(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def test_what_is_decided_and_cannot_be_committed_blocks_and_says_so(staged, connection):
    """C6: it voted yes, and then got a constraint: nobody may decide anew."""
    staged.process(1, both(7))
    staged.process(2, both(2))
    die_when_decided(staged)
    refuse(staged)
    for _ in range(2):  # each comer tries again
        with pytest.raises(CheckpointStuck, match=r"c=2 is decided .* database east: .*poor"):
            drain(connection, staged.topology)
    assert staged.seen() == {}
    assert staged.statuses() == {"1:0": "PROCESSED", "2:0": "PROCESSED"}
    accept(staged)
    drain(connection, staged.topology)
    assert staged.seen() == staged.seen(EAST) == {2: 1, 7: 1}
    assert_all_at(staged, 2)


def test_what_is_decided_is_committed_wherever_it_can_be(connection, add_database):
    """Readers shall see two commit numbers side by side for as short as can be."""
    add_database("west")
    staged = Staged(connection, f"t{next(_names)}", [EAST, "west"])
    staged.process(1, {"": [7], EAST: [7], "west": [7]})
    die_when_decided(staged)
    refuse(staged)
    with pytest.raises(CheckpointStuck, match="database east"):
        drain(connection, staged.topology)
    assert [staged.seen(name) for name in ("", EAST, "west")] == [{}, {}, {7: 1}]
    accept(staged)
    drain(connection, staged.topology)
    assert set(staged.commit_numbers().values()) == {(1, 1, 1, 1)}
    staged.participants.close()


# --- death at every statement --------------------------------------------------------------------


class History:
    """A topology that goes on: a round is a replay, and two first commits in one checkpoint."""

    def __init__(self, connection: LedgerConnection) -> None:
        self.staged = make(connection)
        self.keys: dict[int, list[int]] = {1: [1, 2]}
        self.staged.process(1, both(1, 2))
        drain(connection, self.staged.topology)
        self.c = 1
        self.expected: dict[int, dict[int, int]] = {}

    def next_round(self) -> Staged:
        """Stage it, and work out what a reader may see in a database that is at some c."""
        self.expected = {self.c: self._seen()}
        last = max(self.keys)
        self.staged.process(last, both(1, 3), attempt_id=1)
        self.keys[last] = [1, 3]
        self.expected[self.c + 1] = self._seen()  # after a first commit it is a replay's turn
        for txid, keys in ((last + 1, [2]), (last + 2, [2, 4])):
            self.staged.process(txid, both(*keys))
            self.keys[txid] = keys
        self.expected[self.c + 3] = self._seen()
        self.c += 3
        return self.staged

    def _seen(self) -> dict[int, int]:
        return dict(sorted(Counter(itertools.chain(*self.keys.values())).items()))

    def check_what_a_death_left(self) -> None:
        """Each database shows the state after some c; they differ only once it is decided."""
        staged = self.staged
        at = {name: numbers[0] for name, numbers in staged.commit_numbers().items()}
        seen = {name: staged.seen(name) for name in at}
        assert seen == {name: self.expected[c] for name, c in at.items()}
        if staged.phase() != "COMMITTING":
            assert at[""] == at[EAST]

    def check_repaired(self) -> None:
        staged = self.staged
        assert_all_at(staged, self.c)
        assert staged.seen() == staged.seen(EAST) == self.expected[self.c]
        assert staged.statuses() == staged.statuses(EAST)
        assert set(staged.statuses().values()) == {"COMMITTED", "REPLACED"}


@pytest.mark.slow
def test_whatever_round_trip_a_driver_dies_before_the_next_one_repairs_it(connection):
    """C2: PREPARING goes back, COMMITTING forward, and every database is compared."""
    history = History(connection)
    phases = set()
    for at in itertools.count(0, EVERY):
        staged = history.next_round()
        with doomed(at) as fate:
            drain(LedgerConnection(connection.dsn), staged.topology)
        if not fate.has_died:
            break
        phases.add(staged.phase())
        history.check_what_a_death_left()
        drain(connection, staged.topology)
        history.check_repaired()
    assert at > 60
    assert phases == {"PREPARING", "COMMITTING", "COMMITTED"}


@pytest.mark.parametrize("phase", ["PREPARING", "COMMITTING"])
def test_a_death_during_the_repair_is_repaired(connection, phase):
    history = History(connection)
    for at in range(2, 60, EVERY):
        staged = history.next_round()
        with doomed(after=f"SET phase = '{phase}'"):
            drain(LedgerConnection(connection.dsn), staged.topology)
        assert staged.phase() == phase
        with doomed(at) as fate:
            drain(LedgerConnection(connection.dsn), staged.topology)
        history.check_what_a_death_left()
        drain(connection, staged.topology)
        history.check_repaired()
        if not fate.has_died:
            break
    assert at > 10


def test_whatever_answer_to_commit_is_lost_nothing_is_guessed(connection):
    """G8: what a database has done is read again, by this driver or by the next one."""
    history = History(connection)
    for number in itertools.count():
        staged = history.next_round()
        with doomed(unanswered=number) as fate, suppress(LedgerUnavailable):
            drain(LedgerConnection(connection.dsn), staged.topology)
        history.check_what_a_death_left()
        drain(connection, staged.topology)
        history.check_repaired()
        if fate.commits <= number:
            break
    assert number > 12


def drain_and_be_killed(environment: dict[str, str], dsn: str, topology: str, at: int) -> None:
    """In a process of its own: SIGKILL before statement number `at`."""
    os.environ.update(environment)
    with doomed(at, sigkill=True):
        drain(LedgerConnection(dsn), topology)


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_border_of_a_transaction_is_repaired(connection):
    """A real SIGKILL, before and after every COMMIT."""
    history = History(connection)
    with doomed() as fate:
        drain(LedgerConnection(connection.dsn), history.next_round().topology)
    ends = [n for n, text in enumerate(fate.statements) if text in ("COMMIT", "ROLLBACK")]
    assert len(ends) > 12
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.integration.test_checkpoint"])
    for at in sorted({*ends, *(end + 1 for end in ends[:-1])}):
        staged = history.next_round()
        victim = processes.Process(
            target=drain_and_be_killed, args=(dict(os.environ), connection.dsn, staged.topology, at)
        )
        victim.start()
        victim.join(timeout=30)
        assert victim.exitcode == -9
        history.check_what_a_death_left()
        sweep(connection, staged.topology, Leases(overdue=3600))  # finishes what is on its way
        assert staged.phase() == "COMMITTED"
        drain(connection, staged.topology)
        history.check_repaired()


# --- epochs --------------------------------------------------------------------------------------


def whatever_is_due(driver: Checkpoint) -> Planner:
    return partial(read_plan, driver.topology)


def asked(driver: Checkpoint) -> Message:
    message = driver.next_action(whatever_is_due(driver))
    assert message is not None
    return message


def test_a_driver_that_was_given_up_can_do_nothing_more(connection):
    """It sleeps after INIT_STATE, PREPARE or COMMIT, another one goes on, it wakes up."""
    history = History(connection)
    for steps in range(4):
        staged = history.next_round()
        sleeper = another_driver(staged)
        for _ in range(steps):
            assert sleeper.carry_out(asked(sleeper)) == {}
        message = asked(sleeper)
        drain(connection, staged.topology)
        with pytest.raises(CheckpointTakenOver):
            sleeper.carry_out(message)
        history.check_repaired()


def test_a_driver_that_was_given_up_cannot_decide_what_the_next_one_prepares(
    staged, connection, monkeypatch
):
    """Phase and c are the same again (Storm C7): only the epoch tells them apart."""
    staged.process(1, both(1))
    sleeper = another_driver(staged)
    assert sleeper.carry_out(asked(sleeper)) == {}
    prepare = asked(sleeper)

    def the_other_gets_as_far(*_: object) -> None:
        other = another_driver(staged)
        while (message := asked(other)).action is not CheckpointAction.PREPARE:
            assert other.carry_out(message) == {}

    monkeypatch.setattr(sleeper, "_try_plan", the_other_gets_as_far)
    with pytest.raises(CheckpointTakenOver):
        sleeper.carry_out(prepare)
    assert staged.phase() == "PREPARING"
    drain(connection, staged.topology)
    assert_all_at(staged, 1)


def test_a_refusal_that_comes_late_fails_nothing_that_is_decided(staged, connection):
    """Failed after it was decided, the attempt could never commit, nor anything behind it."""
    refuse(staged)
    staged.process(1, both(7))
    with driving(staged.participants, patience=5) as driver:
        refused = driver.change(whatever_is_due(driver))
    assert isinstance(refused, RefusedPlan)
    accept(staged)
    die_when_decided(staged)
    with pytest.raises(CheckpointTakenOver):
        commit._refuse(connection, staged.topology, refused)
    drain(connection, staged.topology)
    assert_all_at(staged, 1)


def test_a_batch_of_items_that_this_process_does_not_know_is_parked(staged, connection):
    """C7: the command line does not import the pipeline's module."""
    staged.grant(1)
    items = """'[{"kind": "tape"}]'"""
    run(staged, f"UPDATE reliability.transaction SET batch_meta = {items}", database="")
    park(connection, staged.topology, 1, "it hangs")
    assert_all_at(staged, 1)


def test_what_is_decided_is_finished_and_not_parked(staged, connection):
    """C7, C2: fenced then, it could never commit here, and another database has it already."""
    staged.process(1, both(7))
    die_when_decided(staged)
    with pytest.raises(ParkNotPossible, match="has already committed"):
        park(connection, staged.topology, 1, "it hangs")
    assert_all_at(staged, 1)


def test_a_participant_refuses_the_messages_of_an_older_epoch(staged, connection):
    participant = Participant(next(iter(staged.participants)), staged.topology)
    init = Message(action=CheckpointAction.INIT_STATE, commit_number=0, size=1, epoch=5)
    participant.handle(init, ())
    staged.process(1, both(1))
    for action in CheckpointAction:
        late = Message(action=action, commit_number=1, size=1, epoch=4)
        with pytest.raises(CheckpointTakenOver, match="epoch 4 was replaced by epoch 5"):
            participant.handle(late, ())


def test_a_second_driver_waits_and_goes_away_if_it_only_passes_by(staged, connection, monkeypatch):
    monkeypatch.setattr(commit, "PASSING_PATIENCE_SECONDS", SOON)
    staged.process(1, both(1))
    another = LedgerConnection(connection.dsn)
    with driving(staged.participants, patience=SOON):
        assert sweep(another, staged.topology, Leases(overdue=1)).committed == []
        second = driving(TopologyDatabases.of(another, staged.topology), SOON)
        with pytest.raises(LedgerBusy), second:
            pass
    drain(connection, staged.topology)
    assert_all_at(staged, 1)


def test_a_driver_that_hangs_is_taken_over(staged, connection, monkeypatch):
    monkeypatch.setattr(checkpoint_driver, "DRIVER_SILENCE_SECONDS", 0)
    staged.process(1, both(1))
    hanging = TopologyDatabases.of(LedgerConnection(connection.dsn), staged.topology)
    with driving(hanging, patience=SOON) as sleeper:
        assert sleeper.begin_epoch(whatever_is_due(sleeper))
        message = asked(sleeper)
        with driving(staged.participants, patience=SOON) as other:
            assert isinstance(other.change(whatever_is_due(other)), AppliedPlan)
        with pytest.raises(CheckpointTakenOver):
            sleeper.carry_out(message)
    assert_all_at(staged, 1)


def test_many_that_commit_at_once_commit_each_txid_once(staged, connection):
    for txid in (1, 2, 3):
        staged.process(txid, both(txid))

    def commit_all(_: int) -> list[str]:
        with LedgerConnection(connection.dsn) as own:
            return [str(c.attempt) for c in drain(own, staged.topology)]

    with ThreadPoolExecutor(4) as threads:
        done = itertools.chain(*threads.map(commit_all, range(4)))
    assert sorted(done) == ["1:0", "2:0", "3:0"]
    assert_all_at(staged, 3)


# --- INIT_STATE ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, -1], ids=["restored", "ahead"])
def test_databases_that_do_not_agree_are_named_and_nothing_commits(staged, connection, lost):
    """C2: the tables of a restored one agree with its own contributions, which verify looks at."""
    staged.process(1, both(1))
    drain(connection, staged.topology)
    staged.process(2, both(2))
    run(
        staged,
        f"UPDATE reliability.checkpoint SET commit_number = commit_number - {lost}"
        f" WHERE topology = '{staged.topology}'",
    )
    with pytest.raises(CheckpointMismatch, match=f"database east: .*c={1 - lost}.* c=1"):
        drain(connection, staged.topology, own_txid=2)
    expected = CheckpointMismatch if lost > 0 else LedgerBusy  # ahead, it may be in a commit
    with pytest.raises(expected, match=f"c={1 - lost}"):
        roll_back(connection, staged.topology, 0, "why", dry_run=True)
    with pytest.raises(expected, match=f"c={1 - lost}") if lost > 0 else nullcontext():
        verify(connection, staged.topology)
    assert staged.statuses() == {"1:0": "COMMITTED", "2:0": "PROCESSED"}


def test_databases_of_different_histories_are_named_though_they_are_at_one_number(
    staged, connection
):
    """C2: both were restored, and then one to a backup from before: it had another batch."""
    staged.process(1, both(1))
    drain(connection, staged.topology)
    staged.process(2, both(2))
    run(staged, "UPDATE reliability.attempt SET nonce = gen_random_uuid() WHERE txid = 1")
    with pytest.raises(CheckpointMismatch, match="database east: its c=1 is another change"):
        drain(connection, staged.topology, own_txid=2)
    assert staged.statuses() == {"1:0": "COMMITTED", "2:0": "PROCESSED"}


# --- C6: grants ----------------------------------------------------------------------------------


def test_a_grant_that_comes_twice_changes_nothing_and_one_that_was_ended_goes_to_nobody(staged):
    grant = staged.grant(1)
    mirror_grant(staged.participants, grant, lambda *_: pytest.fail("its sinks are open already"))
    assert staged.statuses(EAST) == {"1:0": "PROCESSING"}
    end(staged, "FENCED")
    with pytest.raises(AttemptFenced):
        mirror_grant(staged.participants, grant, lambda tx, name: None)


def test_a_newer_grant_fences_the_older_one_before_it_returns(staged):
    """C6, G4: what the older one still stages rolls back at its last statement."""
    older = staged.grant(1)
    end(staged, "FENCED")
    staged.grant(1, attempt_id=1)
    assert staged.statuses(EAST) == {"1:0": "FENCED", "1:1": "PROCESSING"}
    with pytest.raises(AttemptFenced), staged.participants.connection_of(EAST).transaction() as tx:
        tx.run(
            "acknowledge", sink=EAST, partition=0, write_id=older.nonce, xor=0, count=1, rows=1,
            digest=0, **older,
        )  # fmt: skip


@pytest.mark.parametrize("is_lower", [True, False])
def test_a_late_lower_grant_and_the_same_one_with_another_nonce_are_refused(staged, is_lower):
    """A1: 1:0 was granted, its message slept, and 1:1 went by; or a restored ledger does."""
    grant = staged.grant(1)
    row = staged.connection.one("attempt_to_mirror", **grant)
    if is_lower:
        end(staged, "FENCED")
        staged.grant(1, attempt_id=1)
    late = grant if is_lower else other_nonce(grant)
    [participant] = staged.participants
    with pytest.raises(AttemptFenced, match="is too late"), participant.transaction() as tx:
        take_grant(tx, late, row)


# --- declare -------------------------------------------------------------------------------------


def declare_in(databases):
    declare_participants(databases, lambda tx, database: None)


def test_a_mistyped_database_is_not_recorded(connection):
    staged = make(connection)
    for others in ([EAST, "eats"], [EAST]):  # to declare the same twice changes nothing
        with suppress(LedgerRefusedLogin):
            declare_in(TopologyDatabases(connection, staged.topology, others))
        assert TopologyDatabases.of(connection, staged.topology).others == (EAST,)
    staged.process(1, both(1))
    with pytest.raises(StateDefinitionChanged, match=r"\['east'\].*\[\]"):
        declare_in(TopologyDatabases(connection, staged.topology, []))


def test_a_participant_is_not_the_ledgers_database_has_one_name_and_the_schema(
    staged, connection, monkeypatch
):
    monkeypatch.setenv("RELIABILITY_DSN_WEST", os.environ["RELIABILITY_DSN_EAST"])
    with pytest.raises(ParticipantTaken, match=r"database west: .*is called east already"):
        declare_in(TopologyDatabases(connection, staged.topology, [EAST, "west"]))
    monkeypatch.setenv("RELIABILITY_DSN_EAST", connection.dsn)
    with pytest.raises(ParticipantTaken, match=r"database east: .*is its ledger already"):
        make(connection)
    with new_database(None) as empty:
        monkeypatch.setenv("RELIABILITY_DSN_EAST", empty)
        with pytest.raises(LedgerNotMigrated, match="database east"):
            make(connection)


def test_two_ledgers_with_a_topology_of_one_name_do_not_share_a_participant(staged, template):
    declared = "INSERT INTO reliability.topology (topology, max_spout_pending) VALUES (%(name)s, 1)"
    with new_session(template) as other:
        execute(other, declared, name=staged.topology)
        with pytest.raises(ParticipantTaken, match="of another ledger"):
            declare_in(TopologyDatabases(other, staged.topology, [EAST]))


def test_a_participant_that_lost_everything_is_not_taken_for_a_new_one(
    staged, connection, template, monkeypatch
):
    staged.process(1, both(1))
    drain(connection, staged.topology)
    with new_database(template) as dsn:
        monkeypatch.setenv("RELIABILITY_DSN_EAST", dsn)
        staged.process(2, both(2))
        there = TopologyDatabases(connection, staged.topology, [EAST])
        for ask in (lambda: declare_in(there), lambda: drain(connection, there.topology)):
            with pytest.raises(CheckpointMismatch, match="database east: it has no record"):
                ask()
    assert staged.statuses() == {"1:0": "COMMITTED", "2:0": "PROCESSED"}


# --- a participant decides nothing ---------------------------------------------------------------


def test_a_database_that_takes_part_decides_nothing(staged):
    """RELIABILITY_DSN names the wrong database: a commit there would be decided twice."""
    staged.process(1, both(1))
    east = staged.participants.connection_of(EAST)
    assert staged.topology not in topologies(east)
    for decide in (drain, partial(sweep, leases=Leases()), partial(pause, reason="x"), resume):
        with pytest.raises(NotTheCoordinator):
            decide(east, staged.topology)
    assert staged.statuses(EAST) == {"1:0": "PROCESSED"}


# --- the sweep -----------------------------------------------------------------------------------


def test_a_sweep_finishes_what_a_dead_driver_left_whatever_is_overdue(staged, connection):
    staged.process(1, both(1))
    die_when_decided(staged)
    swept = sweep(connection, staged.topology, Leases(overdue=3600))
    assert [str(c.attempt) for c in swept.committed] == ["1:0"]
    assert_all_at(staged, 1)


def test_a_sweep_cleans_in_every_database_later_if_one_is_away(staged, connection, east):
    staged.process(1, both(1, 2))
    end(staged, "FAILED")
    staged.participants.close()
    with away(east):
        assert sweep(connection, staged.topology, Leases(), clean=True).cleaned == []
    swept = sweep(connection, staged.topology, Leases(overdue=3600), clean=True)
    assert [str(attempt) for attempt in swept.cleaned] == ["1:0"]
    assert staged.statuses(EAST) == {"1:0": "FENCED"}
    staged.process(1, both(1), attempt_id=1)
    for database, tables in staged.tables().items():
        left = f"SELECT DISTINCT _attempt_id FROM {tables.contribution_name}"
        assert rows(staged.participants.connection_of(database), left) == [(1,)]
    drain(connection, staged.topology)
    assert_all_at(staged, 1)


# --- two servers ---------------------------------------------------------------------------------


@pytest.fixture
def second_server(environment, tmp_path_factory):
    """Another Postgres server, with a migrated database `reliability`."""
    second = Environment(environment.root, tmp_path_factory.mktemp("second"), throwaway=True)
    second.up_postgres()
    dsn = (
        f"host=127.0.0.1 port={second.postgres.port} dbname=reliability user=reliability"
        f" passfile={second.credentials.pass_file}"
    )
    with LedgerConnection(dsn) as connection:
        migrate(connection)
    yield second, dsn
    second.destroy()


def test_a_topology_in_two_servers(second_server, connection, monkeypatch):
    """The second one is killed and comes back: what was decided is finished."""
    second, dsn = second_server
    monkeypatch.setenv("RELIABILITY_DSN_EAST", dsn)
    history = History(connection)
    staged = history.next_round()
    die_when_decided(staged)
    second.postgres.kill()
    with pytest.raises(CheckpointStuck, match="database east"):
        drain(LedgerConnection(connection.dsn), staged.topology)
    second.up_postgres()
    drain(connection, staged.topology)
    staged.participants.close()
    history.check_repaired()
