"""The command line in a real terminal of 80 columns, with long names and reasons; and in a pipe."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest
from psycopg2.sql import SQL
from rich.cells import cell_len
from typer.testing import CliRunner

from reliability.cli import app
from reliability.ledger.connection import LedgerConnection
from tests.replay.shop import Shop, made, states
from tests.support.command_line import say
from tests.support.fix_postgres import execute, new_database
from tests.support.pseudo_terminal import CTRL_C, terminal

LONG = "revenue_by_customer_of_2013x"  # as long as a topology's name may be
REASON = (
    "the second delivery was made with last year's price list, and nobody knows since when: Zoë"
)
ITEM = "data/incoming/2013-02/part-00000-tid-8124712-c000.snappy.parquet"
DATES = """
    UPDATE reliability.transaction
       SET interval_start = timestamptz '2013-01-01 00:00+00' + (txid - 1) * interval '1 month',
           interval_end = timestamptz '2013-01-01 00:00+00' + txid * interval '1 month',
           run_id = 'scheduled__2013-' || to_char(txid + 1, 'FM00') || '-01T00:00:00+00:00'
     WHERE topology = %(topology)s;
    UPDATE reliability.request r SET run_id = t.run_id FROM reliability.transaction t
     WHERE (t.topology, t.txid) = (r.topology, r.txid) AND r.topology = %(topology)s
"""


@pytest.fixture(scope="module")
def troubled(template):
    """Topologies of which one works, and others wait for a person; their ledger's DSN."""
    with new_database(template) as dsn, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELIABILITY_DSN", dsn)
        connection = LedgerConnection(dsn)
        working = open_shop(connection, LONG, 7, committed=4)
        working.correct(2, made(102))
        working.begin(5)
        working.process(6)
        held = open_shop(connection, "held_back", 4, committed=3)
        say("rollback", held.name, "1", "--reason", REASON, "--yes")
        say("pause", held.name, "--reason", REASON)
        blocked = open_shop(connection, "blocked_of_orders", 4, committed=1)
        say("park", blocked.name, "2", "--reason", "the file of March has no header", "--yes")
        say("skip", blocked.name, "3", "--reason", REASON, "--yes")
        say("exclude", blocked.name, ITEM, "--reason", REASON, "--yes")
        blocked.runner.close(4, blocked.run_of(4), "its tasks ended without it")
        connection.close()
        yield dsn


def open_shop(connection, name, txids, committed):
    shop = Shop(connection, name=name, kinds=lambda _: states_of(name))
    for txid in range(1, txids + 1):
        shop.deliver(made(txid))
    execute(connection, DATES, topology=name)
    for txid in range(1, committed + 1):
        shop.transact(txid)
    return shop


def states_of(name):
    return [
        replace(state, name=f"{name.partition('_')[0]}_{state.name}")
        for state in states()
        if state.name in ("exact", "log")
    ]


