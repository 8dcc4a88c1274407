"""Cells of the matrix: an act of a real process, a change that it makes, a kind of fault.

Each cell has a database of its own. The act is done by a process, to which the fault happens; it is
tried again until it is done. Afterwards, tables and commits have to be those of a clean run, and
nothing may be left over. While it happens, a reader looks at the sum of all money in a loop.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
from psycopg2.sql import SQL

from dev.errors import DeadlineError
from dev.services.processes import wait_until
from reliability.ledger.connection import LedgerConnection
from tests.faults import bank
from tests.faults.proxy import KILLS, WITH_ANOTHER, Armed, Change, FaultKind, Proxy
from tests.support.fix_postgres import admin_session, own_session
from tests.support.money import LIVE, Reader

MOST_TRIES = 5
END_SECONDS = 240
#: How long another process works before the first goes on; longer where it is slow to begin.
ANOTHER_SECONDS = {FaultKind.FROZEN: 4.0, FaultKind.TWICE: 0.3}
ANOTHER_SLOW_SECONDS = {FaultKind.FROZEN: 30.0, FaultKind.TWICE: 10.0}
#: What a process otherwise imports when it stages rows: a second of CPU in each.
LATER = ("pyarrow", "pandas", "pgpq")
BARE = "template1"
KEPT = ("balance", "moved", "seen", "kept")
IN_MART = ("mart_balance", "mart_seen")
COMMITS = """
    SELECT commit_number, kind, txid FROM reliability.commit_log WHERE topology = 'bank' ORDER BY 1
"""
COMMITTED = """
    SELECT txid FROM reliability.transaction WHERE committed_attempt IS NOT NULL ORDER BY 1
"""
SESSIONS = """
    SELECT application_name, state FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND (application_name = ANY(%(names)s) OR application_name LIKE 'reliability %%')
"""


Choice = Callable[[Sequence[Change]], Sequence[Change]]
"""Chooses changes of a clean run, to which faults happen."""


def first_and_last(changes: Sequence[Change]) -> Sequence[Change]:
    """Return the first and the last change of each name, in order."""
    ends = last(changes)
    return [change for change in changes if change.occurrence == 1 or change in ends]


def last(changes: Sequence[Change]) -> Sequence[Change]:
    """Return the last change of each name."""
    return [*{change.statement: change for change in changes}.values()]


def last_commit(changes: Sequence[Change]) -> Sequence[Change]:
    """Return what commits the last txid, from its seal on; all that seals nothing."""
    seals = [place for place, change in enumerate(changes) if change.statement == "end_seal"]
    return changes[seals[-1] if seals else 0 :]


def last_of(*names: str) -> Choice:
    """Choose the last change of each of these names."""
    return lambda changes: [one for one in last(changes) if one.statement in names]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What processes do one after the other.

    :param before: acts of clean processes, done once for all cells
    :param act: the one that faults happen to
    :param after: acts of clean processes behind it
    :param verifies: the tables are what the contributions say
    :param done: what a refusal says of an act that has been done already
    :param has_mart: two of the states are in another database
    :param choose: the changes that faults happen to
    :param engine: what processes the steps, where an attempt takes seconds: there is one batch
    :param in_airflow: its processes need Airflow
    :param moves_only: all money together is 0 in each snapshot
    """

    name: str
    act: str
    before: tuple[str, ...] = ("set_up",)
    after: tuple[str, ...] = ()
    moves_only: bool = True
    verifies: bool = True
    done: str = ""
    has_mart: bool = False
    choose: Choice = first_and_last
    engine: str = ""
    in_airflow: bool = False


WORKED = ("set_up", "work")
#: What the tasks of a DAG change, the drivers of their steps too.
OF_TASKS = ("complete_emission", "end_seal", "advance_checkpoint", "record_tasks_ended")
#: What a driver and its Spark tasks change.
OF_DRIVER = ("record_code", "COPY", "acknowledge", "declare_partitions")
COMMITTING = Scenario("emit, process, commit", "work")
ROLLBACK = Scenario(
    "rollback", "undo", WORKED, ("let_go", "work_again"), done="is the last committed txid already"
)
CORRECTED = (Scenario("replay", "work_again", WORKED), ROLLBACK)
#: The slowest come first: none is left alone at the end.
SCENARIOS = (
    *(
        Scenario(f"process, {name}", "work_in_spark", choose=last_of(*OF_DRIVER), engine=engine)
        for engine, name in (
            ("cluster", "spark-submit to a cluster"),
            ("submit", "spark-submit"),
            ("warm", "warm engine"),
        )
    ),
    Scenario(
        "the tasks of a DAG",
        "work_in_a_dag",
        choose=last_of(*OF_TASKS),
        engine="submit",
        in_airflow=True,
    ),
    COMMITTING,
    *CORRECTED,
    Scenario("release", "let_go", (*WORKED, "undo"), ("work_again",)),
    Scenario("park", "park_first", ("set_up", "emit_only"), done="has already committed"),
    Scenario("skip", "skip_first", ("set_up", "emit_only"), ("work",)),
    Scenario("sweep, fold, merge", "tidy", (*WORKED, "work_again")),
    Scenario("alter", "add_a_value", WORKED),
    Scenario("erase", "forget_ann", WORKED, moves_only=False),
    Scenario("repair", "mend", (*WORKED, "change_by_hand"), moves_only=False),
    Scenario("migrate", "set_up", (), ("work",)),
    *(
        replace(one, name=f"{one.name}, two databases", has_mart=True, choose=last_commit)
        for one in (COMMITTING, *CORRECTED)
    ),
    replace(ROLLBACK, name="rollback on the page", act="undo_on_the_page", in_airflow=True),
)


