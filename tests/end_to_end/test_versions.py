"""Which code a run has that is cleared, where Airflow keeps every version of it (G6)."""

from __future__ import annotations

import pytest

from reliability.core.attempt import TransactionAttempt
from reliability.transaction.inspect.attempt_report import attempt_report, outdated_code
from tests.end_to_end.dates import publish, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CODE = """
from tests.end_to_end.words import words

versioned = words("words_versioned", module=__name__)  # version {version}
"""
DAG_FILE = """
# Airflow reads this
from tests.end_to_end.words import dag
from versioned_words import versioned

words_versioned = dag(versioned, (1, 1), (1, 1))
"""
COMMIT = "transaction.commit"


def test_a_cleared_run_has_the_latest_code_or_the_log_says_that_it_has_not(dates, versions):
    def publish_version(version):
        code = CODE.format(version=version)
        publish(versions, version, {"versioned_words.py": code, "dag_file.py": DAG_FILE})

    publish_version("1")
    dag = dates.dag("words_versioned")
    dag.deliver("2026-01-01", "man")
    dag.unpause()
    assert dag.states() == ["success"]
    (first,) = dag.runs()

    publish_version("2")
    wait_for(
        lambda: dag.api.get("/api/v2/dags/words_versioned")["bundle_version"] == "2", "version 2"
    )
    dag.deliver("2026-01-02", "dog")
    interval = {
        "data_interval_start": "2026-01-02T00:00:00Z",
        "data_interval_end": "2026-01-03T00:00:00Z",
    }
    assert dag.state(dag.trigger("2026-01-01T06:00:00Z", **interval)) == "success"

    def code(attempt):
        """Return the digest of the code that an attempt ran."""
        columns = "txid || ':' || attempt_id, code_digest"
        return dict(dag.ledger_rows(columns, "attempt_step", "1"))[attempt]

    old, new = code("1:0"), code("2:0")
    assert old != new

    dag.clear(first, run_on_latest_version=False)
    assert dag.state(first) == "success"
    assert code("1:1") == old
    told = attempt_report(dates.ledger, "words_versioned", TransactionAttempt(1, 1))
    assert outdated_code(dates.ledger, told)
    assert "1:1 ran the same code as 1:0" in dag.log(first, COMMIT, 2, map_index=0)

    dag.clear(first)  # the DAG says what Airflow does if nobody says otherwise
    assert dag.state(first) == "success"
    assert code("1:2") == new
    assert "ran the same code" not in dag.log(first, COMMIT, 3, map_index=0)
    assert dag.attempts() == {
        "1:0": "REPLACED", "1:1": "REPLACED", "1:2": "COMMITTED", "2:0": "COMMITTED"
    }  # fmt: skip
    assert dag.counted() == {"dog": 1, "man": 1}
