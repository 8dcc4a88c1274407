"""`reliability show`: the report of one attempt, or of a txid with all its attempts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import AsJson, check_known, ledger, names, verb
from reliability.cli.output import (
    format_differences,
    format_interval,
    format_value,
    print_entries,
    print_json,
    print_line,
    print_table,
)
from reliability.cli.select import (
    FileOption,
    IntervalOption,
    check_selection,
    select_txids,
    with_intervals,
)
from reliability.cli.timing import show_percentiles, show_timing
from reliability.core.attempt import TransactionAttempt
from reliability.core.difference import Difference
from reliability.core.set_aside import Kind
from reliability.core.txids import format_intervals

if TYPE_CHECKING:
    from reliability.core.audits import AuditOutcome
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.inspect.attempt_report import AttemptReport, StepReport

MAX_ITEMS = 20  # that are printed
_WHAT = re.compile(r"^(?:([^/]+)/)?([1-9]\d*)(?::(\d+))?$")


@verb(
    "reliability show 7:2",
    "reliability show shop 7:2",
    "reliability show shop/7 --json",
    "reliability show shop --interval 2013-03",
    "reliability show shop --file 2013-03.csv",
    "reliability show shop 7:2 --timing",
    "reliability show shop --timing",
)
def show(
    what: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="Optional if there is only one.")
    ] = "",
    which: Annotated[
        str, typer.Argument(metavar="TXID:ATTEMPT", help="An attempt, 7:2, or a txid, 7.")
    ] = "",
    interval: IntervalOption = "",
    file: FileOption = "",
    timing: Annotated[
        bool, typer.Option("--timing", help="Show where the time went, phase by phase.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show everything that the ledger keeps of an attempt: its request, code and result.

    For a txid: its batch, its requests, all its attempts, and what each replay changed. With
    --interval or --file: each txid of that interval or file. With --timing and no txid:
    percentiles over the last 1,000 committed txids.
    """
    if timing and (interval or file):
        raise typer.BadParameter("--timing takes a txid or an attempt, or a topology alone")
    check_selection("" if interval or file else "1", interval, file)
    if interval or file:
        if which:
            raise typer.BadParameter("name a txid, or select txids by --interval and --file")
        return _show_selected(what or None, interval, file, as_json=as_json)
    match = _WHAT.match(f"{what}/{which}" if which else what)
    if match is None and (which or not timing):
        raise typer.BadParameter("write 7:2, shop 7:2 or shop/7:2, or a txid such as 7")
    with ledger() as connection:
        topology = _the_topology(connection, match[1] if match else what or None)
        if match is None:
            return show_percentiles(connection, topology, as_json=as_json)
        txid, attempt_id = int(match[2]), int(match[3]) if match[3] else None
        if timing:
            show_timing(connection, topology, txid, attempt_id, as_json=as_json)
        elif attempt_id is None:
            _show_txid(connection, topology, txid, as_json=as_json)
        else:
            attempt = TransactionAttempt(txid, attempt_id)
            _show_attempt(connection, topology, attempt, as_json=as_json)


def _show_selected(name: str | None, interval: str, file: str, *, as_json: bool) -> None:
    from reliability.transaction.inspect.story import story_of_txid

    with ledger() as connection:
        topology = _the_topology(connection, name)
        selected = select_txids(connection, topology, "", interval, file)
        selected.show()
        if as_json:
            return print_json([story_of_txid(connection, topology, t) for t in selected.txids])
        for txid in selected.txids:
            _show_txid(connection, topology, txid, as_json=False)


def _the_topology(connection: LedgerConnection, name: str | None) -> str:
    if name is not None:
        check_known(connection, name)
        return name
    known = names(connection, "")
    if len(known) != 1:
        raise typer.BadParameter(f"name one topology: {', '.join(known) or 'there is none'}")
    return known[0]


# --- an attempt ----------------------------------------------------------------------------------


def _show_attempt(
    connection: LedgerConnection, topology: str, attempt: TransactionAttempt, *, as_json: bool
) -> None:
    from reliability.transaction.inspect.attempt_report import attempt_report, outdated_code

    report = attempt_report(connection, topology, attempt)
    warning = outdated_code(connection, topology, attempt)
    own = with_intervals(connection, topology, [attempt.txid])
    interval = format_intervals(own.intervals.values())
    if as_json:
        told = {"outdated_code": warning, "interval": interval or None}
        return print_json({**report.to_json(), **told})
    for heading, text in _facts(report, interval):
        if text:
            print_line(f"{heading:10} {text}", report.status.value, hang=11)
    print_entries("items", _items(report.items))
    _print_steps(report)
    _print_states(report)
    _print_accounts(report)
    _print_audits(report)
    if report.differences:
        what = "changed" if report.commit_number is not None else "would have changed"
        _print_differences(what, report.differences)
    print_entries(
        "what happened (UTC)",
        [
            (f"{format_value(e.happened_at)}  {e.status.value}", _why(e.reason_code, e.reason))
            for e in report.events
        ],
        *(e.status.value for e in report.events),
    )
    if warning:
        print_line(f"warning: {warning}", "warning")