@dataclass(slots=True)
class Books:
    """What is left of a cell: to be compared."""

    tables: Mapping[str, Counter[str]]
    committed: Sequence[int]
    first_commits: Sequence[int]


@dataclass(slots=True)
class Outcome:
    """What became of a cell; `wrong` is empty if all is as it has to be."""

    scenario: str
    change: Change
    kind: FaultKind
    wrong: str = ""


@dataclass
class Matrix:
    """Runs cells on one server.

    :param variables: for the processes, to find the server
    :param of_engine: starts a scenario's engine unless it runs, and returns more variables, for
        processes that process with it
    :param of_airflow: returns more variables, for processes that need Airflow
    :ivar snapshots: how many were read beside all cells
    """

    proxy: Proxy
    variables: Mapping[str, str]
    of_engine: Callable[[str], Mapping[str, str]]
    of_airflow: Callable[[], Mapping[str, str]]
    snapshots: int = 0
    _scenario: Scenario = COMMITTING
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _context: Any = field(default_factory=lambda: multiprocessing.get_context("forkserver"))

    def __post_init__(self) -> None:
        self._context.set_forkserver_preload([bank.__name__, *LATER])

    # --- cells -----------------------------------------------------------------------------------

    def outcomes(
        self,
        scenario: Scenario,
        choose: Choice | None = None,
        kinds: Callable[[Change], Sequence[FaultKind]] = lambda _: tuple(FaultKind),
    ) -> Iterator[Outcome]:
        """Let each kind of fault happen to what is chosen of the changes of a clean run."""
        self._scenario = scenario
        with self._databases() as template:
            self._do_all(scenario.before, template)
            with self._databases(template) as database:
                self.proxy.begin()
                self._do(scenario.act, database)
                changes = [*self.proxy.changes]
                self._do_all(scenario.after, database)
                clean = self._books(scenario, database)
            assert changes, f"{scenario.name} changes nothing"
            chosen = (choose or scenario.choose)(changes)
            assert chosen, f"{scenario.name}: nothing is chosen of {changes}"
            for change in chosen:
                for kind in kinds(change):
                    yield self._try(scenario, Armed(kind, change), template, clean)

    @contextmanager
    def _databases(self, template: str = "") -> Iterator[str]:
        """Lend a database, and with it its mart; the server may crash meanwhile."""
        name = f"cell_{next(self._numbers)}"
        own = self._names(name)
        templates = self._names(template) if template else [BARE] * len(own)
        with ExitStack() as stack:
            for database, of in zip(own, templates, strict=True):
                stack.enter_context(self._database(database, of))
            yield name

    def _names(self, database: str) -> list[str]:
        """Return the names of a cell's databases."""
        return [database, *([mart_of(database)] if self._scenario.has_mart else [])]

    @contextmanager
    def _database(self, name: str, template: str) -> Iterator[None]:
        with admin_session() as cursor:
            cursor.execute(
                f"CREATE DATABASE {name} OWNER reliability TEMPLATE {template} STRATEGY file_copy"
            )
        try:
            yield
        finally:
            with admin_session() as cursor:
                cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _try(self, scenario: Scenario, armed: Armed, template: str, clean: Books) -> Outcome:
        outcome = Outcome(scenario.name, armed.change, armed.kind)
        with self._databases(template) as database:
            readers = [
                Reader(
                    partial(own_session, direct(name)),
                    {name: question},
                    every=0.1 if scenario.engine else 0.01,
                    moves_only=scenario.moves_only,
                )
                for name, question in zip(
                    self._names(database), (bank.SUM_OF_ALL, bank.SUM_OF_MART), strict=False
                )
            ]
            try:
                self._suffer(scenario, armed, database)
                self._do_all(scenario.after, database)
                for reader in readers:
                    reader.end()
                    assert not reader.wrong, reader.wrong[-1]
                self._compare(scenario, clean, database)
            except (AssertionError, DeadlineError) as error:
                outcome.wrong = str(error)
            finally:
                for reader in readers:
                    reader.end()
        self.snapshots += sum(sum(reader.snapshots.values()) for reader in readers)
        return outcome

    def _suffer(self, scenario: Scenario, armed: Armed, database: str) -> None:
        """Let the fault happen to the first process, and try again until one is done."""
        self.proxy.begin(armed)
        self._log().write_text("")
        first, other = self._begin(scenario.act, 0, database), None
        tries = 1
        _wait_for(lambda: armed.fired.is_set() or not (first.is_alive() or armed.pid), "the fault")
        assert armed.fired.is_set(), "the fault has not happened"
        if armed.kind in WITH_ANOTHER:
            other = self._begin(scenario.act, tries, database)
            tries += 1
            seconds = ANOTHER_SLOW_SECONDS if scenario.engine else ANOTHER_SECONDS
            other.join(seconds[armed.kind])
            armed.thaw.set()
        codes = [_end_of(one) for one in (first, other) if one is not None]
        if armed.kind in KILLS:
            is_dead = codes == [-9] if armed.pid == first.pid else not psutil.pid_exists(armed.pid)
            assert is_dead, f"the process was not killed: {codes}"
        assert {*codes} <= {0, bank.FAILED, *([-9] if armed.pid == first.pid else [])}, self._said()
        while codes[-1] != 0 and not (scenario.done and scenario.done in self._said()):
            assert tries < MOST_TRIES, f"it is not done after {tries} tries: {codes} {self._said()}"
            codes.append(_end_of(self._begin(scenario.act, tries, database)))
            assert codes[-1] in (0, bank.FAILED), self._said()
            tries += 1

    def _begin(self, name: str, number: int, database: str) -> BaseProcess:
        variables = dict(self.variables)
        if self._scenario.in_airflow:
            variables |= self.of_airflow()
        if self._scenario.engine:
            variables |= self.of_engine(self._scenario.engine)
        if self._scenario.has_mart:
            variables[bank.OF_MART] = self.proxy.dsn(mart_of(database))
        process: BaseProcess = self._context.Process(
            target=bank.act,
            args=(name, number, self.proxy.dsn(database), variables, str(self._log())),
        )
        process.start()
        return process

    def _log(self) -> Path:
        return self.proxy.folder / "errors"

    def _said(self) -> str:
        return self._log().read_text()

    def _do(self, name: str, database: str) -> None:
        code = _end_of(self._begin(name, 0, database))
        assert code == 0, f"{name} failed without a fault: {self._said()}"

    def _do_all(self, names: Sequence[str], database: str) -> None:
        for name in names:
            self._do(name, database)

    # --- invariants ------------------------------------------------------------------------------

    def _books(self, scenario: Scenario, database: str) -> Books:
        """Sweep, check what has to hold of any ledger, and return what has to be as ever."""
        self._do("prove" if scenario.verifies else "tidy", database)
        tables: dict[str, Counter[str]] = {}
        for name, kept in zip(self._names(database), (KEPT, IN_MART), strict=False):
            with LedgerConnection(direct(name), "books") as connection:
                tables |= {table: _rows_of(connection, table) for table in kept}
                _wait_for_sessions(connection)
        with LedgerConnection(direct(database), "books") as connection:
            live = connection.all(SQL(LIVE))
            assert not live, f"attempts still live: {live}"
            log = connection.all(SQL(COMMITS))
            numbers = [row["commit_number"] for row in log]
            assert numbers == [*range(1, len(log) + 1)], f"a gap between commits: {numbers}"
            return Books(
                tables,
                [row["txid"] for row in connection.all(SQL(COMMITTED))],
                [row["txid"] for row in log if row["kind"] == "COMMIT"],
            )

    def _compare(self, scenario: Scenario, clean: Books, database: str) -> None:
        found = self._books(scenario, database)
        for name, rows in clean.tables.items():
            missing, surplus = rows - found.tables[name], found.tables[name] - rows
            assert not missing + surplus, f"{name} lacks {missing}, has {surplus}"
        for what in ("committed", "first_commits"):
            expected, have = getattr(clean, what), getattr(found, what)
            assert expected == have, f"{what}: {have} instead of {expected}"


def mart_of(database: str) -> str:
    """Return the other database of a cell's."""
    return f"{database}_{bank.MART}"


def _rows_of(connection: LedgerConnection, table: str) -> Counter[str]:
    return Counter(
        str({k: v for k, v in row.items() if not k.startswith("_")})
        for row in connection.all(SQL(f"SELECT * FROM public.{table}"))
    )


def direct(database: str) -> str:
    """Return how this process gets to a database, where no fault happens."""
    return f"service=reliability dbname={database}"


def _end_of(process: BaseProcess) -> int:
    process.join(END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError("a process has not ended")
    return int(process.exitcode or 0)


def _wait_for_sessions(connection: LedgerConnection) -> None:
    _wait_for(lambda: not connection.all(SQL(SESSIONS), names=[*bank.ACTS]), "sessions to end")


def _wait_for(holds: Callable[[], bool], what: str) -> None:
    wait_until(holds, what, END_SECONDS, every=0.005)
