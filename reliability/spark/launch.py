"""Start the driver of a step, and watch it to its end; Airflow's tasks and the command line do so.

A launcher says what is started: `SparkSubmit` a JVM for each step, `WarmEngine` a Python that
attaches to the engine of this host. Neither has a secret in its arguments, which `ps` shows, nor
Airflow's settings in its environment (G10).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING

from reliability.core.attempt import Grant
from reliability.core.definitions import SUBMIT, WARM, Topology
from reliability.core.errors import DeployModeNotSupported, NotPossible
from reliability.core.names import prefix_of
from reliability.deployment.address import DriverAddresses
from reliability.deployment.settings import engine_of
from reliability.spark.driver_environment import (
    CLASSIC,
    driver_environment,
    find_spark_submit,
    with_temporary_folder,
)
from reliability.spark.engine_socket import check_engine
from reliability.spark.submission import Submission

if TYPE_CHECKING:
    from reliability.transaction.own_run import RunStep

POLL_INTERVAL_SECONDS = 3.0
END_SECONDS = 10.0
_DEPLOY_MODE = "spark.submit.deployMode"

Tell = Callable[[str], object]
"""Gets a line of a driver's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSubmit:
    """Each step gets a JVM of its own.

    :param program: the path of spark-submit
    :param master: if it is empty, the conf or spark-defaults.conf decides
    :param conf: Spark's properties
    :param variables: environment variables for it alone
    :param code: folders with code of the pipeline that is not installed
    """

    program: str
    master: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    code: Sequence[str] = ()

    def check(self) -> None:
        """Raise DeployModeNotSupported of what spark-submit refuses each time it is tried."""
        is_cluster = self.conf.get(_DEPLOY_MODE) == "cluster"
        if is_cluster and self._master().startswith(("spark://", "local")):
            raise DeployModeNotSupported(f"{self._master()} takes no Python in deploy mode cluster")

    def _master(self) -> str:
        return self.master or self.conf.get("spark.master", "")

    def command(self, submission: Submission) -> list[str]:
        name = f"reliability-{submission.grant.topology}"
        return [*self.command_of(name), process_batch(), *submission.arguments()]

    def command_of(self, name: str) -> list[str]:
        """Return the command line up to the application, which gets this name in Spark."""
        conf = {**self.conf, **CLASSIC}
        return [
            self.program,
            *("--name", name),
            *(("--master", self.master) if self.master else ()),
            *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
        ]

    def environment(self) -> dict[str, str]:
        environment = driver_environment(
            os.environ,
            self.code,
            master=self._master(),
            deploy_mode=self.conf.get(_DEPLOY_MODE),
        )
        # If spark-defaults.conf names the master, Spark runs `python3`: locally, that is this one.
        path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        return {**environment, "PATH": path, **self.variables}


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmEngine:
    """Each step gets a Python of its own, which attaches to the engine's JVM.

    `variables` and `code` are those of SparkSubmit.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    code: Sequence[str] = ()

    def command(self, submission: Submission) -> list[str]:
        return [sys.executable, process_batch(), *replace(submission, engine=WARM).arguments()]

    def environment(self) -> dict[str, str]:
        environment = driver_environment(os.environ, self.code)
        # as bin/spark-submit: a set is in the same order in each attempt
        return {**environment, "PYTHONHASHSEED": "0", **self.variables}


Launcher = SparkSubmit | WarmEngine
"""What is started for a step."""


def spark_submit_here(
    master: str = "", conf: Mapping[str, str] | None = None, code: Sequence[str] = ()
) -> SparkSubmit:
    """Return this host's spark-submit.

    :raises NotPossible: there is none
    :raises DeployModeNotSupported: as for `SparkSubmit.check`
    """
    program = find_spark_submit()
    if program is None:
        raise NotPossible(
            "spark-submit is neither on the PATH nor beside this Python",
            "install pyspark, or set SPARK_HOME; `reliability doctor` shows what it finds.",
        )
    submit = SparkSubmit(program=program, master=master, conf=conf or {}, code=code)
    submit.check()
    return submit


def steps_here(
    topology: Topology, module: str, code: Sequence[str], master: str, conf: Mapping[str, str]
) -> RunStep:
    """Return what runs the steps of a topology on this host, outside Airflow.

    Each driver has its output in a file. That there is a Spark is checked before any request.

    :param module: the one that the driver imports the topology from
    :param master, conf: for spark-submit; the warm engine has its own
    """
    launcher: Launcher = WarmEngine(code=code)
    if engine_of(topology) == SUBMIT:
        launcher = spark_submit_here(master, conf, code)
    else:
        check_engine()

    def run_step(grant: Grant, step: str, is_wanted: Callable[[], bool]) -> None:
        submission = Submission(module=module, grant=grant, step=step)
        run_with_log(launcher, submission, is_wanted, topology.databases_of_steps)

    return run_step


def engine_command(submit: SparkSubmit) -> list[str]:
    file = Path(__file__).with_name("warm_engine.py")
    return [*submit.command_of("reliability-engine"), str(file)]


def process_batch() -> str:
    return str(Path(__file__).with_name("process_batch.py"))


# --- the process ---------------------------------------------------------------------------------


class DriverFailed(Exception):
    """The driver of a step failed, or was ended."""

    log: Path
    """The file with its output; `run_with_log` alone has one."""


class Driver:
    """The driver of a step: a process group of its own, which is ended as a whole.

    :param databases: the names of those that the step works with, beside the ledger's own
    """

    def __init__(
        self, launcher: Launcher, submission: Submission, databases: Sequence[str] = ()
    ) -> None:
        self._launcher = launcher
        self._submission = submission
        self._databases = databases
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, is_wanted: Callable[[], bool], tell: Tell) -> None:
        """Run it to its end; the exit code 0 does not prove that the step succeeded (A6).

        :param is_wanted: called regularly; if it returns False, the driver is ended (A7)
        :param tell: called by another thread
        :raises DriverFailed: it failed, or was ended
        """
        prefix = prefix_of(self._submission.grant.topology)
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
            addresses = DriverAddresses(folder, self._databases)
            environment = {**self._launcher.environment(), **addresses.variables}
            process = self._process = subprocess.Popen(
                self._launcher.command(self._submission),
                env=with_temporary_folder(environment, folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            output = Thread(target=_pass_on, args=(process.stdout, tell), daemon=True)
            output.start()
            try:
                while (code := _wait(process, POLL_INTERVAL_SECONDS)) is None:
                    if not is_wanted():
                        raise DriverFailed("its attempt was ended")
                    addresses.renew()
                if code:
                    raise DriverFailed(_ending(code))
            finally:
                self.end()
                output.join(END_SECONDS)

    def end(self) -> None:
        """End it with its child processes: the Python of a JVM that was killed would go on."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            _wait(process, END_SECONDS)
        _signal(process, signal.SIGKILL)
        process.wait()


def run_with_log(
    launcher: Launcher,
    submission: Submission,
    is_wanted: Callable[[], bool],
    databases: Sequence[str] = (),
) -> None:
    """Run a driver as `Driver.run` does, with its output in a file that is kept if it fails."""
    handle, name = tempfile.mkstemp(prefix=prefix_of(submission.grant.topology))
    with os.fdopen(handle, "wb", buffering=0) as log:  # to be read while the driver runs
        try:
            Driver(launcher, submission, databases).run(
                is_wanted, lambda line: log.write(f"{line}\n".encode())
            )
        except DriverFailed as error:
            error.log = Path(name)
            raise
    Path(name).unlink()


def _pass_on(output: IO[bytes], tell: Tell) -> None:
    with output:
        for line in output:
            with suppress(Exception):  # such as a full disk: it must not stop the driver
                tell(line.decode(errors="replace").rstrip())


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=seconds)
    return None


def _ending(code: int) -> str:
    """Say how a process ended.

    >>> _ending(1), _ending(-9)
    ('exit code 1', 'killed by SIGKILL')
    """
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"exit code {code}"


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
