"""The application and what its commands share: the ledger, errors, exit codes, pipeline code.

What runs Spark or calls Airflow is imported where it is needed: `reliability status` does neither.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

from reliability.cli.options import WATCH, WATCH_SECONDS
from reliability.cli.terminal import hanging, keeping_stdout, say
from reliability.core.definitions import Topology
from reliability.core.errors import (
    LedgerUnavailable,
    NotPossible,
    ReliabilityError,
    TopologyNotFound,
    TopologyUnknown,
)
from reliability.core.texts import printable
from reliability.deployment.settings import home
from reliability.deployment.topologies import load_topology
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import check_known, unless_dropped
from reliability.transaction.maintain.sweep import topologies
from reliability.transaction.topology.databases import open_ledger

FAILED = 1
FOUND = 3  # the command succeeded and found what it looks for

T = TypeVar("T")
Verb = TypeVar("Verb", bound=Callable[..., Any])

app = typer.Typer(
    help="Exactly-once batch transactions on Airflow, Spark and Postgres.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


_SECONDS = re.compile(r"\d*\.?\d+")


class _Watchable(TyperCommand):
    """A command whose --watch may stand without its seconds."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args[1:], ""][: len(args)]
        words = [
            f"{WATCH}={WATCH_SECONDS}" if word == WATCH and not _SECONDS.fullmatch(after) else word
            for word, after in zip(args, following, strict=True)
        ]
        return super().parse_args(ctx, words)


def verb(*examples: str) -> Callable[[Verb], Verb]:
    """Register a command with its examples; print errors of this package without a traceback.

    A parameter whose type is a group of options (options.py) is made of the group's fields.
    """

    def register(function: Verb) -> Verb:
        signature = inspect.signature(function, eval_str=True)
        groups: dict[str, Any] = {
            name: parameter.annotation
            for name, parameter in signature.parameters.items()
            if is_dataclass(parameter.annotation)
        }

        @wraps(function)
        def run(**given: Any) -> None:
            # Names and reasons may have characters that the terminal of a cron job or container
            # lacks: a command must not fail in the middle of its output because of that.
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(errors="backslashreplace")
            try:
                for name, group in groups.items():
                    given[name] = group(*(given.pop(option.name) for option in fields(group)))
                with keeping_stdout():
                    function(**given)
            except (ReliabilityError, NotPossible) as error:
                if isinstance(error, ReliabilityError):
                    error.about(topology=given.get("topology") or "")
                warn(str(error))
                raise typer.Exit(FAILED) from error

        parameters = [option for p in signature.parameters.values() for option in _ungrouped(p)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in parameters}
        can_watch = any(WATCH in example for example in examples)
        app.command(
            help=_help_of(function),
            epilog="\n  ".join(["Examples:", *examples]),
            cls=_Watchable if can_watch else None,
        )(run)
        return function

    return register


def _ungrouped(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield a parameter, or those that a group of options is made of."""
    group, own = parameter.annotation, [parameter]
    if isinstance(group, type) and is_dataclass(group):
        own = [*inspect.signature(group, eval_str=True).parameters.values()]
    for option in own:
        yield option.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _help_of(function: Callable[..., Any]) -> str:
    """Return a docstring as paragraphs, which the terminal wraps."""
    paragraphs = (function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def warn(text: str) -> None:
    """Print a message that is not part of the command's output to stderr."""
    say(*hanging(f"reliability: {text}"), err=True)


def check_asked(*question: str, yes: bool) -> None:
    """Ask a person for confirmation before a change; exit if it is refused.

    :param question: its lines
    """
    if yes:
        return
    try:
        if sys.stdin is None:  # under a daemon
            raise typer.Abort
        is_agreed = typer.confirm("\n".join(map(printable, question)), err=True)
    except typer.Abort:
        if sys.stdin is None or not sys.stdin.isatty():
            warn("there is no answer to the question; add --yes to go on without it")
        raise
    if not is_agreed:
        raise typer.Abort


@contextmanager
def signals_as_errors() -> Iterator[None]:
    """Turn a closed terminal or a kill into an error, so that what has begun is ended in order."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- the ledger ----------------------------------------------------------------------------------


@contextmanager
def ledger(topology: str = "") -> Iterator[LedgerConnection]:
    """Open the ledger, and check that its schema is this release's.

    :param topology: a name to check too; it may be dropped while the command runs
    """
    with (
        open_ledger("cli", topology) as connection,
        unless_dropped(connection, topology) if topology else nullcontext(),
    ):
        yield connection


def names(connection: LedgerConnection, topology: str) -> list[str]:
    """Return the given topology, or all topologies of this ledger."""
    if topology:
        check_known(connection, topology)
    return [topology] if topology else topologies(connection)


def of_each(
    connection: LedgerConnection,
    topology: str,
    act: Callable[[str], T],
    failed: list[str] | None = None,
) -> list[T]:
    """Act on the given topology, or on all; one of all may be dropped meanwhile.

    :param failed: gets those that fail, whose errors are printed; None: the first one raises
    """
    done: list[T] = []
    for name in names(connection, topology):
        try:
            with unless_dropped(connection, name):
                done.append(act(name))
        except TopologyUnknown:
            if topology:
                raise
        except ReliabilityError as error:
            if failed is None:
                raise
            warn(f"{name}: {error.about(topology=name)}")
            failed.append(name)
            if type(error) is LedgerUnavailable and not error.database:
                break  # the ledger itself does not answer, so none can be read
    return done


# --- the pipeline's code -------------------------------------------------------------------------


def code_folders() -> list[str]:
    """Return the folders for pipeline code that is not installed: the current one and the home."""
    return list(dict.fromkeys([os.getcwd(), str(home())]))


def topology_from_code(
    connection: LedgerConnection | None, topology: str, module: str = ""
) -> Topology:
    """Import a topology from the module in the ledger, or from another one.

    :param connection: None if the module is given
    :raises TopologyNotFound: the module cannot be imported here, or does not define it
    """
    # Last, so that a local file calendar.py does not shadow Python's module.
    sys.path += [folder for folder in code_folders() if folder not in sys.path]
    if connection is not None:
        module = module or module_of(connection, topology)
    try:
        return load_topology(module, topology)
    except ReliabilityError:
        raise
    except Exception as error:  # user modules may raise anything
        what = f"{type(error).__name__}: {error}"
        raise TopologyNotFound(f"module {module} cannot be imported: {what}") from error


def module_of(connection: LedgerConnection, topology: str) -> str:
    """Return the module that is recorded in the ledger."""
    row = connection.first("topology_position", topology=topology)
    if row is None or not row["module"]:
        why = "it is not known yet" if row is None else "its process function names none"
        raise TopologyNotFound(
            f"the ledger does not know the module of {topology}: {why}",
            remedy="give it with --module.",
        )
    return str(row["module"])
