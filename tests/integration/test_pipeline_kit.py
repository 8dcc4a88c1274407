"""The kit with which people show that their own pipelines are exactly-once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace

import pytest

from reliability import Count, FileSpout, MemorySpout, State, Sum, Topology, TransactionalState
from reliability.core.errors import InvalidDefinition, ProcessFunctionFailed
from reliability.testing import assert_exactly_once
from reliability.testing.exactly_once import try_faults
from reliability.testing.faults import Fault, FaultKind, Faults
from reliability.testing.plugin import _put_back
from reliability.testing.server import TEST_DSN, TestServer

WORDS = ["cat", "dog", "cat"]


def words(process, *, batches=1, **values):
    """A topology that counts words, one batch of all of them, or more."""
    return Topology(
        "words",
        spout=MemorySpout({"word": "string"}, [WORDS * batches], take=len(WORDS)),
        process=process,
        states=[State("words", key={"word": "text"}, values={"n": Count(), **values})],
    )


def in_two_databases(**options):
    """The same, counted in the ledger's database and in another one."""
    one = words(lambda batch: dict.fromkeys(("words", "there"), batch), **options)
    return replace(one, states=[*one.states, replace(one.states[0], name="there", database="EAST")])


def as_they_are(batch):
    return {"words": batch}


def with_a_weight(batch):
    """What a random number makes of a row, nobody can tell again."""
    weight = random.randrange(10**6)
    return {"words": batch.selectExpr("word", f"{weight} AS weight")}


def test_each_database_that_states_name_is_one_of_the_tests_own(kit, monkeypatch):
    """C6: between the commits of the two, the answer of one is lost."""
    monkeypatch.setenv("RELIABILITY_DSN_EAST", "service=of_the_users")
    monkeypatch.setenv("RELIABILITY_EXECUTOR_DSN_EAST", "service=of_the_users")
    monkeypatch.setenv("RELIABILITY_CREDENTIALS", "of_the_users:password")
    with kit.anew(Fault(FaultKind.LOST, "save_checkpoint", 2)) as own:
        own.run(in_two_databases())
        assert own.faults.has_fired
        tables = own.tables()
    assert tables["words"] == tables["there"] == {"word=cat, n=2": 1, "word=dog, n=1": 1}
    assert os.environ["RELIABILITY_DSN_EAST"] == "service=of_the_users"


def test_two_runs_of_tests_with_one_pid_share_a_server(kit):
    with closing(TestServer(kit.server.dsn)) as other, other.ledger() as dsn:
        assert dsn != os.environ["RELIABILITY_DSN"]


def test_a_run_leaves_rows_and_a_replay_changes_nothing(kit):
    """States of one name are told apart, bytes are compared, and a clear runs today's code."""
    hourly = {"emit_interval_seconds": 3600, "checkpoint_interval_seconds": 3600}
    rare = replace(words(as_they_are, batches=2), name="rare", **hourly)
    rare = replace(rare, states=[replace(rare.states[0], table="rare")])
    assert kit.run(rare) == [1, 2]
    rows = sorted((row["word"], row["n"]) for row in kit.rows("words"))
    assert rows == [("cat", 4), ("dog", 2)]
    one = words(lambda batch: {"words": batch.selectExpr("encode(word, 'UTF-8') AS word")})
    of_bytes = replace(one, states=[replace(one.states[0], key={"word": "bytea"})])
    assert kit.run(of_bytes) == [1]
    kit.assert_replay_changes_nothing()
    found = {(row["word"], row["n"]) for row in kit.rows("words.words")}
    assert found == {(b"cat", 2), (b"dog", 1)}
    with pytest.raises(LookupError, match=r"there are \['rare.words', 'words.words'\]"):
        kit.rows("words")
    corrected = words(lambda batch: {"words": batch.selectExpr("X'00' AS word")})
    kit.run(replace(corrected, states=of_bytes.states))
    kit.clear()
    assert kit.tables()["words.words"] == {r"word=b'\x00', n=3": 1}


def test_a_state_without_history_is_tried_as_far_as_it_can_be(kit, monkeypatch):
    """R1: a fault in the last task is no clear of those before it."""
    last = Fault(FaultKind.LOST, "record_tasks_ended", 1)
    monkeypatch.setattr(Faults, "possible", lambda self: [last])
    bare = TransactionalState("words", key={"word": "text"}, values={"n": Count()})
    assert assert_exactly_once(kit, replace(words(as_they_are), states=[bare])) == [str(last)]


