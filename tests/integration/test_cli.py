"""The command line on a real ledger; only the last test runs spark-submit."""

from __future__ import annotations

import csv
import importlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar
from unittest import mock
from urllib.parse import unquote, urlsplit

import psutil
import pytest
from typer.testing import CliRunner

from dev.services.processes import wait_until
from reliability import History
from reliability.cli import app, doctor
from reliability.cli.doctor import CheckResult, CheckStatus, language
from reliability.cli.output import plain
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import (
    LedgerBusy,
    LedgerUnavailable,
    NothingToEmit,
    NothingToReplay,
    SourceChanged,
)
from reliability.core.remedy import Remedy
from reliability.core.request import TaskTry
from reliability.deployment import airflow_connections
from reliability.deployment.address import address_of
from reliability.deployment.lazy import pq
from reliability.deployment.topologies import load_topology
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrations
from reliability.states.headers import RESTORE_ROWS
from reliability.transaction import run as transaction_run
from reliability.transaction.commit.committer import drain
from reliability.transaction.correct.resume_runs import undone_of_dag
from reliability.transaction.emit.requests import Run, TaskContact, contact_in, record_problem
from reliability.transaction.inspect.attempt_report import PHASES, attempt_report
from reliability.transaction.maintain import compaction
from reliability.transaction.topology.alter import alter
from spark_apps import global_count
from tests.replay.shop import Shop, made, states
from tests.support.command_line import by_me, read, say
from tests.support.doomed import doomed
from tests.support.fix_page import shop_named
from tests.support.fix_pipeline import january, month, pipeline_of, write_parquet
from tests.support.fix_postgres import ROOT, database_of, execute, new_database, rows, run_as_admin

MODULE = "tests.replay.shop"


def two_states(elsewhere=""):
    """A state that is swapped exactly, and appended rows."""
    return [state for state in states() if state.name in ("exact", "log")]


def shop_of_two(connection):
    return Shop(connection, kinds=two_states)


@pytest.fixture
def origin(shop_databases, template, request):
    return shop_databases(3, shop_of_two) if "shop" in request.fixturenames else template


@pytest.fixture
def shop(connection, monkeypatch):
    """Three txids, committed; its code is found by its module, and Spark is left out."""
    shop = shop_of_two(connection).with_first(3)
    find(shop, monkeypatch)
    return shop


def find(shop, monkeypatch):
    monkeypatch.setattr(f"{MODULE}.topology", shop.topology, raising=False)
    submit_by(monkeypatch, shop.write)


def submit_by(monkeypatch, write):
    one_at_a_time = threading.Lock()  # the shop's session is no other thread's

    def run_step(grant, step, is_wanted):
        with one_at_a_time:
            write(grant)

    monkeypatch.setattr("reliability.cli.replay.steps_of", lambda *chosen: run_step)


# --- keeping house, and what was there before ----------------------------------------------------


@pytest.fixture
def empty(environment):
    """An empty database."""
    with new_database() as dsn:
        yield dsn


def test_an_error_says_what_to_do_and_a_database_is_migrated(empty, examined, monkeypatch):
    """Also another one, by its name."""
    monkeypatch.setenv("RELIABILITY_DSN", empty)
    said = say("status", code=1)
    assert said.stdout == ""
    assert "[LEDGER_NOT_MIGRATED]" in said.stderr
    assert "reliability migrate" in said.stderr
    found = examined()["database of the ledger"]
    assert found["verdict"] == "FAIL"
    assert "reliability migrate" in found["todo"]
    assert f"applied {len(migrations()):04d}" in say("migrate").stdout
    assert "up to date" in say("migrate").stdout
    assert read("status") == []
    with new_database() as mart:
        monkeypatch.setenv("RELIABILITY_DSN_MART", mart)
        assert "applied 0001_topology" in say("migrate", "--database", "mart").stdout


#: Verbs, with what comes behind the topology's name.
ABOUT_NOBODY = """
    sweep | topologies | show 1 | lag | explain s | verify | verify --repair | compact | replay 1
    pause --reason x | resume | rollback 1 --reason x --yes | release | park 1 --reason x --yes
    skip 1 --reason x --yes | unskip 1 --reason x | drop --yes
    exclude a.csv --reason x --yes | include a.csv --reason x
"""


def test_a_mistyped_name_is_said_to_be_one(connection):
    for called in re.split(r"[|\n]", ABOUT_NOBODY.strip()):
        verb, *options = called.split()
        assert "[TOPOLOGY_UNKNOWN]" in say(verb, "nosuch", *options, code=1).stderr, called


# --- reading -------------------------------------------------------------------------------------


def test_where_a_topology_stands_and_what_it_is(shop):
    assert "shop: 0 leases expired" in say("sweep").stdout
    (standing,) = read("status")
    assert (standing["emitted"], standing["committed"], standing["commit_number"]) == (3, 3, 3)
    assert (standing["blocked"], standing["held"], standing["parked"]) == (None, [], [])
    (one,) = read("topologies")
    assert (one["module"], one["spout_kind"], one["databases"]) == (MODULE, "TRANSACTIONAL", [])
    tables = [(s["state"], s["table"]) for s in one["states"]]
    assert tables == [("exact", "public.exact"), ("log", "public.log")]
    assert "window [4, 7)" in say("topologies", "shop").stdout
    said = say("pause", "shop", "--reason", "the disk is full").stdout
    assert said == "shop is paused: the disk is full\n"
    assert "shop is paused: the disk is full" in say("status").stdout
    assert read("status")[0]["paused"] == by_me("the disk is full")
    assert "is resumed" in say("resume", "shop").stdout
    assert shop.ask("SELECT paused_reason FROM reliability.topology") == [(None,)]
    shop.source.sizes.append(5)  # what an untimed spout has not emitted is no failure
    (one,) = read("lag", "--fail-after", "0")
    assert [(w["interval"], w["rows"]) for w in one["without_txid"]] == [(None, 5)]


