"""What tasks and sweeps ask of a ledger does not read all the txids that have ever committed."""

from __future__ import annotations

import json

import pytest
from psycopg2.sql import SQL

from benchmarks import topologies
from benchmarks.copied_history import fill
from benchmarks.ledger_growth import Pipeline, parameters
from reliability.ledger.queries import queries
from tests.support.fix_postgres import rows

COPIES = 3000
#: All that a run of a new txid asks, that waiting tasks and sweeps ask, and that `status` asks of a
#: topology. Only how many runs have emitted decides what the other queries of `status` read.
ASKED = (
    *("whole_items", "any_part_is_allocated", "emitted_intervals", "unfrozen_txids"),
    *("txids_of_interval", "txids_of_run", "last_committed_batch", "latest_request"),
    *("facts_for_request", "snapshot", "due", "last_change", "latest_requests_of_run"),
    *("standing", "live_attempts", "unfrozen_or_held", "requests_that_changed"),
    *("expired_attempts", "silent_requests", "attempts_to_clean", "left_behind", "horizon"),
    *("runs_without_their_txids", "blocked_txid", "blocked_txids"),
    *("topology_status", "held_txids", "parked_txids", "parked_with_intervals", "open_txids"),
    *("skipped_txids", "items_to_replay"),
)


@pytest.fixture
def long_history(connection, tmp_path, monkeypatch):
    """A ledger in which thousands of txids have committed."""
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    pipeline = Pipeline(connection, topologies.growth, tmp_path)
    pipeline.transact()
    fill(connection, COPIES)
    with connection.transaction() as tx:
        tx.run(SQL("ANALYZE"))
    return pipeline


def rows_read(plan):
    """Return how many rows the nodes of a plan have read or thrown away."""
    found = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return found * plan["Actual Loops"] + sum(map(rows_read, plan.get("Plans", ())))


def test_no_query_of_a_task_reads_the_whole_history(long_history, connection):
    known = parameters("growth", COPIES)
    with connection.transaction(reads_only=True) as tx:
        for name in ASKED:
            explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {queries()[name]}"
            (answer,) = tx.one(SQL(explain), **known).values()
            read = rows_read(answer[0]["Plan"])
            assert read < COPIES / 10, f"{name}: {read} rows\n{json.dumps(answer, indent=1)}"


def test_a_copied_history_is_one_that_goes_on(long_history, connection):
    """The copies keep the ledger's constraints, and the next txid follows them."""
    long_history.transact()
    found = "SELECT curr_txid, next_txid, commit_number FROM reliability.topology"
    assert rows(connection, found) == [(COPIES + 2, COPIES + 2, COPIES + 1)]
    assert rows(connection, "SELECT count(*) FROM reliability.attempt_event") == [
        (4 * (COPIES + 1),)
    ]
