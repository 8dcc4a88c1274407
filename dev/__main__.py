"""`python -m dev`: bring the local environment up and down, and say how it is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from dev.errors import DevError
from dev.services.engine import engine_asked_for
from dev.services.environment import Environment
from dev.services.java import find_java
from dev.services.postgres_binaries import find_binaries
from dev.services.spark_conf import SparkConf
from dev.shell import become

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dev", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of `shell`: a command")
    options = parser.parse_args()
    try:
        COMMANDS[options.command](*options.arguments)
    except DevError as error:
        print(f"{options.command} failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"{options.command} interrupted; `make up` and `make down` both go on from here",
            file=sys.stderr,
        )
        return 130
    return 0


def prepare() -> None:
    """Find Java and Postgres, or fetch them, and archive Spark's classes for this Java."""
    java = find_java(ROOT)
    say(f"  Java {java.version} in {java.home}")
    postgres = find_binaries(ROOT)
    say(f"  Postgres {postgres.major} in {postgres.folder}")
    if not SparkConf(root=ROOT, java=java).build_archive():
        say("  no archive of Spark's classes could be built: its jobs start slower")


def up() -> None:
    """Start everything and say where it is."""
    environment = the_environment()
    environment.up(say)
    print(f"Airflow   {environment.airflow.url}")
    print(f"          user admin, password {environment.api().password}")
    print(f"Postgres  PGSERVICEFILE={environment.credentials.service_file} service=reliability")
    print(f"Logs      {environment.state_dir / 'logs'}, {environment.postgres.log}")
    print("`make shell` opens a shell for all of it.")


def down() -> None:
    """Stop everything, that of the demo included; data stays."""
    for environment in environments():
        environment.down(say)


def status() -> None:
    for part, condition in the_environment().status().items():
        print(f"{part:14} {condition}")


def destroy() -> None:
    """Stop everything, that of the demo included, and delete its data."""
    for environment in environments():
        environment.destroy()


def shell(*command: str) -> None:
    """Become a shell in which all of it is found, or the command."""
    become(the_environment(), ROOT, command)


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def the_environment() -> Environment:
    return Environment(ROOT, engine=engine_asked_for())


def environments() -> list[Environment]:
    """Return the environment and those kept below it: each has chosen ports of its own."""
    below = sorted(file.parent for file in (ROOT / ".reliability").glob("*/ports.json"))
    return [the_environment(), *(Environment(ROOT, state_dir) for state_dir in below)]


COMMANDS: Mapping[str, Callable[..., None]] = {
    "up": up,
    "down": down,
    "status": status,
    "destroy": destroy,
    "shell": shell,
    "prepare": prepare,
}

if __name__ == "__main__":
    sys.exit(main())
