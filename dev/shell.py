"""`make shell`: a shell, or one command, that finds Airflow, the ledger, Spark and Java by itself.

Variables named RELIABILITY_* that the caller has exported win over those of the environment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev.errors import DevError
from dev.services.environment import Environment
from dev.services.files import write_private

KEPT = "RELIABILITY_"
PROMPT = "(reliability)"


def become(environment: Environment, root: Path, command: Sequence[str]) -> None:
    """Replace this process by the command, or by a shell if there is none.

    :raises DevError: there is no such command
    """
    variables = shell_variables(environment, os.environ)
    if not command:
        print(greeting(environment, variables), flush=True)
        command = shell_command(environment.state_dir)
        variables["PS1"] = f"{PROMPT} $ "
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        raise DevError(f"no such command: {command[0]}")
    os.chdir(root)
    os.execve(program, list(command), variables)


def shell_variables(environment: Environment, callers: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the shell; a token for Airflow is among them while Airflow is up."""
    # Without the mark of what runs in the background: `make down` leaves a person's shell alone.
    variables = {**environment.env(), **environment.airflow.settings()}
    folders = [
        variables["PATH"],
        str(environment.postgres.binaries.folder),
        str(Path(environment.java.home) / "bin"),
    ]
    variables["PATH"] = os.pathsep.join(folders)
    variables["RELIABILITY_AIRFLOW_URL"] = environment.airflow.url
    if "api-server" in environment.airflow.healthy():
        variables["RELIABILITY_AIRFLOW_TOKEN"] = environment.api().token()
    return {**variables, **{name: callers[name] for name in callers if name.startswith(KEPT)}}


def greeting(environment: Environment, variables: Mapping[str, str]) -> str:
    """Return two lines that say what is there."""
    airflow = (
        f"Airflow {environment.airflow.url} (user admin, password {environment.api().password})"
        if "RELIABILITY_AIRFLOW_TOKEN" in variables
        else "Airflow is down: `make up`, and start this shell again"
    )
    return (
        "airflow, reliability, psql service=reliability, spark-submit, java and python are here.\n"
        f"{airflow}; ledger {variables['RELIABILITY_DSN']}; `exit` leaves."
    )


def shell_command(state_dir: Path) -> Sequence[str]:
    """Return the command of an interactive shell: bash, otherwise sh."""
    if shutil.which("bash") is None:
        return ["sh", "-i"]
    # The user's own file may set PATH and the prompt, too.
    start = state_dir / "shell.bash"
    write_private(
        start,
        'path_of_shell="$PATH"\n'
        "[ -f ~/.bashrc ] && . ~/.bashrc\n"
        'PATH="$path_of_shell"; unset path_of_shell\n'
        f'PS1="{PROMPT} ${{PS1:-$ }}"\n',
    )
    return ["bash", "--rcfile", str(start), "-i"]
