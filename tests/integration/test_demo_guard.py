"""A demo that is killed leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dev.services.processes import MARKER, is_gone, marked, wait_until

ROOT = Path(__file__).resolve().parents[2]
DEMO = """
import pathlib, sys
from dev.demo.guard import Guard
guard = Guard(pathlib.Path({root!r}), pathlib.Path({state!r}))
print(guard._process.pid, flush=True)
if sys.stdin.readline() == "keep\\n":
    guard.end(keep=True)
"""
CHILD = """
import os, signal
import dev.demo.guard
dev.demo.guard.{ends}_with_parent()
print(os.getpid(), flush=True)
signal.pause()
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.fixture
def service(tmp_path):
    """A process of the demo's environment."""
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, MARKER: str(tmp_path)})
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("is_kept", "is_folder_gone"), [(False, False), (False, True), (True, False)]
)
def test_a_demo_that_is_killed_takes_its_services_down(tmp_path, service, is_kept, is_folder_gone):
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
    if is_folder_gone:
        tmp_path.rmdir()
    if is_kept:
        demo.communicate("keep\n", timeout=60)
    else:
        demo.kill()
        demo.communicate()
    wait_until(lambda: not Path(f"/proc/{guard}").exists(), "the end of the guard", 60)
    assert (service.poll() is None) is is_kept


@pytest.mark.parametrize(("sent", "ends"), [(signal.SIGTERM, "end"), (signal.SIGKILL, "die")])
def test_a_demo_ends_with_the_make_that_runs_it(sent, ends):
    """So do the processes that draw histories with their pytest: they went on for hours."""
    make = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD.format(ends=ends)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert make.stdout is not None
    demo = psutil.Process(int(make.stdout.readline()))
    make.send_signal(sent)
    make.communicate()
    wait_until(lambda: is_gone(demo), "the end of the demo", 60)
