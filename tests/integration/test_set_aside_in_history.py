"""Rows that leave or multiply on purpose, when their txid is replayed, rolled back or compacted:
the tables, the accounts and the quarantine follow the committed attempt together (V8, V9)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import reliability
from reliability import Append, Count, FileSpout, History, JsonLines, State, Sum, Topology
from reliability.cli import app
from reliability.core.errors import (
    CorrectionRefused,
    ReplayNotPossible,
    RollbackNotPossible,
    SourceChanged,
)
from reliability.transaction.correct.park import skip
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.emit.refreeze import refreeze
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain.compaction import compact
from reliability.transaction.maintain.sweep import sweep
from tests.support.fix_pipeline import month
from tests.support.fix_postgres import rows
from tests.support.quarantined import compare, correct, edit, lines

DEAR, CHEAP = "too dear", "too cheap"
WRONG = "INVALID_VALUE: column price is not a valid int"
#: the third line is malformed
LINES = [(1, "a b"), (5, "c"), (9, "d e f"), ("x", "y"), (5, "g")]
PRICES = "SELECT price::int, n::int FROM per_price ORDER BY price"
WORDS = "SELECT string_agg(word, '' ORDER BY word) FROM words"
SUMS = {
    "per_price": "SELECT coalesce(sum(n), 0)::int FROM per_price",
    "words": "SELECT count(*)::int FROM words",
}


def cheap_ones_leave(batch):
    """Drop what is cheap for both states, and quarantine what is dear on the way to one."""
    kept = reliability.drop(batch, "price < 2", CHEAP)
    return {"per_price": reliability.quarantine(kept, "price > 8", DEAR), "words": words_of(kept)}


def dear_ones_leave(batch):
    """The other way round."""
    kept = reliability.drop(batch, "price > 8", DEAR)
    return {"per_price": reliability.quarantine(kept, "price < 2", CHEAP), "words": words_of(kept)}


def words_of(batch):
    return reliability.fan_out(batch.selectExpr("split(note, ' ') AS word"), "word")


BY_FIRST_RULE = [("per_price", 5, 2, 1, 2, 0), ("words", 5, 3, 1, 1, 2)]
BY_SECOND_RULE = [*BY_FIRST_RULE[:1], ("words", 5, 3, 1, 1, 1)]
NOTHING = [("per_price", 0, 0, 0, 0, 0), ("words", 0, 0, 0, 0, 0)]
FIRST_QUARANTINE = [(2, DEAR), (3, WRONG)]
SECOND_QUARANTINE = [(0, CHEAP), (3, WRONG)]


def in_lines(folder, process, elsewhere=""):
    return Topology(
        "lines",
        spout=FileSpout(
            f"{folder}/{{data_interval_start:%Y-%m}}/*.jsonl",
            format=JsonLines(malformed="quarantine"),
            schema="price int, note string",
        ),
        process=process,
        states=[
            State(
                "per_price",
                key={"price": "bigint"},
                values={"n": Count(), "total": Sum("price", "bigint")},
                keep=History(txids=1),
            ),
            State("words", values={"word": Append("word", "text")}, database=elsewhere),
        ],
    )


def write(folder, number, found=LINES):
    path = folder / f"1997-{number:02}" / "a.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(dict(price=p, note=n))}\n" for p, n in found))


@pytest.fixture
def deploy(tmp_path, pipeline):
    """Deploy a rule: `deploy(rule)` gives runs; `run(txid)` clears its month's, or starts it."""
    for number in (1, 2):
        write(tmp_path, number)
    cleared: Counter[int] = Counter()

    def deploy(process, elsewhere=""):
        def run(txid):
            pipe = pipeline(in_lines(tmp_path, process, elsewhere))
            pipe.run = replace(pipe.run, run_id=f"scheduled__1997-{txid:02}")
            pipe.max_tries += cleared[txid]
            cleared[txid] += 1
            assert pipe.emit(month(1997, txid)) == [txid]
            return pipe

        return run

    return deploy


@pytest.fixture
def deployed(deploy):
    """The runs of each rule."""
    return deploy(cheap_ones_leave), deploy(dear_ones_leave)


def accounts(connection, txid=1, status="COMMITTED"):
    """Return an attempt's accounts; compare those that have committed with what there is."""
    committed = "FROM reliability.accounts WHERE status = 'COMMITTED' AND state = %(state)s"
    for state, summed in SUMS.items():
        applied = f"SELECT coalesce(sum(applied + added_rows), 0)::int {committed}"
        assert rows(connection, applied, state=state) == rows(connection, summed)
    # all that is quarantined is so for this state
    quarantined = f"SELECT txid, quarantined::int {committed} AND quarantined > 0 ORDER BY txid"
    there = "SELECT txid, count(*)::int FROM reliability.quarantine GROUP BY 1 ORDER BY 1"
    assert rows(connection, quarantined, state="per_price") == rows(connection, there)
    return accounts_there(connection, txid, status)


