"""Names of files: what is listed, and what is hidden."""

from __future__ import annotations

import os

import pytest

from reliability.core.errors import SourceUnreadable
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


# --- what is listed ------------------------------------------------------------------------------

WRITTEN = [
    "in/a.csv",
    "in/day/c.csv",
    "in/_day=1/a.csv",
    "in/_temporary/0/task_1/part-0.csv",
    "in/day/_temporary/0/part-0.csv",
    "in/_delta_log/0.csv",
    "in/.staging/a.csv",
    "in/_SUCCESS",
    "in/_a.csv",
    "in/.a.csv.crc",
    "in/b.csv._COPYING_",
    "in/x._COPYING_/a.csv",
]


@pytest.mark.parametrize("pattern_of", ["{home}/{pattern}", "memory:///{pattern}"])
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("in/*", ["in/a.csv"]),
        ("in/*/*.csv", ["in/_day=1/a.csv", "in/day/c.csv"]),
        ("in/**", ["in/_day=1/a.csv", "in/a.csv", "in/day/c.csv"]),
        ("in/**/*.csv", ["in/_day=1/a.csv", "in/a.csv", "in/day/c.csv"]),
        ("in/**/**/*.csv", ["in/_day=1/a.csv", "in/a.csv", "in/day/c.csv"]),
        ("in/**/day/**/*.csv", ["in/day/c.csv"]),
        ("in/?temporary/0/*/*.csv", []),
        ("in/[_]temporary/0/*/*.csv", []),
        # what the pattern writes out is its author's choice
        ("in/_temporary/0/*/*.csv", ["in/_temporary/0/task_1/part-0.csv"]),
        ("in/_temp*/0/*/*.csv", ["in/_temporary/0/task_1/part-0.csv"]),
        ("in/.staging/*.csv", ["in/.staging/a.csv"]),
        ("in/*._COPYING_/*.csv", ["in/x._COPYING_/a.csv"]),
    ],
)
def test_wildcards_match_nothing_that_spark_hides(tmp_path, pattern_of, pattern, found):
    """Rows of a job that still writes would count twice: there, and under their last name."""
    import fsspec

    files = fsspec.filesystem("memory")
    files.store.clear()
    for name in WRITTEN:
        files.pipe(f"/{name}", b"1\n")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    listed = find_files(pattern_of.format(home=tmp_path, pattern=pattern))
    files.store.clear()
    start = pattern_of.format(home=tmp_path, pattern="")
    assert [path.removeprefix(start) for path in listed] == found


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
    assert find_files("in/*.csv") == find_files("in/**/[ab].csv") == ["in/a.csv", "in/b.csv"]


def test_a_folder_that_cannot_be_listed_is_an_error(home, monkeypatch):
    """Its files would be missed without a word."""
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("/day"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(SourceUnreadable, match=r"cannot be listed: .*Permission denied"):
        find_files("in/**")
