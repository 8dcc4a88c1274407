"""`reliability replay`: process committed txids again, and print what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import (
    AsJson,
    Master,
    Module,
    NotPossible,
    SparkConf,
    Timeout,
    TopologyName,
    check_known,
    code_folders,
    ledger,
    module_of,
    person,
    signals_as_errors,
    topology_from_code,
    verb,
    warn,
)
from reliability.cli.bars import TxidProgress, txids_followed
from reliability.cli.different_rows import (
    DifferentRows,
    DiffFile,
    DiffTable,
    check_observable,
    check_target,
    rows_into,
)
from reliability.cli.output import (
    format_differences,
    plain,
    plain_run,
    print_json,
    what_to_clear,
)
from reliability.cli.select import (
    FileOption,
    IntervalOption,
    Selected,
    check_selection,
    select_txids,
    with_intervals,
)
from reliability.cli.terminal import say
from reliability.core.definitions import SUBMIT
from reliability.core.errors import RequestClosed
from reliability.core.txids import format_intervals

if TYPE_CHECKING:
    from collections.abc import Callable

    from reliability.cli.replay_run import ReplayResult, ReplayRun, Report, SubmitStep
    from reliability.core.definitions import Topology
    from reliability.ledger.connection import LedgerConnection
    from reliability.spark.submit import SparkSubmit
    from reliability.transaction.correct.rollback import RunToClear

DAG_ID = "cli"


@verb(
    "reliability replay shop 3..5 --dry-run",
    "reliability replay shop 3..5 --dry-run --diff rows.parquet",
    "reliability replay shop 3,7 --reason 'the price of May was net'",
    "reliability replay shop 3 --refreeze --dry-run",
    "reliability replay shop 3 --refreeze --reason 'the file was delivered anew'",
    "reliability replay shop --interval 2013-05 --reason 'the price of May was net'",
    "reliability replay shop --file 2013-05.csv --refreeze --reason 'it was delivered anew'",
)
def replay(
    topology: TopologyName,
    txids: Annotated[str, typer.Argument(metavar="TXIDS", help="3, 3..5 or 3,7..9.")] = "",
    interval: IntervalOption = "",
    file: FileOption = "",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Run Spark and report what would change; change nothing."),
    ] = False,
    reason: Annotated[str, typer.Option(help="The reason; recorded with the request.")] = "",
    refreeze: Annotated[
        bool,
        typer.Option(
            "--refreeze", help="The source was replaced on purpose: freeze its current contents."
        ),
    ] = False,
    diff: DiffFile = None,
    diff_table: DiffTable = "",
    master: Master = "",
    conf: SparkConf = None,
    timeout: Timeout = 3600,
    module: Module = "",
    as_json: AsJson = False,
) -> None:
    """Process committed txids again with the current code, as many at once as max_replay_pending.

    Each new contribution replaces the old one. With --dry-run, the real commit is carried out and
    rolled back, and its changes are printed. spark-submit runs on this host. With --refreeze,
    uncommitted txids are refrozen, and the runs to clear are printed. With both, the source is read
    as it is now, and nothing is frozen.
    """
    check_selection(txids, interval, file)
    check_target(diff, diff_table)
    if refreeze and not (dry_run or reason):
        raise typer.BadParameter("--refreeze needs a --reason, unless it is a --dry-run")
    with ledger() as connection, ExitStack() as closing:
        check_known(connection, topology)
        selected = select_txids(connection, topology, txids, interval, file)
        selected.show()
        wanted = list(selected.txids)
        code = topology_from_code(connection, topology, module)
        submit = submit_with(master, conf or [], code)
        rows = None
        if diff or diff_table:
            if not dry_run:
                check_observable(connection, topology)
            rows = closing.enter_context(rows_into(connection, topology, diff, diff_table))
            rows.txids = frozenset(wanted)
        progress = closing.enter_context(txids_followed(len(wanted)))
        closing.enter_context(signals_as_errors())
        replaying = prepare_replay(
            connection,
            topology,
            submit,
            progress.say,
            rows,
            module=module,
            is_dry_run=dry_run,
            patience=timeout,
            as_refrozen=refreeze and dry_run,
        )
        freezes = refreeze and not dry_run
        to_clear = _refreeze_uncommitted(replaying, wanted, reason, progress.say) if freezes else []
        wanted = sorted(set(wanted) - {txid for run in to_clear for txid in run.txids})
        replayed = replay_all(replaying, selected, wanted, reason, progress, refreeze=freezes)
        closing.close()  # all that is written is there before anything is said of it
    _print_results(selected, replayed, to_clear, is_dry_run=dry_run, as_json=as_json)
    _warn_of_unobserved(replayed, rows)
    if rows is not None and not as_json:
        say(f"{rows.count:,} rows are in {diff or diff_table}")


def submit_with(master: str, conf: Sequence[str], topology: Topology) -> SubmitStep:
    """Return the function that runs a step of a topology; tests replace it."""
    from reliability.deployment.settings import engine_of
    from reliability.spark.engine_socket import check_engine
    from reliability.spark.warm_submit import WarmSubmit

    if engine_of(topology) == SUBMIT:
        return submit_options(master, conf)
    check_engine()  # before any request is made
    return WarmSubmit(code=code_folders())


def submit_options(master: str, conf: Sequence[str]) -> SparkSubmit:
    """Return this host's spark-submit with options of the command line."""
    from reliability.spark.submit import SparkSubmit, find_spark_submit

    if wrong := [one for one in conf if "=" not in one]:
        raise typer.BadParameter(f"--conf must be key=value, not {wrong[0]}")
    program = find_spark_submit()
    if program is None:
        raise NotPossible(
            "spark-submit is neither on the PATH nor beside this Python. What to do: install "
            "pyspark, or set SPARK_HOME; `reliability doctor` shows what it finds."
        )
    return SparkSubmit(program=program, master=master, conf=conf, code=code_folders())


