"""Run spark-submit on this host, for who replays without Airflow.

What it writes goes into a file that is kept if it fails. Nothing secret is in its arguments, which
`ps` shows, and Airflow's settings are not in its environment.
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

from reliability.spark.imports import CODE
from reliability.spark.java import java_home
from reliability.spark.submission import Submission

POLL_INTERVAL_SECONDS = 3.0
END_SECONDS = 10.0


class SubmitFailed(Exception):
    """spark-submit ended, and not well.

    :param log: what it wrote
    """

    def __init__(self, what: str, log: Path) -> None:
        super().__init__(what)
        self.log = log


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSubmit:
    """How steps are submitted.

    :param program: spark-submit
    :param master: spark-defaults.conf decides if it is empty
    :param conf: `key=value`
    :param code: folders with the pipeline's code that is not installed
    """

    program: str
    master: str = ""
    conf: Sequence[str] = ()
    code: Sequence[str] = field(default_factory=tuple)

    def __call__(self, submission: Submission, is_wanted: Callable[[], bool]) -> None:
        """Run one step to its end; its exit code proves nothing, its failure is told.

        :param is_wanted: asked now and then; it is ended when nobody wants it any more
        :raises SubmitFailed: it ended with an error, or was not wanted
        """
        handle, name = tempfile.mkstemp(prefix=f"reliability-{submission.grant.topology}-")
        log = Path(name)
        with os.fdopen(handle, "wb") as output:
            process = subprocess.Popen(
                self.command(submission),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its Python can be ended with its JVM
            )
            try:
                self._watch(process, is_wanted, log)
            finally:
                _end(process)
        log.unlink()

    def command(self, submission: Submission) -> list[str]:
        """Return the command line."""
        return [
            self.program,
            *("--name", f"reliability-{submission.grant.topology}"),
            *(("--master", self.master) if self.master else ()),
            *(word for one in self.conf for word in ("--conf", one)),
            process_batch(),
            *submission.arguments(),
        ]

    def _watch(
        self, process: subprocess.Popen[bytes], is_wanted: Callable[[], bool], log: Path
    ) -> None:
        while True:
            with suppress(subprocess.TimeoutExpired):
                if code := process.wait(timeout=POLL_INTERVAL_SECONDS):
                    raise SubmitFailed(f"exit code {code}", log)
                return
            if not is_wanted():
                raise SubmitFailed("its attempt was ended", log)

    def _environment(self) -> dict[str, str]:
        """Let it find this Python, and the code that this process finds."""
        conf = dict(one.partition("=")[::2] for one in self.conf)
        environment = driver_environment(
            os.environ,
            master=self.master or conf.get("spark.master", ""),
            deploy_mode=conf.get("spark.submit.deployMode"),
        )
        # where spark-defaults.conf names the master, `python3` is this one, or the executors' own
        ours = str(Path(sys.executable).parent)
        for name, folders in (("PATH", [ours]), ("PYTHONPATH", self.code)):
            there = environment.get(name, "").split(os.pathsep)
            environment[name] = os.pathsep.join(
                dict.fromkeys(folder for folder in (*folders, *there) if folder)
            )
        return environment


def find_spark_submit(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return spark-submit: of SPARK_HOME, on the PATH, or beside this Python."""
    return which("spark-submit", path=_search_path(environment))


def driver_environment(
    environment: Mapping[str, str],
    code: str | None = None,
    *,
    master: str = "",
    deploy_mode: str | None = None,
) -> dict[str, str]:
    """Return the environment of a spark-submit, however this process was started.

    It leads to spark-submit, to a Java and to this Python. Airflow's settings, connections and
    keys are left out (G10). Spark's properties `spark.pyspark.python` and
    `spark.pyspark.driver.python` go before what it says of Python.

    :param code: a folder in which the driver has to find the pipeline's code, see find_code
    :param master: where the executors run; if that is another host, the path of its Python is not
        known here, and PYSPARK_PYTHON stays as it is
    :param deploy_mode: the same goes for the driver, if it is `cluster`
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
    """Return the path of spark_apps/process_batch.py."""
    spec = find_spec("spark_apps.process_batch")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of it: a JVM that was killed leaves its Python behind."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
