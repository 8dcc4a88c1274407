"""R1 to R4 on the real ledger, without Spark: who asks, and who gets it done."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from reliability.core.clear_or_retry import judge_contact
from reliability.core.coordinator import Begin, Submit, Wait
from reliability.core.errors import (
    AttemptFenced,
    AttemptIncomplete,
    RequestClosed,
    RunUnsatisfied,
    TxidBlocked,
)
from reliability.core.leases import Leases
from reliability.core.request import RequestStatus, TaskTry
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import hold_topology
from reliability.transaction import run as run_module
from reliability.transaction.commit import dry_run as dry_run_module
from reliability.transaction.commit.committer import drain
from reliability.transaction.correct.park import park, skip
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.emit import requests as requests_module
from reliability.transaction.emit.requests import Run, TaskContact, close, contact, settle, settled
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.begin import claim_step
from reliability.transaction.topology.read_standing import read_txid
from tests.simulation.source import MONTHS
from tests.simulation.world import Silent
from tests.support.fix_postgres import execute, wait_until_it_waits
from tests.support.runner import TransactionRunner


def requests(world, txid=1):
    return [
        (r["run_id"], r["kind"], r["status"]) for r in world.look().requests if r["txid"] == txid
    ]


def next_action(world, run, txid, task):
    work = world.runner.topology.work(task, None if task == "commit" else task)
    request = world.runner.contact(txid, world.who(run, txid, task))
    return world.runner.next_action(txid, request.request_id, work)


def test_a_retry_after_success_is_no_replay_and_a_clear_is(new_world):
    """R1: the retry after a lost success answer must not change what was published."""
    world = new_world()
    world.work("A", 1, "commit")
    world.work("A", 1, "commit")
    assert requests(world) == [("A", "COMMIT", "SATISFIED")]
    world.clear("A", 1)
    world.work("A", 1, "commit")
    assert requests(world) == [("A", "COMMIT", "SATISFIED"), ("A", "REPLAY", "SATISFIED")]
    assert world.statuses() == {"1:0": "REPLACED", "1:1": "COMMITTED"}


def test_a_step_that_is_cleared_alone_after_its_commit_was_is_a_replay(new_world):
    """R1: it had never come for the request of that clear, and was green without Spark."""
    world = new_world()
    world.work("A", 1, "process")
    world.work("A", 1, "commit")
    world.clear("A", 1)
    world.work("A", 1, "commit")
    assert world.statuses() == {"1:0": "REPLACED", "1:1": "COMMITTED"}
    world.clear("A", 1)
    who = replace(world.who("A", 1, "process"), later_tasks=frozenset({"commit", "settle"}))
    request = world.runner.contact(1, who)
    assert (request.number, request.status) == (3, RequestStatus.OPEN)
    assert world.runner.contact(1, who).number == 3
    retried = replace(who, this_try=replace(who.this_try, try_id="another", is_first=False))
    assert world.runner.contact(1, retried).number == 3


def test_a_run_that_was_deleted_and_made_again_asks_anew(new_world):
    """R1: its counters begin again, and it would be green without Spark."""
    world = new_world(items=(2,))
    run = Run(dag_id=world.name, run_id="A")
    world.work("A", 1, "commit")
    world.runner.close(1, run, "its tasks ended")
    world.invariants.raised["A", 0] += 1  # as good as cleared
    begun_again = TaskTry(max_tries=1, try_id="another", run_started="0", is_first=True)
    who = TaskContact(run=run, task="emit", this_try=begun_again)
    world.runner.emit(MONTHS[0], who, max_batches=9)
    assert requests(world) == [("A", "COMMIT", "SATISFIED"), ("A", "REPLAY", "OPEN")]


def test_what_ends_while_an_emission_goes_on_is_no_clear_of_it(new_world):
    """R1: a first try that hung in its source opened a replay for which no task would come."""
    world = new_world(items=(2,))
    run = Run(dag_id=world.name, run_id="A")

    def others_end():
        world.work("A", 1, "commit")
        world.runner.close(1, run, "its tasks ended")

    with world.meanwhile(others_end):
        world.emit("A")
    assert requests(world) == [("A", "COMMIT", "SATISFIED")]


def test_a_clear_whose_tasks_all_die_before_they_reach_the_ledger_is_not_done(
    new_world, monkeypatch
):
    """R1: settle found the txid done, and the run was green without its replay."""
    world = new_world(items=(2,))
    run = Run(dag_id=world.name, run_id="A")
    here, replay = (world.connection, world.name), ("A", "REPLAY", "CLOSED")
    world.work("A", 1, "commit")
    close(*here, 1, run, "ended", has_failed=True)  # after the commit's answer was lost
    assert [ends(*here, run, [1], failed=[1]) for ends in (settled, settle)] == [[1], [1]]
    close(*here, 1, run, "ended")
    world.clear("A", 1)
    for ends in (settled, settle):
        with pytest.raises(RunUnsatisfied, match="txid 1 not done"):
            ends(*here, run, [1], failed=[1])
    close(*here, 1, run, "ended", has_failed=True)
    assert requests(world) == [("A", "COMMIT", "SATISFIED"), replay]

    def asks_first(tx, name):
        monkeypatch.setattr(requests_module, "hold_topology", hold_topology)
        contact(LedgerConnection(world.connection.dsn), name, 1, world.who("A", 1, "commit"))
        hold_topology(tx, name)

    # and if settle was not cleared; but not if a task has come while close waited
    for hold, last in ((hold_topology, replay), (asks_first, ("A", "REPLAY", "OPEN"))):
        world.work("A", 1, "commit")
        world.clear("A", 1)
        close(*here, 1, run, "ended")
        monkeypatch.setattr(requests_module, "hold_topology", hold)
        close(*here, 1, run, "ended", has_failed=True)
        assert requests(world)[-2:] == [("A", "REPLAY", "SATISFIED"), last]


def test_another_runs_attempt_is_waited_for_and_taken_over_when_its_lease_is_over(new_world):
    """R2: two runs of one interval do not fence each other's work while it goes on."""
    world = new_world(shared=True)
    world.emit("B")
    world.claim("A", 1, "process")
    assert isinstance(next_action(world, "B", 1, "process"), Wait)
    world.hours_pass(Silent.SPARK)
    assert next_action(world, "B", 1, "process") == Begin()


