"""Start the warm engine of this host, and run the driver of a step on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reliability.core.definitions import WARM
from reliability.spark.submission import Submission
from reliability.spark.submit import (
    SparkSubmit,
    driver_environment,
    process_batch,
    run_driver,
    with_code,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSubmit:
    """How steps are submitted to the engine, as `SparkSubmit` does to spark-submit.

    :param code: folders with code of the pipeline that is not installed
    """

    code: Sequence[str] = ()

    def __call__(self, submission: Submission, is_wanted: Callable[[], bool]) -> None:
        """Run one step to its end; the exit code 0 does not prove that the step succeeded.

        :param is_wanted: called regularly; if it returns False, the driver is ended
        :raises SubmitFailed: the driver failed, or was ended
        """
        environment = with_code(driver_environment(os.environ), self.code)
        run_driver(warm_command(submission), environment, submission, is_wanted)


def warm_command(submission: Submission) -> list[str]:
    """Return the command line of a driver that attaches to the engine."""
    return [sys.executable, process_batch(), *replace(submission, engine=WARM).arguments()]


def engine_command(submit: SparkSubmit) -> list[str]:
    """Return the command line of the engine itself."""
    file = Path(process_batch()).with_name("warm_engine.py")
    return [*submit.command_of("reliability-engine"), str(file)]
