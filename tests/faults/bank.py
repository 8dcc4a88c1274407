"""A bank: transfers as batches, whose sum is 0 in every snapshot, and what processes do with it.

An act is what one process does, from its first session to its last. It is harmless when repeated,
as a task of Airflow or a verb of the command line is.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from psycopg2.sql import SQL

from reliability import Append, Count, History, Latest, MemorySpout, State, Sum, Topology
from reliability.core.attempt import Grant
from reliability.core.errors import ReliabilityError, Transient
from reliability.core.leases import Leases
from reliability.core.request import TaskTry
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate
from reliability.spark.launch import steps_here
from reliability.testing.pipeline import process_run
from reliability.transaction.correct.erase import erase
from reliability.transaction.correct.park import park, skip
from reliability.transaction.correct.repair import repair
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.emit.emission import emit
from reliability.transaction.emit.requests import Run, TaskContact, settle
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.own_run import RunStep
from reliability.transaction.process.attempt_messages import driver_session
from reliability.transaction.topology.alter import alter
from tests.support.python_driver import process_in_python

ROOT = Path(__file__).resolve().parents[2]
TASK = "transfer"
MOST_TRIES = 20
ACCOUNTS = ("ann", "bob", "cid", "dan")
BATCHES = 3
#: Set where an attempt takes seconds: then there is one batch.
ENGINE = "RELIABILITY_ENGINE"
#: Set where the executors of a cluster process.
MASTER = "RELIABILITY_TEST_MASTER"
ON_CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.cores.max": "1",  # one executor: another JVM would show no more
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
WHY = "a fault test"
MART = "mart"
OF_MART = f"RELIABILITY_DSN_{MART.upper()}"
#: A migrated database of Airflow's, of which each process that runs a DAG takes a copy.
METADATA = "RELIABILITY_TEST_METADATA"
#: How a process ends that could not do its act, and says why; 1 is a mistake of somebody's.
FAILED = 2
#: What has committed everywhere, or nowhere, whoever asks: money is moved, and never made.
SUM_OF_ALL = """
    SELECT coalesce((SELECT sum(amount) FROM public.balance), 0) AS money,
           coalesce((SELECT sum(moves) FROM public.balance), 0) AS moves,
           (SELECT count(*) FROM public.moved) AS moved,
           (SELECT count(*) FROM public.seen) AS seen
"""
SUM_OF_MART = """
    SELECT coalesce((SELECT sum(amount) FROM public.mart_balance), 0) AS money,
           coalesce((SELECT sum(moves) FROM public.mart_balance), 0) AS moves,
           (SELECT count(*) FROM public.mart_seen) AS seen
"""


def transfers() -> list[tuple[str, int, int]]:
    """Return two rows a transfer, two transfers a batch."""
    rows = []
    for number in range(2 if ENGINE in os.environ else 2 * BATCHES):
        giver, taker = ACCOUNTS[number % 4], ACCOUNTS[(number * 3 + 1) % 4]
        rows += [(giver, -(number + 1), number), (taker, number + 1, number)]
    return rows


def moves(rows: Any) -> Mapping[str, Any]:
    return {state.name: rows for state in bank().states}


def bank(*, altered: bool = False) -> Topology:
    """Return the topology: four kinds of state, one of which folds what is old.

    Two more are in another database, if there is one.
    """
    balance: dict[str, Any] = {"amount": Sum("amount", "bigint"), "moves": Count()}
    if altered:
        balance["numbers"] = Sum("number", "bigint")
    moved = {"account": Append("account", "text"), "amount": Append("amount", "bigint")}
    key = {"account": "text"}
    in_mart = [
        State("mart_balance", key=key, values=balance, database=MART),
        State("mart_seen", values=moved, as_view=True, database=MART),
    ]
    return Topology(
        "bank",
        spout=MemorySpout(
            {"account": "string", "amount": "bigint", "number": "bigint"}, [transfers()], take=4
        ),
        process=moves,
        states=[
            State("balance", key=key, values=balance),
            State("moved", values=moved),
            State("seen", values=moved, as_view=True),
            State(
                "kept",
                key=key,
                values={"last": Latest("amount", by={"number": "bigint"}), "n": Count()},
                keep=History(txids=1),
            ),
            *(in_mart if OF_MART in os.environ else ()),
        ],
        max_spout_pending=2,
    )


topology = bank()  # where a driver finds it
failures: list[BaseException] = []  # of the tasks of a DAG

# --- acts ----------------------------------------------------------------------------------------


def contact_of(number: int, clears: int = 0) -> TaskContact:
    """Return who asks: this try of the one run, which was cleared so often."""
    this_try = TaskTry(
        max_tries=MOST_TRIES * (clears + 1),
        try_id=f"{clears} {number}",
        clear_number=clears,
        is_first=number == 0,
    )
    return TaskContact(run=Run(dag_id=TASK, run_id="run 1"), task=TASK, this_try=this_try)


def work(connection: LedgerConnection, number: int) -> None:
    """Emit, process, commit and settle all, as the tasks of one run do."""
    do_run(connection, contact_of(number), run_step)


def do_run(connection: LedgerConnection, who: TaskContact, run_step: RunStep) -> None:
    txids = process_run(connection, bank(), None, who, run_step)
    settle(connection, bank().name, who.run, txids)


def work_again(connection: LedgerConnection, number: int) -> None:
    """Replay what has committed, and do the rest, as after a clear."""
    do_run(connection, contact_of(number, clears=1), run_step)


def run_step(grant: Grant, step: str, is_wanted: Callable[[], bool]) -> None:
    """Process a step in a session of its own, as a driver does."""
    with driver_session(grant) as session:
        process_in_python(session, bank(), grant, step)


def work_in_spark(connection: LedgerConnection, number: int) -> None:
    """Do the same with a spark-submit for each step, here or on a cluster, or in a warm engine."""
    master = os.environ.get(MASTER)
    conf = ON_CLUSTER if master else {}
    steps = steps_here(bank(), __name__, [str(ROOT)], master or "local[2]", conf)
    do_run(connection, contact_of(number), steps)


def work_in_a_dag(connection: LedgerConnection, number: int) -> None:
    """Do the same by the operators of a DAG, all in this process but the drivers."""
    own = Path(os.environ[METADATA]).with_name(f"{os.getpid()}.db")
    shutil.copy(os.environ[METADATA], own)
    os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{own}"
    from tests.faults.dags.transfer import START, dag  # Airflow is for this act alone

    run = dag.test(logical_date=START, run_after=START)  # which its id is made of
    own.unlink()
    for error in failures:
        if not _comes_from_ours(error):
            raise error
    if run.state != "success":
        raise Transient(f"the run is {run.state}: {failures}")


def note_failure(context: Mapping[str, Any]) -> None:
    """Keep what a task of the DAG has failed with."""
    failures.append(context["exception"])


def _comes_from_ours(error: BaseException | None) -> bool:
    """Say whether an error of this package is the cause; any other is a mistake of somebody's."""
    return error is not None and (
        isinstance(error, ReliabilityError) or _comes_from_ours(error.__cause__)
    )