def test_a_processed_attempt_of_another_run_is_taken_as_ones_own(new_world):
    """R2: else two runs of one interval fence each other's finished work for ever."""
    world = new_world(shared=True)
    world.emit("B")
    world.work("A", 1, "process")
    world.work("B", 1, "commit")
    assert world.statuses() == {"1:0": "COMMITTED"}
    assert requests(world) == [("A", "COMMIT", "SATISFIED"), ("B", "COMMIT", "SATISFIED")]


def test_a_task_that_is_cleared_while_it_runs_does_not_wait_for_what_it_left_behind(new_world):
    """R2: its lease is that of its own run."""
    world = new_world()
    world.claim("A", 1, "process")
    world.clear("A", 1)
    world.claim("A", 1, "process")
    found = {a["attempt_id"]: (a["status"], a["reason_code"]) for a in world.look().attempts}
    assert found == {0: ("FENCED", "REQUEST_CLOSED"), 1: ("PROCESSING", None)}


def test_teardown_ends_the_unsealed_attempt_of_its_own_request_only(new_world):
    """R3: another run may wait for the same txid."""
    world = new_world(shared=True)
    world.emit("B")
    world.claim("A", 1, "process")
    for run, status in (("B", "PROCESSING"), ("A", "FENCED")):
        world.runner.close(1, Run(dag_id=world.name, run_id=run), "torn down")
        assert world.statuses() == {"1:0": status}


def test_a_run_that_ends_beside_a_rollback_does_not_deadlock(new_world, monkeypatch):
    """A3: one held the request and wanted the attempt, the other the other way round."""
    world, run = new_world(items=(2,)), DatabaseTransaction.run
    world.work("A", 1, "process")
    world.work("A", 1, "commit")
    world.clear("A", 1)
    world.claim("A", 1, "process")
    done: list[object] = []

    def roll_all_back():
        with LedgerConnection(world.connection.dsn, application_name="rolls back") as connection:
            done.append(roll_back(connection, world.name, 0, "wrong").commit_number)

    thread = threading.Thread(target=roll_all_back)

    def run_late(self, statement, **parameters):
        if statement == "end_attempt_of_request":
            thread.start()
            wait_until_it_waits(world.connection, "rolls back")
        return run(self, statement, **parameters)

    monkeypatch.setattr(DatabaseTransaction, "run", run_late)
    with LedgerConnection(world.connection.dsn) as closes:
        assert close(closes, world.name, 1, Run(dag_id=world.name, run_id="A"), "torn down")
    thread.join(timeout=30)
    assert done == [2]
    assert world.statuses() == {"1:0": "ROLLED_BACK", "1:1": "FENCED"}


