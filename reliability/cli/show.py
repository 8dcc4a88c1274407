"""`reliability show`: the report of one attempt, or of a txid with all its attempts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Annotated, Any

import typer

from reliability.cli import options
from reliability.cli.app import FAILED, ledger, names, verb, warn
from reliability.cli.output import format_differences, format_value, plain, print_json
from reliability.cli.parts import Line, Part, Table, answer, entries, right
from reliability.cli.parts import show as print_parts
from reliability.core.attempt import TransactionAttempt
from reliability.core.audits import AuditOutcome
from reliability.core.difference import Difference
from reliability.core.errors import AttemptUnknown
from reliability.core.set_aside import Kind
from reliability.core.texts import with_code
from reliability.core.txids import format_intervals
from reliability.ledger.connection import LedgerConnection, Row
from reliability.ledger.read_rows import difference_of, interval_text
from reliability.transaction.inspect.attempt_report import (
    PHASES,
    AttemptReport,
    attempt_report,
    outdated_code,
)
from reliability.transaction.inspect.select import with_intervals
from reliability.transaction.inspect.story import story_of_txid, what_happened
from reliability.transaction.inspect.txid_state import files_of

MAX_ITEMS = 20  # that are printed
MAX_TXIDS = 1000  # whose times are summed up
_WHAT = re.compile(r"^(?:([^/]+)/)?([1-9]\d{0,17})(?::(\d{1,9}))?$")


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
    contents: options.Contents,
    what: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="Optional if there is only one.")
    ] = "",
    which: Annotated[
        str, typer.Argument(metavar="TXID:ATTEMPT", help="An attempt, 7:2, or a txid, 7.")
    ] = "",
    timing: Annotated[
        bool, typer.Option("--timing", help="Show where the time went, phase by phase.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show everything that the ledger keeps of an attempt: its request, code and result.

    For a txid: its batch, its requests, all its attempts, and what each replay changed. With
    --interval or --file: each txid of that interval or file. With --timing and no txid:
    percentiles over the last 1,000 committed txids.
    """
    if timing and contents:
        raise typer.BadParameter("--timing takes a txid or an attempt, or a topology alone")
    if contents:
        if which:
            raise typer.BadParameter("name a txid, or select txids by --interval and --file")
        return _show_selected(what or None, contents, as_json=as_json)
    match = _WHAT.match(f"{what}/{which}" if which else what)
    if match is None and (which or not timing):
        raise typer.BadParameter("write 7:2, shop 7:2 or shop/7:2, or a txid such as 7")
    with ledger() as connection:
        topology = _the_topology(connection, match[1] if match else what or None)
        if match is None:
            return _show_percentiles(connection, topology, as_json=as_json)
        txid, attempt_id = int(match[2]), int(match[3]) if match[3] else None
        if timing:
            _show_timing(connection, topology, txid, attempt_id, as_json=as_json)
        elif attempt_id is None:
            _show_txid(connection, topology, txid, as_json=as_json)
        else:
            attempt = TransactionAttempt(txid, attempt_id)
            _show_attempt(connection, topology, attempt, as_json=as_json)


def _show_selected(name: str | None, contents: options.Contents, *, as_json: bool) -> None:
    with ledger() as connection:
        topology = _the_topology(connection, name)
        selected = contents.select(connection, topology)
        stories = []
        for txid in selected.txids:
            stories.append(story_of_txid(connection, topology, txid))
            if not as_json:
                print_parts(_page_of_txid(stories[-1]))
        if as_json:
            print_json(stories)
    _tell_unavailable(*chain.from_iterable(story["unavailable"] for story in stories))


def _tell_unavailable(*reasons: str) -> None:
    """Say which databases could not be read: what was shown lacks what they have."""
    for why in dict.fromkeys(reasons):
        warn(why)
    if reasons:
        raise typer.Exit(FAILED)


def _the_topology(connection: LedgerConnection, name: str | None) -> str:
    known = names(connection, name or "")
    if len(known) != 1:
        raise typer.BadParameter(f"name one topology: {', '.join(known) or 'there is none'}")
    return known[0]


# --- an attempt ----------------------------------------------------------------------------------


