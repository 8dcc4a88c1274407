"""`reliability run`: emit, process and commit without Airflow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from reliability.cli import options
from reliability.cli.app import ledger, module_of, signals_as_errors, topology_from_code, verb, warn
from reliability.cli.bars import txids_followed
from reliability.cli.output import format_differences, plain
from reliability.cli.parts import answer
from reliability.cli.replay import steps_of, tell_logs
from reliability.core.txids import format_txids, with_noun
from reliability.deployment.settings import person
from reliability.transaction.interval_run import IntervalRun, RunResult
from reliability.transaction.own_run import RunFailed


@verb(
    "reliability run shop_revenue --interval 2026-01-01 --module spark_apps.shop_revenue",
    "reliability run shop_revenue --interval 2026-01 --master 'local[2]'",
)
def run(
    topology: options.Topology,
    spark: options.Spark,
    interval: Annotated[
        str,
        typer.Option(
            metavar="INTERVAL",
            help="What to emit: 2013, 2013-03, 2013-03-01, 2013-03-01T06 or START/END, in the "
            "spout's time zone; END is not included. None for a spout that reads no intervals.",
        ),
    ] = "",
    reason: options.ReasonOfRequest = "",
    as_json: options.AsJson = False,
) -> None:
    """Emit an interval, process and commit its txids, as a run of the DAG would: for CI.

    What has committed of the interval is replayed. Txids on which no run works are processed too.
    spark-submit runs on this host. The ledger must be migrated; --module is needed until the
    topology is known there. Exits with 1 if anything is not done.
    """
    from reliability.spark.run_here import check_interval

    with ledger() as connection:
        module = spark.module or module_of(connection, topology)
        code = topology_from_code(connection, topology, module)
        wanted = options.read_interval(interval, code.spout.time_zone)
        check_interval(code, wanted)
        run_step = steps_of(spark, code, module)
        with txids_followed(0, "run") as progress, signals_as_errors():
            own = IntervalRun(
                connection,
                code,
                wanted,
                run_step,
                by=person(),
                patience=spark.timeout,
                reason=reason,
                progress=progress,
            )
            try:
                results, failed = own.run(), None
            except RunFailed as error:
                results, failed = (), error
    if failed is not None:
        _tell(failed)
        raise failed.first
    document = {"topology": topology, "txids": [plain(result) for result in results]}
    answer(document, _lines(topology, results), as_json=as_json)


def _tell(failed: RunFailed) -> None:
    tell_logs(failed)
    if failed.left:
        left = with_noun(format_txids(sorted(failed.left)))
        warn(f"{left} not done; the next `reliability run` takes them up")


def _lines(topology: str, results: Any) -> Iterator[str]:
    if not results:
        yield f"{topology}: nothing to emit"
    for result in results:
        yield from _lines_of(result)


def _lines_of(result: RunResult) -> Iterator[str]:
    if result.attempt is None:
        yield f"txid {result.txid} is skipped"
        return
    yield f"{result.attempt} committed as c={result.commit_number}"
    if result.differences:
        yield from format_differences(result.differences)
    else:
        yield from (f"  {state}: {rows:,} rows staged" for state, rows in result.rows.items())