def test_settle_is_green_only_when_the_latest_request_of_each_txid_is_satisfied(new_world):
    """R3: a committed txid does not make a failed replay of it green."""
    world = new_world(items=(2,))
    run = Run(dag_id=world.name, run_id="A")
    with pytest.raises(RunUnsatisfied, match="txid 1 not done"):
        world.runner.settle(run, [1])
    world.clear("A", 1)
    world.work("A", 1, "commit")
    assert world.runner.settle(run, [1]) == [1]
    world.clear("A", 1)
    world.claim("A", 1, "process")
    with pytest.raises(RunUnsatisfied, match="txid 1 not done"):
        world.runner.settle(run, [1])


def test_what_commits_while_a_run_settles_is_done(new_world, monkeypatch):
    """R3: the run was red, and its request satisfied."""
    world, every = new_world(items=(2,)), DatabaseTransaction.all
    world.work("A", 1, "process")

    def all_and_commit(self, statement, **parameters):
        found = every(self, statement, **parameters)
        if statement == "latest_requests_of_run":
            monkeypatch.setattr(DatabaseTransaction, "all", every)
            drain(LedgerConnection(world.connection.dsn), world.name)
        return found

    monkeypatch.setattr(DatabaseTransaction, "all", all_and_commit)
    assert world.runner.settle(Run(dag_id=world.name, run_id="A"), [1]) == [1]


def ended_without(world):
    found = world.connection.all("runs_without_their_txids")
    return [(run["run_id"], run["txids"]) for run in found]


def test_a_run_is_told_that_ended_without_what_it_asked_for_until_somebody_has_done_it(new_world):
    """G9: Airflow may call it success all the same."""
    world = new_world(shared=True, items=(2,))
    a = Run(dag_id=world.name, run_id="A")
    world.emit("B")
    world.claim("A", 1, "process")
    assert ended_without(world) == []  # still at it
    with pytest.raises(RunUnsatisfied):
        world.runner.settle(a, [1])
    assert ended_without(world) == [("A", "{[1,2)}")]
    world.hours_pass(Silent.SPARK)
    world.work("B", 1, "commit")
    assert ended_without(world) == []  # B has done it
    world.clear("A", 1)
    world.claim("A", 1, "process")
    with pytest.raises(RunUnsatisfied):
        world.runner.settle(a, [1])
    assert ended_without(world) == [("A", "{[1,2)}")]  # a replay that was not done


def test_a_replay_that_ended_without_its_attempt_is_done_by_a_newer_one(new_world):
    """R3: a run that was cleared before a rollback would stay undone for ever."""
    world = new_world(shared=True, items=(2,))
    a = Run(dag_id=world.name, run_id="A")
    world.emit("B")
    for task in ("process", "commit"):
        world.work("A", 1, task)
        world.work("B", 1, task)
    world.clear("A", 1)
    world.claim("A", 1, "process")
    world.runner.close(1, a, "its tasks ended without it")
    assert undone(world) == {"A": "{[1,2)}", "B": "{}"}
    world.hours_pass(Silent.SPARK)
    world.clear("B", 1)
    for task in ("process", "commit"):
        world.work("B", 1, task)
    assert undone(world) == {"A": "{}", "B": "{}"}
    assert world.runner.settle(a, [1]) == []  # it has committed none itself


def undone(world):
    found = world.connection.all("runs_of_dag", dag_id=world.name, request_lease=600)
    return {run["run_id"]: run["unsatisfied"] for run in found}


def test_a_run_whose_txid_was_parked_is_done_once_another_run_has_processed_it(new_world):
    """G9: its request stayed parked, and it was red for ever, or unsatisfied if marked green."""
    world = new_world(shared=True, items=(2,))
    a = Run(dag_id=world.name, run_id="A")
    world.emit("B")
    world.claim("A", 1, "process")
    world.runner.contact(1, world.who("B", 1, "process"))
    park(world.connection, world.name, 1, "broken")
    with pytest.raises(RunUnsatisfied, match="txid 1 not done"):
        world.runner.settle(a, [1])
    world.clear("B", 1)
    for task in ("process", "commit"):
        world.work("B", 1, task)
    assert world.runner.settle(a, [1]) == []  # it has committed none itself