def _show_attempt(
    connection: LedgerConnection, topology: str, attempt: TransactionAttempt, *, as_json: bool
) -> None:
    report = attempt_report(connection, topology, attempt, as_far_as_available=True)
    warning = outdated_code(connection, report)
    own = with_intervals(connection, topology, [attempt.txid])
    interval = format_intervals(own.intervals.values())
    document = {**plain(report), "outdated_code": warning, "interval": interval or None}
    answer(document, _page_of_attempt(report, interval, warning), as_json=as_json)
    _tell_unavailable(*report.unavailable)


def _page_of_attempt(report: AttemptReport, interval: str, warning: str | None) -> Iterator[Part]:
    for heading, text in _facts(report, interval):
        if text:
            yield Line(f"{heading:10} {text}", [report.status.value], hang=11)
    yield from entries("items", _items(report.items))
    yield from _steps(report)
    yield _states(report)
    yield from _accounts(report)
    yield from _audits(report)
    if report.differences:
        what = "changed" if report.commit_number is not None else "would have changed"
        yield from _differences(what, report.differences)
    yield from entries(
        "what happened (UTC)",
        [
            (f"{format_value(e.happened_at)}  {e.status.value}", with_code(e.reason_code, e.reason))
            for e in report.events
        ],
        *(e.status.value for e in report.events),
    )
    if warning:
        yield Line(f"warning: {warning}", ["warning"])


def _facts(report: AttemptReport, interval: str) -> Iterator[tuple[str, str]]:
    number = f" as c={report.commit_number}" if report.commit_number is not None else ""
    why = with_code(report.reason_code, report.reason)
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


def _steps(report: AttemptReport) -> list[Part]:
    return entries(
        "steps",
        [
            (
                f"{s['step']}: {s['status']}, by task {s['task']}{_took(s)}",
                _joined(host=s["driver_host"], application=s["application_id"]),
                _joined(code=(s["code_digest"] or "")[:16]),
            )
            for s in report.steps
        ],
        *(s["status"] for s in report.steps),
    )


def _took(step: Row) -> str:
    if not step["started_at"] or not step["ended_at"]:
        return ""
    return f", took {format_value(step['ended_at'] - step['started_at'])}"


