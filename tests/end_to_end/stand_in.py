"""Stands in for spark-submit where a test is about dates: the driver's work without a JVM.

An attempt takes a second instead of twelve. In `DATES_FOLDER/<topology>/`, the file `hold` keeps it
PROCESSING until the file is gone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dev.services.processes import wait_until
from reliability.core.definitions import Topology
from reliability.deployment.fingerprint import fingerprint
from reliability.deployment.topologies import load_topology
from reliability.spark.imports import find_code
from reliability.spark.submission import Submission
from reliability.transaction.process.attempt_messages import (
    DriverProcess,
    driver_session,
    start_step,
)
from tests.support.python_driver import stage_batch

PATIENCE = 1200


def put_command(folder: Path) -> dict[str, str]:
    """Write a command that starts it, under a name that the provider allows.

    :returns: what a connection to Spark says of it; the folder has to be in PATH
    """
    command = folder / "spark3-submit"
    command.write_text(f'#!/bin/sh\nexec python -m {__spec__.name} "$@"\n')
    command.chmod(0o755)
    return {"deploy-mode": "client", "spark-binary": command.name}


def main(arguments: Sequence[str]) -> None:
    """Process the attempt that spark-submit's arguments name."""
    find_code(sys.path)
    # spark-submit's own come first, then the application, then what the application is told
    submission = Submission.parse(arguments[list(arguments).index("--topology") :])
    grant = submission.grant
    topology = load_topology(submission.module, grant.topology)
    hold = Path(os.environ["DATES_FOLDER"]) / topology.name / "hold"
    with driver_session(grant) as connection:
        start_step(connection, grant, submission.step, _this_driver(topology))
        wait_until(lambda: not hold.exists(), "to be let go", PATIENCE)
        stage_batch(connection, topology, grant, submission.step)


def _this_driver(topology: Topology) -> DriverProcess:
    return DriverProcess(
        host="stand-in",
        jvm_pid=os.getpid(),
        python_pid=os.getpid(),
        application_id=f"stand-in-{os.getpid()}",
        code=fingerprint(topology),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