@pytest.fixture
def ledger(troubled, monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", troubled)
    return troubled


def run(*arguments, code=0, **options):
    """Run a verb in a terminal, and return what it has written."""
    with terminal(*arguments, **options) as opened:
        assert opened.wait() == code, opened.text
        return opened


LOOKS = [
    ("status",),
    ("lag",),
    ("watch", "--once"),
    ("verify",),
    ("show", LONG, "2"),
    ("show", LONG, "2:1"),
    ("show", LONG, "5:0"),
    ("show", "blocked_of_orders", "4"),
    ("explain", LONG, "revenue_exact", "k", "word=a"),
    ("explain", LONG, "revenue_log"),
    ("txids", "blocked_of_orders"),
    ("topologies",),
]


@pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
def test_it_fits_a_terminal_and_is_whole_in_a_pipe(ledger, arguments):
    seen = run(*arguments)
    said = re.sub("^verify .* states [0-9:]+", "", seen.text)  # a bar, written again and again
    wide = [line for line in said.splitlines() if cell_len(line) > 80]
    assert [line for line in wide if not line.startswith("  `reliability ")] == []  # it is copied
    assert "…" not in said.replace("'…'", "")
    assert "\x1b[" in seen.raw
    piped = CliRunner().invoke(app, list(arguments)).output
    assert "\x1b" not in piped
    if arguments[0] not in ("watch", "lag", "verify"):  # they have ages, and a bar
        assert sorted(words(said)) == sorted(words(piped))


@pytest.mark.parametrize("verb", ["status", "verify"])
def test_who_wants_no_colours_gets_none(ledger, verb):
    """A long check has a bar all the same, on a terminal only."""
    without = run(verb, NO_COLOR="1")
    assert re.search(r"\x1b\[[\d;]*m", without.raw) is None
    assert ("\x1b" in without.raw) == (verb == "verify")  # a bar moves the cursor
    assert ("of 6 states" in without.text) == (verb == "verify")
    assert "states" not in say(verb).stderr


def words(text):
    """Return the words of an output, without the lines in its tables."""
    return {*text.replace("─", " ").split()}


def test_colours_say_what_words_say(ledger):
    said = run("status").raw
    for word, code in (("paused", 33), ("held", 33), ("parked", 33), ("skipped", 33)):
        assert f"\x1b[{code}m{word}\x1b[0m" in said
    assert "\x1b[1;31mblocked\x1b[0m" in said
    assert "\x1b[32m        4\x1b[0m" in said or "\x1b[32m4\x1b[0m" in said  # committed
    assert re.search("\x1b\\[36m *1\x1b", said)  # processing
    said = run("lag").raw
    assert re.search("\x1b\\[36mopen *\x1b", said)
    assert "\x1b[32mCOMMITTED\x1b[0m" in run("show", LONG, "2:1").raw


def test_what_a_person_copies_is_complete(ledger):
    said = run("status").text
    assert "`reliability release held_back`" in said
    command = said[said.index("`reliability include") :].split("`")[1]
    assert shlex.split(command)[:4] == ["reliability", "include", "blocked_of_orders", ITEM]
    said = run("lag").text
    assert "    run scheduled__2013-06-01T00:00:00+00:00\n" in said
    assert said.count("    next  when the cause is fixed: reliability release held_back\n") == 1
    wide = run("lag", columns=200).text
    assert "  scheduled__2013-06-01T00:00:00+00:00\n" in wide
    assert max(map(cell_len, wide.splitlines())) <= 200
    said = run("explain", LONG, "revenue_exact", "k", "word=a").text
    assert "now: k NULL, word a" in said
    assert "    run scheduled__2013-03-01T00:00:00+00:00\n" in said


def test_who_watches_sees_what_runs_now_and_what_needs_a_person(ledger):
    said = run("watch", "--once").text
    position = next(line for line in said.splitlines() if line.startswith(LONG))
    assert position.split()[1:6] == ["7", "4", "1", "1", "0.5"]  # 5 commits in 10 minutes
    [running] = [line for line in said.splitlines() if line.startswith("5:0 ")]
    assert running.split()[1:4] == [LONG, "processing", "process"]
    assert "txid 4 (run scheduled__2013-05-01T00:00:00+00:00" in said
    before, _, after = said.partition("what else to know\n")
    urgent = before.partition("what needs a person\n")[2]
    assert "blocked_of_orders: " in urgent
    assert LONG not in urgent  # it works
    others = after.partition("last commits\n")[0]
    assert f"{LONG}: txid 6 waits behind 5: txids commit in order" in " ".join(others.split())
    assert f"{LONG}: 3 intervals lack a commit: 3 open" in " ".join(others.split())
    assert "paused" not in others
    only = run("watch", LONG, "--once").text
    assert "held_back" not in only
    assert "[TOPOLOGY_UNKNOWN]" in run("watch", "nosuch", "--once", code=1).text


def test_a_view_shows_what_changes_and_ends_with_ctrl_c(dsn):
    said = run("watch", "--once").text
    assert "no attempt runs now\n" in said
    assert "nothing has committed yet\n" in said

    shop = Shop(LedgerConnection(dsn), kinds=lambda _: states_of("shop"))
    shop.deliver(made(1), made(2))
    shop.transact(1)
    with terminal("watch", "shop", "--every", "0.2") as opened:
        opened.wait_for("commit  1:0")
        shop.transact(2)
        opened.wait_for("commit  2:0")
        opened.type(CTRL_C)
        assert opened.wait() == 0, opened.text
    live, _, last = opened.raw.rpartition("\x1b[?1049l")
    assert "\x1b[?1049h" in live  # on a screen of its own
    assert "Ctrl-C ends" in opened.text
    assert "2:0" in last  # what it showed last stays
    assert opened.raw.rindex("\x1b[?25h") > opened.raw.rindex("\x1b[?25l")  # and the cursor is back
    shop.connection.close()


@pytest.mark.parametrize("arguments", [("status", "--watch", "0.2"), ("lag", "--watch", LONG)])
def test_status_and_lag_can_be_watched(ledger, arguments):
    with terminal(*arguments) as opened:
        opened.wait_for("Ctrl-C ends")
        opened.type(CTRL_C)
        assert opened.wait() == 0, opened.text
    assert LONG in opened.raw.rpartition("\x1b[?1049l")[2]


@pytest.mark.parametrize("arguments", [("status", "--watch"), ("lag", "--watch"), ("watch",)])
def test_nobody_watches_a_pipe(ledger, arguments):
    for refused in (arguments, (*arguments, "--fail-after", "3"), (*arguments, "--json")):
        done = CliRunner().invoke(app, list(refused))
        assert (done.exit_code, done.stdout) == (2, ""), refused
    assert "there is no terminal to watch it on" in words_of_error(arguments)


def words_of_error(arguments):
    """Return a usage error as one line: it is printed in a box."""
    said = CliRunner().invoke(app, list(arguments)).stderr
    return " ".join(said.replace("│", " ").split())


# --- texts of others -----------------------------------------------------------------------------

EVIL = "late\x1b]0;mine\x07\x1b[2J\r\n0 rows differ\x9b2J\u202e\u061c\u200e\u200f\u2028"
SHOWN = r"late\x1b]0;mine\x07\x1b[2J\r\n0 rows differ\x9b2J\u202e\u061c\u200e\u200f\u2028"
ACTS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


@pytest.fixture(scope="module")
def written_by_others(template):
    """A topology whose reasons, run ids, file names and keys would act on a terminal."""
    with new_database(template) as dsn, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELIABILITY_DSN", dsn)
        connection = LedgerConnection(dsn)
        shop = open_shop(connection, "shop", 6, committed=1)
        say("park", "shop", "2", "--reason", f"{EVIL} parked", "--yes")
        say("skip", "shop", "3", "--reason", f"{EVIL} skipped", "--yes")
        say("exclude", "shop", f"{EVIL}.csv", "--reason", f"{EVIL} excluded", "--yes")
        shop.runner.close(4, shop.run_of(4), f"{EVIL} closed")
        say("pause", "shop", "--reason", f"{EVIL} paused")
        with connection.transaction() as tx:
            for table in ("transaction", "request"):
                tx.run(
                    SQL(f"UPDATE reliability.{table} SET run_id = run_id || %(evil)s"), evil=EVIL
                )
            for table in ("public.shop_log", "reliability_contribution.shop__shop_log"):
                tx.run(SQL(f"UPDATE {table} SET word = %(evil)s WHERE word = 'a'"), evil=EVIL)
        connection.close()
        yield dsn


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("status",), ("parked", "skipped", "excluded", "paused", ".csv")),
        (("lag",), ("parked",)),
        (("watch", "--once"), ("parked", "paused")),
        (("txids", "shop"), ("parked", "skipped")),
        (("show", "shop", "2"), ("parked",)),
        (("show", "shop", "4"), ("closed",)),
        (("explain", "shop", "shop_log"), ("",)),
        (("doctor",), ()),
    ],
    ids=lambda one: one[0] if one and one[0] not in ("parked", "closed") else "",
)
def test_what_others_have_written_does_not_act_on_a_terminal(
    written_by_others, monkeypatch, arguments, shown
):
    """A reason with escape codes cleared the screen; one with line ends added lines of its own."""
    monkeypatch.setenv("RELIABILITY_DSN", written_by_others)
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0 or arguments == ("doctor",)
    assert not ACTS.search(done.stdout), done.stdout
    assert not ACTS.search(done.stderr), done.stderr
    assert not re.search(r"^0 rows differ", done.output, re.MULTILINE)
    for what in shown:
        assert f"{SHOWN} {what}".replace(" .csv", ".csv").rstrip() in done.stdout


def test_on_a_terminal_only_its_own_escape_codes_are_written(written_by_others, monkeypatch):
    """Also by a question and by an error."""
    monkeypatch.setenv("RELIABILITY_DSN", written_by_others)
    for arguments in (("status",), ("show", "shop", "2")):
        raw = run(*arguments, NO_COLOR="1").raw
        assert "\x1b]0;mine" not in raw
        assert "\x1b[2J" not in raw
        assert not ACTS.search(re.sub(r"\x1b\[[0-9;]*m", "", raw))
        assert r"\x1b]0;mine\x07" in raw
    asked = CliRunner().invoke(app, ["exclude", "shop", f"{EVIL}2", "--reason", "x"])
    assert r"late\x1b]0;mine" in asked.stderr
    assert not ACTS.search(asked.stderr)
    refused = CliRunner().invoke(app, ["txids", "shop", "--file", EVIL])
    assert "NOTHING_SELECTED" in refused.stderr
    assert not ACTS.search(refused.stderr)
    assert "\n  0 rows differ" in refused.stderr  # as a line of the error, not as a message