def prepare_replay(
    connection: LedgerConnection,
    topology: str,
    submit: SubmitStep,
    report: Report,
    rows: DifferentRows | None,
    *,
    module: str,
    **options: Any,
) -> ReplayRun:
    """Return a run of its own; it has made no request yet."""
    from reliability.cli.replay_run import ReplayRun
    from reliability.transaction.emit.requests import Run

    module = module or module_of(connection, topology)
    return ReplayRun(
        connection,
        topology_from_code(connection, topology, module),
        submit,
        Run(dag_id=DAG_ID, run_id=_run_id()),
        module=module,
        report=report,
        observer=rows.observe if rows else None,
        **options,
    )


def _run_id() -> str:
    """Return the run's id; it is unique, or two calls would share their requests."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return f"cli {person()} {now}"


def _refreeze_uncommitted(
    replaying: ReplayRun, txids: Sequence[int], reason: str, report: Report
) -> list[RunToClear]:
    """Refreeze the txids that have not committed; return the runs that must process them."""
    runs = replaying.uncommitted(txids)
    for txid in sorted(txid for run in runs for txid in run.txids):
        _refreeze(replaying, txid, reason, report)
    return runs


def _refreeze(replaying: ReplayRun, txid: int, reason: str, report: Report) -> None:
    if replaying.refreeze(txid, reason) is not None:
        report(f"txid {txid} is refrozen", txid)


def replay_all(
    replaying: ReplayRun,
    selected: Selected,
    txids: Sequence[int],
    reason: str,
    progress: TxidProgress,
    *,
    refreeze: bool,
    asked: Callable[[ReplayRun], None] = lambda run: None,
) -> list[ReplayResult]:
    """Replay the txids, as many at once as the topology allows.

    If one fails, lower ones go on to their end and higher ones are given up, so that what came
    before it is done.

    :param asked: called when all requests are open, before an attempt begins
    """

    def replay_one(txid: int) -> ReplayResult:
        if failed and min(failed) < txid:
            raise RequestClosed(f"txid {txid} is given up: txid {min(failed)} has failed")
        try:
            if refreeze:
                _refreeze(replaying, txid, reason, progress.say)
            return replaying.replay(txid)
        except BaseException as error:
            failed[txid] = error  # before this thread takes the next txid
            raise

    done: dict[int, ReplayResult] = {}
    failed: dict[int, BaseException] = {}
    progress.expect(len(txids))
    replaying.ask(txids, reason)
    try:
        asked(replaying)
    except BaseException:
        replaying.give_up("reliability replay ended before it began", txids)
        raise
    with ThreadPoolExecutor(replaying.window(), "replay") as pool:
        running = {pool.submit(replay_one, txid): txid for txid in txids}
        try:
            for future in as_completed(running):
                txid = running[future]
                if future.cancelled():
                    continue
                if (failure := future.exception()) is not None:
                    failed[txid] = failure
                    _give_up_after(replaying, txid, running)
                else:
                    done[txid] = future.result()
                    progress.done(txid)
        except BaseException as error:  # interrupted: nobody waits for the others
            failed[0] = error
            _give_up_after(replaying, 0, running)
            for future in wait(running).done:
                if not future.cancelled() and (failure := future.exception()) is not None:
                    failed[running[future]] = failure
    if failed:
        first = failed[min(failed)]
        _print_log_path(first)
        _delete_logs(failure for txid, failure in failed.items() if failure is not first)
        if left := set(txids) - done.keys():
            warn(
                f"{selected.named(left)} not replayed, {len(done)} replayed before; "
                "a PROCESSED one still commits in its turn"
            )
        raise first
    return [done[txid] for txid in sorted(done)]


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays txids of a topology on this host's spark-submit or warm engine, for other verbs."""

    connection: LedgerConnection
    topology: str
    module: str
    timeout: int
    master: str
    conf: Sequence[str]

    def submit(self) -> SubmitStep:
        """Return the function that runs a step; raise if there is none here."""
        code = topology_from_code(self.connection, self.topology, self.module)
        return submit_with(self.master, self.conf, code)

    def run(
        self,
        txids: Sequence[int],
        reason: str,
        *,
        is_dry_run: bool = False,
        without: frozenset[str] = frozenset(),
        asked: Callable[[ReplayRun], None] = lambda run: None,
    ) -> list[ReplayResult]:
        """Replay the txids, in a run of their own; nothing is shown any more when it returns.

        :param asked: called when all requests are open, before an attempt begins
        """
        if not txids:
            return []
        submit = self.submit()
        with txids_followed(len(txids)) as progress, signals_as_errors():
            run = prepare_replay(
                self.connection,
                self.topology,
                submit,
                progress.say,
                None,
                module=self.module,
                is_dry_run=is_dry_run,
                patience=self.timeout,
                without=without,
            )
            selected = with_intervals(self.connection, self.topology, txids)
            return replay_all(run, selected, txids, reason, progress, refreeze=False, asked=asked)


