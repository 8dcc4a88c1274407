"""What lies in a source's folder by mistake or by malice: links, pipes, closed folders, odd names.

The rules of docs/sources/files.md: a link is followed, and its file has the name that the pattern
has; what cannot be read is an error, never passed over.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability import Csv, DeltaSpout, FileSpout
from reliability.core.errors import NothingToEmit, ReliabilityError, SourceChanged, SourceUnreadable
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta, NoItems
from reliability.deployment.lazy import pa, pq
from reliability.spouts import footer, text
from reliability.spouts.filesystem import find_files, stat
from reliability.spouts.log_item import DeltaFile
from reliability.spouts.patterns import is_hidden

NOBODY = 65534


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with two files, and a file that lies outside of it."""
    for name in ("home/in/a.csv", "home/in/day/b.csv", "secret.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def spout(pattern, **options):
    return FileSpout(pattern, 9, format=Csv(), schema="n int", **options)


def planned(pattern, **options):
    return [item.path for item in spout(pattern, **options).plan(None, NoItems())]


# --- links ---------------------------------------------------------------------------------------


def test_a_link_that_leads_out_of_the_home_is_followed_and_keeps_its_name(home):
    """Else a file that is counted would be another one if the link is turned."""
    (home / "in" / "out.csv").symlink_to("../../secret.csv")
    (home / "in" / "far").symlink_to(home.parent)
    assert planned("in/out.csv") == ["in/out.csv"]
    assert planned("in/far/*.csv") == ["in/far/secret.csv"]
    with pytest.raises(SourceUnreadable, match=r"far/secret\.csv and in/out\.csv are one file"):
        find_files("in/**/*.csv")


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("when", ["after it was read", "while it is read"])
def test_a_link_that_is_turned_is_a_changed_file(home, monkeypatch, format, when):
    """Of size and time of one file and the rows of another, no attempt may begin."""
    targets = [home / f"{name}.{format}" for name in ("old", "new")]
    for target, rows in zip(targets, (["1"], ["1", "2", "3"]), strict=True):
        if format == "csv":
            target.write_text("\n".join(rows) + "\n")
        else:
            pq.write_table(pa.table({"n": rows}), target)
    link = home / "in" / f"link.{format}"
    link.symlink_to(targets[0])

    def turn():
        link.unlink()
        link.symlink_to(targets[1])

    def stat_then_turn(path):
        found = stat(path)
        turn()
        return found

    own = spout(f"in/link.{format}") if format == "csv" else FileSpout("in/link.parquet")
    if when == "while it is read":
        with monkeypatch.context() as patch:
            for module in (text, footer):
                patch.setattr(module, "stat", stat_then_turn)
            items = own.plan(None, NoItems())
    else:
        items = own.plan(None, NoItems())
        turn()
    with pytest.raises(SourceChanged, match=rf"in/link\.{format} changed: size"):
        own.verify(BatchMeta(items=tuple(items), emitted=own.count(items)))


def test_a_file_that_goes_between_listing_and_reading_is_an_error(home, monkeypatch):
    monkeypatch.setattr("reliability.spouts.file.find_files", lambda pattern: ["in/gone.csv"])
    with pytest.raises(SourceUnreadable, match=r"in/gone\.csv is not a file"):
        planned("in/*.csv")


# --- what is no file -----------------------------------------------------------------------------


def test_pipes_and_devices_are_no_files_and_nobody_waits_for_them(home, monkeypatch):
    """To open a pipe waits for who writes to it, and a device never ends."""
    os.mkfifo(home / "in" / "pipe.csv")
    (home / "in" / "link.csv").symlink_to("pipe.csv")
    (home / "in" / "zero.csv").symlink_to("/dev/zero")
    assert planned("in/*.csv") == ["in/a.csv"]
    for name in ("pipe", "link", "zero"):
        with pytest.raises(NothingToEmit, match="no file matches"):
            planned(f"in/{name}.csv")
    monkeypatch.setattr("reliability.spouts.file.find_files", lambda pattern: ["in/pipe.csv"])
    for own in (spout("*.csv"), FileSpout("*.parquet")):  # it has become one since it was listed
        with pytest.raises(SourceUnreadable, match=r"in/pipe\.csv is not a file"):
            own.plan(None, NoItems())


# --- what may not be read ------------------------------------------------------------------------


@pytest.fixture
def delivered(monkeypatch):
    """A folder of files, as a user sees it who is not root."""
    assert pq  # it is imported by who may read it
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for own in ("in", "closed"):
            (folder / own).mkdir()
        (folder / "in" / ".old").symlink_to("../closed/in")
        (folder / "in" / "a.csv").write_text("1\n")
        pq.write_table(pa.table({"n": [1]}), folder / "in" / "a.parquet")
        monkeypatch.setenv("RELIABILITY_HOME", name)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(NOBODY)
        try:
            assert planned("in/*.csv") == ["in/a.csv"]
            yield lambda place, mode: _as_root(lambda: (folder / place).chmod(mode), is_root)
        finally:
            if is_root:
                os.seteuid(0)
            for own in ("in", "closed"):
                (folder / own).chmod(0o755)


def _as_root(call, is_root):
    if not is_root:
        return call()
    os.seteuid(0)
    try:
        return call()
    finally:
        os.seteuid(NOBODY)


def test_a_file_that_may_not_be_read_is_an_error(delivered):
    for name in ("in/a.csv", "in/a.parquet"):
        delivered(name, 0)
    with pytest.raises(SourceUnreadable, match=r"in/a\.csv cannot be read as csv: .*[Pp]ermission"):
        planned("in/*.csv", allow_empty=True)
    with pytest.raises(SourceUnreadable, match=r"in/a\.parquet cannot be read: .*[Pp]ermission"):
        FileSpout("in/*.parquet").plan(None, NoItems())


def test_files_in_a_folder_that_may_not_be_searched_are_not_passed_over(delivered):
    """With `allow_empty` the interval was green, without its files, and nothing told of them."""
    for mode in (0, 0o444):  # closed, or its names alone
        delivered("in", mode)
        for pattern in ("in/*.csv", "in/a.csv", "*/a.csv", "i*/*.csv", "**/*.csv"):
            with pytest.raises(SourceUnreadable, match=r"cannot be listed: .*Permission denied"):
                planned(pattern, allow_empty=True)


@pytest.mark.parametrize("name", ["verify", "refresh"])
def test_a_folder_that_may_not_be_searched_any_more_is_an_error_of_the_source(delivered, name):
    """A replay and a refreeze ended in a traceback, of Delta and Iceberg tables too."""
    own = FileSpout("in/*.parquet")
    file = DeltaFile(
        path="in/a.parquet", size=1, rows=1, table_id="", version=0, behind=0, schema="n int"
    )
    batches = (own, own.plan(None, NoItems())), (DeltaSpout("in"), [file])
    delivered("in", 0)
    for spout, items in batches:
        with pytest.raises((SourceUnreadable, SourceChanged), match=r"in/a\.parquet"):
            getattr(spout, name)(BatchMeta(items=tuple(items), emitted=Fold()))


def test_a_hidden_link_into_a_folder_that_may_not_be_searched_is_left_alone(delivered):
    """Spark ignores its name, and so does a pattern."""
    delivered("closed", 0)
    assert planned("in/**/*.csv") == ["in/a.csv"]


def test_a_name_that_the_system_refuses_is_an_error(home):
    for name in ("x" * 300 + ".csv", "a\0.csv", "a\ud800.csv", "\0/*.csv", "*/\0.csv"):
        with pytest.raises(SourceUnreadable, match="cannot be listed"):
            planned(f"in/{name}", allow_empty=True)
    with pytest.raises(SourceUnreadable, match="cannot be listed"):
        planned("file:/in/a%00.csv", allow_empty=True)


# --- any pattern, and any name -------------------------------------------------------------------

PIECES = [
    *(".", "/", "*", "**", "?", "[", "]", "[!a]", "{", "}", "[{]", "%", "%00", "~", "$HOME", "://"),
    *("in", "a.csv", "day", "\0", "\n", "\\", "\udcff", "\ud800", "ü", " ", "-"),
]
patterns = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=7).map("".join)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(patterns)
def test_any_pattern_finds_files_or_is_refused_with_an_error_of_the_project(home, pattern):
    """What it finds, it finds again by the name that it has given to it."""
    with suppress(ReliabilityError):
        for path in planned(f"in/{pattern}", allow_empty=True):
            assert find_files("".join(f"[{c}]" if c in "*?[" else c for c in path)) == [path]


names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60
).map(lambda text: f"{text}.csv")


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
@given(st.lists(names, min_size=1, max_size=4, unique=True))
def test_a_file_of_any_name_has_its_name_or_is_refused(home, names):
    with tempfile.TemporaryDirectory(dir=home) as folder:
        for name in names:
            with suppress(OSError):  # it has more than 255 bytes
                Path(folder, name).write_text("1\n")
        place = os.path.relpath(folder, home)
        shown = {f"{place}/{name}" for name in os.listdir(folder) if not is_hidden(name)}
        if any(":" in path for path in shown):
            with pytest.raises(SourceUnreadable, match="colon"):
                planned(f"{place}/*.csv")
        else:
            assert {*planned(f"{place}/*.csv", allow_empty=True)} == shown