def emit_only(connection: LedgerConnection, number: int) -> None:
    emit(connection, bank(), None, contact_of(number), max_batches=BATCHES)


def undo(connection: LedgerConnection, number: int) -> None:
    roll_back(connection, "bank", 1, WHY)


def undo_on_the_page(connection: LedgerConnection, number: int) -> None:
    """Do the same by a button of the page."""
    from fastapi.testclient import TestClient

    from reliability_airflow.page.addresses import PREFIX
    from tests.support.fix_page import FROM_THE_PAGE, Rights, airflow_with_page

    address = f"{PREFIX}/dags/bank/actions/rollback"
    with airflow_with_page(Rights()) as airflow:
        answer = TestClient(airflow).post(
            address, data={"txid": "1", "reason": WHY}, headers=FROM_THE_PAGE
        )
    if answer.status_code != 200:
        raise Transient(f"{answer.status_code}: {answer.text}")


def let_go(connection: LedgerConnection, number: int) -> None:
    release(connection, "bank")


def park_first(connection: LedgerConnection, number: int) -> None:
    park(connection, "bank", 1, WHY)


def skip_first(connection: LedgerConnection, number: int) -> None:
    skip(connection, "bank", 1, WHY)


def tidy(connection: LedgerConnection, number: int) -> None:
    sweep(connection, "bank", Leases(overdue=0), clean=True)


def add_a_value(connection: LedgerConnection, number: int) -> None:
    alter(connection, bank(altered=True), WHY)


def forget_ann(connection: LedgerConnection, number: int) -> None:
    erase(connection, "bank", [("account", "ann")], reason=WHY)


def mend(connection: LedgerConnection, number: int) -> None:
    repair(connection, "bank", WHY)


def change_by_hand(connection: LedgerConnection, number: int) -> None:
    connection.run(SQL("UPDATE public.balance SET amount = amount + 7 WHERE account = 'bob'"))


def set_up(connection: LedgerConnection, number: int) -> None:
    migrate(connection)
    if OF_MART in os.environ:
        with closing(LedgerConnection(os.environ[OF_MART], "set_up")) as mart:
            migrate(mart)


def prove(connection: LedgerConnection, number: int) -> None:
    """Sweep, and compare all tables with the contributions that are kept."""
    tidy(connection, number)
    for state in verify(connection, "bank"):
        assert state.is_exact is not False, f"verify: {state}"


ACTS: Mapping[str, Callable[[LedgerConnection, int], None]] = {
    act.__name__: act
    for act in (
        work, work_in_spark, work_in_a_dag, emit_only, work_again, undo, undo_on_the_page, let_go,
        park_first, skip_first, tidy, add_a_value, forget_ann, mend, change_by_hand, set_up, prove,
    )
}  # fmt: skip


def act(name: str, number: int, dsn: str, variables: Mapping[str, str], log: str) -> None:
    """Do it in this process; its end says whether it is done.

    :param number: which try it is, from 0
    :param log: a file for the error of a try
    """
    os.environ.update(variables, RELIABILITY_DSN=dsn)
    logging.disable()  # that something is lost is meant
    with closing(LedgerConnection(dsn, name)) as connection:
        try:
            ACTS[name](connection, number)
        except Exception as error:
            with open(log, "a") as file:
                print(f"{name} {number}: {error}", file=file)
            if isinstance(error, ReliabilityError):
                raise SystemExit(FAILED) from None
            raise