def _facts(report: AttemptReport, interval: str) -> Iterator[tuple[str, str]]:
    number = f" as c={report.commit_number}" if report.commit_number is not None else ""
    why = _why(report.reason_code, report.reason)
    yield "attempt", f"{report.attempt} of {report.topology}"
    yield "interval", interval
    yield "status", f"{report.status.value}{number}{f': {why}' if why else ''}"
    if report.verdict:
        yield "verdict", f"{report.verdict}: {report.verdict_reason}"
    if (asked := report.request) is not None:
        kind = "dry run" if asked.is_dry_run else asked.kind.value.lower()
        number = f", request {asked.number} of it" if asked.number > 1 else ""
        yield "request", f"{kind}, by run {asked.run_id}{number} ({asked.dag_id})"
    yield "batch", f"{len(report.items)} items, digest {format_value(report.batch_digest)[:16]}"
    yield "granted", format_value(report.granted_at)
    yield "processed", format_value(report.processed_at)
    yield "ended", format_value(report.ended_at)
    if (old := report.replaced) is not None:
        changed = f" ({', '.join(old.changed_code)} changed)" if old.changed_code else ""
        yield (
            "replaced",
            f"{old.attempt}; same code: {_known(old.same_code)}{changed}; "
            f"same batch: {_known(old.same_batch)}",
        )


def _print_steps(report: AttemptReport) -> None:
    print_entries(
        "steps",
        [
            (
                f"{s.step}: {s.status}, by task {s.task}{_took(s)}",
                _joined(host=s.driver_host, application=s.application_id),
                _joined(code=(s.code_digest or "")[:16]),
            )
            for s in report.steps
        ],
        *(s.status for s in report.steps),
    )


def _took(step: StepReport) -> str:
    if not step.started_at or not step.ended_at:
        return ""
    return f", took {format_value(step.ended_at - step.started_at)}"