def test_any_terminal_gets_the_whole_answer_and_nothing_that_others_print(shop, monkeypatch):
    """Airflow, which is asked for the ledger's connection, logs to the standard output.

    The terminal of a cron job may lack characters.
    """
    module = importlib.import_module("reliability.cli.app")  # the name `app` is the command line's
    opened = module.open_ledger

    def talkative(*arguments, **named):
        print("Connection Retrieved")
        logging.StreamHandler(sys.stdout).handle(logging.makeLogRecord({"msg": "committed"}))
        return opened(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(module, "open_ledger", talkative)
        said = say("status", "--json")
    assert said.stderr.split() == ["Connection", "Retrieved", "committed"]
    assert json.loads(said.stdout)
    say("pause", "shop", "--reason", "Zoë → night")
    assert r"Zo\xeb \u2192 night" in CliRunner(charset="ascii").invoke(app, ["status"]).stdout


def test_the_time_of_an_attempt_is_divided_into_phases_and_a_topologys_into_percentiles(shop):
    [timing] = read("show", "1:0", "--timing")
    assert timing.pop("attempt") == "1:0"
    phases = [name for name in PHASES if name not in ("emit", "total") and timing[name] is not None]
    assert {"stage", "seal", "wait", "commit"} <= {*phases}
    assert all(timing[name] >= 0 for name in phases)
    assert sum(timing[name] for name in phases) <= timing["total"]
    said = say("show", "shop", "1", "--timing").stdout
    assert all(name in said for name in PHASES)
    assert "1:0 COMMITTED" in said
    assert "no attempt 1:7" in say("show", "1:7", "--timing", code=1).stderr

    found = {row["phase"]: row for row in read("show", "shop", "--timing")}
    assert list(found) == list(PHASES)
    assert list(found["emit"]) == ["phase", "attempts", "median", "p90", "longest"]
    commit = found["commit"]
    assert commit["attempts"] == 3
    assert 0 < commit["median"] <= commit["p90"] <= commit["longest"]
    assert f"{commit['p90']:.2f}" in say("show", "--timing").stdout
    assert "--timing takes" in say("show", "--timing", "--interval", "2013", code=2).stderr
    for refused in (("nonsense", "--timing"), ("0", "--timing"), ("1:x", "--timing"), ()):
        assert "write 7:2, shop 7:2" in say("show", "shop", *refused, code=2).stderr


def test_the_story_of_a_row_of_an_attempt_and_of_a_txid(shop):
    word, n = shop.ask("SELECT word, n FROM exact WHERE k IS NULL ORDER BY word LIMIT 1")[0]
    asked = ("explain", "shop", "exact", "k", f"word={word}")
    told = read(*asked)
    assert told["row"]["n"] == n == sum(one["values"]["n"] for one in told["contributions"])
    assert {one["dag_id"] for one in told["contributions"]} == {"shop"}
    said = say(*asked).stdout
    assert f"now: k NULL, word {word}, n {n}" in said
    assert "run 1" in said
    none = "no txid has contributed to such a row, and the table has none"
    assert none in say("explain", "shop", "exact", "k=99", "word=a").stdout
    assert "[EXPLAIN_NOT_POSSIBLE]" in say("explain", "shop", "exact", "k=1", code=1).stderr
    assert "k is there twice" in say("explain", "shop", "exact", "k=1", "k=2", code=2).stderr
    told = say("explain", "shop", "exact", "k=99", "word=a", "--file", "*").stdout
    assert "unless that was folded" in told
    for k in ("abc", "9" * 30):  # it was said that a constraint or a trigger refuses the rows
        said = say("explain", "shop", "exact", f"k={k}", "word=a", code=1).stderr
        assert "correct what you have typed" in said
    assert "no state has a horizon" in say("compact").stdout

    shop.correct(2, made(102))
    report = attempt_report(shop.connection, "shop", TransactionAttempt(2, 1))
    told = json.loads(json.dumps(report, default=plain))
    expected = {**told, "outdated_code": None, "interval": None}
    assert read("show", "2:1") == read("show", "shop/2:1") == expected
    said = say("show", "shop", "2:1").stdout
    assert "COMMITTED as c=4" in said
    assert "replaced   2:0" in said
    assert re.search(r"\nitems\n  memory:\d:0, 6 rows\n", said)
    assert max(map(len, said.splitlines())) <= 80
    txid = read("show", "shop", "2")
    attempts = [(a["attempt"], a["status"]) for a in txid["attempts"]]
    assert attempts == [("2:0", "REPLACED"), ("2:1", "COMMITTED")]
    assert [r["kind"] for r in txid["requests"]] == ["COMMIT", "REPLAY"]
    changes = [(c["kind"], c["replaced"]) for c in txid["changes"]]
    assert changes == [("COMMIT", None), ("REPLAY", "2:0")]
    assert {d["state"] for d in txid["differences"]} == {"exact", "log"}
    assert "2:1 changed\n  exact: " in say("show", "2").stdout
    for unknown in ("9", "2:9"):
        assert "[ATTEMPT_UNKNOWN]" in say("show", unknown, code=1).stderr
    execute(shop.connection, "INSERT INTO reliability.topology (topology, max_spout_pending)"
                             " VALUES ('other', 1)")  # fmt: skip
    assert "other, shop" in say("show", "2:1", code=2).stderr


@pytest.mark.parametrize("verb", ["compact", "sweep"])
def test_a_state_that_goes_beside_a_compaction_is_left(connection, monkeypatch, verb):
    def kinds(elsewhere):
        exact = replace(two_states()[0], keep=History(txids=1))
        return [exact, replace(exact, name="gone")]

    shop = Shop(connection, kinds=kinds)
    shop.commit_first(3)
    compact = compaction._compact

    def beside_an_alteration(databases, compacted, *more):
        if compacted.state == "gone":
            with LedgerConnection(connection.dsn) as other:
                alter(other, replace(shop.topology, states=shop.topology.states[:1]), "not needed")
        return compact(databases, compacted, *more)

    monkeypatch.setattr(compaction, "_compact", beside_an_alteration)
    assert "shop" in say(verb, "shop").stdout
    assert [state["state"] for state in read("topologies")[0]["states"]] == ["exact"]


def test_what_is_beyond_the_horizon_is_compacted(connection):
    def kinds(elsewhere):
        return [replace(two_states()[0], keep=History(txids=1))]

    Shop(connection, kinds=kinds).commit_first(3)
    (one,) = read("compact")
    assert (one["topology"], one["state"], one["through"], one["txids"]) == ("shop", "exact", 2, 2)
    assert "exact" in say("compact", "shop").stdout
    assert "0 txids compacted" in say("sweep").stdout
    assert read("topologies")[0]["states"][0]["compacted_through"] == 2
    assert read("verify")[0]["is_exact"]


PIPELINE = """
from tests.support.fix_pipeline import shop
from dataclasses import replace
topology = replace(shop({folder!r}), module="pipeline_of_cli")
"""


def test_files_that_came_late_are_lag(connection, tmp_path, monkeypatch):
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "pipeline_of_cli", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    pipeline = tmp_path / "pipeline_of_cli.py"
    pipeline.write_text(PIPELINE.format(folder=str(tmp_path)))
    write_parquet(tmp_path / "1997-01" / "a.parquet", [{"customer": 1}])
    pipe = pipeline_of(load_topology("pipeline_of_cli", "shop"), connection)
    assert pipe.emit(january()) == [1]

    sys.path.remove(str(tmp_path))  # the verb finds it by itself
    del sys.modules["pipeline_of_cli"]
    (one,) = read("lag")
    assert str(tmp_path) in sys.path[-2:]  # last: no file there is taken for one of Python's own
    assert (one["uncommitted"], one["txids"], one["without_txid"]) == (1, "1", [])
    assert one["oldest_age_seconds"] > 0
    say("lag", "--fail-after", "3600")
    say("lag", "--fail-after", "0", code=3)
    write_parquet(tmp_path / "1997-01" / "late.parquet", [{"customer": 2}, {"customer": 3}])
    (late,) = read("lag", "--fail-after", "3600", code=3)[0]["without_txid"]
    assert late["interval"] == "1997-01"
    assert (late["items"], late["rows"]) == (["1997-01/late.parquet"], 2)
    assert "2 rows in 1 items" in say("lag", "shop").stdout
    assert one["looked_from"] is None

    write_parquet(tmp_path / "1997-02" / "a.parquet", [{"customer": 1}])
    pipe.again("second").emit(month(1997, 2))
    (one,) = read("lag", "--last", "1")
    assert (one["looked_from"], one["without_txid"]) == ("1997-02-01T00:00:00+00:00", [])
    assert "looked at intervals from 1997-02-01" in say("lag", "--last", "1").stdout
    assert len(read("lag", "--last", "0")[0]["without_txid"]) == 1

    (tmp_path / "1997-02" / "b.parquet").write_bytes(b"no Parquet")
    say("lag", "--fail-after", "3600", "--last", "1", code=3)
    pipeline.write_text("1 / 0")
    del sys.modules["pipeline_of_cli"]
    (one,) = read("lag")
    assert one["without_txid"] is None
    assert "ZeroDivisionError" in one["source_error"]
    assert "[TOPOLOGY_NOT_FOUND]" in say("replay", "shop", "1", code=1).stderr


HEAVY = ("pyspark", "airflow", "pyarrow", "numpy", "pandas", "urllib.request")
VERBS = (["status"], ["status", "--json"], ["show", "2:0"])
WHICH = f"""
import sys
from reliability.cli import app
for arguments in {VERBS}:
    app(arguments, standalone_mode=False)
    print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)
"""


def test_a_verb_imports_what_it_needs(shop):
    command = [sys.executable, "-c", WHICH]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr.split("\n") == ["[]"] * len(VERBS) + [""]
    assert "\x1b" not in done.stdout  # no colours where nobody looks
    assert "…" not in done.stdout


# --- replay --------------------------------------------------------------------------------------


def rows_of_csv(path):
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return [{**row, "txid": int(row["txid"]), "row": json.loads(row["row"])} for row in rows]


def rows_of_jsonl(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows_of_parquet(path):
    return [{**row, "row": json.loads(row["row"])} for row in pq.read_table(path).to_pylist()]


def test_a_dry_run_tells_row_by_row_what_would_change_and_changes_nothing(shop, tmp_path):
    shop.makes[2] = made(102)
    before = shop.tables()
    readers = {"csv": rows_of_csv, "jsonl": rows_of_jsonl, "parquet": rows_of_parquet}
    found = {}
    for ending, reader in readers.items():
        file = tmp_path / f"rows.{ending}"
        said = say("replay", "shop", "2..3", "--dry-run", "--diff", str(file)).stdout
        found[ending] = reader(file)
        assert f"{len(found[ending])} rows are in {file}" in said
    would = found["csv"]
    assert would == found["jsonl"] == found["parquet"]
    assert "3:3 would change\n  nothing" in said
    say("replay", "shop", "2", "--dry-run", "--diff-table", "public.found")
    asked = "SELECT topology, txid, state, change, row FROM public.found"
    names = ("topology", "txid", "state", "change", "row")
    assert [dict(zip(names, row, strict=True)) for row in shop.ask(asked)] == would
    assert shop.tables() == before
    assert list(tmp_path.glob(".*")) == []
    (folder := tmp_path / "b.csv").mkdir()
    for file, code, why in (("/proc/a.csv", 1, "into /proc/a.csv"), (folder, 2, "names a folder")):
        assert why in say("replay", "shop", "2", "--dry-run", "--diff", str(file), code=code).stderr

    # and the replay does what was said, and says it again
    did = tmp_path / "did.csv"
    told = read("replay", "shop", "2", "--diff", str(did))["replayed"][0]["differences"]
    assert rows_of_csv(did) == would
    exact, log = ((d["rows_added"], d["rows_changed"], d["rows_removed"]) for d in told)
    changes = [(row["state"], row["change"]) for row in would]
    for state, counts in (("exact", exact), ("log", log)):
        kinds = ("added", "changed", "removed")
        assert counts == tuple(changes.count((state, kind)) for kind in kinds)
    now = {(row[0], row[1]): row[2] for row in shop.tables()["exact"]}
    for row in would:
        if row["state"] == "exact" and row["change"] != "removed":
            assert now[(row["row"]["k"], row["row"]["word"])] == row["row"]["n_after"]
    back = ("rollback", "shop", "1", "--reason", "x", "--yes")
    no_table = 'no rows can be written into gone.found: schema "gone" does not exist'
    assert no_table in say(*back, "--diff-table", "gone.found", code=1).output
    for ending in readers:  # on a full disk, what was done is told
        (tmp_path / f".full.{ending}.draft").symlink_to("/dev/full")
        file = tmp_path / f"full.{ending}"
        said = say(*back, "--dry-run", "--diff", str(file), code=1)
        assert ("would be rolled back" in said.stdout) is (ending != "parquet")  # it writes at once
        assert f"no rows can be written into {file}: " in said.stderr
    (tmp_path / ".rows.csv.draft").symlink_to("/dev/full")
    with mock.patch("tempfile.TemporaryDirectory", return_value=nullcontext(str(tmp_path))):
        said = say(*back, "--dry-run", "--diff-table", "public.found", code=1)
    assert "would be rolled back" in said.stdout
    assert "rows.csv: No space left on device" in said.stderr
    assert list(tmp_path.glob("*full*")) == []
    with mock.patch("reliability.cli.parts.show", side_effect=SystemExit(1)):  # nobody reads it
        say("replay", "shop", "2", "--dry-run", "--diff", str(file), code=1)
        say(*back, "--diff", str(did), code=1)  # nothing was done before
    assert file.exists()
    assert {row["change"] for row in rows_of_csv(did)} >= {"removed"}


def test_a_replay_that_fails_says_what_is_done_and_leaves_nothing_open(shop, tmp_path, monkeypatch):
    """A dry run leaves no file of what it has not found out."""

    def write(grant):
        if grant.attempt.txid == 2:
            raise RuntimeError("exit code 1")
        shop.write(grant)

    submit_by(monkeypatch, write)
    before = shop.tables()
    file = tmp_path / "rows.csv"
    file.write_text("of yesterday")
    said = say("replay", "shop", "2", "--dry-run", "--diff", str(file), code=1)
    assert "[ATTEMPT_INCOMPLETE]" in said.stderr
    assert "txid 2 not replayed, 0 tried before; a dry run commits nothing" in said.stderr
    assert file.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [file]

    # otherwise 3 may have committed when 2 fails
    execute(shop.connection, "UPDATE reliability.topology SET max_replay_pending = 1")
    said = say("replay", "shop", "1..3", code=1)
    assert "txids 2..3 not replayed, 1 replayed before" in said.stderr
    assert "[ATTEMPT_INCOMPLETE] txid 2: attempt 2:2" in said.stderr
    assert shop.tables() == before
    asked = "SELECT txid, status FROM reliability.request WHERE dag_id = 'cli' ORDER BY request_id"
    closed = [(2, "CLOSED"), (2, "CLOSED"), (3, "CLOSED")]
    assert sorted(shop.ask(asked)) == [(1, "SATISFIED"), *closed]
    asked = "SELECT status FROM reliability.attempt WHERE txid = 2 ORDER BY attempt_id"
    assert shop.ask(asked) == [("COMMITTED",), ("FENCED",), ("FENCED",)]
    # no alert begins that only another replay could end
    assert shop.connection.all("runs_without_their_txids") == []


def test_a_replay_is_a_request_of_its_own_and_says_what_it_changed(shop, monkeypatch):
    shop.makes[2] = made(102)
    said = say("replay", "shop", "2,3", "--reason", "it was net")
    assert said.stdout.startswith("2:1 changed\n  exact: ")
    assert said.stdout.endswith("3:1 changed\n  nothing\n")
    assert "attempt 2:1: step process runs on Spark" in said.stderr
    *_, asked = read("show", "2")["requests"]
    assert (asked["dag_id"], asked["kind"], asked["status"]) == ("cli", "REPLAY", "SATISFIED")
    assert asked["reason"] == "it was net"
    assert asked["run_id"].startswith("cli ")

    # a sweep may pass between the seal and the commit
    def drained_by_another(*which, **options):
        drain(*which, **options)
        return []

    shop.makes[2] = made(202)
    with monkeypatch.context() as patch:
        patch.setattr(transaction_run, "drain", drained_by_another)
        assert say("replay", "shop", "2").stdout.startswith("2:2 changed\n  exact: ")

    # several are replayed at once: a year of months, one after another, took a night
    together = threading.Barrier(3, timeout=60)
    write = threading.Lock()

    def run_step(grant, step, is_wanted):
        together.wait()
        with write:
            shop.write(grant)

    monkeypatch.setattr("reliability.cli.replay.steps_of", lambda *chosen: run_step)
    said = say("replay", "shop", "1..3")
    changed = [line for line in said.stdout.splitlines() if line.endswith("changed")]
    assert changed == ["1:1 changed", "2:3 changed", "3:2 changed"]
    assert "3 of 3 txids are done" in said.stderr


def test_an_exchanged_source_is_seen_before_it_is_frozen_anew_when_a_person_says_so(shop):
    """The one way to see what a corrected file changes was to let it count.

    Of what had not committed, SOURCE_CHANGED said to replay it, and that was refused.
    """
    before = shop.tables()
    shop.source.sizes[1] = 8
    shop.makes[2] = made(9, rows=8)
    assert "[SOURCE_CHANGED]" in say("replay", "shop", "2", code=1).stderr
    would = say("replay", "shop", "2", "--refreeze", "--dry-run").stdout
    assert "2:2 would change" in would
    assert (shop.tables(), read("show", "2")["refreezes"]) == (before, [])
    done = say("replay", "shop", "2", "--refreeze", "--reason", "a wrong delivery").stdout
    assert done == would.replace("2:2 would change", "2:3 changed")
    assert [one["reason"] for one in read("show", "2")["refreezes"]] == ["a wrong delivery"]
    assert "a wrong delivery" in say("show", "2").stdout

    shop.deliver(made(4))
    shop.source.sizes[3] = 8
    shop.makes[4] = made(9, rows=8)
    with pytest.raises(SourceChanged, match="--refreeze"):
        shop.transact(4)
    shop.runner.close(4, shop.run_of(4), ENDED)
    assert "[SOURCE_CHANGED]" in say("status").stdout
    options = ["--refreeze", "--reason", "a wrong delivery"]
    refused = say("replay", "shop", "4,99", *options, code=1).stderr
    assert "shop has never emitted txid 99" in refused
    assert read("show", "4")["refreezes"] == []  # nothing was done
    said = say("replay", "shop", "2,4", *options).stdout
    assert "2:4 changed" in said
    assert "txid 4 not committed yet. Next:\n  reliability resume-runs shop " in said
    assert "  clear run 'run 4' of DAG shop in Airflow: txid 4" in said
    said = say("status").stdout  # it no longer asks for a refreeze
    assert "is blocked: refrozen since its last attempt" in said
    assert "reliability resume-runs shop" in said
    found = read("replay", "shop", "4", *options)
    assert (found["replayed"], found["to_clear"][0]["txids"]) == ([], "4")
    shop.do_again(4)
    assert shop.ask("SELECT sum(n)::int FROM exact") == [(6 + 8 + 6 + 8,)]
    assert "[NOTHING_TO_REPLAY]" in say("replay", "shop", "5", *options, code=1).stderr


def test_a_replay_waits_for_another_run_as_long_as_it_may_and_refuses_what_has_not_committed(shop):
    shop.deliver(made(4))
    said = say("replay", "shop", "3..5", code=1)
    assert "has not committed txid 4, and has never emitted txid 5" in said.stderr
    assert shop.ask("SELECT * FROM reliability.request WHERE dag_id = 'cli'") == []
    shop.clear(2)
    shop.begin(2)
    said = say("replay", "shop", "2", "--timeout", "0", code=1)
    assert "[RUN_UNSATISFIED] txid 2: it has waited 0 s for attempt 2:1" in said.stderr
    asked = "SELECT status FROM reliability.attempt WHERE txid = 2 ORDER BY attempt_id"
    assert shop.ask(asked) == [("COMMITTED",), ("PROCESSING",)]


# --- rollback, release, park, skip ---------------------------------------------------------------


def test_what_was_done_before_a_rollback_still_reads_as_done(shop):
    """H4: finished dry runs and replays read "CLOSED", with the rollback's reason as theirs."""
    say("replay", "shop", "3", "--dry-run")
    shop.makes[3] = made(103)
    say("replay", "shop", "3", "--reason", "it was net")
    say("rollback", "shop", "1", "--reason", "back to April", "--yes")
    requests = read("show", "3")["requests"]
    asked = [(one["kind"], one["is_dry_run"], one["status"]) for one in requests]
    dry_run = ("REPLAY", True, "SATISFIED")
    assert asked == [("COMMIT", False, "CLOSED"), dry_run, ("REPLAY", False, "CLOSED")]
    said = say("show", "3").stdout
    assert re.search(r"a commit that run .* asked for was done, and is rolled back", said)
    assert re.search(r"a replay that run .* asked for was done, and is rolled back", said)
    assert "asked for a dry run of a replay" in said
    assert f"{by_me('back to April')} (requested because: it was net)" in said


def undone(shop):
    with shop.connection.transaction() as tx:
        runs = undone_of_dag(tx, "shop", "shop")
    return {txid: row["reason"] for row in runs for txid in row["undone"]}


FAIL = (
    "UPDATE reliability.attempt SET status = 'FAILED', reason_code = 'X',"
    " reason = 'an old failure', ended_at = now() WHERE txid = 4 AND status = 'PROCESSED'"
)
ENDED = "its tasks ended without it"


def go_back(shop, txid):
    """Roll back, and release what was held."""
    say("rollback", "shop", str(txid), "--reason", "back to April", "--yes")
    say("release", "shop")


def test_a_run_is_undone_because_of_what_happened_last(shop):
    """resume-runs quoted failures that a commit had settled before the rollback."""
    shop.deliver(made(4))
    shop.process(4)
    shop.clear(4)
    execute(shop.connection, FAIL)
    assert shop.runner.close(4, shop.run_of(4), ENDED)
    assert undone(shop) == {4: "an old failure"}
    shop.do_again(4)
    go_back(shop, 3)
    assert undone(shop) == {4: by_me("back to April")}
    shop.clear(4)
    shop.process(4)
    shop.clear(4)
    execute(shop.connection, FAIL)
    go_back(shop, 2)
    assert undone(shop) == dict.fromkeys([3, 4], by_me("back to April"))


def test_what_a_request_met_before_a_rollback_or_a_refreeze_is_no_reason_after_it(shop):
    def meet_a_problem():
        shop.clear(3)
        request = shop.runner.contact(3, shop.who(3))
        remedy = Remedy("see {file} of {topology}, and {release}.", {"file": "{2}.csv"})
        problem = SourceChanged("2.csv is another one", remedy=remedy)
        record_problem(shop.connection, request.request_id, problem)
        shop.runner.close(3, shop.run_of(3), ENDED)

    def blocked():
        return read("status")[0]["blocked"]

    meet_a_problem()
    go_back(shop, 2)
    assert blocked()["reason"].startswith("released after a rollback")
    meet_a_problem()
    assert blocked()["reason"] == "2.csv is another one"
    todo = "see {2}.csv of shop, and `reliability release shop`."
    assert blocked()["todo"].startswith(f"{todo} Then")
    assert f"{todo} Then" in " ".join(say("status").stdout.split())
    shop.source.sizes[2] = 3
    shop.runner.refreeze(3, "delivered again")
    assert blocked()["reason"].startswith("released after a rollback")


def test_a_commit_after_a_rollback_has_no_reason_of_what_was_done_before(shop):
    """Airflow keeps the conf: a later commit carried the reason of an earlier backfill's replay."""
    why = "the price was net"

    def ask_again():
        shop.clear(3)
        shop.runner.contact(3, replace(shop.who(3), reason=why))
        shop.transact(3)

    ask_again()
    go_back(shop, 2)
    ask_again()
    ask_again()
    reasons = [one["reason"] for one in read("show", "3")["requests"]]
    back = by_me("back to April")
    assert reasons == [back, f"{back} (requested because: {why})", None, why]


def test_a_rollback_asks_first_holds_and_is_released(shop, tmp_path):
    before = shop.tables()
    back = ("rollback", "shop", "1", "--reason", "a wrong delivery")
    would = read("rollback", "shop", "1", "--dry-run")
    assert would == read(*back, "--dry-run")
    assert (would["is_dry_run"], would["held"], would["commit_number"]) == (True, "2..3", None)
    file = tmp_path / "rows.csv"
    say(*back, "--dry-run", "--diff", str(file))
    counts = [sum(v for k, v in d.items() if k.startswith("rows_")) for d in would["differences"]]
    assert len(rows_of_csv(file)) == sum(counts)
    said = say(*back, input="n\n", code=1)
    assert "The 2 txids after it, txids 2..3, are taken out and held" in said.stderr
    assert "log: 12 rows removed" in said.stderr
    assert shop.tables() == before
    said = say(*back, input="y\n").stdout
    assert "shop was rolled back to txid 1 as c=4" in said
    assert "  reliability release shop\n" in said
    assert len(shop.tables()["log"]) == 6
    assert "do nothing: no later txid counts" in say(*back, "--yes", code=1).stderr  # it is done
    (standing,) = read("status")
    assert standing["held"] == [{"reason": by_me("a wrong delivery"), "count": 2, "txids": "2..3"}]
    assert standing["blocked"]["txid"] == 2
    assert "shop: txids 2..3 are held" in say("status").stdout
    assert [c["kind"] for c in read("show", "3")["changes"]] == ["COMMIT", "ROLLBACK"]

    said = say("release", "shop", "3,9")
    assert "txid 9 not held" in said.stderr
    assert "clear run 'run 1' of DAG shop in Airflow: txid 3, and replays txid 1" in said.stdout
    assert "  reliability resume-runs shop " in said.stdout
    released = read("release", "shop")
    assert released["released"] == "2"
    assert [(run["dag_id"], run["txids"]) for run in released["runs"]] == [("shop", "2")]
    assert "no txid of shop was held" in say("release", "shop").stdout
    assert "a wrong delivery" not in say("status").stdout  # why it was rolled back
    assert "txid 2 (run run 1) is blocked: released after a rollback, and no run has" in (
        say("status").stdout
    )
    assert "[ROLLBACK_NOT_POSSIBLE]" in say(*back, "--yes", code=1).stderr


DATED = (
    "UPDATE reliability.transaction SET interval_start = %(start)s, interval_end = %(end)s"
    " WHERE txid = %(txid)s"
)


def test_a_rollback_to_an_interval_names_what_its_date_does_not_say(shop):
    """A backfill had emitted August before February: August stayed, and January was taken out."""
    for txid, number in ((1, 8), (2, 2), (3, 1)):
        of = month(2013, number)
        execute(shop.connection, DATED, start=of.start, end=of.end, txid=txid)
    lines = (
        "Txids follow the order of emission, not of dates:\n"
        "  later intervals that stay: 2013-08 (txid 1)\n"
        "  earlier intervals that go: 2013-01 (txid 3)\n"
    )
    before = shop.tables()
    back = ("rollback", "shop", "--interval", "2013-02", "--reason", "x")
    assert f"{lines}Roll back?" in say(*back, input="n\n", code=1).stderr
    assert shop.tables() == before
    assert say(*back, "--dry-run").stdout.endswith(f"{lines}txid 3 (2013-01) would be held\n")
    would = read(*back, "--dry-run")
    assert would["later_that_stay"] == [{"interval": "2013-08", "txids": "1"}]
    assert would["earlier_that_go"] == [{"interval": "2013-01", "txids": "3"}]
    wider = read("rollback", "shop", "--interval", "2013-02/2013-09", "--reason", "x", "--dry-run")
    assert (wider["to_txid"], wider["later_that_stay"]) == (2, [])
    said = say("rollback", "shop", "1", "--reason", "x", "--yes")  # by its number, too
    assert said.stdout.splitlines()[-4:] == [
        "Txids follow the order of emission, not of dates:",
        "  earlier intervals that go: 2013-01 (txid 3), 2013-02 (txid 2)",
        "txids 2..3 (2013-01 to 2013-02) are held. Next, when the cause is fixed:",
        "  reliability release shop",
    ]


def test_a_person_lets_order_go_on(shop, monkeypatch):
    shop.deliver(made(4), made(5), made(6))
    shop.process(5)
    for verb in ("park", "skip"):  # all are checked before the first
        refused = say(verb, "shop", "3..4", "--reason", "x", "--yes", code=1).stderr
        assert "[PARK_NOT_POSSIBLE] txid 3: it has already committed" in refused
    assert shop.statuses(4) == []
    assert say("park", "shop", "4", "--reason", "broken", input="n\n", code=1).stdout == ""
    said = say("park", "shop", "4", "--reason", "broken", "--yes").stdout
    assert said == (
        "txid 4 of shop is parked: nothing of its batch counts. "
        "It has committed as empty, as c=4.\n"
        "Its runs fail, and stay red. To process it later, clear its run, or: "
        "reliability replay shop 4\n"
        "txid 5 committed too: it was their turn.\n"
    )
    assert "when its turn comes" not in said
    asked = say("skip", "shop", "6", "--reason", "a test file", input="y\n")
    assert "its run succeeds" in asked.stderr
    assert "To take that back: reliability unskip shop 6" in asked.stdout
    (standing,) = read("status")
    parked = {"reason": by_me("broken"), "count": 1, "txids": "4", "is_unskipped": False}
    assert standing["parked"] == [parked]
    assert "until `reliability replay shop 4`: broken" in say("status").stdout
    say("replay", "shop", "4")
    assert read("status")[0]["parked"] == []
    refused = say("park", "shop", "4", "--reason", "x", "--yes", code=1).stderr
    assert "[PARK_NOT_POSSIBLE]" in refused

    # what was skipped is shown, and taken back
    [skipped] = read("status")[0]["skipped"]
    assert (skipped["txids"], skipped["reason"]) == ("6", "a test file")
    assert "txid 6 is skipped for good, until `reliability unskip shop" in say("status").stdout
    assert "[TXID_SKIPPED] txid 6 was skipped on" in say("replay", "shop", "6", code=1).stderr
    again = say("replay", "shop", "6", "--refreeze", "--reason", "x", code=1)
    assert "[TXID_SKIPPED]" in again.stderr
    said = say("unskip", "shop", "6", "--reason", "it was none").stdout
    assert "  clear run 'run 4' of DAG shop in Airflow: txid 6, and replays" in said
    assert "  reliability replay shop 6" in said
    assert read("show", "6")["skips"][0]["ended_reason"] == "it was none"
    assert "unskipped" in say("show", "6").stdout
    assert [one["txids"] for one in read("status")[0]["parked"]] == ["6"]
    assert "txid 6 is empty, as it was skipped, until" in say("status").stdout
    assert [one["state"] for one in read("lag")[0]["intervals"]] == ["parked"]
    assert read("txids", "shop")["txids"][-1]["state"] == "parked"
    assert say("replay", "shop", "6").stdout.startswith("6:1 changed")
    shop.deliver(made(7))
    monkeypatch.setattr("reliability.cli.control.check_all", lambda *_: None)  # 6 commits later
    refused = say("park", "shop", "6..7", "--reason", "x", "--yes", code=1).stderr
    assert "txid 7 of shop is parked, and the rest is not, because of this:\n" in refused


TABLES_OF_LEDGER = """
    SELECT table_name FROM information_schema.columns
     WHERE table_schema = 'reliability' AND column_name = 'topology' ORDER BY 1
"""


def test_a_topology_is_dropped_with_all_that_it_has(shop):
    shop.correct(2, made(102))
    say("pause", "shop", "--reason", "enough")
    asked = say("drop", "shop", input="n\n", code=1).stderr
    assert "there is no answer" not in asked  # it was no
    assert "there is no answer" in say("drop", "shop", input="", code=1).stderr
    assert "public.exact: " in asked
    assert "3 txids, 3 of them committed" in asked
    execute(shop.connection, "CREATE VIEW public.mine AS SELECT n FROM public.exact")
    refused = say("drop", "shop", "--yes", code=1).stderr
    assert "[DROP_NOT_POSSIBLE] table public.exact of shop is used by view public.mine" in refused
    execute(shop.connection, "DROP VIEW public.mine;"
               "INSERT INTO reliability.topology (topology, max_spout_pending)"
               " VALUES ('reader', 1); INSERT INTO reliability.transaction"
               " (topology, txid, dag_id, run_id) VALUES ('reader', 1, 'd', 'r');"
               "INSERT INTO reliability.source_item (topology, item, txid, part)"
               " VALUES ('reader', 'table:/public.exact', 1, '{[1,2)}')")  # fmt: skip
    assert "used by topology reader" in say("drop", "shop", "--yes", code=1).stderr
    say("drop", "reader", "--yes")
    told = read("drop", "shop", "--yes")
    assert told["emitted"] == 3
    assert [table["table"] for table in told["tables"]] == ["public.exact", "public.log"]
    for (table,) in shop.ask(TABLES_OF_LEDGER):
        assert shop.ask(f"SELECT count(*) FROM reliability.{table}") == [(0,)], table
    asked = "SELECT coalesce(to_regclass('public.exact'), to_regclass('public.log'))"
    assert shop.ask(asked) == [(None,)]
    shop.commit_first(3)  # it starts anew, with all that the source has
    [txid] = shop.deliver(made(4))
    shop.begin(txid)
    refused = say("drop", "shop", "--yes", code=1).stderr
    assert "[DROP_NOT_POSSIBLE] shop has 1 attempts at work" in refused
    assert read("status")[0]["committed"] == 6


def test_a_file_is_excluded_by_a_replay_and_included_again(shop, monkeypatch):
    before = shop.tables()
    ask = ("exclude", "shop", "memory:1:0", "--reason", "broken")
    would = read(*ask, "--dry-run")
    assert (would["item"], would["is_dry_run"]) == ("memory:1:0", True)
    attempts = shop.ask("SELECT count(*) FROM reliability.attempt")
    # that nobody answers was found out after the 100 s of a dry run
    for answer, told in (
        ("", "add --yes to go on without it"),
        ("n\n", "--dry-run shows first what would change."),
    ):
        assert told in say(*ask, input=answer, code=1).stderr
        assert shop.ask("SELECT count(*) FROM reliability.attempt") == attempts
        assert shop.ask("SELECT count(*) FROM reliability.exclusion") == [(0,)]
        assert shop.tables() == before
        assert read("status")[0]["excluded"] == []
    said = say(*ask, input="y\n")
    assert "2:2 changed\n  exact: " in said.stdout  # after one dry run
    assert "reliability include shop memory:1:0" in said.stdout
    assert shop.ask("SELECT sum(n)::int FROM exact") == [(12,)]
    assert "memory:1:0 excluded, until" in say("status").stdout
    assert read("show", "2")["exclusions"][0]["reason"] == "broken"
    assert "memory:1:0 excluded by " in say("show", "2").stdout
    assert "[EXCLUSION_NOT_POSSIBLE]" in say(*ask, "--yes", code=1).stderr
    back = say("include", "shop", "memory:1:0", "--reason", "mended").stdout
    assert "Next: reliability replay shop 2" in back
    [pending] = read("status")[0]["to_replay"]
    assert pending == {"item": "memory:1:0", "is_excluded": False, "txids": "2"}
    assert "memory:1:0 is not counted yet: `reliability replay shop 2`" in say("status").stdout
    say("replay", "shop", "2")
    assert shop.tables() == before
    assert read("status")[0]["to_replay"] == []

    # the run of what has not committed begins it again
    shop.deliver(made(4), made(5))
    found = read("exclude", "shop", "memory:3:0", "--reason", "broken", "--yes")
    assert (found["replayed"], found["at_work"], found["to_clear"]) == ([], "4", [])
    shop.transact(4)

    def commits_meanwhile(*question, yes):
        shop.transact(5)

    monkeypatch.setattr("reliability.cli.exclude.check_asked", commits_meanwhile)
    said = say("exclude", "shop", "memory:4:0", "--reason", "broken").stderr
    assert "memory:4:0 was counted meanwhile by txid 5 of shop. To take it out: `reliabil" in said
    done = say("exclude", "shop", "in/later.csv", "--reason", "not wanted", "--yes")
    assert "there is no file" in done.stderr  # it may be a typing error
    longest = say("exclude", "shop", "x" * 300, "--reason", "not wanted", "--yes").stderr
    assert "there is no file" in longest  # nor can there be
    said = done.stdout
    assert "No txid has it. If a run failed because of it: reliability resume-runs shop" in said


def test_whether_tables_are_what_they_should_be_and_a_repair_that_is_a_change_of_its_own(shop):
    verified = [(one["state"], one["is_exact"], one["compares_values"]) for one in read("verify")]
    assert verified == [("exact", True, True), ("log", True, False)]
    assert "yes, in number" in say("verify", "shop").stdout
    assert "no row differs" in say("verify", "shop", "--repair").stdout
    before = shop.tables()
    word, n = shop.ask("SELECT word, n FROM exact WHERE k IS NULL ORDER BY word LIMIT 1")[0]
    wrong = "UPDATE public.exact SET n = n + 1 WHERE k IS NULL AND word = %(word)s"
    execute(shop.connection, wrong, word=word)
    found = next(one for one in read("verify", code=3) if not one["is_exact"])
    assert (found["state"], found["different"]) == ("exact", 1)
    assert found["examples"][0]["key"] == {"k": None, "word": word}
    assert f"shop exact: k=NULL, word={word}: expected n {n}," in say("verify", code=3).stdout

    said = say("verify", "shop", "--repair", code=3).stdout
    assert "A repair of shop would change:\n  exact: " in said
    assert "reliability verify shop --repair --yes" in said
    assert "needs a --reason" in say("verify", "shop", "--repair", "--yes", code=2).stderr
    execute(shop.connection, "UPDATE reliability.transaction SET interval_start = '2026-01-01Z',"
                             " interval_end = '2026-02-01Z'")  # fmt: skip
    done = read("verify", "shop", "--repair", "--yes", "--reason", "by hand")
    assert (done["commit_number"], done["is_dry_run"]) == (4, False)
    assert shop.tables() == before
    story = read("show", "1")
    assert [(c["kind"], c["reason"]) for c in story["changes"]][-1] == ("REPAIR", by_me("by hand"))
    assert "c=4 changed\n  exact: " in say("show", "1").stdout
    last = shop.connection.all("last_commits", topologies=["shop"], most=2)
    without_interval = [(row["kind"], row["interval_start"] is None) for row in last]
    assert without_interval == [("REPAIR", True), ("COMMIT", False)]
    execute(shop.connection, wrong, word=word)
    execute(shop.connection, "DELETE FROM public.log WHERE _txid = 1")  # is no other state's fault
    repaired = ("verify", "shop", "--repair", "--yes", "--reason", "by hand")
    with mock.patch("reliability.cli.history.verify_tables", side_effect=LedgerBusy("x")):
        say(*repaired, code=1)  # nothing was done that it does not tell
    said = say(*repaired, code=3).stdout
    assert "shop was repaired as c=5. What changed:\n  exact: " in said
    assert "shop log: attempt 1:0 is recorded with 6 rows, but 0 exist" in said
    assert shop.ask("SELECT state FROM reliability.verified WHERE wrong <> ''") == [("log",)]
    for told in (said, say("verify", code=3).stdout):
        assert told.endswith(f"Appended rows are not repaired: {RESTORE_ROWS}\n")


# --- Airflow -------------------------------------------------------------------------------------


class FakeAirflow(BaseHTTPRequestHandler):
    """Answers as Airflow 3 does, as far as it is asked."""

    runs: Sequence[tuple[Any, ...]] = ()
    housekeeping: Mapping[str, object] | None = None
    health: object = None
    emitted: Mapping[str, list[int]] = MappingProxyType({})
    queued: Mapping[str, str] = MappingProxyType({})  # when a run was made, or cleared last
    backfilled: Collection[str] = ()  # runs of a backfill
    is_stale = False
    partition_key: str | None = None
    started: Mapping[str, str] = MappingProxyType({})  # when a task began
    group = ""
    ends: Mapping[str, str] = MappingProxyType({"emit": "success", "settle": "failed"})
    others: Mapping[str, str] = MappingProxyType({})
    stored_as = ""  # by a backend of XCom
    mapped: Sequence[str] = ("transaction.process", "transaction.commit", "transaction.close")
    backfills: Sequence[Mapping[str, object]] = ()
    pools: Sequence[Mapping[str, object]] = ()
    named: Sequence[str] = ()  # pools, by the tasks
    cleared: ClassVar[list[tuple[str, dict[str, object]]]]
    token = "hunter2"

    def do_GET(self):
        path = unquote(urlsplit(self.path).path).removeprefix("/api/v2/dags/")
        match path.split("/"):
            case ["", "api", "v2", "monitor", "health"]:
                self.answer(self.health)
            case ["", "api", "v2", "backfills" | "pools" as what]:
                self.answer({what: getattr(self, what)})
            case ["reliability_housekeeping"]:
                self.answer(self.housekeeping)
            case ["shop", "tasks"]:
                self.answer({"tasks": [{"pool": pool} for pool in self.named]})
            case ["shop"]:
                self.answer({"dag_id": "shop", "is_stale": self.is_stale})
            case ["shop", "dagRuns"]:
                self.answer({"dag_runs": [self.run_of(*run) for run in self.runs]})
            case ["shop", "dagRuns", run_id]:
                self.answer(next((self.run_of(*r) for r in self.runs if r[0] == run_id), None))
            case ["shop", "dagRuns", run_id, "taskInstances"]:
                self.answer({"task_instances": self.tasks_of(run_id)})
            case ["shop", "dagRuns", run_id, "taskInstances", task, *_]:
                found = self.emitted.get(run_id) if task == f"{self.group}emit" else None
                self.answer({"value": self.stored_as or found} if found is not None else None)
            case _:
                self.answer(None)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = unquote(self.path).split("/")
        assert path[-1] in ("clear", "clearTaskInstances")
        self.cleared.append((path[-2], body))
        self.answer({})

    def tasks_of(self, run_id):
        """The tasks of a run that has emitted, whose last one the ledger did not let in."""
        states: dict[str, str] = {f"{self.group}{task}": state for task, state in self.ends.items()}
        states.update(self.others)
        tasks: list[dict[str, Any]] = [
            {"task_id": task, "map_index": -1, "state": s} for task, s in states.items()
        ]
        for index, txid in enumerate(self.emitted.get(run_id, ())):
            for task in self.mapped:
                own = {"task_id": f"{self.group}{task}", "map_index": index, "state": "failed"}
                label = str(index) if task.endswith("close") else f"txid {txid}"
                tasks.append({**own, "rendered_map_index": label})
        return [{"start_date": self.started.get(task["task_id"]), **task} for task in tasks]

    def run_of(self, run_id, state, start=None, end=None, conf=None):
        interval = {"data_interval_start": start, "data_interval_end": end, "logical_date": start}
        kind = "backfill" if run_id in self.backfilled else "scheduled"
        made = {"run_type": kind, "queued_at": self.queued.get(run_id), "dag_run_id": run_id}
        return {
            "state": state,
            "conf": conf,
            "partition_key": self.partition_key,
            **interval,
            **made,
        }

    def answer(self, document):
        status = 404 if document is None else 200
        is_public = self.path == "/api/v2/monitor/health"
        if not is_public and self.headers["Authorization"] != f"Bearer {self.token}":
            status = 401
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(document or {}).encode())

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def fake_airflow(token="hunter2", **facts):
    """Run such a server, and let the environment have its address and a token."""
    handler: Any = type("Handler", (FakeAirflow,), {"cleared": [], **facts})
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        handler.url = f"http://127.0.0.1:{server.server_port}"
        patch.setenv("RELIABILITY_AIRFLOW_URL", f"{handler.url}/")
        if token:
            patch.setenv("RELIABILITY_AIRFLOW_TOKEN", token)
        try:
            yield handler
        finally:
            server.shutdown()
            thread.join()


def test_airflow_is_compared_with_the_ledger_and_mended(shop, tmp_path, monkeypatch):
    shop.deliver(made(4), run="gone")
    shop.clear(3)
    shop.runner.contact(3, shop.who(3))
    token = tmp_path / "token"
    token.write_text("hunter2\n")
    runs = [("run 1", "success"), ("lost", "success"), ("no files", "success"), ("odd", "failed")]
    emitted = {"lost": [8, 9], "no files": []}
    with fake_airflow(token=None, runs=runs, emitted=emitted) as airflow:
        assert "no token for Airflow" in say("reconcile", code=1).stderr
        monkeypatch.setenv("RELIABILITY_AIRFLOW_TOKEN_FILE", str(token))
        with monkeypatch.context() as patch:
            patch.delenv("RELIABILITY_AIRFLOW_URL")
            assert "no address for Airflow" in say("reconcile", code=1).stderr
        remote = ("reconcile", "--airflow", "http://airflow.invalid:8080")
        assert "could read the token" in say(*remote, code=1).stderr
        assert "does not answer" in say(*remote, "--allow-http", code=1).stderr
        found = read("reconcile", code=3)
        assert found["runs"] == 4
        told = [("run 1", "UNSATISFIED", "3"), ("lost", "UNKNOWN", "8..9"), ("gone 4", "GONE", "4")]
        assert [(f["run_id"], f["what"], f["txids"]) for f in found["findings"]] == told
        assert "the ledger has no record of it" in say("reconcile", code=3).stdout
        say("reconcile", "--repair", input="n\n", code=1)
        assert airflow.cleared == []
        assert "2 runs cleared" in say("reconcile", "--repair", input="y\n", code=3).stdout
        all_of_it = {"dry_run": False, "only_failed": False}
        assert airflow.cleared == [("run 1", all_of_it), ("lost", all_of_it)]
        monkeypatch.setenv("RELIABILITY_AIRFLOW_TOKEN", "wrong")
        said = say("reconcile", code=1).stderr
        assert "rejected the token (401)" in said
        assert "hunter2" not in said
    assert "does not answer" in say("reconcile", "--airflow", airflow.url, code=1).stderr


def test_what_a_cleared_run_did_after_the_backup_is_not_agreed(shop, connection):
    """R3, G9: its late file, or its replay, was lost, and it was green."""
    cleared = connection.one("server_facts")["now"] + timedelta(seconds=5)
    facts = {"runs": [("run 1", "success")], "emitted": {"run 1": [1, 7]}}
    queued = {"run 1": cleared.isoformat()}
    for begun in ("emit", "transaction.process", "settle", ""):
        started = {begun: (cleared + timedelta(seconds=1)).isoformat()}
        finds = [("run 1", "UNKNOWN", "1,7")] if begun in ("emit", "transaction.process") else []
        with fake_airflow(**facts, queued=queued, started=started):
            found = read("reconcile", code=3 if finds else 0)["findings"]
        assert [(f["run_id"], f["what"], f["txids"]) for f in found] == finds, begun


SILENT = "UPDATE reliability.request SET renewed_at = now() - interval '11 min'"


def test_a_red_run_whose_teardowns_could_not_log_in_is_told_before_any_sweep(shop):
    """G9, R3: its replay stayed open, and both verbs said that nothing is left to do."""
    shop.clear(3)
    shop.runner.contact(3, shop.who(3))
    states = ("failed", "success", "running", "queued", "running")
    finds = ("OPEN", "UNSATISFIED", None, None, "SILENT")
    for state, what in zip(states, finds, strict=True):
        if what == "SILENT":
            execute(shop.connection, SILENT)
        with fake_airflow(runs=[("run 1", state)], emitted={"run 1": [1, 2, 3]}) as airflow:
            found = read("reconcile", code=3 if what else 0)["findings"]
            assert [(f["what"], f["txids"]) for f in found] == ([(what, "3")] if what else [])
            left = read("resume-runs", "shop", code=3 if what else 0)["runs"]
            assert [one["txids"] for one in left] == ([[3]] if what else [])
            if what:
                assert "its request is still open" in left[0]["because"]
                say("resume-runs", "shop", "--yes")
                [(_, body)] = airflow.cleared
                own = [task for task in body["task_ids"] if task != "settle"]
                assert {index for _, index in own} == {2}


def test_a_cleared_run_of_a_backfill_is_told_with_what_may_keep_it_from_starting(shop):
    """Airflow never starts it if its backfill was cancelled, and says nothing."""
    shop.deliver(made(4), run="scheduled__x")  # a backfill has taken it over
    shop.runner.contact(4, shop.who(4))
    shop.runner.close(4, shop.run_of(4), ENDED)
    with fake_airflow(runs=[(run := shop.run_of(4).run_id, "queued")], backfilled=[run]):
        [left] = read("resume-runs", "shop", code=3)["runs"]
        assert "to clear" not in say("resume-runs", "shop", code=3).stdout
    assert left["txids"] == [4]
    assert left["because"].endswith("which it never gets if its backfill was cancelled")


DATES = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
CANCELLED = {
    **{"from_date": DATES[0], "to_date": DATES[1], "created_at": "2026-02-01T00:00:00Z"},
    **{"is_paused": True, "completed_at": "2026-02-01T01:00:00Z", "reprocess_behavior": "none"},
}
BLIND = {**CANCELLED, "created_at": "2026-02-02T00:00:00Z", "is_paused": False}
BACKFILL = (
    "airflow backfill create --dag-id shop --from-date {0}T00:00:00+00:00 "
    "--to-date {0}T00:00:00+00:00 --reprocess-behavior {1}"
)
NEWER = {**BLIND, "reprocess_behavior": "failed"}


def test_a_run_of_a_cancelled_backfill_is_not_cleared(shop):
    """R4: Airflow starts none; it was said to be cleared, and then that none is left undone."""
    again = BACKFILL.format("2026-01-01", "failed")
    for state, key in product(("failed", "queued"), (None, "2026-01-01")):
        facts: dict[str, Any] = {
            "runs": [("scheduled__x", state, *(() if key else DATES))],
            "ends": {"emit": "failed", "settle": "failed"},
            "queued": {"scheduled__x": "2026-02-03T00:00:00Z"},
            **{"backfilled": ["scheduled__x"], "partition_key": key},  # taken over, it keeps its id
        }
        with fake_airflow(**facts, backfills=[BLIND, CANCELLED]) as airflow:
            said = say("resume-runs", "shop", "--yes", code=3).stdout
            which = "scheduled__x" if key else "2026-01-01"
            needs = f"{which} needs a backfill that is not cancelled. Next:\n  "
            queued = "if it stays queued, delete run scheduled__x; " * (state == "queued")
            assert said.endswith(f"{needs}{queued}{again}\n")
            assert airflow.cleared == []
            airflow.ends = {"emit": "success", "settle": "failed"}  # only its last task is red
            left = read("resume-runs", "shop", code=0 if state == "failed" else 3)["runs"]
            assert len(left) == (state == "queued")
        with fake_airflow(**facts, backfills=[CANCELLED, NEWER]) as airflow:
            say("resume-runs", "shop", "--yes")
            assert len(airflow.cleared) == (state == "failed")
            airflow.queued = {"scheduled__x": "2026-02-01T12:00:00Z"}  # it was passed over
            [left] = read("resume-runs", "shop", code=3)["runs"]
            assert left["needs"] == "a backfill that is not cancelled"


def test_a_run_that_its_conf_makes_a_dry_run_is_not_cleared_to_commit(shop):
    """Airflow keeps the conf: each clear was refused, without a word of it."""
    shop.clear(3)
    shop.runner.contact(3, shop.who(3))
    shop.runner.close(3, shop.run_of(3), ENDED)
    facts: dict[str, Any] = {"backfilled": ["run 1"], "emitted": {"run 1": [1, 2, 3]}}
    again = f"{BACKFILL.format('2026-01-01', 'completed')} --dag-run-conf '{{\"dry_run\": false}}'"
    for conf in ({"dry_run": True}, {"shop": {"dry_run": True}}):
        with fake_airflow(**facts, runs=[("run 1", "failed", *DATES, conf)]) as airflow:
            said = say("resume-runs", "shop", "--yes", code=3).stdout
            assert said.endswith(f"txid 3 needs a backfill that is no dry run. Next:\n  {again}\n")
            assert airflow.cleared == []
    go_back(shop, 2)
    shop.clear(3)
    with pytest.raises(NothingToReplay) as refused:
        shop.runner.contact(3, replace(shop.who(3), is_dry_run=True))
    assert "--dag-run-conf '{\"dry_run\": false}' processes it" in str(refused.value)


def test_a_task_that_was_skipped_before_it_was_mapped_is_cleared_too(shop):
    """R4: without it, each clear processed the txid, and nothing committed it."""
    shop.clear(3)
    shop.runner.contact(3, shop.who(3))
    shop.runner.close(3, shop.run_of(3), ENDED)
    cases: Any = (([3], ["transaction.commit"]), ([2, 3], []))  # 2 would be replayed
    for (emitted, commit), stored_as in product(cases, ("", "s3://xcom/1")):
        facts: dict[str, Any] = {
            **{"runs": [("run 1", "failed")], "emitted": {"run 1": emitted}},
            **{"mapped": ("transaction.process", "transaction.close")},
            **{"others": {"transaction.commit": "skipped"}, "stored_as": stored_as},
        }
        with fake_airflow(**facts) as airflow:
            say("resume-runs", "shop", "--yes")
            [(_, body)] = airflow.cleared
        close, process = ([f"transaction.{n}", len(emitted) - 1] for n in ("close", "process"))
        assert body["task_ids"] == [close, *commit, process, "settle"]


NOT_EMITTED = (
    "UPDATE reliability.emission SET status = 'FAILED', failing_since = now(),"
    " reason_code = 'SOURCE_UNREADABLE', reason = 'away'"
)
IN_A_GROUP = "UPDATE reliability.emission SET task_id = 'outer.shop.emit'"


def test_of_a_dag_with_other_tasks_a_topologys_group_is_cleared_and_what_is_behind_it(shop):
    """They had ids that nobody looked for, and what is behind the group stayed upstream_failed."""
    execute(shop.connection, IN_A_GROUP)
    shop.clear(3)
    shop.runner.contact(3, shop.who(3))
    shop.runner.close(3, shop.run_of(3), ENDED)
    facts: dict[str, Any] = {
        "runs": [("run 1", "failed")],
        "emitted": {"run 1": [1, 2, 3]},
        "group": "outer.shop.",
        "others": {"extract": "success", "report": "upstream_failed"},
    }
    with fake_airflow(**facts) as airflow:
        say("resume-runs", "shop", "--yes")
        [(_, body)] = airflow.cleared
    names = ("process", "commit", "close")
    transactions = sorted([f"outer.shop.transaction.{name}", 2] for name in names)
    ends = ["outer.shop.committed", "outer.shop.settle", "report"]
    assert body["task_ids"] == [*transactions, *ends]
    old = facts | {"group": "", "others": {}}  # from before the DAG had the group
    for state in ("failed", "success", "running"):
        with fake_airflow(**old | {"runs": [("run 1", state)]}):
            left = read("resume-runs", "shop", code=0 if state == "running" else 3)["runs"]
            whole = [([3], "nothing")] * (state != "running")  # a person's tasks are among them
            assert [(one["txids"], one["clears"]) for one in left] == whole
    shop.clear(3)
    shop.transact(3)
    # emit failed, and then a task before it
    with fake_airflow(**facts, ends={"emit": "failed", "settle": "failed"}):
        [left] = read("resume-runs", "shop", code=3)["runs"]
        told = (left["clears"], left["because"])
        assert told == ("the tasks of its group", "emit did not succeed")
        assert ["report", -1] in left["tasks"]
        assert ["extract", -1] not in left["tasks"]
    with fake_airflow(**facts | {"others": {}}, ends={"emit": "upstream_failed"}):
        assert read("resume-runs", "shop")["runs"] == []
    with fake_airflow(**old, ends={"emit": "failed"}):
        assert read("resume-runs", "shop")["runs"] == []
        execute(shop.connection, NOT_EMITTED)
        [left] = read("resume-runs", "shop", code=3)["runs"]
        assert (left["txids"], left["clears"]) == ([], "nothing")
        assert left["next_step"] == "clear run 'run 1' of DAG shop in Airflow"


def test_what_was_skipped_as_a_run_was_stopped_is_cleared_with_what_stopped_it(shop):
    """R3: `fail_fast` and `dagrun_timeout` skip: the run was green, and its report never ran."""
    run = {"runs": [("run 1", "failed")], "emitted": {"run 1": [1, 2, 3]}}
    stopped = {"emit": "success", "settle": "skipped"}
    with fake_airflow(**run, ends=stopped, others={"notify": "skipped"}):
        [left] = read("resume-runs", "shop", code=3)["runs"]
        assert left["tasks"] == [["settle", -1], ["notify", -1]]
    execute(shop.connection, IN_A_GROUP)
    others = {  # a branch has skipped `never`, and Airflow skips it again
        **{"report": "skipped", "never": "skipped", "told": "success"},
        **{"there.emit": "success", "there.settle": "failed", "there.committed": "skipped"},
        **{"behind.emit": "skipped", "behind.settle": "skipped"},
    }
    behind = [[name, -1] for name in ("report", "never", "behind.emit", "behind.settle")]
    own = [["outer.shop.committed", -1], ["outer.shop.settle", -1]]
    for settle in ("success", "failed", "skipped"):
        ends = {"emit": "success", "settle": settle, "committed": "skipped"}
        with fake_airflow(**run, group="outer.shop.", ends=ends, others=others):
            [left] = read("resume-runs", "shop", code=3)["runs"]
            assert left["tasks"] == [*own, *behind]
    ends = {"emit": "success", "settle": "failed", "committed": "upstream_failed"}
    with fake_airflow(**run, group="outer.shop.", ends=ends, others=others):
        [left] = read("resume-runs", "shop", code=3)["runs"]
        assert left["tasks"] == own


def test_a_run_that_is_red_because_of_another_task_is_no_matter_of_the_topologys(shop):
    """`reconcile --repair` cleared every old green run, `resume-runs --yes` every red one."""
    execute(shop.connection, IN_A_GROUP)
    ends = {"emit": "success", "settle": "success"}
    run = {"runs": [("run 1", "failed")], "emitted": {"run 1": [1, 2, 3]}}
    with fake_airflow(**run, group="outer.shop.", ends=ends):
        assert read("resume-runs", "shop")["runs"] == []
        assert read("reconcile")["findings"] == []
    # a group that was skipped has emitted nothing; the ledger knows nothing of such a run
    unknown = {"runs": [("run 1", "success"), ("empty", "success")], "group": "outer.shop."}
    with fake_airflow(**unknown, ends={"emit": "skipped"}):
        assert read("reconcile")["findings"] == []
    with fake_airflow(**unknown, ends={"emit": "success"}):
        [found] = read("reconcile", code=3)["findings"]
        assert (found["what"], found["run_id"]) == ("UNKNOWN", "empty")

    # runs from before the topology was part of their DAG
    runs = [("old", "success"), ("red", "failed"), ("run 1", "success")]
    old = [{"task_id": "extract", "map_index": -1, "state": "failed"}]

    def tasks_of(airflow, run_id):
        return old if run_id != "run 1" else FakeAirflow.tasks_of(airflow, run_id)

    before = {"runs": runs, "group": "outer.shop.", "emitted": run["emitted"]}
    with fake_airflow(**before, tasks_of=tasks_of) as airflow:
        assert read("reconcile")["findings"] == []
        assert read("resume-runs", "shop")["runs"] == []
    assert airflow.cleared == []


BY_MONTHS = (
    "INSERT INTO reliability.schedule (topology, dag_id, cron, time_zone, catchup)"
    " VALUES ('shop', 'shop', '0 0 1 * *', 'UTC', true)"
)
BY_ASSETS = (
    "UPDATE reliability.schedule SET cron = NULL, time_zone = NULL, not_evaluated = 'assets'"
)
CHANGE = "UPDATE reliability.transaction SET {} WHERE txid = 4"
MARCH = CHANGE.format("interval_start = '2026-03-01', interval_end = '2026-04-01'")
TOKYO = f"{MARCH}; {CHANGE}; {BY_ASSETS}".format("interval_zone = 'Asia/Tokyo'")
NO_ZONE = CHANGE.format("interval_zone = NULL")
WEEK = CHANGE.format("interval_end = '2026-03-08'")
NAMED = "airflow dags trigger shop --conf '"
NEW_RUNS = (  # the id of the run, what else is changed, and what makes a new run then
    ("manual__1", "", "airflow dags trigger shop --run-id manual__1"),
    ("scheduled__2026-04-01", "", "reliability run shop"),
    ("scheduled__2026-04-01", f"{MARCH}; {BY_MONTHS}", BACKFILL.format("2026-03-01", "completed")),
    ("manual", WEEK, NAMED + '{"interval": "2026-03-01/2026-03-08"}\''),
    ("manual", TOKYO, NAMED + '{"interval": "2026-03-01T09:00/2026-04-01T09:00 Asia/Tokyo"}\''),
    ("manual", f"{NO_ZONE}; {IN_A_GROUP}", NAMED + '{"shop": {"interval": "2026-03"}}\''),
)


def test_a_blocked_txid_whose_run_airflow_has_deleted_is_told_with_what_makes_a_new_one(shop):
    """E2: status named resume-runs as the remedy, which said that no run is left undone.

    Airflow refused the id of a scheduled run, and a conf that named no group was red.
    """
    [txid] = shop.deliver(made(4), run="gone")
    with fake_airflow(runs=[("run 1", "success")]) as airflow:
        assert read("resume-runs", "shop")["runs"] == []  # until a sweep has given the run up
        execute(shop.connection, SILENT)
        [left] = read("resume-runs", "shop", code=3)["runs"]
        assert (left["run_id"], left["txids"], left["clears"]) == ("gone 4", [txid], "nothing")
        said = say("resume-runs", "shop", "--yes", code=3).stdout
        assert f"txid {txid} needs a new run. Next:\n  {left['next_step']}\n" in said
        assert "cleared" not in said
        assert airflow.cleared == []
        for run_id, change, next_step in NEW_RUNS:
            run_before = shop.run_of(txid).run_id
            for table in ("emission", "transaction", "request"):
                renaming = f"UPDATE reliability.{table} SET run_id = %(new)s WHERE run_id = %(old)s"
                execute(shop.connection, renaming, new=run_id, old=run_before)
            execute(shop.connection, change or "SELECT")
            [left] = read("resume-runs", "shop", code=3)["runs"]
            assert (left["txids"], left["next_step"]) == ([txid], next_step)
        for dag_id in ("a", "shop"):  # what a DAG left before it was renamed: of the new one
            by_dag = f"UPDATE reliability.request SET dag_id = '{dag_id}' WHERE txid = {txid}"
            execute(shop.connection, by_dag)
            [left] = read("resume-runs", "shop", code=3)["runs"]
            assert (left["dag_id"], left["txids"]) == ("shop", [txid])
        another = Run(dag_id="shop", run_id="another")
        who = TaskContact(run=another, task="process", this_try=TaskTry(max_tries=0))
        with shop.connection.transaction() as tx:
            contact_in(tx, "shop", txid, who, may_open_first=True)
        airflow.runs = [("run 1", "success"), ("another", "running")]
        assert read("resume-runs", "shop")["runs"] == []


def renamed(connection, dag_id):
    """Let the runs of DAG shop be those of another one."""
    for table in ("emission", "transaction", "request"):
        execute(connection, f"UPDATE reliability.{table} SET dag_id = '{dag_id}'")


def test_what_another_airflow_runs_is_not_gone_and_is_told_if_it_is_undone(shop):
    """Each of its runs was called gone; and resume-runs said that no run is left undone."""
    shop.clear(3)
    shop.runner.contact(3, shop.who(3))
    renamed(shop.connection, "south")
    with fake_airflow() as airflow:
        found = say("reconcile")
        assert found.stdout == "Airflow and the ledger agree about 0 runs\n"
        assert (
            "Airflow has no DAG south, or a stale one; the ledger has 1 runs of it" in found.stderr
        )
        assert read("resume-runs", "shop")["runs"] == []
        execute(shop.connection, SILENT)
        said = say("resume-runs", "shop", "--yes", code=3).stdout
        assert "txid 3 needs the Airflow that has DAG south. Next:\n  reliability resume-" in said
        assert airflow.cleared == []


def test_no_run_of_a_stale_dag_is_cleared_which_airflow_never_starts(shop):
    """It was cleared, with exit code 0, and queued for ever."""
    shop.commit_first(0)
    [txid] = shop.deliver(made(4), run="old")
    run = shop.run_of(txid).run_id
    shop.runner.close(txid, shop.run_of(txid), ENDED)
    red: Any = {"runs": [(run, "failed")], "emitted": {run: [txid]}}
    with fake_airflow(**red, is_stale=True) as airflow:
        said = say("resume-runs", "shop", "--yes", code=3).stdout
        assert "txid 4 needs a DAG that Airflow finds. Next:\n  put DAG shop back" in said
        assert airflow.cleared == []
        assert "Airflow has no DAG shop, or a stale one" in say("reconcile").stderr


def test_why_a_closed_txid_failed_is_told_though_another_of_its_run_is_open(shop):
    """Its reason was replaced; and one without blanks was cut to its first word."""
    why = f"[FILE_REFUSED] s3://bucket/{'long' * 30}.parquet is no file of Parquet"
    shop.clear(1, 3)
    for txid in (1, 3):
        shop.runner.contact(txid, shop.who(txid))
    shop.runner.close(3, shop.run_of(3), why)
    with fake_airflow(runs=[("run 1", "failed")], emitted={"run 1": [1, 2, 3]}):
        [left] = read("resume-runs", "shop", code=3)["runs"]
        said = say("resume-runs", "shop", code=3, env={"COLUMNS": "300"}).stdout
    assert (left["txids"], left["because"]) == ([1, 3], why)
    assert f"{why[:79]}…" in said


AT_WORK = """
    UPDATE reliability.emission SET status = 'EMITTING', ended_at = NULL, reason_code = NULL,
           reason = NULL WHERE run_id = 'deleted'
"""


def test_a_failed_emission_is_cleared_or_gets_a_new_run_until_its_interval_was_emitted(
    connection, tmp_path, monkeypatch
):
    """`lag` named resume-runs for ever, which said that no run is left undone.

    Cleared once another run has emitted, it replayed what that had committed; so was a typo owed.
    """
    from tests.support.fix_pipeline import shop

    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    pipeline = pipeline_of(shop(tmp_path), connection)
    for run_id, typed in (("deleted", 1997), ("to come", 2096), ("beyond", 1996)):
        with pytest.raises(NothingToEmit):
            pipeline.again(run_id).emit(month(typed, 2))
    waits = "SET reason_code = 'SOURCE_NOT_READY' WHERE run_id = 'to come'"  # for its ready_file
    execute(connection, f"UPDATE reliability.emission {waits}")
    table = "reliability.schedule (topology, dag_id, period, first_start, catchup)"
    begins = "('shop', 'shop', '1 day', '1997-01-01', false)"
    execute(connection, f"INSERT INTO {table} VALUES {begins}")
    runs = [("deleted", "failed", None, None, {"interval": "1997-02"}), ("to come", "failed")]
    red: Any = {"runs": [*runs, ("new", "success")], "ends": {"emit": "failed"}}
    with fake_airflow(**red):
        [left] = read("resume-runs", "shop", code=3)["runs"]
        because = "emit did not succeed; if the interval in its conf is wrong, delete it instead"
        assert (left["run_id"], left["because"]) == ("deleted", because)
    with fake_airflow(runs=[("run 1", "success")]) as airflow:
        [left] = read("resume-runs", "shop", code=3)["runs"]
        assert (left["run_id"], left["interval"], left["txids"]) == ("deleted", "1997-02", [])
        said = say("resume-runs", "shop", "--yes", code=3).stdout
        assert f"1997-02 needs a new run. Next:\n  {left['next_step']}\n" in said
        named = 'airflow dags trigger shop --conf \'{"interval": "1997-02"}\''
        assert left["next_step"] == named  # a backfill's run would be of a day
        assert airflow.cleared == []
        renamed(connection, "north")
        [left] = read("resume-runs", "shop", code=3)["runs"]
        assert left["next_step"] == "reliability resume-runs shop --airflow ADDRESS"
        renamed(connection, "cli")
        [left] = read("resume-runs", "shop", code=3)["runs"]
        assert left["next_step"] == "reliability run shop --interval '1997-02'"
        execute(connection, AT_WORK)
        assert read("resume-runs", "shop")["runs"] == []  # it may be at work
        [found] = read("lag")[0]["intervals"]
        step = "if the task is gone: reliability run shop --interval '1997-02'"
        assert found["next_step"].endswith(step)
        write_parquet(tmp_path / "1997-02" / "a.parquet", [{"customer": 1}])
        assert pipeline.again("new").emit(month(1997, 2)) == [1]
        assert read("resume-runs", "shop")["runs"] == []
    renamed(connection, "shop")
    with fake_airflow(**red, emitted={"new": [1]}):
        assert read("resume-runs", "shop")["runs"] == []


def test_a_run_whose_emission_failed_is_not_said_to_be_done(shop):
    """It was to be marked as success, and what it had not emitted stayed behind."""
    red = {"runs": [("run 1", "failed")], "emitted": {"run 1": [1, 2, 3]}}
    with fake_airflow(**red):
        [found] = read("reconcile", code=3)["findings"]
        assert found["what"] == "SATISFIED"
        execute(shop.connection, NOT_EMITTED)
        assert read("reconcile")["findings"] == []

    # one that had nothing to emit is known without what emit returned: Airflow's are purged
    run = Run(dag_id="shop", run_id="empty")
    key = {"topology": "shop", "task_id": "emit", "interval_zone": None, **run}
    with fake_airflow(runs=[("run 1", "success"), ("empty", "success")]):
        [found] = read("reconcile", code=3)["findings"]
        assert (found["what"], found["run_id"]) == ("UNKNOWN", "empty")
        with shop.connection.transaction() as tx:
            tx.one("begin_emission", interval_start=None, interval_end=None, **key)
            tx.one("complete_emission", topology="shop", **run)
        assert read("reconcile")["findings"] == []


def test_a_waiting_run_that_was_deleted_leaves_its_room_to_another(shop):
    """The verb ended with an error after it had cleared, and said nothing of what it had done.

    A scheduled run makes no room for a run of a backfill, which has run slots of its own.
    """
    shop.commit_first(0)
    txids = [shop.deliver(made(n), run=f"run of {n}")[0] for n in (4, 5, 6, 7)]
    red, waits, scheduled, _ = own = [shop.run_of(txid).run_id for txid in txids]
    shop.runner.close(txids[0], shop.run_of(txids[0]), "it ended")
    queued = []

    def do_PATCH(airflow):
        airflow.rfile.read(int(airflow.headers["Content-Length"]))
        queued.append(unquote(airflow.path).split("/")[-1])
        airflow.answer({})

    runs = {"runs": [(red, "failed"), (waits, "running"), (scheduled, "running")]}
    emitted = {run: [txid] for run, txid in zip(own, txids, strict=True)}
    facts: dict[str, Any] = {**runs, "emitted": emitted, "backfilled": [red, waits]}
    with fake_airflow(**facts, do_PATCH=do_PATCH) as airflow:
        say("resume-runs", "shop", "--yes")
    assert [body["dag_run_id"] for _, body in airflow.cleared] == [red]
    assert queued == [waits]


def test_a_run_that_names_its_txids_is_not_shown_with_airflows_interval(shop):
    """E9: its txids may be of any other."""
    chosen = {"by hand": "", "replay": "8"}
    runs = [(run, "success", *DATES, {"replay": txids}) for run, txids in chosen.items()]
    with fake_airflow(runs=runs, emitted={"by hand": [9], "replay": [8]}) as airflow:
        found = read("reconcile", code=3)["findings"]
        airflow.runs = [("run 1", "success")]
        assert say("reconcile").stdout == "Airflow and the ledger agree about 1 runs\n"
    shown = [("by hand", "2026-01-01", "9"), ("replay", None, "8")]
    assert [(f["run_id"], f["interval"], f["txids"]) for f in found] == shown


# --- several databases, and the doctor -----------------------------------------------------------


def test_several_databases_are_shown_compared_and_examined(
    connection, warehouse, examined, monkeypatch, tmp_path
):
    def spread(elsewhere):
        return [state for state in states(elsewhere) if state.name in ("exact", "recomputed")]

    shop = Shop(connection, elsewhere="warehouse", kinds=spread)
    shop.commit_first(3)
    find(shop, monkeypatch)
    by_hand = "UPDATE public.recomputed SET n = n {} 1 WHERE word = 'a'"
    execute(warehouse, by_hand.format("+"))
    warned = say("rollback", "shop", "1", "--reason", "x", "--dry-run").stdout
    assert "warning: recomputed: rows that were changed by hand are overwritten: " in warned
    execute(warehouse, by_hand.format("-"))
    (one,) = read("topologies")
    there = [(s["state"], s["database"]) for s in one["states"]]
    assert there == [("exact", ""), ("recomputed", "warehouse")]
    shop.makes[2] = made(102)
    file = tmp_path / "rows.csv"
    say("replay", "shop", "2", "--dry-run", "--diff", str(file))
    assert {row["state"] for row in rows_of_csv(file)} == {"exact", "recomputed"}
    shop.clear(3)
    shop.begin(3)

    said = say("restored").stdout
    assert "1 live attempts were fenced" in said
    assert "`reliability reconcile`" in said
    execute(warehouse, "UPDATE reliability.checkpoint SET commit_number = 2")
    assert "database warehouse is at c=2, but must be at c=3" in say("restored", code=3).stdout
    execute(warehouse, "UPDATE reliability.checkpoint SET commit_number = 3, epoch = 77")
    say("restored")
    assert rows(shop.connection, "SELECT epoch FROM reliability.checkpoint") == [(77,)]
    execute(warehouse, "UPDATE reliability.attempt SET nonce = gen_random_uuid()")
    assert "c=3 of database warehouse is another change" in say("restored", code=3).stdout

    found = examined()
    assert found["database warehouse"]["verdict"] == "ok"
    assert found["database warehouse: ledger"]["verdict"] == "ok"
    monkeypatch.setenv("RELIABILITY_DSN_WAREHOUSE", "host=127.0.0.1 port=1")
    said = say("topologies", code=1)
    assert "exact" in said.stdout
    assert "database warehouse" in said.stderr
    execute(shop.connection, "UPDATE reliability.transaction SET interval_start = '2026-01-01Z',"
                             " interval_end = '2026-02-01Z' WHERE txid = 3")  # fmt: skip
    for what in (["3"], ["3:0"], ["shop", "--interval", "2026-01"]):
        documents = read("show", *what, code=1)
        [why] = (documents[0] if isinstance(documents, list) else documents)["unavailable"]
        assert why[:40] in say("show", *what, code=1).stderr
    at = "reliability.transaction.topology.databases.address_of"
    with mock.patch(at, wraps=address_of) as looked:  # with 10 s each, the page hung
        from reliability_airflow.page.transaction import read_transaction

        assert read_transaction("shop", 3)["story"]["unavailable"]
    assert looked.mock_calls.count(mock.call("warehouse")) == 1
    shop_named(connection, "untouched").commit(made(1))
    for verb, of_others in (("verify", "untouched"), ("compact", "nothing was compacted")):
        said = say(verb, code=1)
        assert of_others in said.stdout
        assert "shop: [LEDGER_UNAVAILABLE] database warehouse" in said.stderr
    with mock.patch("reliability.cli.history.verify_tables", side_effect=LedgerUnavailable):
        assert say("verify", code=1).output.count("LEDGER_UNAVAILABLE") == 1  # none can be read


def test_restored_names_a_database_that_has_lost_what_is_decided(connection, warehouse):
    """C6: it is at an expected commit number, and each try was CHECKPOINT_STUCK."""
    shop = Shop(connection, elsewhere="warehouse")
    shop.deliver(made(1))
    shop.process(1)
    with doomed(after="SET phase = 'COMMITTING'"):
        drain(LedgerConnection(connection.dsn), "shop")
    say("restored")
    execute(warehouse, "UPDATE reliability.sink SET staged_rows = NULL")
    assert "1:0 is not sealed in this database" in say("restored", code=3).stdout


def broken_java(folder):
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return folder


def by_check():
    return {one["check"]: one for one in read("doctor", code=1)}


def test_the_doctor_looks_at_what_will_be_needed(shop, airflow_home, tmp_path, monkeypatch):
    spark = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    found = by_check()
    # the tests' server does not wait for the disk
    durability = found.pop("database of the ledger: durability")
    assert durability["what"] == "fsync and full_page_writes off"
    assert language("", "de_DE.UTF-8").verdict is CheckStatus.WARNING
    assert [one for one in found.values() if one["verdict"] != "ok"] == []
    assert {"pass file", "spark-submit", "Java", "Airflow", "topology shop"} <= found.keys()
    assert found["Spark connection spark_default"]["what"] == "leads to local[2]"

    passwords = tmp_path / "pgpass"
    passwords.write_bytes(Path(os.environ["PGPASSFILE"]).read_bytes())
    passwords.chmod(0o644)
    with monkeypatch.context() as patch:
        patch.setenv("PGPASSFILE", str(passwords))
        patch.setenv("JAVA_HOME", str(broken_java(tmp_path)))
        found = by_check()
        patch.setenv("RELIABILITY_DSN", "host=h password=hunter2")
        patch.setenv("PGPASSFILE", "")  # which is none to libpq
        said = say("doctor", code=1).stdout
    assert ". has mode" not in said
    assert found["pass file"]["verdict"] == "FAIL"
    assert "chmod 600" in found["pass file"]["todo"]
    assert found["database of the ledger"]["verdict"] == "FAIL"  # libpq ignores that file
    assert found["Java"]["verdict"] == "FAIL"
    assert "PASSWORD_IN_DSN" in said
    assert "hunter2" not in said


@pytest.fixture
def examined(monkeypatch):
    """What the doctor finds, by check; it takes Java, which takes longest, as good."""
    java = CheckResult(CheckStatus.OK, "Java", "21", "")
    monkeypatch.setattr("reliability.cli.doctor._java", lambda: java)
    return by_check


class Pooled(LedgerConnection):
    """Has a session of the server for a transaction only, as by PgBouncer in transaction mode."""

    free: ClassVar[list[Any]] = []

    def _connect(self):
        self._connection = self._connection or (self.free.pop() if self.free else None)
        return super()._connect()

    def one(self, statement, **parameters):
        row = super().one(statement, **parameters)
        self.free.append(self._connection)
        self._connection = None
        return row


def test_the_doctor_looks_at_rights_logins_sessions_and_what_waits_for_a_person(
    shop, examined, monkeypatch
):
    """It failed without CREATE on public although no table was there.

    Each attempt has five sessions, and as many as its last ones have staged with.
    """
    connection = shop.connection
    database = f"ALTER DATABASE {database_of(connection.dsn)}"
    ledger = "database of the ledger"
    run_as_admin(f"{database} OWNER TO postgres")  # whose owner owns public
    try:
        found = examined()
        for what in ("rights to create", "rights", "pooler", "sessions"):
            assert found[f"{ledger}: {what}"]["verdict"] == "ok"
        assert "attempts may have" in found[f"{ledger}: sessions"]["what"]
        execute(connection, "REVOKE INSERT ON public.log FROM reliability")
        run_as_admin("ALTER ROLE reliability VALID UNTIL 'tomorrow'")
        execute(connection, "UPDATE reliability.topology SET max_spout_pending = 1000")
        found = examined()
    finally:
        run_as_admin(f"{database} OWNER TO reliability")
        run_as_admin("ALTER ROLE reliability VALID UNTIL 'infinity'")
    told = {what: found[f"{ledger}: {what}"] for what in ("rights", "login", "sessions")}
    assert [one["verdict"] for one in told.values()] == ["FAIL", "warning", "warning"]
    assert told["rights"]["todo"] == "GRANT INSERT ON TABLE public.log TO reliability;"
    assert told["login"]["todo"] == "ALTER ROLE reliability VALID UNTIL, with a new password"
    assert "the server has place for" in told["sessions"]["what"]
    # 5 × 32 tasks of a scheduler, and one
    assert "CONNECTION LIMIT, above 161" in told["sessions"]["todo"]
    run_as_admin(f"{database} CONNECTION LIMIT 60")
    execute(connection, "GRANT INSERT ON public.log TO reliability")
    assert "CONNECTION LIMIT is 60" in examined()[f"{ledger}: sessions"]["what"]
    execute(connection, "UPDATE reliability.topology SET max_spout_pending = 5")
    assert examined()[f"{ledger}: sessions"]["verdict"] == "ok"

    shop.deliver(made(4))
    shop.runner.close(4, shop.run_of(4), ENDED)
    say("pause", "shop", "--reason", "a move")
    monkeypatch.setattr("reliability.cli.doctor.LedgerConnection", Pooled)
    found = read("doctor", code=1)
    [pooler] = [one for one in found if one["check"] == f"{ledger}: pooler"]
    assert (pooler["verdict"], "pool in session mode" in pooler["todo"]) == ("FAIL", True)
    paused, blocked, *others = [one for one in found if one["check"] == "topology shop"]
    assert {one["verdict"] for one in (paused, blocked, *others)} == {"warning"}
    assert paused["what"] == f"paused: {by_me('a move')} (until `reliability resume shop`)"
    assert "txid 4" in blocked["what"]
    said = say("status").stdout
    assert "shop: txid 4 (run run 4) is blocked: no run requests it. What to do: " in said
    assert "`reliability show shop 4`" in said
    assert blocked["what"] in said


def test_the_doctor_says_where_an_address_comes_from(
    shop, examined, airflow_home, tmp_path, monkeypatch
):
    """Two of them are one too many: a person believes that the other one counts.

    Others may read a service file without a password: Compose mounts it so; libpq does not mind.
    """
    service = tmp_path / "pg_service.conf"
    service.write_bytes(Path(os.environ["PGSERVICEFILE"]).read_bytes())
    service.chmod(0o644)
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    check = "database of the ledger: address"
    found = examined()
    assert (found[check]["verdict"], found[check]["what"]) == ("ok", "by RELIABILITY_DSN")
    assert found["service file"]["verdict"] == "ok"
    monkeypatch.setattr(airflow_connections, "is_set_up", lambda: True)
    monkeypatch.setattr(airflow_connections, "_option", {"ledger_conn_id": "kept"}.get)
    service.write_text(service.read_text() + "\n[other]\npassword = hunter2\n")
    found = examined()
    assert found[check]["verdict"] == found["service file"]["verdict"] == "warning"
    assert "not by Airflow's connection kept" in found[check]["what"]
    assert "hunter2" not in str(found)


def test_the_doctor_looks_where_a_spark_connection_leads(airflow_home, monkeypatch):
    monkeypatch.setattr(doctor, "is_set_up", lambda: True)
    monkeypatch.setattr(doctor, "has_database", lambda: True)
    connections: list[tuple[dict[str, Any], str, str]] = [
        ({}, "FAIL", "Airflow has none"),
        ({"host": "local[2]"}, "ok", "leads to local[2]"),
        ({"host": "yarn"}, "FAIL", "leads to YARN"),
        ({"host": "local", "extra": {"deploy-mode": "cluster"}}, "FAIL", "takes no Python"),
        ({"host": "local", "extra": {"spark-binary": "rm"}}, "FAIL", "must be one of"),
    ]
    for connection, verdict, what in connections:
        if connection:
            spark = {"conn_type": "spark", **connection}
            monkeypatch.setenv("AIRFLOW_CONN_SPARK_OF_MINE", json.dumps(spark))
        found = doctor._spark_connection("spark_of_mine", CheckStatus.FAIL)
        assert (found.verdict.value, what in found.what) == (verdict, True), found
        assert bool(found.todo) == (verdict == "FAIL")
        assert "Remedy(" not in found.todo


def test_the_doctor_does_not_expect_a_connection_where_none_can_be_found(
    airflow_home, tmp_path, monkeypatch
):
    """As on Spark's workers, where Airflow would make a database if it were asked."""
    from airflow.configuration import conf

    nowhere = f"sqlite:///{tmp_path / 'airflow.db'}"
    monkeypatch.setattr(conf, "get", lambda *_: nowhere)
    for is_there in (False, True):
        monkeypatch.setattr(doctor, "is_set_up", lambda is_there=is_there: is_there)
        found = doctor._spark_connection("spark_of_nobody", CheckStatus.WARNING)
        assert (found.verdict, found.todo) == (CheckStatus.OK, "")
    assert not [*tmp_path.iterdir()]


AIRFLOW = "Airflow's components"


def test_the_doctor_looks_for_components_of_airflow_and_for_the_housekeeping_dag(
    shop, examined, monkeypatch
):
    """They are named without a token: a shell that was opened too late has none."""
    assert "not looked at" in examined()[AIRFLOW]["what"]
    others = {name: {"status": "healthy"} for name in ("metadatabase", "dag_processor")}
    for status, verdict, what in (
        ("healthy", "ok", "metadatabase, dag processor, scheduler: healthy"),
        ("unhealthy", "FAIL", "no sign of life from: scheduler"),
    ):
        scheduler = {"status": status, "latest_scheduler_heartbeat": None}
        health = {**others, "scheduler": scheduler, "triggerer": {"status": None}}
        with fake_airflow(token=None, health=health) as airflow:
            one = examined()[AIRFLOW]
        assert (one["verdict"], one["what"]) == (verdict, what)
    answers: list[object] = [None, {}, [], {"status": "ok"}]
    for answer in answers:  # it is not Airflow
        with fake_airflow(token=None, health=answer) as airflow:
            one = examined()[AIRFLOW]
        assert one["verdict"] == "FAIL"
        assert one["what"] == f"the api-server: {airflow.url} does not answer as Airflow 3 does"
        assert one["todo"].endswith("set RELIABILITY_AIRFLOW_URL to its address")
    for dag, verdict, todo in (
        (None, "warning", "put dags/reliability_housekeeping.py"),
        ({"is_paused": True}, "warning", "airflow dags unpause reliability_housekeeping"),
        ({"is_paused": False}, "ok", ""),
    ):
        with fake_airflow(housekeeping=dag):
            one = examined()["housekeeping DAG"]
        assert one["verdict"] == verdict
        assert one["todo"].startswith(todo)
    pools = [{"name": name, "include_deferred": name == "fills"} for name in ("a", "fills")]
    for named, said in (("", "no slot"), ("fills", "without --include"), ("b", "is no pool b")):
        with fake_airflow(pools=pools, named=("a", named or "a")):
            assert said in str(examined()["pools of tasks"])
    for url, what in (
        (airflow.url, "the api-server: Airflow does not answer"),  # nothing listens any more
        ("localhost:8080", "localhost:8080 is no address for Airflow: write it as https://host."),
        ("http://[::1", "http://[::1 is no address for Airflow"),
    ):
        monkeypatch.setenv("RELIABILITY_AIRFLOW_URL", url)
        one = examined()[AIRFLOW]
        assert one["verdict"] == "FAIL"
        assert what in one["what"]
        assert "make up" in one["todo"]


# --- spark-submit --------------------------------------------------------------------------------


def test_an_interrupted_replay_leaves_no_jvm_and_no_temporary_files(connection, tmp_path):
    pipeline_of(global_count.topology, connection).emit(None)
    say("park", "global_count", "1", "--reason", "Spark was down", "--yes")
    command = ("-m", "reliability", "replay", "global_count", "1", "--master", "local[1]")
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env=own, stderr=subprocess.PIPE, text=True
    ) as replaying:
        try:
            wait_until(lambda: any(tmp_path.glob("*/spark-*")), "its JVM works", 120)
            processes = psutil.Process(replaying.pid).children(recursive=True)
            assert any("java" in process.name() for process in processes)
            replaying.send_signal(signal.SIGINT)
            _, said = replaying.communicate(timeout=60)
        finally:
            replaying.kill()
    assert replaying.returncode == 130, said
    assert "txid 1 not replayed" in said
    wait_until(lambda: not any(map(is_alive, processes)), "they end", 30)
    assert list(tmp_path.iterdir()) == []
    asked = "SELECT status FROM reliability.request WHERE dag_id = 'cli'"
    assert rows(connection, asked) == [("CLOSED",)]


def is_alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
