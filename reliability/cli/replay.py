"""`reliability replay`: process committed txids again, and print what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from reliability.cli import options
from reliability.cli.app import (
    code_folders,
    ledger,
    module_of,
    signals_as_errors,
    topology_from_code,
    verb,
    warn,
)
from reliability.cli.bars import txids_followed
from reliability.cli.output import format_differences, plain, what_to_clear
from reliability.cli.parts import answer
from reliability.cli.terminal import say
from reliability.core.definitions import Topology
from reliability.core.txids import format_intervals
from reliability.deployment.settings import person
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.inspect.different_rows import DifferentRows
from reliability.transaction.inspect.select import Selected
from reliability.transaction.own_run import RunFailed, RunStep
from reliability.transaction.replay import Asked, Replayed, ReplayRequest, ReplayResult, ReplayRun


@verb(
    "reliability replay shop 3..5 --dry-run",
    "reliability replay shop 3..5 --dry-run --diff rows.parquet",
    "reliability replay shop 3,7 --reason 'the price of May was net'",
    "reliability replay shop 3 --refreeze --dry-run",
    "reliability replay shop 3 --refreeze --reason 'the file was delivered again'",
    "reliability replay shop --interval 2013-05 --reason 'the price of May was net'",
    "reliability replay shop --file 2013-05.csv --refreeze --reason 'it was delivered again'",
)
def replay(
    topology: options.Topology,
    selection: options.SomeTxids,
    spark: options.Spark,
    diff: options.Diff,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Run Spark and report what would change; change nothing."),
    ] = False,
    reason: options.ReasonOfRequest = "",
    refreeze: Annotated[
        bool,
        typer.Option(
            "--refreeze", help="The source was replaced on purpose: freeze its current contents."
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Process committed txids again with the current code, as many at once as max_replay_pending.

    Each new contribution replaces the old one. With --dry-run, the real commit is carried out and
    rolled back, and its changes are printed. spark-submit runs on this host. With --refreeze,
    uncommitted txids are refrozen, and the runs to clear are printed. With both, the source is read
    as it is now, and nothing is frozen.
    """
    if refreeze and not (dry_run or reason):
        raise typer.BadParameter("--refreeze needs a --reason, unless it is a --dry-run")
    with ledger(topology) as connection:
        selected = selection.select(connection, topology)
        run = Replays(connection, topology, spark, selected)
        with (
            ExitStack() as at_last,  # answers when the file is closed, or cannot be
            diff.opened(connection, topology, dry_run=dry_run) as rows,
        ):
            request = run.request(reason=reason, is_dry_run=dry_run, refreezes=refreeze)
            replayed = run.replay(request, rows)
            document = _document(selected, replayed, is_dry_run=dry_run)
            lines = _lines(selected, replayed, is_dry_run=dry_run)
            at_last.callback(answer, document, lines, as_json=as_json)
    if rows is not None:
        _warn_of_unobserved(replayed.results, rows)
        if not as_json:
            say(f"{rows.count:,} rows are in {diff}")


class Replays:
    """Replays txids of a topology on this host's spark-submit or warm engine.

    :raises NotPossible: there is none here
    """

    def __init__(
        self, connection: LedgerConnection, topology: str, spark: options.Spark, selected: Selected
    ) -> None:
        self._connection = connection
        self._selected = selected
        self._patience = spark.timeout
        module = spark.module or module_of(connection, topology)
        self._topology = topology_from_code(connection, topology, module)
        self._run_step = steps_of(spark, self._topology, module)

    def request(self, **asked: Any) -> ReplayRequest:
        """Return the request for these txids."""
        return ReplayRequest(
            topology=self._topology,
            txids=self._selected.txids,
            by=person(),
            patience=self._patience,
            **asked,
        )

    def replay(
        self,
        request: ReplayRequest,
        rows: DifferentRows | None = None,
        asked: Asked | None = None,
    ) -> Replayed:
        """Replay the txids, and show how that goes; nothing is shown any more when it returns.

        :param asked: see `ReplayRun.run`
        """
        observer = None
        if rows is not None:
            observer, rows.txids = rows.observe, frozenset(request.txids)
        with txids_followed(len(request.txids)) as progress, signals_as_errors():
            run = ReplayRun(self._connection, request, self._run_step, progress, observer)
            try:
                return run.run(asked)
            except RunFailed as failed:
                self._tell(failed, request)
                first = failed.first
        raise first

    def _tell(self, failed: RunFailed, request: ReplayRequest) -> None:
        tell_logs(failed)
        if not failed.left:
            return
        done = len(request.txids) - len(failed.left)
        after = f"{done} replayed before; a PROCESSED one still commits in its turn"
        if request.is_dry_run:
            after = f"{done} tried before; a dry run commits nothing"
        warn(f"{self._selected.named(failed.left)} not replayed, {after}")