def accounts_there(connection, txid=1, status="COMMITTED"):
    return rows(
        connection,
        "SELECT state, emitted, applied, dropped, quarantined, added_rows FROM reliability.accounts"
        " WHERE txid = %(txid)s AND status = %(status)s ORDER BY attempt_id, state",
        txid=txid,
        status=status,
    )


def quarantine(connection, txid=1):
    found = 'SELECT "row", reason FROM reliability.quarantine WHERE txid = %(txid)s ORDER BY 1'
    return rows(connection, found, txid=txid)


def kept_rows(connection):
    """Sweep, and say of which attempts the ledger keeps quarantined rows."""
    sweep(connection, "lines", clean=True)
    kept = "SELECT DISTINCT txid, attempt_id FROM reliability.quarantined_row ORDER BY 1, 2"
    return rows(connection, kept)


def everything(connection):
    """What a reader can see, but for the accounts of attempts that do not count."""
    queries = (PRICES, WORDS, "SELECT * FROM reliability.quarantine ORDER BY txid, number")
    return [rows(connection, query) for query in queries] + [
        accounts(connection, txid) for txid in (1, 2)
    ]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


# --- replay --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_replay_by_another_rule_or_of_another_batch_sets_its_own_rows_aside(
    deployed, connection, tmp_path
):
    """V8, H1: the tables, the accounts and the quarantine change with the commit."""
    first, second = deployed
    first(1).transact(1)
    assert rows(connection, PRICES) == [(5, 2)]
    assert rows(connection, WORDS) == [("cdefg",)]
    assert accounts(connection) == BY_FIRST_RULE
    assert quarantine(connection) == FIRST_QUARANTINE
    again = second(1)
    again.process(1)  # not committed yet
    assert accounts(connection) == BY_FIRST_RULE
    assert quarantine(connection) == FIRST_QUARANTINE
    again.transact(1)
    assert rows(connection, PRICES) == [(5, 2)]
    assert rows(connection, WORDS) == [("abcg",)]
    assert accounts(connection) == BY_SECOND_RULE
    assert quarantine(connection) == SECOND_QUARANTINE
    assert accounts(connection, 1, "REPLACED") == BY_FIRST_RULE
    assert kept_rows(connection) == [(1, 1)]

    write(tmp_path, 1, [(5, "p q"), ("z", "y")])
    again = second(1)
    with pytest.raises(SourceChanged):
        again.process(1)
    assert refreeze(connection, again.runner.topology, 1, "delivered anew") is not None
    assert accounts(connection) == BY_SECOND_RULE  # of the batch that was read
    assert quarantine(connection) == SECOND_QUARANTINE
    second(1).transact(1)
    assert rows(connection, PRICES) == [(5, 1)]
    assert rows(connection, WORDS) == [("pq",)]
    assert accounts(connection) == [("per_price", 2, 1, 0, 1, 0), ("words", 2, 1, 0, 1, 1)]
    assert quarantine(connection) == [(1, WRONG)]
    assert accounts(connection, 1, "REPLACED") == [*BY_FIRST_RULE, *BY_SECOND_RULE]


# --- rollback ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_rolled_back_and_committed_again_counts_once(deployed, connection):
    """V8, H4, C8: a txid that is skipped then has set nothing aside."""
    first, second = deployed
    for txid in (1, 2):
        first(txid).transact(txid)
    assert accounts(connection, 2) == BY_FIRST_RULE
    assert rows(connection, PRICES) == [(5, 4)]
    roll_back(connection, "lines", 0, "a wrong rule")
    assert quarantine(connection, 1) == quarantine(connection, 2) == []
    assert accounts(connection, 1) == accounts(connection, 2) == []
    skip(connection, "lines", 1, "it never comes")
    release(connection, "lines")
    second(2).transact(2)
    assert quarantine(connection, 1) == []
    assert accounts(connection, 1) == NOTHING
    assert quarantine(connection, 2) == SECOND_QUARANTINE
    assert accounts(connection, 2) == BY_SECOND_RULE
    assert rows(connection, PRICES) == [(5, 2)]
    assert rows(connection, WORDS) == [("abcg",)]
    assert kept_rows(connection) == [(2, 1)]
    done = call("completeness", "lines", "--json")
    told = [(i["dropped"], i["quarantined"]) for i in json.loads(done.stdout)["intervals"]]
    assert told == [(0, 0), (1, 2)]


@pytest.mark.slow
def test_the_accounts_of_another_database_follow(deploy, connection, add_database):
    """V8, C6: each database has those of its own states, the coordinator the quarantine."""
    east = add_database("east")
    first, second = (deploy(rule, "east") for rule in (cheap_ones_leave, dear_ones_leave))
    first(1).transact(1)
    assert accounts_there(connection) == BY_FIRST_RULE[:1]
    assert accounts_there(east) == BY_FIRST_RULE[1:]
    second(1).transact(1)
    assert accounts_there(connection) == BY_SECOND_RULE[:1]
    assert accounts_there(east) == BY_SECOND_RULE[1:]
    assert quarantine(connection) == SECOND_QUARANTINE
    roll_back(connection, "lines", 0, "a wrong rule")
    assert accounts_there(connection) == accounts_there(east) == quarantine(connection) == []
    release(connection, "lines")
    first(1).transact(1)
    assert accounts_there(connection) == BY_FIRST_RULE[:1]
    assert accounts_there(east) == BY_FIRST_RULE[1:]
    assert quarantine(connection) == FIRST_QUARANTINE
    assert rows(east, WORDS) == [("cdefg",)]
    assert kept_rows(connection) == [(1, 2)]


