"""The ledger or Airflow's API is away while tasks work and wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from dev.services.processes import stop_all
from tests.end_to_end.dates import Dag, pause, wait_for
from tests.support.fix_postgres import run_as_admin

pytestmark = pytest.mark.timeout(1500)

SOON = 25  # the default retries, three times after 5 s, would be spent long before
TEN_MINUTES = 600
LEDGER = "reliability"


@contextmanager
def ledger_away(ledger) -> Iterator[None]:
    """Nobody gets a session with the ledger's database; Airflow's own is on the same server."""
    ledger.close()
    run_as_admin(
        f"ALTER DATABASE {LEDGER} ALLOW_CONNECTIONS false",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE datname = '{LEDGER}' AND pid <> pg_backend_pid()",
    )
    try:
        yield
    finally:
        run_as_admin(f"ALTER DATABASE {LEDGER} ALLOW_CONNECTIONS true")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "away_seconds"), [("", SOON), ("_long", TEN_MINUTES)])
def test_a_ledger_that_is_away_costs_no_run_and_no_retry(dates, ledger, name, away_seconds):
    """In the middle of an attempt, before an emission, and while a task waits for its turn."""
    working, emitting = dates.dag(f"words_outage{name}"), dates.dag(f"words_late{name}")
    for file in ("a", "b"):
        working.deliver("2026-01-01", "man", "dog", file=file)
    emitting.deliver("2026-01-01", "ape")
    working.hold()
    working.unpause()
    wait_for(lambda: "1:0" in working.attempts(), "an attempt")
    (run_id,) = working.runs()
    commit = ("transaction.commit", 0)
    with ledger_away(ledger):
        working.let_go()
        emitting.unpause()
        wait_for(lambda: emits(emitting) == "deferred", "emit")
        pause(away_seconds)
    assert working.states() == emitting.states() == ["success"]
    assert working.counted() == {"dog": 2, "man": 2}
    assert emitting.counted() == {"ape": 1}
    tries = working.tries(run_id)
    assert tries[commit] == 1
    # Spark's part of an attempt cannot outlast it: at most one retry begins the next one
    assert max(tries.values()) <= 2
    (late,) = emitting.runs()
    assert set(emitting.tries(late).values()) == {1}


def emits(dag: Dag) -> str | None:
    """Return how the emission of the only run stands."""
    [*run_ids] = dag.runs()
    return dag.tasks(run_ids[0]).get(("emit", -1)) if run_ids else None


@pytest.mark.slow
def test_ten_minutes_without_airflow_s_api_cost_the_runs_that_work_and_a_clear_mends_them(
    dates, airflow
):
    """No task can start or say that it lives: Airflow gives each up, retry after retry."""
    processed, working = dates.dag("words_without_api"), dates.dag("words_before_api")
    for dag in (processed, working):
        for file in ("a", "b"):
            dag.deliver("2026-01-01", "man", "dog", file=file)
        dag.hold()
        dag.unpause()
        wait_for(partial(has_attempt, dag), "an attempt")
    stop_all([airflow.airflow.background("api-server")], 1)
    processed.let_go()
    pause(TEN_MINUTES)
    airflow.up(lambda text: None)
    working.let_go()
    for dag in (processed, working):
        assert dag.states() == ["failed"]
        assert dag.counted() == {}
        (run_id,) = dag.runs()
        dag.clear(run_id)
        assert dag.state(run_id) == "success"
        assert dag.counted() == {"dog": 2, "man": 2}


def has_attempt(dag):
    return "1:0" in dag.attempts()
