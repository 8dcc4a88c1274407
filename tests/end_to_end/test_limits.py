"""What Airflow's own limits do to a run: fail_fast, dagrun_timeout and execution_timeout."""

from __future__ import annotations

import pytest

from tests.end_to_end.dates import Dag, Dates, story, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def limited(dates: Dates, name: str, limits: str, *words: str) -> Dag:
    """Run a day with a file for each word; the word `held` lets its attempt go on for ever."""
    days = f"words.TOPOLOGIES['{name}'], (1, 1), (1, 1)"
    dates.deploy(name, f"dag({days}, {limits})")
    dag = dates.dag(f"words_{name}")
    for file, word in zip("abc", words, strict=False):
        dag.deliver("2026-01-01", word, file=file)
        if word == "held":
            dag.hold()
    dag.unpause()
    return dag


NOTED = "unanchored=[words.note]"


@story(limited, "fail_fast", f"retries=1, fail_fast=True, {NOTED}", "broken", "man", "dog")
def test_fail_fast_stops_the_other_txids_and_one_verb_resumes_them(dates, dag):
    """A retry is needed: a resumed task may see an older txid before that is asked for again."""
    assert dag.states() == ["failed"]
    [run_id] = dag.runs()
    tasks = dag.tasks(run_id)
    assert tasks["settle", -1] == "failed"
    assert "success" not in {tasks["transaction.commit", index] for index in range(3)}
    dag.read_as(broken="cat")
    dates.reliability("resume-runs", dag.dag_id, "--yes")
    assert dag.states() == ["success"], dag.tasks(run_id)
    assert dag.counted() == {"cat": 1, "dog": 1, "man": 1}
    assert sorted(dag.noted()) == ["1", "2", "3"], "the side work of a green run"


RUN_LIMIT = f"retries=0, dagrun_timeout=words.timedelta(seconds=20), {NOTED}"


@story(limited, "run_timeout", RUN_LIMIT, "held")
def test_a_run_that_takes_longer_than_it_may_is_red_and_its_driver_ends(dates, dag):
    """Airflow skips even the teardowns, so the request stays open; resume-runs finds it."""
    assert dag.states() == ["failed"]
    [run_id] = dag.runs()
    wait_for(lambda: set(dag.attempts().values()) == {"FENCED"}, "its attempt to end")
    tasks = dag.tasks(run_id)
    assert tasks["settle", -1] == tasks["transaction.close", 0] == "skipped"
    dag.let_go()
    days = "words.TOPOLOGIES['run_timeout'], (1, 1), (1, 1)"
    dates.deploy("run_timeout", f"dag({days}, retries=0, {NOTED})")
    dates.reliability("resume-runs", dag.dag_id, "--yes")
    assert dag.states() == ["success"]
    assert dag.counted() == {"held": 1}
    assert dag.noted() == ["1"]


TASK_LIMIT = "retries=99, default_args={'execution_timeout': words.timedelta(seconds=15)}"


@story(limited, "task_timeout", TASK_LIMIT, "held")
def test_a_task_that_takes_longer_than_it_may_ends_its_driver_and_is_tried_again(dates, dag):
    wait_for(lambda: "1:1" in dag.attempts(), "a second attempt")
    assert dag.attempts()["1:0"] == "FENCED"
    dag.let_go()
    assert dag.states() == ["success"]
    assert dag.counted() == {"held": 1}