# --- the horizon ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_compaction_keeps_what_was_set_aside_and_refuses_to_change_it(deployed, connection):
    """V8, H2: behind the horizon nothing is set aside anew, and in front of it as before."""
    first, second = deployed
    for txid in (1, 2):
        first(txid).transact(txid)
    before = everything(connection)
    [done] = compact(connection, "lines")
    assert (done.state, done.through, done.txids) == ("per_price", 1, 1)
    assert kept_rows(connection) == [(1, 0), (2, 0)]
    assert everything(connection) == before
    with pytest.raises(ReplayNotPossible, match="compacted its history through txid 1"):
        second(1).transact(1)
    with pytest.raises(RollbackNotPossible, match="compacted its history through txid 1"):
        roll_back(connection, "lines", 0, "too far")
    assert everything(connection) == before
    second(2).transact(2)
    assert quarantine(connection, 1) == FIRST_QUARANTINE
    assert accounts(connection, 1) == BY_FIRST_RULE
    assert quarantine(connection, 2) == SECOND_QUARANTINE
    assert accounts(connection, 2) == BY_SECOND_RULE
    assert [found.is_exact for found in verify(connection, "lines")] == [True, True]
    roll_back(connection, "lines", 1, "as far as it goes")
    assert quarantine(connection, 1) == FIRST_QUARANTINE
    assert accounts(connection, 1) == BY_FIRST_RULE
    assert quarantine(connection, 2) == accounts(connection, 2) == []
    assert kept_rows(connection) == [(1, 0)]


# --- corrected rows ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_corrected_row_counts_once_after_each_replay_and_rollback(deployed, connection):
    """V9: every later attempt reads it so, and each rule decides anew."""
    first, second = deployed
    first(1).transact(1)
    malformed, dear = lines(connection, "lines")
    assert (malformed["reason"], dear["reason"]) == (WRONG, DEAR)
    correct(connection, "lines", edit(dear, price=7))
    # which the first rule does not like either
    correct(connection, "lines", edit(malformed, price=9))
    first(1).transact(1)
    assert accounts(connection) == [("per_price", 5, 3, 1, 1, 0), ("words", 5, 4, 1, 0, 2)]
    assert quarantine(connection) == [(3, DEAR)]
    assert rows(connection, PRICES) == [(5, 2), (7, 1)]
    assert rows(connection, WORDS) == [("cdefgy",)]

    roll_back(connection, "lines", 0, "a wrong rule")
    assert accounts(connection) == quarantine(connection) == []
    with pytest.raises(CorrectionRefused, match="not a row that is in quarantine now"):
        compare(connection, "lines", edit(malformed, price=5))
    release(connection, "lines")
    second(1).transact(1)
    assert accounts(connection) == [("per_price", 5, 3, 1, 1, 0), ("words", 5, 4, 1, 0, 3)]
    assert quarantine(connection) == [(0, CHEAP)]
    assert rows(connection, PRICES) == [(5, 2), (7, 1)]
    assert rows(connection, WORDS) == [("abcdefg",)]
    assert kept_rows(connection) == [(1, 2)]


def test_no_row_is_corrected_behind_the_horizon(deployed, connection, tmp_path, monkeypatch):
    """V9, H2: nothing is recorded, and nobody waits for the replay."""
    first, _ = deployed
    first(1).transact(1)
    topology = first(2).runner.topology
    skip(connection, "lines", 2, "it never comes")
    before = everything(connection)
    assert [done.through for done in compact(connection, "lines")] == [1]
    file = tmp_path / "rows.jsonl"
    assert call("quarantine", "export", "lines", "--file", file).exit_code == 0
    file.write_text(file.read_text().replace('"price": 9', '"price": 5'))
    monkeypatch.setattr("reliability.cli.replay.steps_of", lambda *chosen: pytest.fail)
    monkeypatch.setattr("reliability.cli.replay.topology_from_code", lambda *chosen: topology)
    options = ("--file", file, "--reason", "a test", "--module", __name__)
    for how in ("--yes", "--dry-run"):
        done = call("quarantine", "replay", "lines", *options, how)
        assert done.exit_code == 1
        assert "REPLAY_NOT_POSSIBLE" in done.stderr
        assert "compacted its history through txid 1" in done.stderr
    assert rows(connection, "SELECT FROM reliability.correction") == []
    asked = "SELECT txid FROM reliability.request WHERE status = 'OPEN' AND txid = 1"
    assert rows(connection, asked) == []
    assert everything(connection) == before
    assert [found.is_exact for found in verify(connection, "lines")] == [True, True]
