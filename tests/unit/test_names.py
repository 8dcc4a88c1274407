"""Names of files: one for each, however it is spelled; what is hidden; what Spark cannot read."""

from __future__ import annotations

import os

import pytest

from reliability import Csv, FileSpout
from reliability.core.errors import NothingToEmit, SourceUnreadable
from reliability.core.spout import NoItems
from reliability.deployment.lazy import pa, pq
from reliability.spouts.file_item import FileItem
from reliability.spouts.file_names import check_name, identity_of_file, names_of
from reliability.spouts.filesystem import find_files


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home behind a symbolic link, with three files."""
    (tmp_path / "releases" / "5" / "in" / "day").mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/5")
    for name in ("in/a.csv", "in/b.csv", "in/day/c.csv"):
        (tmp_path / "current" / name).write_text("1\n")
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path / "current"))
    return tmp_path


def test_a_file_has_the_name_of_the_ledger_before_it_exists(home):
    own = home / "current"
    for name in ("in/a.csv", "./in//a.csv", f"{own}/in/a.csv", f"file:{own}/in/a.csv"):
        assert identity_of_file(name) == "in/a.csv"
    assert identity_of_file("top.csv") == "top.csv"
    assert identity_of_file("/elsewhere/a.csv") == "/elsewhere/a.csv"


def spout(pattern):
    return FileSpout(pattern, 9, format=Csv(), schema="n int", allow_empty=True)


class Ledger(NoItems):
    """What txid 1 has: names as an earlier emission wrote them."""

    def __init__(self, names=(), parts=()):
        self.names = set(names)
        self.parts = dict(parts)

    def which(self, identities):
        return self.names & set(identities)

    def keys(self, source):
        return {1: self.parts[source]} if source in self.parts else {}


# --- one name ------------------------------------------------------------------------------------

SAME = ["in/a.csv", "in/b.csv"]
SPELLINGS = """
    in/*.csv  ./in/*.csv  in//*.csv  .//in/./*.csv  in/../in/*.csv  in/day/../*.csv  in/*/../*.csv
    {home}/in/*.csv  {home}//in/*.csv  {home}/../../current/in/*.csv  {real}/in/*.csv
    {real}/../5/in/*.csv  {other}/in/*.csv  file:{home}/in/*.csv  file://{home}/in/*.csv
    file:////{real}/in/*.csv  file://localhost{home}/in/*.csv  FILE://LocalHost{home}/in/*.csv
    file://{home}/i%6E/*.csv
"""  # `..` is from where a link leads


def test_a_file_has_one_name_however_the_pattern_is_spelled(home):
    """E1: else another spelling would emit every file again.

    Names that were written before there was a home are absolute, and are known, too.
    """
    (home / "other").symlink_to(home / "releases")
    places = {"home": home / "current", "real": home / "releases" / "5", "other": home / "other/5"}
    written = [
        SAME,
        *([f"{places[place]}/in/{name}.csv" for name in "ab"] for place in ("home", "real")),
    ]
    for pattern in (spelling.format(**places) for spelling in SPELLINGS.split()):
        assert find_files(pattern) == SAME
        for names in written:
            assert spout(pattern).plan(None, Ledger(names)) == []


def test_a_folder_behind_a_link_keeps_the_name_that_the_pattern_has(home):
    """A release folder that moves must not make new items; nor may a link that is turned."""
    (home / "current" / "now").symlink_to("in/day")
    assert find_files("now/*") == ["now/c.csv"]
    assert find_files("now/../*.csv") == ["in/a.csv", "in/b.csv"]  # `..` is where the link leads
    os.rename(home / "releases" / "5", home / "releases" / "6")
    (home / "current").unlink()
    (home / "current").symlink_to("releases/6")
    assert find_files("in/*.csv") == find_files(f"{home}/current/in/*.csv") == SAME
    assert find_files(f"{home}/releases/6/in/*.csv") == SAME


def test_files_outside_of_the_home_are_absolute(home):
    (home / "x").mkdir()
    (home / "x" / "a.csv").touch()
    links = f"{home}/current/../../x/*"  # `..` of a link is where it leads
    for pattern in ("../../x/*", f"{home}/x/*", links, f"{home}/x/../x//*"):
        assert find_files(pattern) == [f"{home}/x/a.csv"]


def test_without_a_home_an_absolute_path_stays_absolute(home, monkeypatch):
    """The next process may have another working folder."""
    monkeypatch.setenv("RELIABILITY_HOME", str(home / "nowhere"))
    assert find_files(f"{home}/current/in/a.csv") == [f"{home}/current/in/a.csv"]
    monkeypatch.delenv("RELIABILITY_HOME")
    monkeypatch.chdir(home / "current")
    assert find_files(f"{home}/current/in/../in/*.csv") == [
        f"{home}/current/in/a.csv",
        f"{home}/current/in/b.csv",
    ]
    assert find_files("./in/*.csv") == SAME


def test_the_scheme_of_a_store_is_no_part_of_the_name_and_spark_gets_it():
    for store in (("s3", "s3a", "s3n"), ("abfs", "abfss"), ("wasb", "wasbs"), ("gs",)):
        for scheme in store:
            item = FileItem(path=f"{scheme}://bucket/in/a.csv", size=1, mtime_ns=1, rows=1)
            assert (item.source, item.identity) == (f"{store[0]}://bucket/in/a.csv",) * 2
            assert item.path == f"{scheme}://bucket/in/a.csv"
            assert names_of(item.path) == [item.source]


def test_remote_patterns_are_normalised_as_hadoop_does(tmp_path):
    import fsspec

    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pipe("/in/x/a.csv", b"1\n")
    for pattern in ("in/x/*.csv", "in//x/*.csv", "./in/./x/*", "in/y/../x/*", "in/**/**/*.csv"):
        assert find_files(f"memory:///{pattern}") == ["memory:///in/x/a.csv"]
    files.store.clear()


def test_pieces_of_a_file_that_were_emitted_before_there_was_a_home_are_known(home):
    """E1: else its rest would be emitted whole."""
    path = home / "current" / "in" / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3]}), path, row_group_size=1)
    ledger = Ledger(parts={str(path): "{[0,2)}"})
    [left] = FileSpout("in/*.parquet", 9).plan(None, ledger)
    assert (left.source, left.part) == ("in/a.parquet", "{[2,3)}")


# --- what is listed ------------------------------------------------------------------------------

WRITTEN = """
    in/a.csv  in/day/c.csv  in/_day=1/a.csv  in/_temporary/0/task_1/part-0.csv
    in/day/_temporary/0/part-0.csv  in/_delta_log/0.csv  in/.staging/a.csv  in/_SUCCESS
    in/_a.csv  in/.a.csv.crc  in/b.csv._COPYING_  in/x._COPYING_/a.csv
"""
FOUND = {
    "in/*": ["in/a.csv"],
    "in/*/*.csv": ["in/_day=1/a.csv", "in/day/c.csv"],
    "in/**": ["in/_day=1/a.csv", "in/a.csv", "in/day/c.csv"],
    "in/**/**/*.csv": ["in/_day=1/a.csv", "in/a.csv", "in/day/c.csv"],
    "in/**/day/**/*.csv": ["in/day/c.csv"],
    "in/?temporary/0/*/*.csv": [],
    "in/[_]temporary/0/*/*.csv": [],
    # what the pattern writes out is its author's choice
    "in/_temporary/0/*/*.csv": ["in/_temporary/0/task_1/part-0.csv"],
    "in/_temp*/0/*/*.csv": ["in/_temporary/0/task_1/part-0.csv"],
    "in/.staging/*.csv": ["in/.staging/a.csv"],
    "in/*._COPYING_/*.csv": ["in/x._COPYING_/a.csv"],
}


