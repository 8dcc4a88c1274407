"""What the ledger keeps of an attempt: code, batch, contribution, and what a replay replaced."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module, invalidate_caches

import pytest

from reliability import Count, MemorySpout, State, Sum, Topology
from reliability.cli.output import plain
from reliability.core.attempt import TransactionAttempt
from reliability.core.coordinator import AttemptStatus
from reliability.core.errors import AttemptIncomplete, AttemptUnknown
from reliability.core.request import RequestKind
from reliability.deployment.fingerprint import fingerprint
from reliability.transaction.inspect.attempt_report import (
    Replaced,
    RequestReport,
    attempt_report,
    outdated_code,
)
from tests.support import python_driver
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import rows

CODE = """
FACTOR = {factor}

def process(batch):
    total = batch if FACTOR == 1 else [{{**row, "v": row["v"] * FACTOR}} for row in batch]
    return {{"per_word": batch, "total": total}}
"""
WORDS = [("a", 1), ("b", 2), ("a", 4), ("c", 8)]  # two txids of two


@pytest.fixture
def words(connection, tmp_path, monkeypatch):
    """Make a pipeline that runs the user's code as it is now; the factor is what changes."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(factor=1, *, opaque=False, database=""):
        (tmp_path / "code_of_words.py").write_text(CODE.format(factor=factor))
        sys.modules.pop("code_of_words", None)
        invalidate_caches()
        topology = Topology(
            "words",
            spout=MemorySpout({"word": "string", "v": "bigint"}, [WORDS], 2, opaque=opaque),
            process=import_module("code_of_words").process,
            states=[
                State("per_word", {"word": "text"}, {"n": Count()}),
                State("total", {}, {"v": Sum("v")}, database=database),
            ],
            max_spout_pending=2,
        )
        driver = replace(python_driver.THIS_DRIVER, code=fingerprint(topology))
        monkeypatch.setattr(python_driver, "THIS_DRIVER", driver)
        return pipeline_of(topology, connection)

    yield make
    sys.modules.pop("code_of_words", None)


def cleared(pipe, code):
    """The run is cleared; from here on the code is that of `code`."""
    again = replace(pipe.again(), runner=code.runner)
    again.emit(None)
    return again


def outdated(connection, attempt):
    return outdated_code(connection, attempt_report(connection, "words", of(attempt)))


def of(text):
    return TransactionAttempt.parse(text)


def test_the_story_of_an_attempt(words, connection):
    pipe = words()
    pipe.emit(None)
    pipe.transact(1)
    told = attempt_report(connection, "words", of("1:0"))
    assert (told.status, told.commit_number, told.replaced) == (AttemptStatus.COMMITTED, 1, None)
    assert told.request == RequestReport(
        kind=RequestKind.COMMIT,
        dag_id="shop",
        run_id="scheduled__1997-01",
        number=1,
        is_dry_run=False,
    )
    assert [item["kind"] for item in told.items] == ["memory", "memory"]
    times = [told.granted_at, told.steps[0]["started_at"], told.processed_at, told.ended_at]
    assert times == sorted(moment for moment in times if moment)
    (step,) = told.steps
    assert (step["driver_host"], step["application_id"]) == ("here", "python")
    assert step["code"]["modules"].keys() == {"code_of_words"}
    per_word, total = told.states
    staged = {"state": "per_word", "staged_rows": 2, "acked_partitions": 1}
    assert staged.items() <= per_word.items()
    assert str(total["contribution_digest"]).startswith("1:")
    assert [event.status.value for event in told.events] == [
        "PROCESSING", "SEALING", "PROCESSED", "COMMITTED"
    ]  # fmt: skip
    written = json.loads(json.dumps(told, default=plain))
    assert written["attempt"] == "1:0"
    assert written["steps"][0]["code"] == step["code"]


def test_what_a_replay_has_in_common_with_what_it_replaced(words, connection, monkeypatch):
    """Txid 2 is processed by newer code; the replay of txid 1 runs the old one, then the newer."""
    pipe = words(factor=1)
    pipe.emit(None)
    pipe.transact(1)
    cleared(pipe, words(factor=10)).transact(2)

    old = cleared(pipe, words(factor=1))
    with monkeypatch.context() as patch:
        by_three = partial(python_driver.stage_batch, tasks={"per_word": 3})
        patch.setattr(python_driver, "stage_batch", by_three)
        old.transact(1)
    told = attempt_report(connection, "words", of("1:1"))
    same = Replaced(
        attempt=of("1:0"),
        same_code=True,
        changed_code=(),
        same_batch=True,
        same_contribution={"per_word": True, "total": True},
    )
    assert told.replaced == same
    assert told.states[0]["acked_partitions"] == 3
    assert attempt_report(connection, "words", of("1:0")).states[0]["acked_partitions"] == 1

    cleared(old, words(factor=10)).transact(1)
    assert attempt_report(connection, "words", of("1:2")).replaced == replace(
        same,
        attempt=of("1:1"),
        same_code=False,
        changed_code=("code_of_words",),
        same_contribution={"per_word": True, "total": False},
    )

    assert outdated(connection, "1:0") is None
    hint = str(outdated(connection, "1:1"))
    assert "1:1 ran the same code as 1:0, although 2:0 had run newer" in hint
    assert outdated(connection, "1:2") is None


def test_an_attempt_that_never_started_and_the_digest_of_a_batch(words, connection):
    pipe = words(opaque=True)
    pipe.emit(None)
    pipe.runner.end_attempt(pipe.begin(1), AttemptIncomplete("its JVM died"))
    told = attempt_report(connection, "words", of("1:0"))
    assert (told.status, told.reason_code) == (AttemptStatus.FAILED, "ATTEMPT_INCOMPLETE")
    assert told.steps[0]["started_at"] is None
    assert told.states[0]["contribution_digest"] is None
    assert outdated_code(connection, told) is None
    with pytest.raises(AttemptUnknown, match="words has no attempt 1:1"):
        attempt_report(connection, "words", of("1:1"))
    pipe.begin(1)
    pipe.begin(2)
    again, two = (attempt_report(connection, "words", of(text)) for text in ("1:1", "2:0"))
    assert told.batch_digest == again.batch_digest != two.batch_digest


def test_the_part_of_another_database(words, connection, add_database):
    there = add_database("other")
    pipe = words(database="other")
    pipe.emit(None)
    pipe.process(1)
    told = attempt_report(connection, "words", of("1:0"))
    assert [state["state"] for state in told.states] == ["per_word", "total"]
    assert all(state["contribution_digest"] for state in told.states)
    assert rows(there, "SELECT batch_digest FROM reliability.attempt") == [(told.batch_digest,)]