@pytest.mark.parametrize("give_up", [park, skip])
def test_a_run_that_was_closed_before_its_txid_was_parked_or_skipped_is_not_told(
    new_world, give_up
):
    """G9: parking or skipping is the advice for such a txid, and it is the end of it."""
    world = new_world(items=(2, 2))
    a = Run(dag_id=world.name, run_id="A")
    world.claim("A", 1, "process")
    world.runner.close(1, a, "its tasks ended without it")
    assert ended_without(world) == [("A", "{[1,2)}")]
    give_up(world.connection, world.name, 1, "a broken file")
    assert ended_without(world) == []
    (run,) = world.connection.all("runs_of_dag", dag_id=world.name, request_lease=600)
    left = (1, "{[2,3)}") if give_up is skip else (0, "{[1,3)}")
    assert (run["satisfied"], run["unsatisfied"]) == left
    world.clear("A", 1)
    world.work("A", 1, "commit")
    assert ended_without(world) == []


def test_what_waits_for_a_closed_txid_fails_at_once_and_names_it(new_world):
    """R3: else commit[1] waits for txid 0, whose request only settle would close."""
    world = new_world()
    world.work("A", 2, "process")
    assert isinstance(next_action(world, "A", 2, "commit"), Wait)
    request = world.runner.contact(1, world.who("A", 1, "process"))
    assert world.runner.close(1, Run(dag_id=world.name, run_id="A"), "its tasks ended")
    with pytest.raises(TxidBlocked, match="txid 1 "):
        world.work("A", 2, "commit")
    work = world.runner.topology.work("process", "process")
    assert isinstance(world.runner.next_action(1, request.request_id, work).error, RequestClosed)


def test_a_silent_runs_request_is_given_up_by_any_sweep_and_reopened_by_its_contact(new_world):
    """R3: a run may be deleted, and what waits for it must not wait for ever."""
    world = new_world()
    world.claim("A", 1, "process")
    world.runner.contact(2, world.who("A", 2, "process"))
    world.hours_pass(Silent.AIRFLOW)
    world.sweep()
    assert requests(world) == requests(world, 2) == [("A", "COMMIT", "GIVEN_UP")]
    assert world.statuses() == {"1:0": "FENCED"}
    world.work("A", 2, "commit")  # it waits for txid 1, which is of the same run
    assert requests(world) == [("A", "COMMIT", "OPEN")]
    world.work("A", 1, "commit")
    assert requests(world) == [("A", "COMMIT", "SATISFIED")]


def test_a_request_that_is_closed_while_it_is_reopened_is_followed_by_another(
    new_world, monkeypatch
):
    """R3: its task met a ledger that seemed corrupt."""
    world = new_world()
    who = world.who("A", 1, "process")
    world.runner.contact(1, who)
    world.hours_pass(Silent.AIRFLOW)
    world.sweep()

    def close_first(*args):
        with closing(LedgerConnection(world.connection.dsn)) as another:
            close(another, world.name, 1, who.run, "its tasks ended")
        monkeypatch.setattr(requests_module, "judge_contact", judge_contact)
        return judge_contact(*args)

    monkeypatch.setattr(requests_module, "judge_contact", close_first)
    later = replace(who, this_try=replace(who.this_try, try_id="2"))
    contact(world.connection, world.name, 1, later)
    world.clear("A", 1)  # otherwise no task would come after the end of all
    assert requests(world) == [("A", "COMMIT", "CLOSED"), ("A", "COMMIT", "OPEN")]


