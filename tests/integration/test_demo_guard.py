"""A demo that is killed leaves nothing running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev.services.processes import MARKER, marked, wait_until

ROOT = Path(__file__).resolve().parents[2]
DEMO = """
import pathlib, sys
from dev.demo.guard import Guard
guard = Guard(pathlib.Path({root!r}), pathlib.Path({state!r}))
print(guard._process.pid, flush=True)
if sys.stdin.readline() == "release\\n":
    guard.release()
"""


@pytest.fixture
def service(tmp_path):
    """A process of the demo's environment."""
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, MARKER: str(tmp_path)})
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("is_released", [False, True])
def test_a_demo_that_is_killed_takes_its_services_down(tmp_path, service, is_released):
    demo = subprocess.Popen(
        [sys.executable, "-c", DEMO.format(root=str(ROOT), state=str(tmp_path))],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demo.stdin is not None
    assert demo.stdout is not None
    guard = int(demo.stdout.readline())
    assert [process.pid for process in marked(str(tmp_path))] == [service.pid]
    if is_released:
        demo.communicate("release\n", timeout=60)
    else:
        demo.kill()
        demo.communicate()
    wait_until(lambda: not Path(f"/proc/{guard}").exists(), "the end of the guard", 60)
    assert (service.poll() is None) is is_released
