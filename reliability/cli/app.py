"""The application and what its commands share: the ledger, errors, exit codes, pipeline code.

A command imports what it needs when it is called: `reliability status` must not load Spark.
"""

from __future__ import annotations

import getpass
import io
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from reliability.cli.terminal import hanging, say
from reliability.core.errors import ReliabilityError, TopologyNotFound
from reliability.core.texts import printable

if TYPE_CHECKING:
    from reliability.core.definitions import Topology
    from reliability.ledger.connection import LedgerConnection, Row

FAILED = 1
WATCH_SECONDS = 5
FOUND = 3  # the command succeeded and found what it looks for

Verb = TypeVar("Verb", bound=Callable[..., Any])

app = typer.Typer(
    help="Exactly-once batch transactions on Airflow, Spark and Postgres.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TopologyName = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's name.")]
OneOrAll = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="One topology; by default all.")]
Reason = Annotated[str, typer.Option(help="The reason; recorded in the ledger.")]
Master = Annotated[
    str, typer.Option(help="For spark-submit; by default that of spark-defaults.conf.")
]
SparkConf = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="For spark-submit; never a secret.")
]
Timeout = Annotated[
    int, typer.Option(metavar="SECONDS", help="How long to wait for the turn of a txid.")
]
Module = Annotated[
    str, typer.Option(help="The topology's module, if it is not the one in the ledger.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class NotPossible(Exception):
    """Something that a command needs is missing on this host.

    Unlike the errors of the protocol it has no code, because it is never stored in the ledger.
    """


WATCH = "--watch"
_SECONDS = re.compile(r"\d*\.?\d+")


class _Watchable(TyperCommand):
    """A command whose --watch may stand without its seconds."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args[1:], ""][: len(args)]
        found = [
            f"{WATCH}={WATCH_SECONDS}" if one == WATCH and not _SECONDS.fullmatch(after) else one
            for one, after in zip(args, following, strict=True)
        ]
        return super().parse_args(ctx, found)


def verb(*examples: str) -> Callable[[Verb], Verb]:
    """Register a command with its examples; print errors of this package without a traceback."""

    def register(function: Verb) -> Verb:
        @wraps(function)
        def run(*arguments: Any, **options: Any) -> None:
            _escape_unencodable_output()
            try:
                function(*arguments, **options)
            except ReliabilityError as error:
                warn(str(error.fill_in(**_names_of(options))))
                raise typer.Exit(FAILED) from error
            except NotPossible as error:
                warn(str(error))
                raise typer.Exit(FAILED) from error

        can_watch = any(WATCH in example for example in examples)
        app.command(
            help=_help_of(function),
            epilog="\n  ".join(["Examples:", *examples]),
            cls=_Watchable if can_watch else None,
        )(run)
        return function

    return register


def _names_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person has named, for the remedies of errors."""
    return {name: options[name] for name in ("topology", "txid") if options.get(name)}


def _escape_unencodable_output() -> None:
    # Names and reasons may have characters that the terminal of a cron job or container lacks: a
    # command must not fail in the middle of its output because of that.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


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
        typer.confirm("\n".join(map(printable, question)), abort=True, err=True)
    except typer.Abort:
        if not sys.stdin.isatty():
            warn("there is no answer to the question; add --yes to go on without it")
        raise


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


def person() -> str:
    """Return who uses this command line, for the ledger."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


# --- the ledger ----------------------------------------------------------------------------------


@contextmanager
def ledger(database: str = "", *, migrated: bool = True) -> Iterator[LedgerConnection]:
    """Open the ledger, and check that its schema is this release's."""
    from reliability.deployment.settings import database_dsn
    from reliability.ledger.connection import LedgerConnection
    from reliability.ledger.migrations import check_migrated

    with LedgerConnection(database_dsn(database), application_name="reliability cli") as connection:
        if migrated:
            check_migrated(connection)
        yield connection


def names(connection: LedgerConnection, topology: str) -> list[str]:
    """Return the given topology, or all topologies of this ledger."""
    from reliability.transaction.maintain.sweep import topologies

    if topology:
        check_known(connection, topology)
    return [topology] if topology else topologies(connection)


def check_known(connection: LedgerConnection, topology: str) -> None:
    """Raise TopologyUnknown for a mistyped name.

    :raises NotTheCoordinator: its ledger is another database
    """
    from reliability.ledger.locks import check_known

    with connection.transaction() as tx:
        check_known(tx, topology)


def rows_of(connection: LedgerConnection, statement: str, **parameters: object) -> list[Row]:
    """Run one named query in a transaction of its own."""
    with connection.transaction() as tx:
        return tx.all(statement, **parameters)


# --- the pipeline's code -------------------------------------------------------------------------


def code_folders() -> list[str]:
    """Return the folders for pipeline code that is not installed: the current one and the home."""
    from reliability.deployment.settings import home

    return list(dict.fromkeys([os.getcwd(), str(home())]))


def topology_from_code(
    connection: LedgerConnection | None, topology: str, module: str = ""
) -> Topology:
    """Import a topology from the module in the ledger, or from another one.

    :param connection: None if the module is given
    :raises TopologyNotFound: the module cannot be imported here, or does not define it
    """
    from reliability.deployment.topologies import load_topology

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
    check_known(connection, topology)
    (row,) = rows_of(connection, "topology_details", topology=topology)
    if not row["module"]:
        raise TopologyNotFound(
            f"the ledger does not know the module of {topology}: its process function names none",
            remedy="give it with --module.",
        )
    return str(row["module"])
