"""How text and tables are laid out for a terminal, and what its colours mean."""

from __future__ import annotations

import io
import re
import shlex
from threading import Thread
from typing import Any

import pytest
import typer
from rich.console import Console

from reliability.cli import live
from reliability.cli.bars import TxidBar, TxidLines
from reliability.cli.doctor import CheckStatus
from reliability.cli.parts import Line, Table, fold, show, styled
from reliability.cli.terminal import style_of
from reliability.core.coordinator import AttemptStatus
from reliability.core.errors import LedgerUnavailable
from reliability.core.request import RequestStatus
from reliability.core.texts import format_length
from reliability.transaction.inspect.completeness import COMPLETE
from reliability.transaction.inspect.intervals import IntervalState

EXCLUDED = (
    "data/a file.csv excluded, until `reliability include shop 'data/a file.csv' --reason 'it came "
    "back'`: a test delivery"
)


def folded(text, width, *, is_live=False):
    out = Console(width=width)
    out._is_alt_screen = is_live
    return [line.plain for line in fold(styled(text), out, width, 2)]


@pytest.mark.parametrize("states", [IntervalState, AttemptStatus, RequestStatus, CheckStatus])
def test_every_state_has_a_meaning(states):
    assert all(style_of(state.value) for state in states)
    assert style_of(COMPLETE) == style_of("committed") == "green"


@pytest.mark.parametrize("width", [24, 33, 40, 57, 80, 200])
def test_text_is_folded_at_words_and_a_command_is_whole(width):
    lines = folded(EXCLUDED, width)
    [command] = [line for line in lines if "`" in line]
    argument = ["reliability", "include", "shop", "data/a file.csv", "--reason", "it came back"]
    assert shlex.split(command.split("`")[1]) == argument
    assert max((len(line) for line in lines if line != command), default=0) <= width
    assert " ".join(line.strip() for line in lines) == EXCLUDED


def test_a_command_after_a_colon_is_not_broken():
    text = "next: fix the cause of it; then: reliability resume-runs orders_of_the_north"
    assert folded(text, 50) == [
        "next: fix the cause of it; then:",
        "  reliability resume-runs orders_of_the_north",
    ]


def test_a_word_that_is_too_long_is_left_to_the_terminal():
    item = "data/" + 40 * "x"
    assert folded(f"item {item} is gone", 30) == ["item", f"  {item}", "  is gone"]
    in_a_live_view = folded(f"item {item} is gone", 30, is_live=True)
    assert max(map(len, in_a_live_view)) <= 30
    assert "".join(in_a_live_view).replace(" ", "") == f"item{item}isgone"


def test_wide_characters_count_twice():
    assert folded("顧客 の 注文 が 来る", 21) == ["顧客 の 注文 が", "  来る"]


COLUMNS = ("topology", ">n", "what", "run")
ROWS = [["shop", "12", "a reason of several words that is long", "scheduled__2013-01-01"]]


@pytest.mark.parametrize(
    ("width", "beside"), [(90, 4), (75, 4), (74, 3), (52, 3), (51, 2), (12, 2), (5, 1)]
)
def test_columns_that_do_not_fit_stand_below(width, beside):
    assert list(Table(COLUMNS, ROWS).beside(width)) == list(range(beside))


def test_the_columns_that_matter_least_go_first():
    assert list(Table(COLUMNS, ROWS, least=["n", "what"]).beside(40)) == [0, 3]


@pytest.fixture
def screen(monkeypatch):
    """A console of 80 columns and 10 lines, which keeps what is written."""
    out = Console(file=io.StringIO(), force_terminal=True, width=80, height=10, highlight=False)
    for module in ("live", "parts"):
        monkeypatch.setattr(f"reliability.cli.{module}.console", lambda: out)
    return out


def test_rows_that_share_what_stands_below_them_have_it_once(screen):
    below = [[("why", "the price list")]] * 2 + [[("why", "a header")]]
    rows = [("shop", n, f"scheduled__2013-0{n}-01T00:00:00+00:00" + 40 * "x") for n in (1, 2, 3)]
    columns = ("topology", "txid", "run")
    show([Table(columns, rows, below=below)])
    said = screen.file.getvalue()
    assert [said.count(text) for text in ("the price list", "a header", "run")] == [1, 1, 3]


def test_a_view_outlives_an_outage_and_says_what_it_hides(screen, monkeypatch):
    def page():
        pages.append(1)
        if len(pages) == 2:
            raise LedgerUnavailable("the server does not answer")
        return [Line(f"page {len(pages)}"), *(Line(f"line {n}") for n in range(20))]

    def sleep(seconds):
        if len(pages) == 3:
            raise KeyboardInterrupt

    pages = []
    monkeypatch.setattr("reliability.cli.live.time.sleep", sleep)
    live.follow(page, 7)
    said = re.sub(r"\x1b\[[\d;]*m", "", screen.file.getvalue())
    assert "failed to read it again:" in said
    assert "[LEDGER_UNAVAILABLE]" in said
    assert "again every 7 s" in said
    assert "13 more lines" in said
    assert said.rpartition("\x1b[?1049l")[2].splitlines()[0] == "page 3"


def test_a_view_needs_a_terminal(monkeypatch):
    with pytest.raises(typer.BadParameter, match="no terminal"):
        live.follow(lambda: [], 1)
    with pytest.raises(typer.BadParameter, match="--json"):
        live.follow(lambda: [], 1, as_json=True)


def test_a_replay_shows_how_many_txids_are_done_and_what_runs_now():
    written = io.StringIO()
    err = Console(file=written, force_terminal=True, width=60)
    progress = TxidBar(3, err)
    progress.say("attempt 1:1 begins", 1)
    progress.say("txid 2 waits for its turn", 2)
    progress.done(1)
    err.print(progress)
    said = written.getvalue()
    assert "txid 2 waits for its turn" in said
    assert "attempt 1:1" not in said
    assert "1 of 3" in re.sub(r"\x1b\[[0-9;]*m", "", said)


def test_in_a_pipe_a_replay_prints_what_changes():
    written = io.StringIO()
    err = Console(file=written, width=1000)
    progress = TxidLines(3, err)
    progress.expect(2)
    for _ in range(2):
        progress.say("txid 1 waits", 1)
        progress.say("txid 2 waits", 2)
    progress.done(1)
    assert written.getvalue() == "txid 1 waits\ntxid 2 waits\n1 of 2 txids are done\n"


class Pipe:
    """Not a terminal; `next` happens while it prints."""

    is_terminal = False

    def __init__(self):
        self.lines = []
        self.next = lambda: None

    def print(self, text):
        self.next()
        self.lines.append(text)


def test_each_count_is_printed_once_and_in_order():
    """Two threads that were done at once both printed the count of the second."""
    pipe: Any = Pipe()
    progress = TxidLines(2, pipe)
    other = Thread(target=progress.done, args=(2,))

    def meanwhile():
        pipe.next = lambda: None
        other.start()
        other.join(0.2)  # it has to wait for this line

    pipe.next = meanwhile
    progress.done(1)
    other.join()
    assert pipe.lines == ["1 of 2 txids are done", "2 of 2 txids are done"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.9, "59.9 s"), (3600, "1 h"), (200000, "2 d 7 h")]
)
def test_lengths_have_two_units(seconds, text):
    assert format_length(seconds) == text
