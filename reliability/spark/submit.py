"""Run spark-submit on this host, for replays without Airflow.

Its output goes into a file that is kept if it fails. Its arguments, which `ps` shows, have no
secret, and its environment has none of Airflow's settings.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import IO

from reliability.spark.imports import CODE
from reliability.spark.java import java_home
from reliability.spark.submission import Submission

POLL_INTERVAL_SECONDS = 3.0
END_SECONDS = 10.0


class SubmitFailed(Exception):
    """A step's driver failed, or was ended.

    :param log: its output
    """

    def __init__(self, what: str, log: Path) -> None:
        super().__init__(what)
        self.log = log


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSubmit:
    """How steps are submitted.

    :param program: the path of spark-submit
    :param master: if it is empty, spark-defaults.conf decides
    :param conf: `key=value`
    :param code: folders with code of the pipeline that is not installed
    """

    program: str
    master: str = ""
    conf: Sequence[str] = ()
    code: Sequence[str] = field(default_factory=tuple)

    def __call__(self, submission: Submission, is_wanted: Callable[[], bool]) -> None:
        """Run one step to its end; the exit code 0 does not prove that the step succeeded.

        :param is_wanted: called regularly; if it returns False, spark-submit is ended
        :raises SubmitFailed: spark-submit failed, or was ended
        """
        run_driver(self.command(submission), self.environment(), submission, is_wanted)

    def command(self, submission: Submission) -> list[str]:
        """Return the command line."""
        name = f"reliability-{submission.grant.topology}"
        return [*self.command_of(name), process_batch(), *submission.arguments()]

    def command_of(self, name: str) -> list[str]:
        """Return the command line up to the application, which gets this name in Spark."""
        return [
            self.program,
            *("--name", name),
            *(("--master", self.master) if self.master else ()),
            *(word for one in self.conf for word in ("--conf", one)),
        ]

    def environment(self) -> dict[str, str]:
        """Return an environment in which it finds this Python and the pipeline's code."""
        conf = dict(one.partition("=")[::2] for one in self.conf)
        environment = driver_environment(
            os.environ,
            master=self.master or conf.get("spark.master", ""),
            deploy_mode=conf.get("spark.submit.deployMode"),
        )
        # If spark-defaults.conf names the master, Spark runs `python3`: locally, that is this one.
        own = str(Path(sys.executable).parent)
        environment["PATH"] = _joined([own], environment.get("PATH", ""))
        return with_code(environment, self.code)


def run_driver(
    command: Sequence[str],
    environment: Mapping[str, str],
    submission: Submission,
    is_wanted: Callable[[], bool],
) -> None:
    """Run the driver of a step to its end, with its output in a file.

    :param is_wanted: called regularly; if it returns False, the driver is ended
    :raises SubmitFailed: the driver failed, or was ended
    """
    prefix = f"reliability-{submission.grant.topology}-"
    handle, name = tempfile.mkstemp(prefix=prefix)
    log = Path(name)
    with (
        os.fdopen(handle, "wb") as output,
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder,
    ):
        process = start_driver(command, with_temporary_folder(environment, folder), output)
        try:
            _watch(process, is_wanted, log)
        finally:
            end_driver(process)
    log.unlink()


def start_driver(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    """Start a driver in a process group of its own; `end_driver` ends all of it together."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _watch(process: subprocess.Popen[bytes], is_wanted: Callable[[], bool], log: Path) -> None:
    while True:
        with suppress(subprocess.TimeoutExpired):
            if code := process.wait(timeout=POLL_INTERVAL_SECONDS):
                raise SubmitFailed(f"exit code {code}", log)
            return
        if not is_wanted():
            raise SubmitFailed("its attempt was ended", log)


def with_code(environment: Mapping[str, str], code: Sequence[str]) -> dict[str, str]:
    """Return an environment in which Python finds the code in these folders."""
    return {**environment, "PYTHONPATH": _joined(code, environment.get("PYTHONPATH", ""))}


def _joined(folders: Sequence[str], existing: str) -> str:
    every = (*folders, *existing.split(os.pathsep))
    return os.pathsep.join(dict.fromkeys(folder for folder in every if folder))


def with_temporary_folder(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return an environment in which the driver's JVM and its Python use this temporary folder.

    A JVM that is killed deletes nothing itself. spark.local.dir, if it is set, wins for Spark's own
    files.
    """
    options = environment.get("SPARK_SUBMIT_OPTS", "")
    return {
        **environment,
        "TMPDIR": folder,
        "SPARK_SUBMIT_OPTS": f"{options} -Djava.io.tmpdir={folder}".strip(),
    }


def find_spark_submit(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of spark-submit: in SPARK_HOME, on the PATH, or beside this Python."""
    return which("spark-submit", path=_search_path(environment))


def driver_environment(
    environment: Mapping[str, str],
    code: str | None = None,
    *,
    master: str = "",
    deploy_mode: str | None = None,
) -> dict[str, str]:
    """Return an environment for spark-submit, however this process was started.

    In it, spark-submit, a Java and this Python are found. It has none of Airflow's settings,
    connections and keys (G10). Spark's properties `spark.pyspark.python` and
    `spark.pyspark.driver.python` override its Python.

    :param code: a folder with the pipeline's code, for find_code in the driver
    :param master: where the executors run; unless it is local, the path of their Python is unknown,
        and PYSPARK_PYTHON stays as it is
    :param deploy_mode: `cluster` means the same for the driver's Python
    """
    found = {
        name: value
        for name, value in environment.items()
        if not name.lstrip("_").startswith(("AIRFLOW", "RELIABILITY_AIRFLOW"))
    }
    found["PATH"] = _search_path(environment)
    if deploy_mode != "cluster":
        found["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        found["PYSPARK_PYTHON"] = sys.executable
    home = java_home(found)
    found.pop("JAVA_HOME", None)
    if home:
        found["JAVA_HOME"] = home
    if code is not None:
        found[CODE] = code
    return found


def _search_path(environment: Mapping[str, str]) -> str:
    home = environment.get("SPARK_HOME")
    folders = [
        *([str(Path(home) / "bin")] if home else []),
        *environment.get("PATH", os.defpath).split(os.pathsep),
        str(Path(sys.executable).parent),
    ]
    return os.pathsep.join(dict.fromkeys(filter(None, folders)))


def process_batch() -> str:
    """Return the path of the file that spark-submit runs."""
    spec = find_spec("reliability.spark.process_batch")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def end_driver(process: subprocess.Popen[bytes]) -> None:
    """End its remaining processes: the Python of a JVM that was killed goes on."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