def _delete_logs(failures: Iterable[BaseException]) -> None:
    """Delete what spark-submit wrote for txids that were given up: nobody is told of it."""
    from reliability.spark.submit import SubmitFailed

    for failure in failures:
        if isinstance(failure.__cause__, SubmitFailed):
            failure.__cause__.log.unlink(missing_ok=True)


def _give_up_after(
    replaying: ReplayRun, txid: int, running: Mapping[Future[ReplayResult], int]
) -> None:
    later = {other for other in running.values() if other >= txid}
    for future, other in running.items():
        if other in later:
            future.cancel()
    replaying.give_up("reliability replay ended without it", later)


def _print_log_path(error: BaseException) -> None:
    from reliability.spark.submit import SubmitFailed

    if isinstance(error.__cause__, SubmitFailed):
        warn(f"the driver's output is in {error.__cause__.log}")


# --- output ------------------------------------------------


def _warn_of_unobserved(replayed: Sequence[ReplayResult], rows: DifferentRows | None) -> None:
    if rows is None:
        return
    changed = sum(
        difference.rows_added + difference.rows_changed + difference.rows_removed
        for one in replayed
        for difference in one.differences
    )
    if changed != rows.count:
        warn(
            f"{changed:,} rows have changed and {rows.count:,} were compared: another process, "
            "such as a sweep, has committed the rest"
        )


def _interval(selected: Selected, one: ReplayResult) -> str | None:
    return format_intervals([selected.intervals.get(one.txid)]) or None


def print_replayed(
    selected: Selected, replayed: Sequence[ReplayResult], *, is_dry_run: bool
) -> None:
    """Print what each replay changed, or would change."""
    for one in replayed:
        what = "would change" if is_dry_run else "changed"
        say(f"{selected.with_interval(one.attempt)} {what}")
        for line in format_differences(one.differences):
            say(line)
        for outcome in one.audits:
            attempt = str(one.attempt)
            say(outcome.foretell(attempt) if is_dry_run else f"{attempt}: {outcome}")
        if one.outdated_code:
            say(f"warning: {one.outdated_code}")


def _print_results(
    selected: Selected,
    replayed: Sequence[ReplayResult],
    to_clear: Sequence[RunToClear],
    *,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        return print_json(
            {
                "topology": selected.topology,
                "is_dry_run": is_dry_run,
                "replayed": [
                    {**plain(one), "interval": _interval(selected, one)} for one in replayed
                ],
                "to_clear": [plain_run(run) for run in to_clear],
            }
        )
    print_replayed(selected, replayed, is_dry_run=is_dry_run)
    if to_clear:
        uncommitted = selected.named(txid for run in to_clear for txid in run.txids)
        say(f"{uncommitted} not committed yet. Next:")
        for line in what_to_clear(selected.topology, to_clear):
            say(line)
