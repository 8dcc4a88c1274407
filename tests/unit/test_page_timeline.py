"""What the page in Airflow is made of: the timeline, its templates, the files of others."""

from __future__ import annotations

import doctest
import hashlib
import re
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError, nodes

from reliability_airflow.page import timeline
from reliability_airflow.page.timeline import CUT, LEAST, MARGIN, Axis, Lane, axis_of, lane

PAGE = Path(timeline.__file__).parent
UPLOT = PAGE / "static" / "uplot"
START = datetime(2013, 4, 1, 12, 0, tzinfo=timezone.utc)


def at(seconds):
    return START + timedelta(seconds=seconds)


def spans(*pairs):
    return [(at(begin), at(end)) for begin, end in pairs]


def attempt(txid=1, attempt_id=0, status="COMMITTED", **other):
    """Return a row of attempts_of_page: granted, sealed, begun to commit, committed."""
    return {
        "txid": txid, "attempt_id": attempt_id, "status": status, "verdict": None, "change": None,
        "reason_code": None, "granted_at": at(0), "processed_at": None, "began_at": None,
        "committed_at": None, "ended_at": None, "now": at(100), **other,
    }  # fmt: skip


COMMITTED = attempt(processed_at=at(10), began_at=at(14), committed_at=at(15), ended_at=at(15))


# --- the axis ------------------------------------------------------------------------------------


def test_an_axis_without_attempts_is_empty():
    axis = Axis([])
    assert axis.at(START) == 0.0
    assert [*axis.ticks()] == []


def test_the_axis_is_linear_and_leaves_a_margin():
    axis = Axis(spans((0, 50), (40, 100)))
    assert [axis.at(at(s)) for s in (0, 50, 100)] == [0, (100 - MARGIN) / 2, 100 - MARGIN]
    assert axis.at(at(-9)) == 0  # before and after all of it are its ends
    assert axis.at(at(999)) == 100 - MARGIN


def test_a_long_pause_is_cut_and_a_short_one_is_not():
    axis = Axis(spans((0, 100), (110, 200), (200 + 86400, 300 + 86400)))
    room = 100 - MARGIN - CUT
    before, after = axis.at(at(200)), axis.at(at(200 + 86400))
    assert after - before == pytest.approx(CUT)
    assert before == pytest.approx(room * 200 / 300)
    assert axis.at(at(105)) == pytest.approx(room * 105 / 300)  # 10 s are drawn as they are
    assert axis.at(at(5000)) == before  # in the pause
    (cut,) = [tick for tick in axis.ticks() if tick.is_cut]
    assert cut.label == "1 d"
    assert cut.at == pytest.approx((before + after) / 2)


def test_a_moment_takes_no_time():
    axis = Axis(spans((0, 0)))
    assert axis.at(at(0)) == 0
    assert [tick.label for tick in axis.ticks()] == ["12:00:00"]


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (5, ["12:00:00", "12:00:01"]),
        (600, ["12:00", "12:02"]),
        (86400, ["12:00", "18:00"]),
        (8 * 86400, ["04-02", "04-04"]),
    ],
)
def test_ticks_are_round_and_few(seconds, labels):
    ticks = [*Axis(spans((0, seconds))).ticks()]
    found = [tick.label for tick in ticks]
    assert found[: len(labels)] == labels or set(labels) <= set(found), found
    assert len(ticks) <= 9
    assert [tick.at for tick in ticks] == sorted(tick.at for tick in ticks)
    assert all(0 <= tick.at <= 96 for tick in ticks)


def test_many_pauses_leave_room():
    axis = Axis(spans(*((n * 1000, n * 1000 + 1) for n in range(30))))
    places = [axis.at(at(n * 1000)) for n in range(30)]
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] <= 100


def test_more_pauses_than_there_is_room_for():
    """As when each of 200 txids of a page was processed on a day of its own."""
    axis = Axis(spans(*((n * 86400, n * 86400 + 1) for n in range(200))))
    places = [axis.at(at(n * 86400 + s)) for n in range(200) for s in (0, 1)]
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] <= 100
    assert places[1] - places[0] >= LEAST  # the bars have most of the width
    cuts = [tick.at for tick in axis.ticks() if tick.is_cut]
    assert all(after - before >= CUT for before, after in pairwise(cuts))


# --- bars and marks ------------------------------------------------------------------------------


def drawn(*rows):
    return lane(axis_of(rows), rows)


def test_a_commit_has_three_bars_side_by_side():
    found = drawn(COMMITTED)
    assert [(bar.kind, bar.title) for bar in found.bars] == [
        ("processing", "1:0 processing, 10.0 s"),
        ("waiting", "1:0 waiting for its turn, 4.0 s"),
        ("commit", "1:0 commit, 1.0 s"),
    ]
    for bar, following in pairwise(found.bars):
        assert bar.begin + bar.width == pytest.approx(following.begin)
    assert found.marks == ()
    assert found.text == "; ".join(bar.title for bar in found.bars)


