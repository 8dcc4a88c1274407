"""`airflow dags test` and `airflow tasks test`: one task after another, and no scheduler."""

from __future__ import annotations

import subprocess

import pytest

from tests.end_to_end.dates import Dates

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS = 200


@pytest.fixture
def airflow_says(airflow):
    """Run a command of Airflow's, and return what it prints; it has to end by itself."""

    def run(*arguments: str) -> str:
        done = subprocess.run(
            ["airflow", *arguments],
            env=airflow.airflow.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout

    return run


def test_a_dag_is_tested_in_one_process(dates: Dates, airflow_says):
    """With a window of two, the third txid waits for tasks that come after its own."""
    dag = dates.dag("words_tested")
    for file in "abc":
        dag.deliver("2026-01-01", "man", file=file)
    said = airflow_says("dags", "test", dag.dag_id, "2026-01-02T06:00:00Z")
    assert dag.attempts() == {f"{txid}:0": "COMMITTED" for txid in (1, 2, 3)}, said
    assert dag.counted() == {"man": 3}
    assert dag.states_now() == ["success"], said

    # a task alone, of that run and of one that is made for it
    [run_id] = dag.runs()
    said = airflow_says("tasks", "test", dag.dag_id, "transaction.commit", run_id, "--map-index=0")
    assert "new_state=success" in said
    assert len(dag.attempts()) == 3, "it is no clear"
    said = airflow_says("tasks", "test", dag.dag_id, "emit", "2026-01-03T06:00:00Z")
    assert "[NOT_IN_A_TEST_RUN] run __airflow_temporary_run_" in said
    assert "new_state=failed" in said
    assert len(dag.txids()) == 3


def test_a_txid_that_fails_ends_a_test_instead_of_letting_it_wait(dates: Dates, airflow_says):
    """The tasks of later txids would wait for it until a person acts."""
    dag = dates.dag("words_tested_red")
    for file in "abc":
        dag.deliver("2026-01-01", "broken" if file == "a" else "man", file=file)
    said = airflow_says("dags", "test", dag.dag_id, "2026-01-02T06:00:00Z")
    assert dag.states_now() == ["failed"], said
    assert dag.commits() == []
    assert set(dag.attempts().values()) <= {"FAILED", "PROCESSED", "FENCED"}
