"""A standalone Spark cluster of two workers that share neither files nor environment with a driver.

Each has a loopback address of its own, so Spark takes them for three hosts. The executors' Python
has this package from its wheel, and nothing of the clone: a pipeline's code reaches it only as
Spark ships it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from dev.matrix.environments import build_wheel
from dev.services.ports import HOST
from dev.services.processes import descendants, family, kill, wait_until

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
START_SECONDS = 120
WORKERS = 2


@dataclass
class Node:
    """The master, or a worker with a folder of its own."""

    folder: Path
    process: psutil.Process

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def is_registered(self) -> bool:
        return "Successfully registered" in self.log

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors that run here."""
        found = []
        for process in descendants(self.process):
            with suppress(psutil.Error):
                if EXECUTOR in process.cmdline():
                    found.append(process)
        return found

    def is_busy(self) -> bool:
        """Say whether a function of `shipped_words` has begun in an executor of this node."""
        return any(self.folder.glob("work/*/*/busy-*"))

    def signal(self, number: int) -> None:
        """Send a signal to the worker and all below it."""
        for process in family(self.process):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@dataclass
class StandaloneCluster:
    """A master and its workers; `python` is the one of their executors.

    :param variables: for the nodes and what they start; they have nothing of this environment
    """

    folder: Path
    java_home: Path
    python: Path
    variables: Mapping[str, str]
    nodes: list[Node] = field(default_factory=list)
    master: str = ""

    @property
    def workers(self) -> list[Node]:
        return self.nodes[1:]

    def start(self, count: int) -> None:
        master = self._node("master", "master.Master", HOST)
        wait_until(lambda: "Starting Spark master at " in master.log, "a master", START_SECONDS)
        self.master = self._listening(master)
        for n in range(count):
            room = ("--cores", "1", "--memory", "1g")
            self._node(f"worker{n}", "worker.Worker", f"127.0.0.{2 + n}", *room, self.master)
        for worker in self.workers:
            wait_until(worker.is_registered, "a worker", START_SECONDS)

    def _listening(self, master: Node) -> str:
        said = "Successfully started service 'sparkMaster' on port "
        return f"spark://{HOST}:{master.log.split(said)[1].split('.')[0]}"

    def _node(self, name: str, program: str, host: str, *arguments: str) -> Node:
        folder = self.folder / name
        (folder / "tmp").mkdir(parents=True)
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "JAVA_HOME": str(self.java_home),
            "SPARK_HOME": str(self._spark_home(folder)),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -Dspark.decommission.enabled=true",
            **self.variables,
        }
        address = ("--host", host, "--port", "0", "--webui-port", "0")
        with (folder / "log").open("w") as log:
            started = subprocess.Popen(
                [
                    f"{folder}/spark/bin/spark-class",
                    f"org.apache.spark.deploy.{program}",
                    *address,
                    *arguments,
                ],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        node = Node(folder, psutil.Process(started.pid))
        self.nodes.append(node)
        return node

    def _spark_home(self, folder: Path) -> Path:
        import pyspark

        home = folder / "spark"
        home.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            (home / part.name).symlink_to(part)
        return home

    def stop(self) -> None:
        kill([process for node in self.nodes for process in family(node.process)])


def python_of_executors(folder: Path) -> Path:
    """Make a Python that has what this one has installed, and this package from its wheel."""
    venv.create(folder, with_pip=False, symlinks=True)
    [own] = folder.glob("lib/python*/site-packages")
    # A path file that lies in a folder named by another one is not read: the clone stays away.
    [installed] = {Path(p) for p in sys.path if p.endswith("site-packages")}
    (own / "installed.pth").write_text(f"{installed}\n")
    with zipfile.ZipFile(build_wheel()) as wheel:
        wheel.extractall(own)
    return folder / "bin" / "python"


@contextmanager
def standalone_cluster(
    folder: Path, java_home: Path, variables: Mapping[str, str] | None = None
) -> Iterator[StandaloneCluster]:
    """Run a cluster while the block does."""
    python = python_of_executors(folder / "python")
    cluster = StandaloneCluster(folder, java_home, python, variables or {})
    try:
        cluster.start(WORKERS)
        yield cluster
    finally:
        cluster.stop()


def environments(processes: list[psutil.Process]) -> str:
    """Return the environments of processes and of what is below them, as text."""
    found = []
    for process in processes:
        for one in family(process):
            with suppress(psutil.Error):
                found.append(os.linesep.join(f"{k}={v}" for k, v in one.environ().items()))
    return os.linesep.join(found)
