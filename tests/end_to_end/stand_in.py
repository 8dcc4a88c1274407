"""Stands in for spark-submit where a test is about dates: the driver's work without a JVM.

The command lets a server fork, which has imported all that a driver imports: a driver takes a tenth
of a second instead of twelve seconds. In `DATES_FOLDER/<topology>/`, the file `hold` keeps it
PROCESSING until the file is gone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from select import select

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
CLIENT = Path(__file__).with_name("stand_in_client.py")
#: Their pipes stay open as long as this process lives.
SERVERS: list[subprocess.Popen[bytes]] = []
#: What a process otherwise imports when it stages rows.
LATER = ("pandas", "pgpq", "pyarrow.parquet")


def put_command(folder: Path) -> dict[str, str]:
    """Start the server, and write a command under a name that the provider allows.

    The server ends with this process, whose end closes the pipe.

    :returns: what a connection to Spark says of it; the folder has to be in PATH
    """
    address = folder / "stand_in.socket"
    command_line = [sys.executable, "-m", __spec__.name, str(address)]
    SERVERS.append(subprocess.Popen(command_line, stdin=subprocess.PIPE))
    wait_until(address.exists, "the stand-in's server", 60)
    command = folder / "spark3-submit"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {CLIENT} {address} "$@"\n')
    command.chmod(0o755)
    return {"deploy-mode": "client", "spark-binary": command.name}


def serve(address: str) -> None:
    """Fork a driver for each client, until standard input ends."""
    for name in LATER:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the drivers
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{address}.new")
        server.listen()
        os.rename(f"{address}.new", address)  # from now on it answers
        while sys.stdin not in select([server, sys.stdin], [], [])[0]:
            client, _ = server.accept()
            if os.fork() == 0:
                server.close()
                os._exit(_drive(client))
            client.close()


def _drive(client: socket.socket) -> int:
    """Do what a client was started for, in its environment, unless it ends before.

    :returns: the exit code, which the client gets too
    """
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    with client.makefile("rb") as line:
        asked = json.loads(line.readline())
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    threading.Thread(target=lambda: client.recv(1) or os._exit(1), daemon=True).start()
    code = 0
    try:
        main(asked["arguments"])
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    client.send(bytes([code]))
    return code


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
    serve(sys.argv[1])
