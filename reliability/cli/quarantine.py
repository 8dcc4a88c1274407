"""`reliability quarantine`: list, show, export and correct the rows that are in quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from reliability.cli import options
from reliability.cli.app import check_asked, ledger, verb, warn
from reliability.cli.output import format_value, print_json, what_to_clear
from reliability.cli.parts import Table, answer
from reliability.cli.replay import Replays, lines_of
from reliability.cli.terminal import say, stdout
from reliability.core.errors import CorrectionRefused
from reliability.core.remedy import COMMANDS
from reliability.core.texts import as_exact_json, parse_unambiguous, printable_json, signed
from reliability.core.txids import format_txids, with_noun, with_verb
from reliability.deployment.settings import person
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.read_rows import interval_text
from reliability.transaction.correct.quarantine import (
    EditedRow,
    check_correctable,
    edited_rows,
    exported,
    forget_corrections,
    quarantined_rows,
    record_corrections,
)
from reliability.transaction.correct.replayable import Replayable
from reliability.transaction.inspect.select import Selected, with_intervals
from reliability.transaction.replay import ReplayRequest, ReplayResult

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
    "reliability quarantine forget shop 3 --reason 'the supplier delivers the file again'",
)
def quarantine(
    action: Annotated[QuarantineAction, typer.Argument(help="What to do.")],
    spark: options.Spark,
    topology: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="Its name; `list` shows all without it.")
    ] = "",
    txids: Annotated[
        str, typer.Argument(metavar="TXIDS", help="3, 3..5 or 3,7..9; by default all.")
    ] = "",
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A line of JSON for each row.")
    ] = None,
    reason: options.Reason = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what a replay would change.")
    ] = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """List, show and export the rows in quarantine, and replay their txids with corrected rows.

    `export` writes a file, by default to the output. Edit what is in `values`. `replay` reads the
    changed values instead of those in the source, in every attempt of the txid from then on, and
    processes it again; without --yes, it asks before. Rows that you do not change stay as they
    are. `forget` takes the corrections of txids back; replay them afterwards.
    """
    if not topology and action is not QuarantineAction.LIST:
        raise typer.BadParameter("name a topology")
    with ledger(topology) as connection:
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
                document: dict[str, Any] = {"topology": topology, "is_dry_run": dry_run}
                if not edited:
                    unchanged = ["No row was changed."]
                    return answer({**document, "replayed": []}, unchanged, as_json=as_json)
                selected = with_intervals(connection, topology, sorted({r.txid for r in edited}))
                run = Replays(connection, topology, spark, selected)
                request = run.request(reason=reason, is_dry_run=dry_run)
                if not dry_run:
                    named = with_noun(format_txids(selected.txids))
                    check_asked(
                        f"Spark will process {selected} again; --dry-run shows first what would "
                        "change.",
                        f"Correct {len(edited):,} rows of {named}?",
                        yes=yes,
                    )
                results = _correct(connection, run, request, edited)
                lines = _corrected(selected, edited, results, is_dry_run=dry_run)
                answer({**document, "replayed": results}, lines, as_json=as_json)


def _rows(connection: LedgerConnection, topology: str, txids: str) -> list[Row]:
    chosen = options.read_txids(txids) if txids else None
    return quarantined_rows(connection, topology, chosen)


# --- list, show, export --------------------------------------------------------------------------


def _list(connection: LedgerConnection, topology: str, *, as_json: bool) -> None:
    rows = connection.all("quarantine_by_reason", topology=topology)
    page = Table(
        ("topology", ">txid", "interval", ">rows", "reason"),
        [(r["topology"], r["txid"], interval_text(r), r["rows"], r["reason"]) for r in rows],
        empty="No row is in quarantine.",
        hide_empty=True,
    )
    answer(rows, [page], as_json=as_json)


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
    lines = "".join(f"{printable_json(as_exact_json(exported(row)))}\n" for row in rows)
    if file is None:
        stdout().write(lines)
    else:
        try:
            file.write_text(lines, encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"the rows cannot be written: {error}") from None
        say(f"{len(rows):,} rows are in {file}")


# --- correct -------------------------------------------------------------------------------------


def _edited(rows: Sequence[Row], file: Path) -> list[EditedRow]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise typer.BadParameter(f"the rows cannot be read: {error}") from None
    except UnicodeError as error:
        raise CorrectionRefused(f"{file} is not a text in UTF-8: {error}") from error
    lines = enumerate(text.split("\n"), 1)
    return edited_rows(rows, {n: _parsed(line, n) for n, line in lines if line.strip()})


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        found = parse_unambiguous(line)
    except ValueError as error:
        raise CorrectionRefused(f"line {number} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CorrectionRefused(f"line {number} is not a JSON object")
    return found


def _forget(connection: LedgerConnection, topology: str, txids: str, reason: str) -> None:
    if not txids or not reason:
        raise typer.BadParameter("forget needs TXIDS and --reason")
    wanted = options.read_txids(txids)
    done = forget_corrections(connection, topology, wanted, signed(reason, person()))
    say(f"{done.count:,} corrections are taken back")
    if done.to_replay:
        say(f"Next: reliability replay {topology} {format_txids(done.to_replay)}")
    if done.to_clear:
        uncommitted = format_txids(txid for run in done.to_clear for txid in run.txids)
        say(f"{with_verb(uncommitted)} not committed yet. Next:")
        for line in what_to_clear(topology, done.to_clear):
            say(line)


def _correct(
    connection: LedgerConnection, run: Replays, request: ReplayRequest, rows: Sequence[EditedRow]
) -> Sequence[ReplayResult]:
    topology = request.topology.name

    def record(tx: DatabaseTransaction, requests: Mapping[int, int]) -> None:
        of_dry_run = requests if request.is_dry_run else None
        record_corrections(tx, replayable, rows, request.reason, request.by, of_dry_run)

    replayable = Replayable.of(connection, topology)
    check_correctable(connection, replayable, rows)
    try:
        return run.replay(request, asked=record).results
    except BaseException:
        if not request.is_dry_run:
            txids = format_txids(request.txids)
            warn(
                f"if the corrections are recorded, the next replay of {with_noun(txids)} reads "
                f"them; `{COMMANDS['forget'].format(topology=topology, txid=txids)}` takes them "
                "back"
            )
        raise


def _corrected(
    selected: Selected,
    rows: Sequence[EditedRow],
    results: Sequence[ReplayResult],
    *,
    is_dry_run: bool,
) -> Iterator[str]:
    yield from lines_of(selected, results, is_dry_run=is_dry_run)
    for txid, count in sorted(Counter(row.txid for row in rows).items()):
        what = "would be" if is_dry_run else "are"
        yield f"{count:,} rows of txid {txid} {what} read as corrected"