def test_what_goes_on_ends_now():
    (bar,) = drawn(attempt(status="PROCESSING")).bars
    assert (bar.begin, bar.width) == (0, 100 - MARGIN)
    assert bar.title == "1:0 processing, 1 min 40 s"
    processed = drawn(attempt(status="PROCESSED", processed_at=at(40)))
    assert [bar.kind for bar in processed.bars] == ["processing", "waiting"]


@pytest.mark.parametrize(
    ("row", "kind", "title"),
    [
        (attempt(status="FAILED", reason_code="SOURCE_CHANGED", ended_at=at(5)),
         "failed", "1:0 failed, SOURCE_CHANGED"),
        (attempt(status="FENCED", ended_at=at(5)), "fenced", "1:0 fenced"),
        (attempt(status="DRY_RUN", ended_at=at(5)), "dry-run", "1:0 dry run"),
        ({**COMMITTED, "status": "ROLLED_BACK", "ended_at": at(9000)},
         "rolled-back", "1:0 rolled back"),
        ({**COMMITTED, "change": "REPLAY"}, "replay", "1:0 replayed"),
        ({**COMMITTED, "verdict": "PARKED"}, "parked", "1:0 parked"),
        ({**COMMITTED, "verdict": "SKIPPED"}, "skipped", "1:0 skipped"),
    ],
)  # fmt: skip
def test_each_end_has_its_mark(row, kind, title):
    found = drawn(row)
    (mark,) = found.marks
    assert (mark.kind, mark.title) == (kind, title)
    assert mark.sign
    assert 0 <= mark.at <= 100
    assert title in found.text
    assert bool(found.bars) == (row["verdict"] is None)


def test_a_replay_that_was_replaced_keeps_its_mark():
    replaced = {**COMMITTED, "change": "REPLAY", "status": "REPLACED"}
    assert [mark.kind for mark in drawn(replaced).marks] == ["replay"]


def test_a_rollback_long_after_the_commit_takes_no_time():
    rolled_back = {**COMMITTED, "status": "ROLLED_BACK", "ended_at": at(10**6)}
    axis = axis_of([rolled_back])
    assert axis.at(at(15)) == 100 - MARGIN
    assert not [tick for tick in axis.ticks() if tick.is_cut]


def test_clocks_that_went_back_draw_nothing_backwards():
    row = attempt(processed_at=at(-5), began_at=at(-9), committed_at=at(-7), ended_at=at(-7))
    for bar in drawn(row).bars:
        assert bar.width >= LEAST
        assert 0 <= bar.begin <= 100


def test_a_short_bar_can_be_seen():
    quick = attempt(2, processed_at=at(0.001), began_at=at(0.001), committed_at=at(0.002))
    rows = [attempt(status="PROCESSING"), quick]
    assert all(bar.width >= LEAST for bar in lane(axis_of(rows), rows[1:]).bars)


def test_a_txid_without_attempts():
    assert Lane().text == "no attempt yet"


def test_the_examples_of_the_module():
    assert doctest.testmod(timeline).failed == 0


# --- templates, and the files of others ----------------------------------------------------------

TEMPLATES = sorted(path.name for path in (PAGE / "templates").glob("*.html"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_takes_what_is_not_there_as_an_error(name):
    """Rendered without any value: a name that is not given is never an empty text."""
    environment = environment_of_templates()
    if name == "macros.html":  # it only defines
        assert environment.get_template(name).module.notes_of([]).strip() == ""
        return
    with pytest.raises(UndefinedError):
        environment.get_template(name).render()


def environment_of_templates():
    from reliability_airflow.page.rendering import _environment

    environment = _environment()
    assert environment.undefined is StrictUndefined
    assert environment.autoescape is True
    return environment


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_template_trusts_a_text_or_has_a_style_or_script_of_its_own(name):
    source = (PAGE / "templates" / name).read_text()
    plain = Environment(loader=FileSystemLoader(PAGE / "templates"))
    used = {node.name for node in plain.parse(source).find_all(nodes.Filter)}
    assert "safe" not in used
    assert not re.search(r"\s(style|on\w+)=", source)
    assert not re.search(r"<script>|<style>|https?://", source)


def test_the_plotting_library_is_the_recorded_one():
    said = (UPLOT / "README.md").read_text()
    recorded = dict(re.findall(r"\| `([^`]+)` \| `([0-9a-f]{64})` \|", said))
    files = {path.name for path in UPLOT.iterdir()} - {"README.md"}
    assert recorded == {
        name: hashlib.sha256((UPLOT / name).read_bytes()).hexdigest() for name in files
    }
    assert "npm package `uplot`, version 1.6.32" in said
    assert "(v1.6.32)" in (UPLOT / "uPlot.iife.min.js").read_text()[:200]