def tell_logs(failed: RunFailed) -> None:
    """Say where the output of what failed is; delete that of what was given up."""
    if (log := _log_of(failed.first)) is not None:
        warn(f"the driver's output is in {log}")
    for error in failed.others:
        if (log := _log_of(error)) is not None:
            log.unlink(missing_ok=True)


def _log_of(error: BaseException) -> Any:
    return getattr(error.__cause__, "log", None)  # of DriverFailed


# --- Spark ---------------------------------------------------------------------------------------


def steps_of(spark: options.Spark, topology: Topology, module: str) -> RunStep:
    """Return what runs the steps of a topology on this host; tests replace it."""
    from reliability.spark.launch import steps_here

    conf = properties_of(spark.conf or [])
    return steps_here(topology, module, code_folders(), spark.master, conf)


def properties_of(conf: Sequence[str]) -> dict[str, str]:
    """Read Spark's properties as options of the command line give them."""
    if wrong := [one for one in conf if "=" not in one]:
        raise typer.BadParameter(f"--conf must be key=value, not {wrong[0]}")
    return dict(one.split("=", 1) for one in conf)


# --- output --------------------------------------------------------------------------------------


def lines_of(
    selected: Selected, results: Sequence[ReplayResult], *, is_dry_run: bool
) -> Iterator[str]:
    """Say what each replay changed, or would change."""
    for result in results:
        what = "would change" if is_dry_run else "changed"
        yield f"{selected.with_interval(result.attempt)} {what}"
        yield from format_differences(result.differences)
        for outcome in result.audits:
            attempt = str(result.attempt)
            yield outcome.foretell(attempt) if is_dry_run else f"{attempt}: {outcome}"
        if result.outdated_code:
            yield f"warning: {result.outdated_code}"


def _lines(selected: Selected, replayed: Replayed, *, is_dry_run: bool) -> Iterator[str]:
    yield from lines_of(selected, replayed.results, is_dry_run=is_dry_run)
    if replayed.to_clear:
        uncommitted = selected.named(txid for run in replayed.to_clear for txid in run.txids)
        yield f"{uncommitted} not committed yet. Next:"
        yield from what_to_clear(selected.topology, replayed.to_clear)


def _document(selected: Selected, replayed: Replayed, *, is_dry_run: bool) -> dict[str, Any]:
    return {
        "topology": selected.topology,
        "is_dry_run": is_dry_run,
        "replayed": [
            {
                **plain(result),
                "interval": format_intervals([selected.intervals.get(result.txid)]) or None,
            }
            for result in replayed.results
        ],
        "to_clear": replayed.to_clear,
    }


def _warn_of_unobserved(results: Sequence[ReplayResult], rows: DifferentRows) -> None:
    changed = sum(
        difference.rows_added + difference.rows_changed + difference.rows_removed
        for result in results
        for difference in result.differences
    )
    if changed != rows.count:
        warn(
            f"{changed:,} rows have changed and {rows.count:,} were compared: another process, "
            "such as a sweep, has committed the rest"
        )
