"""`reliability quarantine`: list, show, export and correct the rows that are in quarantine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import (
    AsJson,
    Master,
    Module,
    SparkConf,
    Timeout,
    Yes,
    check_asked,
    check_known,
    ledger,
    person,
    rows_of,
    verb,
    warn,
)
from reliability.cli.output import format_interval, format_value, print_json, print_table
from reliability.cli.replay import Replays, print_replayed
from reliability.cli.select import select_txids, with_intervals
from reliability.cli.terminal import say
from reliability.core.errors import CorrectionRefused
from reliability.core.texts import as_exact_json, parse_unambiguous, printable_json
from reliability.core.txids import format_txids, with_noun

if TYPE_CHECKING:
    from reliability.cli.replay_run import ReplayResult, ReplayRun
    from reliability.ledger.connection import LedgerConnection, Row
    from reliability.transaction.correct.quarantine import EditedRow

MAX_SHOWN = 100


class QuarantineAction(str, Enum):
    """What to do with the rows."""

    LIST = "list"
    SHOW = "show"
    EXPORT = "export"
    REPLAY = "replay"
    FORGET = "forget"


@verb(
    "reliability quarantine list",
    "reliability quarantine show shop 3",
    "reliability quarantine export shop 3 --file rows.jsonl",
    "reliability quarantine replay shop --file rows.jsonl --reason 'prices confirmed' --dry-run",
    "reliability quarantine replay shop --file rows.jsonl --reason 'prices confirmed'",
    "reliability quarantine forget shop 3 --reason 'the supplier delivers the file anew'",
)
def quarantine(
    action: Annotated[QuarantineAction, typer.Argument(help="What to do.")],
    topology: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="Its name; `list` shows all without it.")
    ] = "",
    txids: Annotated[
        str, typer.Argument(metavar="TXIDS", help="3, 3..5 or 3,7..9; by default all.")
    ] = "",
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A line of JSON for each row.")
    ] = None,
    reason: Annotated[str, typer.Option(help="The reason; recorded in the ledger.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what a replay would change.")
    ] = False,
    yes: Yes = False,
    master: Master = "",
    conf: SparkConf = None,
    timeout: Timeout = 3600,
    module: Module = "",
    as_json: AsJson = False,
) -> None:
    """List, show and export the rows in quarantine, and replay their txids with corrected rows.

    `export` writes a file, by default to the output. Edit what is in `values`. `replay` reads the
    changed values instead of those in the source, in every attempt of the txid from then on, and
    processes it again; without --yes, it asks before. Rows that you do not change stay as they
    are. `forget` takes the corrections of txids back; replay them afterwards.
    """
    with ledger() as connection:
        if topology:
            check_known(connection, topology)
        elif action is not QuarantineAction.LIST:
            raise typer.BadParameter("name a topology")
        match action:
            case QuarantineAction.LIST:
                _list(connection, topology, as_json=as_json)
            case QuarantineAction.SHOW:
                _show(_rows(connection, topology, txids), as_json=as_json)
            case QuarantineAction.EXPORT:
                _export(_rows(connection, topology, txids), file)
            case QuarantineAction.FORGET:
                _forget(connection, topology, txids, reason)
            case QuarantineAction.REPLAY:
                if file is None or not reason:
                    raise typer.BadParameter("replay needs --file and --reason")
                edited = _edited(_rows(connection, topology, txids), file)
                replays = Replays(connection, topology, module, timeout, master, conf or [])
                _correct(replays, edited, reason, dry_run=dry_run, yes=yes, as_json=as_json)


def _rows(connection: LedgerConnection, topology: str, txids: str) -> list[Row]:
    from reliability.transaction.correct.quarantine import quarantined_rows

    chosen = list(select_txids(connection, topology, txids, "", "").txids) if txids else None
    return quarantined_rows(connection, topology, chosen)


# --- list, show, export --------------------------------------------------------------------------


def _list(connection: LedgerConnection, topology: str, *, as_json: bool) -> None:
    rows = rows_of(connection, "quarantine_by_reason", topology=topology)
    if as_json:
        return print_json(rows)
    print_table(
        "",
        {
            "topology": "left",
            "txid": "right",
            "interval": "left",
            "rows": "right",
            "reason": "left",
        },
        [(r["topology"], r["txid"], format_interval(r), r["rows"], r["reason"]) for r in rows],
        empty="No row is in quarantine.",
        hide_empty=True,
    )


def _show(rows: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        return print_json(rows)
    for row in rows[:MAX_SHOWN]:
        place = f"{row['item']}, row {format_value(row['row'])}" if row["item"] else ""
        say("  ".join(filter(None, (f"txid {row['txid']}", row["reason"], place))))
        say(f"  {row['contents']}{' … cut' if row['is_cut'] else ''}")
    if not rows:
        say("No row is in quarantine.")
    elif len(rows) > MAX_SHOWN:
        say(f"and {len(rows) - MAX_SHOWN:,} more; --json has all")


def _export(rows: Sequence[Row], file: Path | None) -> None:
    from reliability.transaction.correct.quarantine import exported

    lines = "".join(f"{printable_json(as_exact_json(exported(row)))}\n" for row in rows)
    if file is None:
        sys.stdout.write(lines)
    else:
        file.write_text(lines, encoding="utf-8")
        say(f"{len(rows):,} rows are in {file}")


# --- correct -------------------------------------------------------------------------------------


def _edited(rows: Sequence[Row], file: Path) -> list[EditedRow]:
    from reliability.transaction.correct.quarantine import edited_rows

    lines = file.read_text(encoding="utf-8-sig").split("\n")
    return edited_rows(
        rows,
        {number: _parsed(line, number) for number, line in enumerate(lines, 1) if line.strip()},
    )


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        found = parse_unambiguous(line)
    except ValueError as error:
        raise CorrectionRefused(f"line {number} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CorrectionRefused(f"line {number} is not a JSON object")
    return found


def _forget(connection: LedgerConnection, topology: str, txids: str, reason: str) -> None:
    from reliability.transaction.correct.quarantine import end_corrections

    if not txids or not reason:
        raise typer.BadParameter("forget needs TXIDS and --reason")
    ended = {}
    with connection.transaction() as tx:
        for txid in select_txids(connection, topology, txids, "", "").txids:
            ended[txid] = end_corrections(tx, topology, txid, reason)
    changed = [txid for txid, count in ended.items() if count]
    say(f"{sum(ended.values()):,} corrections are taken back")
    if changed:
        say(f"Next: reliability replay {topology} {format_txids(changed)}")


def _correct(
    replays: Replays,
    rows: Sequence[EditedRow],
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Ask before Spark runs, and replay; or do a dry run."""
    if not rows:
        say("No row was changed.")
        return
    counts = Counter(row.txid for row in rows)
    selected = with_intervals(replays.connection, replays.topology, sorted(counts))
    if not dry_run:
        check_asked(
            f"Spark will process {selected} again; --dry-run shows first what would change.",
            f"Correct {len(rows):,} rows of {with_noun(format_txids(counts))}?",
            yes=yes,
        )
    done = _replay(replays, rows, reason, is_dry_run=dry_run)
    if as_json:
        return print_json({"topology": replays.topology, "is_dry_run": dry_run, "replayed": done})
    print_replayed(selected, done, is_dry_run=dry_run)
    for txid, count in sorted(counts.items()):
        what = "would be" if dry_run else "are"
        say(f"{count:,} rows of txid {txid} {what} read as corrected")


def _replay(
    replays: Replays, rows: Sequence[EditedRow], reason: str, *, is_dry_run: bool
) -> list[ReplayResult]:
    from reliability.transaction.correct.quarantine import record_corrections

    txids = sorted({row.txid for row in rows})

    def record(run: ReplayRun) -> None:
        requests = run.requests() if is_dry_run else None
        record_corrections(replays.connection, replays.topology, rows, reason, person(), requests)

    try:
        return replays.run(txids, reason, is_dry_run=is_dry_run, asked=record)
    except BaseException:
        if not is_dry_run:
            named = format_txids(txids)
            warn(
                f"if the corrections are recorded, the next replay of {with_noun(named)} reads "
                f"them; `reliability quarantine forget {replays.topology} {named}` takes them back"
            )
        raise
