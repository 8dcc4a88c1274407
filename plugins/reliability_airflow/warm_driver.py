"""A step's driver on the warm engine of the worker's host, with its output in the task's log."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping

from airflow.sdk.exceptions import AirflowException

from reliability.core.definitions import Topology
from reliability.deployment.topologies import folder_of
from reliability.spark.submission import Submission
from reliability.spark.submit import driver_environment, end_driver, start_driver
from reliability.spark.warm_submit import warm_command


class WarmDriver:
    """A driver that attaches to the engine; it is started at once.

    :param env_vars: what the task adds to its environment
    """

    def __init__(
        self, topology: Topology, submission: Submission, env_vars: Mapping[str, str] | None
    ) -> None:
        environment = driver_environment(os.environ, code=folder_of(topology.module))
        environment.update(env_vars or {})
        self._process = start_driver(warm_command(submission), environment, subprocess.PIPE)

    def run(self, log: Callable[[str], object]) -> None:
        """Log its output, line by line, until it has ended; raise if it failed."""
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                log(line.decode(errors="replace").rstrip())
        if code := self._process.wait():
            raise AirflowException(f"the driver ended with exit code {code}")

    def end(self) -> None:
        """End it; the engine cancels what it has left."""
        end_driver(self._process)