def _joined(**parts: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


def _items(items: Sequence[Mapping[str, Any]] | None) -> Iterator[Sequence[str]]:
    """Name what a batch has read: its files, or the rows of a table."""
    for item in (items or ())[:MAX_ITEMS]:
        yield (f"{_item_name(item)}, {format_value(item.get('rows'))} rows",)
    if (more := len(items or ()) - MAX_ITEMS) > 0:
        yield (f"and {more:,} more; --json has all",)


def _item_name(item: Mapping[str, Any]) -> str:
    name = item.get("path")
    if name is not None:
        return str(name)
    if "table" in item:
        return f"{item['table']} keys {item.get('keys')}"
    return ", ".join(f"{key} {item[key]}" for key in item if key not in ("kind", "rows"))


def _print_states(report: AttemptReport) -> None:
    same = report.replaced.same_contribution if report.replaced else {}
    print_table(
        "states",
        {
            "state": "left",
            "staged rows": "right",
            "acks": "right",
            "contribution": "left",
            "as it replaced": "left",
        },
        [
            (
                s.state,
                s.staged_rows,
                f"{s.acked_partitions} of {'?' if s.partitions is None else s.partitions}",
                (s.contribution_digest or "")[:18],
                _known(same.get(s.state)) if report.replaced else None,
            )
            for s in report.states
        ],
        hide_empty=True,
    )


def _print_accounts(report: AttemptReport) -> None:
    kinds = ("emitted", "applied", "dropped", "quarantined", "added rows")
    if report.accounts:
        print_table(
            "accounts, in rows of the source",
            {"state": "left", **dict.fromkeys(kinds, "right"), "verified": "left"},
            [
                (
                    a.state,
                    a.emitted,
                    a.applied,
                    a.dropped or None,
                    a.quarantined or None,
                    a.added_rows or None,
                    a.verdict,
                )
                for a in report.accounts
            ],
            hide_empty=True,
        )
    reasons = {
        f"{reason['kind'].lower()}: {reason['reason']}": None
        for account in report.accounts
        for reason in account.reasons
        if Kind(reason["kind"]) is not Kind.FANNED_OUT
    }
    print_entries("set aside", [(reason,) for reason in reasons])


def _print_audits(report: AttemptReport) -> None:
    print_entries(
        "audits",
        [
            (
                f"{a.state}: {a.name}, {a.severity.value}: {_found_by(a)}",
                a.problem or "",
                *a.examples,
            )
            for a in report.audits
        ],
        "passed",
        "could not run",
    )


def _found_by(audit: AuditOutcome) -> str:
    if audit.problem is not None:
        return "could not run"
    if audit.violations is None:
        return "no result"
    return audit.found if audit.violations else "passed"


def _known(value: bool | None) -> str:
    return "not known" if value is None else format_value(value)


def _why(code: str | None, reason: str | None) -> str:
    return f"[{code}] {reason or ''}".strip() if code else reason or ""


# --- a txid --------------------------------------------------------------------------------------


_FACTS = {"committed", "skipped", "excluded", "held"}  # headings with a meaning


def _show_txid(connection: LedgerConnection, topology: str, txid: int, *, as_json: bool) -> None:
    from reliability.transaction.inspect.story import story_of_txid

    report = story_of_txid(connection, topology, txid)
    if as_json:
        return print_json(report)
    for heading, text in _facts_of_txid(report):
        if text:
            print_line(f"{heading:10} {text}", *_FACTS & {heading}, hang=11)
    print_entries("items", _items(report["items"]))
    for what, entry in (("requests", _request_entry), ("attempts", _attempt_entry)):
        statuses = {row["status"] for row in report[what]}
        print_entries(f"{what} (UTC)", map(entry, report[what]), *statuses)
    print_entries("changes of the states (UTC)", map(_change_entry, report["changes"]))
    for (attempt, number), rows in groupby(
        report["differences"], lambda row: (row["attempt"], row["commit_number"])
    ):
        what = attempt or f"c={number}"
        _print_differences(
            f"{what} {'changed' if number else 'would have changed'}",
            list(map(_difference_of, rows)),
        )


def _print_differences(what: str, differences: Sequence[Difference]) -> None:
    print_line(what)
    for line in format_differences(differences):
        print_line(line, "warning", hang=4)


def _request_entry(row: Mapping[str, Any]) -> Sequence[str]:
    kind = "dry run" if row["is_dry_run"] else row["kind"].lower()
    status = "done, and rolled back" if row["was_done"] else row["status"]
    return (
        f"{format_value(row['opened_at'])}  {kind}, {status}",
        f"{_nth_of_run(row)} ({row['dag_id']})",
        row["reason"] or "",
        _why(row["problem_code"], row["problem"]),
    )


def _nth_of_run(row: Mapping[str, Any]) -> str:
    """Name a request by its run, and by its number there if the run has asked more than once."""
    number = f", request {row['number']} of it" if row["number"] > 1 else ""
    return f"run {row['run_id']}{number}"


def _attempt_entry(row: Mapping[str, Any]) -> Sequence[str]:
    why = f"{row['verdict']}: {row['verdict_reason']}" if row["verdict"] else ""
    return (
        f"{row['attempt']}  {row['status']}, granted {format_value(row['granted_at'])}",
        f"for {_nth_of_run(row)}" if row["run_id"] else "",
        why or _why(row["reason_code"], row["reason"]),
    )


def _change_entry(row: Mapping[str, Any]) -> Sequence[str]:
    replaced = f" replaced {row['replaced']}" if row["replaced"] else ""
    return (
        f"c={row['commit_number']}  {format_value(row['committed_at'])}  {row['kind'].lower()}"
        f"{' by ' + row['attempt'] if row['attempt'] else ''}{replaced and ',' + replaced}",
        row["reason"] or "",
    )


def _facts_of_txid(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    interval = format_interval(report)
    yield "txid", f"{report['txid']}{f' ({interval})' if interval else ''} of {report['topology']}"
    yield (
        "emitted",
        f"{format_value(report['emitted_at'])} by run {report['run_id']} ({report['dag_id']})",
    )
    if report["items"] is None:
        yield "batch", "not cut yet"
    else:
        rows, items = format_value(report["emitted_count"]), len(report["items"])
        yield "batch", f"{rows} rows in {items} items, {report['accounting']}"
    for row in report["refreezes"]:
        yield "refrozen", f"{format_value(row['refrozen_at'])}: {row['reason']}"
    for row in report["corrections"]:
        when = f"{format_value(row['corrected_at'])} by {row['corrected_by']}"
        yield "corrected", f"{format_value(row['rows'])} rows, {when}: {row['reason']}"
    for row in report["skips"]:
        when = format_value(row["skipped_at"])
        yield "skipped", f"{when} by {row['skipped_by']}: {row['reason']}"
        yield "unskipped", _ended(row)
    for row in report["exclusions"]:
        what = f"{row['item']}, {format_value(row['excluded_at'])} by {row['excluded_by']}"
        yield "excluded", f"{what}: {row['reason']}"
        yield "included", f"{row['item']}, {_ended(row)}" if row["ended_at"] else ""
    if report["committed_attempt"] is not None:
        yield (
            "committed",
            f"{report['txid']}:{report['committed_attempt']} as c={report['commit_number']}, "
            f"{format_value(report['committed_at'])}",
        )
    if report["lacking"]:
        yield "not in", f"{', '.join(report['lacking'])}, added after it had committed"
    yield "held", report["held_reason"]
    if report["state"] not in ("held", "skipped"):
        yield report["state"].partition(" ")[0], report["why"] or ""


def _ended(row: dict[str, Any]) -> str:
    if row["ended_at"] is None:
        return ""
    return f"{format_value(row['ended_at'])} by {row['ended_by']}: {row['ended_reason']}"


def _difference_of(row: dict[str, Any]) -> Difference:
    fields = ("state", "rows_added", "rows_changed", "rows_removed", "moved", "by_hand")
    return Difference.from_json({name: row[name] for name in fields})
