"""`python -m dev`: bring the local environment up and down, and say how it is."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dev.errors import DevError

if TYPE_CHECKING:
    from dev.services.environment import Environment

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    command, arguments = parse_arguments()
    try:
        if command == "shell":
            from dev.shell import become

            become(_environment(), ROOT, arguments)
        else:
            COMMANDS[command]()
    except DevError as error:
        print(f"{command} failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"{command} interrupted; `make up` and `make down` both go on from here",
            file=sys.stderr,
        )
        return 130
    return 0


def parse_arguments() -> tuple[str, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m dev", description=__doc__)
    parser.add_argument("command", choices=sorted([*COMMANDS, "shell"]))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of `shell`: a command")
    options = parser.parse_args()
    return options.command, options.arguments


def prepare() -> None:
    """Find Java and Postgres, or fetch them, and archive Spark's classes for this Java."""
    from dev.services.java import find_java
    from dev.services.postgres_binaries import find_binaries
    from dev.services.spark_conf import SparkConf

    java = find_java(ROOT)
    print(f"    Java {java.version} in {java.home}")
    postgres = find_binaries(ROOT)
    print(f"    Postgres {postgres.major} in {postgres.folder}")
    if not SparkConf(root=ROOT, java=java).build_archive():
        print("    no archive of Spark's classes could be built: its jobs start slower")


def up() -> None:
    """Start everything and say where it is."""
    environment = _environment()
    environment.up(lambda line: print(f"  {line}", flush=True))
    print(f"Airflow   {environment.airflow.url}")
    print(f"          user admin, password {environment.api().password}")
    print(f"Postgres  PGSERVICEFILE={environment.credentials.service_file} service=reliability")
    print(f"Logs      {environment.state_dir / 'logs'}, {environment.postgres.log}")
    print("`make shell` opens a shell for all of it.")


def down() -> None:
    """Stop everything, that of the demo included; data stays."""
    for environment in _environments():
        environment.down(lambda line: print(f"  {line}", flush=True))


def status() -> None:
    """Say what runs."""
    for part, condition in _environment().status().items():
        print(f"{part:14} {condition}")


def destroy() -> None:
    """Stop everything, that of the demo included, and delete its data."""
    for environment in _environments():
        environment.destroy()


def lock() -> None:
    """Write the locks anew."""
    from dev.install.locks import write_locks

    write_locks(ROOT)


def _environment() -> Environment:
    from dev.services.engine import engine_asked_for
    from dev.services.environment import Environment

    return Environment(ROOT, engine=engine_asked_for())


def _environments() -> list[Environment]:
    """Return the environment and those kept below it: each has chosen ports of its own."""
    from dev.services.environment import Environment

    below = sorted(file.parent for file in (ROOT / ".reliability").glob("*/ports.json"))
    return [_environment(), *(Environment(ROOT, state_dir) for state_dir in below)]


COMMANDS = {
    "up": up,
    "down": down,
    "status": status,
    "destroy": destroy,
    "prepare": prepare,
    "lock": lock,
}

if __name__ == "__main__":
    sys.exit(main())