def test_wildcards_match_nothing_that_spark_hides(tmp_path):
    """Rows of a job that still writes would count twice: there, and under their last name."""
    import fsspec

    files = fsspec.filesystem("memory")
    files.store.clear()
    for name in WRITTEN.split():
        files.pipe(f"/{name}", b"1\n")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    for start in (f"{tmp_path}/", "memory:///"):
        for pattern, found in FOUND.items():
            assert find_files(f"{start}{pattern}") == [f"{start}{name}" for name in found]
    files.store.clear()


def test_a_file_with_two_paths_by_a_link_is_refused(home):
    """Its rows would count twice."""
    (home / "current" / "in" / "newest.csv").symlink_to("b.csv")
    with pytest.raises(SourceUnreadable, match=r"in/b\.csv and in/newest\.csv are one file"):
        find_files("in/*")
    os.link(home / "current" / "in" / "a.csv", home / "current" / "in" / "copy.csv")
    assert find_files("in/[ac]*") == ["in/a.csv", "in/copy.csv"]


def test_a_link_that_leads_back_is_followed_once(home):
    for name in ("loop", "again"):
        (home / "current" / "in" / "day" / name).symlink_to(home / "current" / "in")
    assert find_files("in/**/*.csv") == ["in/a.csv", "in/b.csv", "in/day/c.csv"]


