"""Rows in quarantine: shown, exported, edited, and back as a correcting replay (rule V9)."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pytest
from typer.testing import CliRunner

import reliability
from reliability import FileSpout, State, Sum, Topology
from reliability.cli import app
from reliability.core.errors import CorrectionRefused, CorrectionStale
from reliability.transaction.correct.quarantine import (
    edited_rows,
    end_corrections,
    exported,
    quarantined_rows,
    record_corrections,
)
from reliability.transaction.emit.refreeze import refreeze
from tests.support.fix_pipeline import month, shop, write_parquet
from tests.support.fix_postgres import rows

ROWS = [{"customer": n, "day": date(1997, 1, 1), "price": Decimal(n)} for n in range(5)]
REVENUE = "SELECT customer, revenue FROM per_customer ORDER BY customer"


def positive(batch):
    good = reliability.quarantine(batch, "price < 2", "too cheap")
    return {"per_customer": good, "per_day": good}


@pytest.fixture
def committed(tmp_path, pipeline):
    write_parquet(tmp_path / "1997-01" / "a.parquet", ROWS)
    pipe = pipeline(shop(tmp_path, positive))
    pipe.emit(month(1997, 1))
    pipe.transact(1)
    return pipe


def lines(connection):
    return [exported(row) for row in quarantined_rows(connection, "shop", None)]


def correct(connection, changed, **options):
    found = edited_rows(quarantined_rows(connection, "shop", None), changed)
    record_corrections(connection, "shop", found, "a test", "ann", **options)


def again(pipe):
    """Clear the run once more."""
    pipe.max_tries += 1
    assert pipe.emit(month(1997, 1)) == [1]
    return pipe


def replay(pipe):
    again(pipe).transact(1)


def test_an_edited_row_counts_once_until_it_is_taken_back(committed, connection):
    first, second = lines(connection)
    correct(connection, [{**second, "price": 9}])  # the next one takes its place
    assert (first["_txid"], first["_reason"], first["_row"]) == (1, "too cheap", 0)
    assert second["price"] == Decimal("1.00")
    correct(connection, [first, {**second, "price": Decimal("7.25"), "day": "1997-01-02"}])
    replay(committed)
    assert rows(connection, REVENUE) == [
        (1, Decimal("7.25")),
        (2, Decimal("2.00")),
        (3, Decimal("3.00")),
        (4, Decimal("4.00")),
    ]
    assert rows(connection, "SELECT day, orders FROM per_day ORDER BY day") == [
        (date(1997, 1, 1), 3),
        (date(1997, 1, 2), 1),
    ]
    accounts = "SELECT DISTINCT emitted, applied, quarantined FROM reliability.accounts"
    assert rows(connection, f"{accounts} WHERE status = 'COMMITTED'") == [(5, 4, 1)]
    assert [line["_row"] for line in lines(connection)] == [0]
    with connection.transaction() as tx:
        assert end_corrections(tx, "shop", 1, "a test") == 1
    replay(committed)
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))


def test_a_row_that_is_still_wrong_is_corrected_again(committed, connection):
    """The quarantine then has the corrected values, and the source those before."""
    _, second = lines(connection)
    correct(connection, [{**second, "price": Decimal("1.50"), "day": "1997-01-02"}])
    replay(committed)
    _, second = lines(connection)
    assert (second["price"], second["day"]) == (Decimal("1.50"), "1997-01-02")
    correct(connection, [{**second, "price": 3}])
    replay(committed)
    assert rows(connection, REVENUE)[0] == (1, Decimal("3.00"))
    assert rows(connection, "SELECT day, orders FROM per_day ORDER BY day") == [
        (date(1997, 1, 1), 3),
        (date(1997, 1, 2), 1),
    ]


def test_values_that_are_as_in_the_source_again_are_refused(committed, connection):
    _, second = lines(connection)
    correct(connection, [{**second, "price": Decimal("1.50")}])
    replay(committed)
    _, second = lines(connection)
    with pytest.raises(CorrectionRefused, match="values of the source again"):
        correct(connection, [{**second, "price": Decimal("1.00")}])
    ended = "SELECT ended_reason FROM reliability.correction"
    assert rows(connection, ended) == [(None,)]


def test_a_row_that_is_another_one_now_or_gone_fails_the_attempt(committed, connection):
    """An id says where a row is; a file that is excluded moves the others."""
    _, second = lines(connection)
    correct(connection, [{**second, "price": 3}])
    rows_of_it = "UPDATE reliability.correction SET was = '{\"price\": 9}' RETURNING 1"
    assert rows(connection, rows_of_it) == [(1,)]
    with pytest.raises(CorrectionStale, match="1 no longer have the values"):
        again(committed).process(1)
    assert rows(connection, "UPDATE reliability.correction SET xor = 1 RETURNING 1") == [(1,)]
    with pytest.raises(CorrectionStale, match="1 are not in the batch any more"):
        again(committed).process(1)
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))


def test_a_refreeze_ends_corrections(committed, connection, tmp_path):
    _, second = lines(connection)
    correct(connection, [{**second, "price": 3}])
    write_parquet(tmp_path / "1997-01" / "a.parquet", ROWS[2:])
    assert refreeze(connection, committed.runner.topology, 1, "delivered anew") is not None
    replay(committed)
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))
    assert lines(connection) == []


QUARANTINED = {
    "txid": 1, "xor": -7, "count": 1, "reason": "why", "item": None, "row": None, "is_cut": False,
    "contents": '{"price":1.10,"email":"***"}',
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"_id": "5"}, "line 1 is not a row in quarantine"),
        ({"colour": "red"}, "columns that the row has not: \\['colour'\\]"),
        ({"count": 2, "price": 5}, "made of several source rows"),
        ({"email": "a@b"}, "\\['email'\\] are masked"),
        ({"is_cut": True, "price": 5}, "its contents were cut"),
    ],
)
def test_a_line_that_fits_no_row_is_refused(change, what):
    row = {**QUARANTINED, **{name: change[name] for name in change if name in QUARANTINED}}
    line = exported(row)
    edited = {name: value for name, value in change.items() if name not in QUARANTINED}
    with pytest.raises(CorrectionRefused, match=what):
        edited_rows([row], [{**line, **edited}])


def test_numbers_keep_their_digits(connection, tmp_path, pipeline):
    import pyarrow as pa
    import pyarrow.parquet as pq

    exact, long = Decimal("0.12345678901234567890"), 2**62 + 1
    table = pa.table({"n": pa.array([exact], pa.decimal128(38, 20)), "k": [long]})
    pq.write_table(table, tmp_path / "a.parquet")
    sums = State("sums", values={"n": Sum("n", "numeric(38,20)"), "k": Sum("k", "bigint")})
    pipe = pipeline(Topology("exact", FileSpout(f"{tmp_path}/*.parquet"), [sums], all_of_it))
    pipe.emit(None)
    pipe.transact(1)
    [row] = quarantined_rows(connection, "exact", None)
    line = exported(row)
    assert (line["n"], line["k"]) == (exact, long)
    [edited] = edited_rows([row], [{**line, "n": exact + 1}])
    record_corrections(connection, "exact", [edited], "a test", "ann")
    pipe.max_tries += 1
    assert pipe.emit(None) == [1]
    pipe.transact(1)
    assert rows(connection, "SELECT n, k FROM sums") == [(exact + 1, long)]


def all_of_it(batch):
    return {"sums": reliability.quarantine(batch, "n < 1", "small")}


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def call(committed, connection, monkeypatch, tmp_path):
    monkeypatch.setenv("RELIABILITY_DSN", connection.dsn)

    def run(*arguments):
        return CliRunner().invoke(app, ["quarantine", *map(str, arguments)])

    return run


def test_list_show_export_completeness_and_forget(call, connection, tmp_path):
    done = CliRunner().invoke(app, ["completeness", "shop", "--json"])
    [interval] = json.loads(done.stdout)["intervals"]
    assert interval == {
        "interval": "1997-01",
        "state": "complete",
        "txids": 1,
        "committed": 1,
        "emitted": 5,
        "dropped": 0,
        "quarantined": 2,
    }
    listed = call("list")
    assert listed.exit_code == 0
    assert "too cheap" in listed.stdout
    [counted] = json.loads(call("list", "shop", "--json").stdout)
    assert (counted["txid"], counted["rows"]) == (1, 2)
    shown = call("show", "shop", "1").stdout
    assert "1997-01/a.parquet, row 0" in shown
    assert '"price":0.00' in shown
    assert call("export", "shop", "--file", tmp_path / "rows.jsonl").exit_code == 0
    first, _ = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert json.loads(first)["customer"] == 0
    assert call("show").exit_code == 2

    file = tmp_path / "rows.jsonl"
    file.write_text("{")
    done = call("replay", "shop", "--file", file, "--reason", "x", "--yes")
    assert done.exit_code == 1
    assert "CORRECTION_REFUSED" in done.stderr
    assert "line 1 is not JSON" in done.stderr

    _, second = lines(connection)
    correct(connection, [{**second, "price": 3}])
    done = call("forget", "shop", "1", "--reason", "wrong after all")
    assert "1 corrections are taken back" in done.stdout
    assert "reliability replay shop 1" in done.stdout


@pytest.fixture
def with_spark(committed, monkeypatch):
    """Run the steps of replays in this process's session; the code is what was deployed."""

    def submit(submission, is_wanted):
        committed.run_step(submission.grant, submission.step)

    monkeypatch.setattr("reliability.cli.replay.submit_with", lambda *chosen: submit)
    monkeypatch.setattr(
        "reliability.cli.replay.topology_from_code", lambda *chosen: committed.runner.topology
    )


def test_a_dry_run_shows_what_corrected_rows_change_and_a_replay_does_it(
    call, with_spark, committed, connection, tmp_path
):
    file = tmp_path / "rows.jsonl"
    call("export", "shop", "--file", file)
    file.write_text(file.read_text().replace('"price": 1.00', '"price": 7.25'))
    options = ("--file", file, "--reason", "asked them", "--module", __name__)
    tried = call("replay", "shop", *options, "--dry-run")
    assert tried.exit_code == 0, tried.output
    assert "1:1 (1997-01) would change" in tried.stdout
    assert "revenue +7.25" in tried.stdout
    assert "1 rows of txid 1 would be read as corrected" in tried.stdout
    replay(committed)  # a dry run's corrections are its own
    assert rows(connection, REVENUE)[0] == (2, Decimal("2.00"))
    done = call("replay", "shop", *options, "--yes")
    assert done.exit_code == 0, done.output
    assert "1:3 (1997-01) changed" in done.stdout
    assert rows(connection, REVENUE)[0] == (1, Decimal("7.25"))
    assert "CORRECTION_REFUSED" in call("replay", "shop", *options, "--yes").stderr
