"""Where servers whose data do not matter have them."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from dev.services.accounts import AN_HOUR, LEAST_BYTES, memory


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """Return a function that says how many bytes are free."""

    def has(free):
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))

    has(LEAST_BYTES)
    return has


def test_a_folder_with_enough_room_is_taken_and_no_other(tmp_path, room):
    assert memory(tmp_path) == tmp_path
    assert memory(tmp_path / "none") is None
    room(LEAST_BYTES - 1)
    assert memory(tmp_path) is None


@pytest.mark.parametrize(
    ("age", "pid", "is_kept"),
    [
        (AN_HOUR, os.getpid(), True),
        (AN_HOUR, 2**22 + 1, False),
        (AN_HOUR, None, False),
        (0, None, True),
    ],
    ids=["it runs", "it was killed", "it never ran", "it is about to run"],
)
def test_what_a_killed_run_left_is_deleted(tmp_path, age, pid, is_kept):
    place = tmp_path / f"reliability-{os.getuid()}-x"
    data = place / "postgres" / "data"
    data.mkdir(parents=True)
    if pid is not None:
        (data / "postmaster.pid").write_text(f"{pid}\n/somewhere\n")
    then = place.stat().st_mtime - age - 1
    os.utime(place, (then, then))
    memory(tmp_path)
    assert place.exists() == is_kept
