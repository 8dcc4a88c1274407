"""The ledger is away while tasks work and wait: runs outlast it, and spend no retry on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dev.processes import wait_until
from tests.end_to_end.dates import PATIENCE
from tests.fix_postgres import run_as_admin

pytestmark = pytest.mark.timeout(420)

AWAY_SECONDS = 25  # the default retries, three times after 5 s, would be spent long before
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


def test_a_ledger_that_is_away_costs_no_run_and_no_retry(dates, ledger):
    """In the middle of an attempt, before an emission, and while a task waits for its turn."""
    working, emitting = dates.dag("words_outage"), dates.dag("words_late")
    for file in ("a", "b"):
        working.deliver("2026-01-01", "man", "dog", file=file)
    emitting.deliver("2026-01-01", "ape")
    (working.folder / "hold").touch()
    working.unpause()
    wait_until(lambda: "1:0" in working.attempts(), "an attempt", PATIENCE)
    (run_id,) = working.runs()
    commit = ("transaction.commit", 0)
    with ledger_away(ledger):
        (working.folder / "hold").unlink()
        emitting.unpause()
        started = time.monotonic()
        wait_until(lambda: "deferred" in emitting.tasks_of_all_runs("emit"), "emit", PATIENCE)
        wait_until(lambda: time.monotonic() - started > AWAY_SECONDS, "a while", PATIENCE)
    assert working.states() == emitting.states() == ["success"]
    assert working.counted() == {"dog": 2, "man": 2}
    assert emitting.counted() == {"ape": 1}
    tries = working.tries(run_id)
    assert tries[commit] == 1
    # Spark's part of an attempt cannot outlast it: at most one retry begins the next one
    assert max(tries.values()) <= 2
    (late,) = emitting.runs()
    assert set(emitting.tries(late).values()) == {1}