def _joined(**parts: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


def _items(items: Sequence[Mapping[str, Any]] | None) -> Iterator[Sequence[str]]:
    """Name what a batch has read: its files, or the rows of a table."""
    shown = (items or ())[:MAX_ITEMS]
    for item, name in zip(shown, files_of(shown), strict=True):
        yield (f"{name}, {format_value(item.get('rows'))} rows",)
    if (more := len(items or ()) - MAX_ITEMS) > 0:
        yield (f"and {more:,} more; --json has all",)


def _states(report: AttemptReport) -> Part:
    same = report.replaced.same_contribution if report.replaced else {}
    rows = [
        (
            s["state"],
            s["staged_rows"],
            f"{s['acked_partitions']} of {'?' if s['partitions'] is None else s['partitions']}",
            (s["contribution_digest"] or "")[:18],
            _known(same.get(s["state"])) if report.replaced else None,
        )
        for s in report.states
    ]
    columns = ("state", ">staged rows", ">acks", "contribution", "as it replaced")
    return Table(columns, rows, title="states", hide_empty=True)


def _accounts(report: AttemptReport) -> Iterator[Part]:
    if report.accounts:
        aside = ("dropped", "quarantined", "added_rows")
        rows = [
            (
                a.state,
                a.emitted,
                a.applied,
                *(getattr(a, name) or None for name in aside),
                a.verdict,
            )
            for a in report.accounts
        ]
        counts = right(["emitted", "applied", "dropped", "quarantined", "added rows"])
        columns, title = ("state", *counts, "verified"), "accounts, in rows of the source"
        yield Table(columns, rows, title=title, hide_empty=True)
    reasons = {
        f"{reason['kind'].lower()}: {reason['reason']}": None
        for account in report.accounts
        for reason in account.reasons
        if Kind(reason["kind"]) is not Kind.FANNED_OUT
    }
    yield from entries("set aside", [(reason,) for reason in reasons])


def _audits(report: AttemptReport) -> list[Part]:
    return entries(
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


# --- a txid --------------------------------------------------------------------------------------


def _show_txid(connection: LedgerConnection, topology: str, txid: int, *, as_json: bool) -> None:
    story = story_of_txid(connection, topology, txid)
    answer(story, _page_of_txid(story), as_json=as_json)
    _tell_unavailable(*story["unavailable"])


def _page_of_txid(story: dict[str, Any]) -> Iterator[Part]:
    for heading, text in _facts_of_txid(story):
        if text:
            yield Line(f"{heading:10} {text}", [heading], hang=11)
    yield from entries("items", _items(story["items"]))
    events = what_happened(story)
    yield from entries(
        "what happened (UTC)",
        [(f"{format_value(event.at)}  {event.what}", event.why) for event in events],
        *(event.tone for event in events if event.tone),
    )
    for (attempt, number), rows in groupby(
        story["differences"], lambda row: (row["attempt"], row["commit_number"])
    ):
        what = attempt or f"c={number}"
        yield from _differences(
            f"{what} {'changed' if number else 'would have changed'}",
            list(map(difference_of, rows)),
        )


def _differences(what: str, differences: Sequence[Difference]) -> Iterator[Part]:
    yield Line(what)
    for line in format_differences(differences):
        yield Line(line, ["warning"], hang=4)


def _facts_of_txid(story: dict[str, Any]) -> Iterator[tuple[str, str]]:
    interval = interval_text(story)
    yield "txid", f"{story['txid']}{f' ({interval})' if interval else ''} of {story['topology']}"
    if story["items"] is None:
        yield "batch", "not cut yet"
    else:
        rows, items = format_value(story["emitted_count"]), len(story["items"])
        yield "batch", f"{rows} rows in {items} items, {story['accounting']}"
    if story["committed_attempt"] is not None:
        attempt = f"{story['txid']}:{story['committed_attempt']}"
        when = format_value(story["committed_at"])
        yield "committed", f"{attempt} as c={story['commit_number']}, {when}"
    if story["lacking"]:
        yield "not in", f"{', '.join(story['lacking'])}, added after it had committed"
    yield "held", story["held_reason"]
    if story["state"] != "held":
        yield story["state"].partition(" ")[0], story["why"] or ""


# --- its time ------------------------------------------------------------------------------------


def _show_timing(
    connection: LedgerConnection, topology: str, txid: int, attempt_id: int | None, *, as_json: bool
) -> None:
    """Print the phases of one attempt, or of all attempts at a txid.

    :raises AttemptUnknown: there is none
    """
    key = {"topology": topology, "txid": txid, "attempt_id": attempt_id}
    rows = connection.all("timing_of_attempts", **key)
    if not rows:
        which = f"txid {txid}" if attempt_id is None else f"attempt {txid}:{attempt_id}"
        raise AttemptUnknown(f"{topology} has no {which}")
    attempts = [f"{txid}:{row['attempt_id']} {row['status']}" for row in rows]
    page = Table(
        ("phase", *right(attempts), "what it is"),
        [(name, *(_seconds(row[name]) for row in rows), what) for name, what in PHASES.items()],
        title=f"where the time of {topology} {txid} went, in seconds",
    )
    document = [{"attempt": f"{txid}:{row['attempt_id']}", **row} for row in rows]
    answer(document, [page], as_json=as_json)


def _show_percentiles(connection: LedgerConnection, topology: str, *, as_json: bool) -> None:
    """Print the phases of the attempts that committed the last txids."""
    position = connection.one("topology_position", topology=topology)
    first = position["curr_txid"] - MAX_TXIDS
    rows = connection.all("timing_of_topology", topology=topology, first=first)
    page = Table(
        ("phase", ">attempts", ">median", ">p90", ">longest"),
        [
            (r["phase"], r["attempts"], *(_seconds(r[k]) for k in ("median", "p90", "longest")))
            for r in rows
        ],
        title=f"where the time of {topology}'s last {MAX_TXIDS:,} txids went, in seconds",
        empty=f"{topology} has committed nothing yet",
    )
    answer(rows, [page], as_json=as_json)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
