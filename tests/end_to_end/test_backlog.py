"""Late files beside a backlog, through the real scheduler."""

from __future__ import annotations

import pytest

from tests.end_to_end.dates import Dag, Dates, story, wait_for

pytestmark = pytest.mark.timeout(900)


def a_full_window(dates: Dates) -> Dag:
    dag = dates.dag("words_backlog")
    dag.deliver("2026-01-01", "man")
    dag.deliver("2026-01-02", "broken", file="a")
    dag.deliver("2026-01-02", "dog", file="b")
    dag.unpause()
    return dag


@story(a_full_window)
def test_a_late_file_and_a_clear_while_the_window_is_full(dag):
    """R3: Airflow starts the tasks that a clear adds before those upstream of them."""
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
                ("process", 1, "deferred"),  # for the window [2, 4)
                ("close", 1, "deferred"),
            )
        )

    wait_for(waits, "the late file to wait for the window")
    dag.read_as(broken="cat")
    dag.clear(second)
    assert dag.states(2) == ["success", "success"]
    assert dag.counted() == {"ape": 1, "cat": 1, "dog": 1, "man": 1}
    assert dag.commits()[-1] == "4:0"
