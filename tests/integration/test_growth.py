"""What tasks and sweeps ask of a ledger does not read all the txids that have ever committed."""

from __future__ import annotations

import json

import pytest
from psycopg2.sql import SQL

from benchmarks import topologies
from benchmarks.copied_history import fill
from benchmarks.ledger_growth import Pipeline, parameters
from reliability.core.plan import MAX_TXIDS
from reliability.ledger.queries import queries
from reliability.transaction.correct.rollback import roll_back
from tests.support.fix_postgres import execute, rows
from tests.support.many import many_waiting

COPIES = 3000
#: All that a run of a new txid asks, that waiting tasks and sweeps ask, and that `status` asks.
ASKED = (
    *("whole_items", "any_part_is_allocated", "emitted_intervals", "unfrozen_txids"),
    *("earlier_txids", "last_committed_batch", "latest_request"),
    *("facts_for_request", "standing", "position", "latest_requests_of_run"),
    *("requests_that_changed", "predecessor"),
    *("expired_attempts", "silent_requests", "attempts_to_clean", "left_behind", "horizon"),
    *("runs_without_their_txids", "blocked_txid", "gauges"),
    *("topology_status", "held_txids", "parked_txids", "parked_with_intervals", "open_txids"),
    *("skipped_txids", "items_to_replay", "requested_replays"),
    *("gaps_between_emissions", "unfinished_emissions", "schedule"),
    # what the page asks of a topology, a run and a txid, beside these
    *("page_of_txids", "attempts_of_page", "newest_txid_of_interval"),
    *("outcome_of_run", "requests_of_txid", "attempts_of_txid", "timing_of_attempts"),
)


@pytest.fixture
def long_history(connection, tmp_path, monkeypatch):
    """A ledger in which thousands of txids have committed."""
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    pipeline = Pipeline(connection, topologies.growth, tmp_path)
    pipeline.transact()
    fill(connection, COPIES)
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET granted_at = granted_at - interval '1 day'"))
        tx.run(SQL("ANALYZE"))
    return pipeline


def rows_read(plan):
    """Return how many rows the nodes of a plan have read or thrown away."""
    found = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return found * plan["Actual Loops"] + sum(map(rows_read, plan.get("Plans", ())))


def test_no_query_of_a_task_reads_the_whole_history(long_history, connection):
    known = parameters("growth", COPIES)
    with connection.transaction(reads_only=True) as tx:
        asked = [(name, known) for name in ASKED]
        asked.append(("standing", {**known, "txid": None}))  # of all txids
        for name, values in asked:
            explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {queries()[name]}"
            (answer,) = tx.one(SQL(explain), **values).values()
            read = rows_read(answer[0]["Plan"])
            assert read < COPIES / 10, f"{name}: {read} rows\n{json.dumps(answer, indent=1)}"
    # the copies keep the ledger's constraints, and the next txid follows them
    long_history.transact()
    found = "SELECT curr_txid, next_txid, commit_number FROM reliability.topology"
    assert rows(connection, found) == [(COPIES + 2, COPIES + 2, COPIES + 1)]
    assert rows(connection, "SELECT count(*) FROM reliability.attempt_event") == [
        (4 * (COPIES + 1),)
    ]


PENDING = 300
ALL_PROCESSED_BUT_THE_FIRST = """
    INSERT INTO reliability.attempt
           (topology, txid, attempt_id, request_id, lease, status, processed_at)
    SELECT topology, txid, 0, request_id, '1 h', 'PROCESSED', now() FROM reliability.request
     WHERE txid > 1
"""


def test_a_commit_and_a_sweep_read_no_more_candidates_than_may_share_a_commit(connection):
    """C5: each read all that wait for their turn, under the topology's lock."""
    many_waiting(connection, topologies=1, txids=PENDING)
    execute(connection, ALL_PROCESSED_BUT_THE_FIRST)
    known = parameters("many_1", PENDING) | {"most": MAX_TXIDS}
    with connection.transaction(reads_only=True) as tx:
        found = tx.one("position", **known)["processed"]
        assert [one["txid"] for one in found] == [*range(2, MAX_TXIDS + 1)]
        assert tx.one("standing", **{**known, "txid": None})["processed"] == []


PARTITIONED = """
    ALTER TABLE public.totals_of_growth RENAME TO whole;
    CREATE TABLE public.totals_of_growth (LIKE public.whole INCLUDING ALL EXCLUDING INDEXES)
        PARTITION BY HASH (customer_id);
    CREATE TABLE public.totals_of_growth_0 PARTITION OF public.totals_of_growth
        FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE public.totals_of_growth_1 PARTITION OF public.totals_of_growth
        FOR VALUES WITH (MODULUS 2, REMAINDER 1);
    ALTER TABLE public.totals_of_growth ADD UNIQUE NULLS NOT DISTINCT (customer_id);
    INSERT INTO public.totals_of_growth SELECT * FROM public.whole;
"""


def test_a_person_may_partition_the_table_of_a_state(connection, tmp_path, monkeypatch):
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    pipeline = Pipeline(connection, topologies.growth, tmp_path)
    pipeline.transact(range(8))
    execute(connection, PARTITIONED)
    pipeline.transact(range(4, 12))
    counts = (
        "SELECT tableoid::regclass::text, count(*), sum(n) FROM public.totals_of_growth GROUP BY 1"
    )
    found = {table: (keys, n) for table, keys, n in rows(connection, counts)}
    assert set(found) == {"totals_of_growth_0", "totals_of_growth_1"}
    assert [sum(values) for values in zip(*found.values(), strict=True)] == [12, 16]
    roll_back(connection, "growth", 1, "a test")
    assert rows(connection, "SELECT count(*), sum(n) FROM public.totals_of_growth") == [(8, 8)]
    assert rows(connection, "TABLE public.totals_of_growth ORDER BY 1") == (
        rows(connection, "TABLE public.whole ORDER BY 1")
    )
