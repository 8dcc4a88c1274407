"""`reliability engine`: run a warm engine on this host, ask how it is, stop it."""

from __future__ import annotations

import os
import time
from enum import Enum
from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import verb
from reliability.cli.output import print_json
from reliability.cli.terminal import say
from reliability.core.errors import NotPossible

STOP_SECONDS = 60
POLL_INTERVAL_SECONDS = 0.1


class EngineAction(str, Enum):
    """What to do with the engine."""

    RUN = "run"
    STATUS = "status"
    STOP = "stop"


@verb(
    "reliability engine run --master 'local[4]' --conf spark.driver.memory=4g",
    "reliability engine status",
    "reliability engine stop",
)
def engine(
    action: Annotated[
        EngineAction,
        typer.Argument(help="`run` goes on until it is stopped, for a service manager or nohup."),
    ],
    master: options.Master = "",
    conf: options.Conf = None,
    as_json: options.AsJson = False,
) -> None:
    """Run the warm engine of this host and user, say how it is, or stop it.

    Topologies with engine="warm" run their steps in it. `stop` ends the steps that are running:
    their attempts fail, and are tried again.
    """
    match action:
        case EngineAction.RUN:
            _run(master, conf or [])
        case EngineAction.STATUS:
            _print_status(as_json=as_json)
        case EngineAction.STOP:
            _stop()


def _run(master: str, conf: list[str]) -> None:
    """Become spark-submit, so that a service manager watches and ends the JVM itself."""
    from reliability.cli.replay import properties_of
    from reliability.spark.launch import engine_command, spark_submit_here

    submit = spark_submit_here(master, properties_of(conf))  # each step brings its own code
    command = engine_command(submit)
    os.execve(command[0], command, submit.environment())


def _print_status(*, as_json: bool) -> None:
    from reliability.spark.engine_socket import engine_status

    found = engine_status()
    if as_json:
        return print_json(found)
    say(
        f"the engine runs: {found['application_id']} on {found['master']}, pid {found['pid']}, "
        f"steps in it now: {found['steps']}"
    )


def _stop() -> None:
    from reliability.spark.engine_socket import STOP, ask, connect, socket_path

    with connect() as connection:
        pid = ask(connection, STOP)["pid"]
    deadline = time.monotonic() + STOP_SECONDS
    while _is_running(pid):
        if time.monotonic() > deadline:
            raise NotPossible(f"the engine, pid {pid}, has not ended within {STOP_SECONDS} s")
        time.sleep(POLL_INTERVAL_SECONDS)
    say(f"the engine at {socket_path()} has ended")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