@pytest.mark.slow
def test_whatever_dies_the_tables_are_those_of_a_clean_run(kit):
    """G1, G8: at each change of the ledger, before it and after it."""
    tried = assert_exactly_once(kit, words(as_they_are))
    assert len(set(tried)) == len(tried) > 20
    dies, lost = "the process dies before", "the answer is lost after"
    assert {f"{dies} complete_emission", f"{lost} claim_step", f"{dies} end_seal"} <= {*tried}
    assert "a rollback of all txids and a clear of all runs" in tried


OWN = """
    import os, pytest
    from reliability import Sum
    from tests.integration.test_pipeline_kit import as_they_are, with_a_weight, words

    @pytest.mark.faultpoints
    def test_right(pipeline):
        print("called")
        pipeline.run(words(as_they_are))
        assert len(pipeline.rows("words")) == 2

    @pytest.mark.faultpoints
    def test_wrong(pipeline):
        pipeline.run(words(with_a_weight, weight=Sum("weight", "bigint")))

    @pytest.mark.faultpoints
    def test_without_the_fixture():
        pass

    def test_of_the_users():
        assert os.environ["RELIABILITY_CREDENTIALS"] == "of_the_users:password"
"""


@pytest.mark.slow
def test_the_plugin_calls_a_marked_test_again_for_each_fault(environment, tmp_path):
    """In a pytest of its own, which finds the plugin as people's does."""
    (tmp_path / "test_own.py").write_text(textwrap.dedent(OWN))
    # whatever Python PATH has
    env = {**os.environ, TEST_DSN: "service=admin dbname=postgres", "PATH": "/usr/bin:/bin"}
    env.pop("PYSPARK_PYTHON", None)
    env["RELIABILITY_CREDENTIALS"] = "of_the_users:password"
    call = [sys.executable, "-m", "pytest", "-rP", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("called\n") > 20
    assert "state words lacks word=" in done.stdout
    assert "needs the fixture `pipeline`" in done.stdout


def test_each_call_finds_its_folder_as_the_first_one_did(tmp_path, monkeypatch):
    """A late file that a test delivers was there from the start in the second call."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "first").touch()
    monkeypatch.chdir(tmp_path / "input")
    with _put_back(tmp_path) as put_back:
        (tmp_path / "input" / "late").touch()
        (tmp_path / "input" / "first").unlink()
        put_back()
    assert [path.name for path in tmp_path.rglob("*")] == ["input", *os.listdir()]
    assert os.listdir() == ["first"]


def test_a_process_function_that_cannot_be_repeated_is_found(kit):
    topology = words(with_a_weight, weight=Sum("weight", "bigint"))
    with pytest.raises(AssertionError, match=r"state words lacks word=.*rows are missing"):
        try_faults(kit, lambda own: own.run(topology))
    kit.run(topology)
    with pytest.raises(AssertionError, match=r"after a replay, state words lacks.* random number"):
        kit.assert_replay_changes_nothing()


def test_a_fault_that_does_not_come_is_no_proof_and_null_is_no_text(kit):
    never = Fault(FaultKind.DIES, "no_such_change", 1)
    with kit.anew(never) as own:
        own.run(words(lambda batch: {"words": batch.selectExpr("nullif(word, 'dog') AS word")}))
        assert not own.faults.has_fired
        assert own.tables()["words"] == {"word=cat, n=2": 1, "word is NULL, n=1": 1}
    assert str(never) == "the process dies before no_such_change"


def test_what_cannot_be_tried_is_refused_and_what_a_run_fails_with_is_told(kit, tmp_path):
    """Where nothing is processed, nothing is shown: a wrong date or folder was green."""

    def fails(batch):
        raise ValueError("no such column")

    nothing = FileSpout(f"{tmp_path}/*.parquet", schema="word string", allow_empty=True)
    empty = replace(words(fails), spout=nothing)
    assert kit.run(empty) == []
    for show in (kit.assert_replay_changes_nothing, lambda: assert_exactly_once(kit, empty)):
        with pytest.raises(AssertionError, match="nothing was processed, so nothing is shown"):
            show()
    with pytest.raises(InvalidDefinition, match="leave it out"):
        kit.run(words(as_they_are), interval="2026-01")
    with pytest.raises(ProcessFunctionFailed, match="no such column"):
        kit.run(words(fails))
