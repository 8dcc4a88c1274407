"""Late files and backfills beside a backlog, through the real scheduler."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.dates import wait_for

pytestmark = pytest.mark.timeout(420)


def test_a_late_file_and_a_clear_while_the_window_is_full(dates):
    """R3: Airflow starts the tasks that a clear adds before those upstream of them."""
    dag = dates.dag("words_backlog")
    for file in ("a", "b"):
        dag.deliver("2026-01-01", "man", file=file)
    dag.deliver("2026-01-02", "broken", file="a")
    dag.deliver("2026-01-02", "dog", file="b")
    dag.unpause()
    assert dag.states(2) == ["success", "failed"]
    first, second = dag.runs()
    dag.deliver("2026-01-01", "ape", file="late")
    dag.clear(first)  # as `lag` advises

    def waits() -> bool:
        states = dag.tasks(first)
        return all(
            states.get((f"transaction.{task}", index)) == state
            for task, index, state in (
                ("close", 0, "success"),
                ("close", 1, "success"),
                ("process", 2, "deferred"),  # for the window [3, 5)
                ("close", 2, "deferred"),
            )
        )

    wait_for(waits, "the late file to wait for the window")
    (dag.folder / "read_as.json").write_text(json.dumps({"broken": "cat"}))
    dag.clear(second)
    assert dag.states(2) == ["success", "success"]
    assert dag.counted() == {"ape": 1, "cat": 1, "dog": 1, "man": 2}
    assert dag.commits()[-1] == "5:0"


def test_the_emissions_of_a_backfill_follow_the_dates(dates):
    """Otherwise a rollback to an interval would keep later ones and take back earlier ones."""
    dag = dates.dag("words_ordered")
    days = [f"2026-01-{day:02}" for day in range(1, 5)]
    for day in days:
        dag.deliver(day, "man")
    dag.unpause()
    dag.states()
    dag.backfill(f"{days[0]}T00:00:00Z", f"{days[-1]}T00:00:00Z", max_active_runs=len(days))
    wait_for(lambda: len(dag.txids()) == len(days), "all emissions")
    assert [day for _, day in dag.txids()] == days
    dag.pause()