def test_a_link_that_leads_nowhere_is_no_file(home):
    (home / "current" / "in" / "gone.csv").symlink_to("nowhere")
    (home / "current" / "in" / "self.csv").symlink_to("self.csv")
    assert find_files("in/*.csv") == find_files("in/**/[ab].csv") == SAME


# --- what Spark cannot read ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a:b.csv", "colon"), ("12:00/[x].csv", "colon"), (os.fsdecode(b"\xff/a.csv"), "not UTF-8")],
)
def test_a_file_whose_name_spark_cannot_read_is_refused(tmp_path, name, reason):
    """With all that a person needs to rename it, and before anything else is looked at."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("1\n")
    (tmp_path / "0.csv").write_text("broken,")
    with pytest.raises(SourceUnreadable, match=rf"cannot read .*{reason}.*What to do: rename it"):
        spout(f"{tmp_path}/**").plan(None, NoItems())


def test_a_file_of_a_hidden_name_is_refused_where_the_pattern_writes_it_out(tmp_path):
    """Spark would read nothing of it."""
    for name in ("_a.csv", ".a.csv", "a._COPYING_"):
        (tmp_path / name).write_text("1\n")
        with pytest.raises(SourceUnreadable, match="ignores names that start with"):
            spout(f"{tmp_path}/{name}").plan(None, NoItems())
    with pytest.raises(NothingToEmit):
        FileSpout(f"{tmp_path}/*").plan(None, NoItems())


def test_a_name_that_a_txid_has_is_in_nobodys_way(tmp_path):
    """It may have been parked or skipped."""
    (tmp_path / "a:b.csv").write_text("1\n")
    assert spout(f"{tmp_path}/*").plan(None, Ledger([f"{tmp_path}/a:b.csv"])) == []


def test_a_key_that_hadoop_takes_for_another_is_refused():
    for key in ("s3://b/in//a.csv", "s3://b/in/./a.csv", "s3://b/in/../a.csv"):
        with pytest.raises(SourceUnreadable, match="Hadoop changes such names"):
            check_name(key)


@pytest.mark.parametrize("start", ["", "memory://"])
def test_a_folder_with_the_name_of_a_file_is_not_passed_over(tmp_path, start):
    """Spark writes such: its rows would never be read, and nothing would tell."""
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory" if start else "file")
    files.makedirs(f"{tmp_path}/in/a.parquet", exist_ok=True)
    files.pipe(f"{tmp_path}/in/a.parquet/part-0.parquet", b"1")
    files.pipe(f"{tmp_path}/in/b.parquet", b"1")
    try:
        for pattern in ("in/*.parquet", "*/*.parquet", "in/a.parquet", "in"):
            with pytest.raises(SourceUnreadable, match="is a folder"):
                find_files(f"{start}{tmp_path}/{pattern}")
        for pattern in ("in/**/*.parquet", "in/a.parquet/*", "in/*", "in/_*.parquet"):
            find_files(f"{start}{tmp_path}/{pattern}")
    finally:
        files.rm(str(tmp_path), recursive=True)