def test_a_run_at_work_for_longer_than_its_lease_is_not_given_up(new_world, monkeypatch):
    """R3: no seal of more than ten minutes could succeed, and no such dry run."""
    world = new_world()
    world.work("A", 1, "commit", acts=0)
    world.runner.leases = Leases(request=1)
    told = "SELECT FROM reliability.request WHERE status = 'OPEN' HAVING min(renewed_at) = 'epoch'"
    for work in ("begin_attempt", "_submit", "end_step", "seal", "drain", "dry_run_replay"):
        world.clear("A", 1)
        done = getattr(run_module, work)
        lasted: list[object] = []

        def last(*args, done=done, lasted=lasted, **kwargs):
            world.execute("UPDATE reliability.request SET renewed_at = 'epoch'")
            deadline = time.monotonic() + 10
            while world.execute(told) and time.monotonic() < deadline:
                time.sleep(0.01)
            with closing(LedgerConnection(world.connection.dsn)) as another:
                lasted.append(sweep(another, world.name, world.runner.leases).given_up)
            return done(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(run_module, work, last)
            world.work("A", 1, "commit", is_dry_run=work == "dry_run_replay")
        assert lasted == [[]], work
        assert world.look().requests[-1]["status"] == "SATISFIED"


@pytest.mark.parametrize(("databases", "ends"), [(1, "sweep"), (2, "close")])
def test_a_dry_run_whose_attempt_is_ended_while_it_works_is_fenced(
    new_world, monkeypatch, databases, ends
):
    """R3: it met a ledger that seemed corrupt, which no retry would have mended."""
    world = new_world(databases=databases)
    world.work("A", 1, "commit")
    expected = ["COMMITTED"]
    for when in ("try_plan", "apply_plan", "_record", "_end"):
        world.clear("A", 1)
        done = getattr(dry_run_module, when)

        def end_first(*args, when=when, done=done, **kwargs):
            monkeypatch.setattr(dry_run_module, when, done)
            with closing(LedgerConnection(world.connection.dsn)) as another:
                if ends == "close":
                    run = Run(dag_id=world.name, run_id="A")
                    close(another, world.name, 1, run, "torn down")
                else:
                    execute(another, "UPDATE reliability.request SET renewed_at = 'epoch'")
                    assert sweep(another, world.name, clean=True).given_up
            return done(*args, **kwargs)

        monkeypatch.setattr(dry_run_module, when, end_first)
        with pytest.raises(AttemptFenced):
            world.work("A", 1, "commit", is_dry_run=True)
        assert [*world.statuses().values()] == [*expected, "FENCED"], when
        world.clear("A", 1)
        world.work("A", 1, "commit", is_dry_run=True)
        expected += ["FENCED", "DRY_RUN"]
        assert [*world.statuses().values()] == expected, when


@pytest.mark.parametrize("graph", ["one", "side", "chain"])
def test_a_commit_task_whose_attempt_fell_gets_everything_done(new_world, graph):
    """R4: Airflow's retry reaches one task only."""
    world = new_world(graph=graph)
    first = world.runner.topology.steps[0].name
    world.claim("A", 1, first)
    world.runner.end_attempt(world.grant(1), AttemptIncomplete("its JVM died"))
    world.work("A", 1, "commit")
    assert world.statuses() == {"1:0": "FAILED", "1:1": "COMMITTED"}


def test_a_task_runs_the_steps_that_its_own_reads_from(new_world):
    """R4: it runs the steps that the current attempt lacks, and no others."""
    world = new_world(graph="chain")
    assert next_action(world, "A", 1, "right") == Begin()
    world.work("A", 1, "right", acts=1)
    assert next_action(world, "A", 1, "right") == Submit("left")
    world.work("A", 1, "right")
    assert world.statuses() == {"1:0": "PROCESSED"}


def test_what_a_sweep_gives_up_meanwhile_gets_no_attempt(new_world):
    """R3: nobody would wait for the attempt of a request that was given up."""
    world = new_world()
    work = world.runner.topology.work("process", "process")
    request = world.runner.contact(1, world.who("A", 1, "process")).request_id
    granted: list[object] = []

    def begin():
        with LedgerConnection(world.connection.dsn, application_name="who begins") as connection:
            runner = TransactionRunner(world.runner.topology, connection)
            granted.append(runner.begin(1, request, work))

    thread = threading.Thread(target=begin)
    with LedgerConnection(world.connection.dsn).transaction() as tx:
        assert tx.first("give_up_request", request_id=request, request_lease=-1)
        thread.start()
        wait_until_it_waits(world.connection, "who begins")
    thread.join(timeout=30)
    assert granted == [None]
    assert world.statuses() == {}


def test_a_step_is_claimed_in_the_attempt_for_which_it_was_decided(new_world):
    """R4: in the next attempt, the steps that it reads from may not be done."""
    world = new_world()
    world.claim("A", 1, "process")
    world.runner.end_attempt(world.grant(1), AttemptIncomplete("its JVM died"))
    topology, work = world.runner.topology, world.runner.topology.work("process", "process")
    request = world.runner.contact(1, world.who("A", 1, "process")).request_id
    assert world.runner.begin(1, request, work)
    seen, _, _ = read_txid(world.connection, topology, 1, request)
    world.runner.end_attempt(world.grant(1), AttemptIncomplete("its JVM died"))
    assert world.runner.begin(1, request, work)
    task = world.runner.task(1, request, work)
    assert claim_step(world.connection, task, seen, "process") is None
    assert world.runner.claim_step(1, request, "process", work) == world.grant(1)
