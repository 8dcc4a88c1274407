"""Tasks of `airflow dags test`, which runs one after another: none waits for what comes later."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from reliability.core.errors import AttemptIncomplete, LedgerUnavailable
from reliability.transaction.topology.lifecycle import pause
from tests.support.commit_task import CommitTask, shop_with_two_txids
from tests.support.fix_postgres import execute

ONE_AT_ONCE = "UPDATE reliability.topology SET max_spout_pending = 1, max_replay_pending = 1"


@pytest.fixture
def shop(airflow_home, connection, monkeypatch):
    shop = shop_with_two_txids(connection, monkeypatch)
    execute(connection, ONE_AT_ONCE)
    return shop


@pytest.fixture
def task(shop, monkeypatch):
    """The task that commits a txid, as a test run of Airflow's has it."""
    for module in ("operators", "waiting", "tasks"):
        monkeypatch.setattr(f"reliability_airflow.{module}.is_test_run", lambda: True)
    return CommitTask(shop, monkeypatch)


def statuses(shop):
    asked = "SELECT txid || ':' || attempt_id, status FROM reliability.attempt ORDER BY 1"
    return dict(shop.ask(asked))


def test_a_task_whose_turn_comes_later_commits_what_is_before_it(shop, task):
    """It waited for tasks that Airflow starts after it; a failure of these is its own."""
    task.fails = True
    with pytest.raises(AttemptIncomplete, match="txid 1"):
        task.run(2)
    task.fails = False
    task.run(2)
    committed = {"1:0": "FENCED", "1:1": "COMMITTED", "2:0": "COMMITTED"}
    assert statuses(shop) == committed
    task.run(1)
    assert statuses(shop) == committed
    # replays, which have a limit of their own
    task.run(1, max_tries=5)
    task.run(2, max_tries=5)
    assert statuses(shop)["2:1"] == "COMMITTED"


def test_a_task_fails_where_it_would_wait_for_what_nobody_does(shop, task, monkeypatch):
    """Another run's txid, a pause, and a ledger that is away; and a run that is deleted at once."""
    from airflow.sdk.exceptions import AirflowFailException

    from reliability_airflow.tasks import EmitOperator

    emit = EmitOperator(task_id="emit", topology=shop.topology)
    run = SimpleNamespace(run_id="__airflow_temporary_run_2026-01-01__", conf=None)
    with pytest.raises(AirflowFailException, match="NOT_IN_A_TEST_RUN"):
        emit.execute({"dag_run": run})
    for table in ("transaction", "request"):
        another = f"UPDATE reliability.{table} SET run_id = 'another' WHERE txid = 1"
        execute(shop.connection, another)
    with pytest.raises(AirflowFailException, match=r"\[NOT_IN_A_TEST_RUN\] txid 2: it would wait"):
        task.run(2)
    pause(shop.connection, "shop", "a move")
    with pytest.raises(AirflowFailException, match=r"it would wait .*paused: a move"):
        task.run(2)
    monkeypatch.setenv("RELIABILITY_DSN", "host=127.0.0.1 port=1 user=nobody dbname=nothing")
    with pytest.raises(LedgerUnavailable):
        task.run(1)
