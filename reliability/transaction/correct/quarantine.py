"""Corrected rows come back as a correcting replay of their txid; nothing counts twice (V9)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reliability.core.errors import CorrectionRefused, ReplayNotPossible
from reliability.core.set_aside import MASKED
from reliability.core.statement_key import TxidKey
from reliability.core.texts import as_exact_json, as_json, is_same, parse_exact
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection, Row
from reliability.ledger.locks import holding_at_rest
from reliability.transaction.correct.replayable import Replayable
from reliability.transaction.correct.rollback import RunToClear, runs_to_clear

#: of an exported row
TXID, ROW_ID, VALUES = "txid", "id", "values"
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedRow:
    """A quarantined row that a person has changed.

    :param ids: those of the rows in quarantine; two may be one row of the source
    :param item: the file that it is from, if that is known, and `row` its index there
    :param was: the columns that can be edited, with the source's values
    :param values: the same columns, with those that are read instead
    """

    txid: int
    ids: frozenset[str]
    xor: int
    item: str | None
    row: int | None
    was: Mapping[str, Any]
    values: Mapping[str, Any]

    @property
    def place(self) -> tuple[int, str | None, int]:
        """What is the same for two quarantined rows that are one row of the source."""
        return (self.txid, self.item, self.xor if self.row is None else self.row)

    @property
    def becomes(self) -> dict[str, Any]:
        return {n: v for n, v in self.values.items() if not is_same(v, self.was[n])}


def quarantined_rows(
    connection: LedgerConnection, topology: str, txids: Sequence[int] | None
) -> list[Row]:
    """Return the rows that are in quarantine, of some txids or of all."""
    with connection.transaction(reads_only=True) as tx:
        return tx.all("quarantined_rows", topology=topology, txids=txids and list(txids))


def exported(row: Row) -> dict[str, Any]:
    """Return a row for a person to edit: its columns, behind what identifies it.

    The id is a text, because many programs round numbers of 64 bits.
    """
    known = {name: row[name] for name in ("reason", "item", "row")}
    line = {TXID: row["txid"], ROW_ID: _id_of(row), **known}
    if row["is_cut"]:
        return {**line, "cut": row["contents"]}
    return {**line, VALUES: parse_exact(row["contents"])}


def _id_of(row: Row) -> str:
    """Return a digest of a quarantined row: another row never has it, nor has it other values."""
    place = row["xor"] if row["row"] is None else row["row"]
    identity = [row["step"], row["reason"], row["item"], place, row["contents"], row["source"]]
    return hashlib.sha256(as_json(identity).encode()).hexdigest()[:16]


def edited_rows(rows: Sequence[Row], lines: Mapping[int, Mapping[str, Any]]) -> list[EditedRow]:
    """Compare edited rows with those in quarantine; return those that differ.

    :param lines: by their number
    :raises CorrectionRefused: a row is not in quarantine, or cannot be corrected by itself; or two
        lines are one row of the source, and differ
    """
    known = _by_id(rows)
    by_place: dict[tuple[int, str | None, int], tuple[int, EditedRow]] = {}
    for number, line in lines.items():
        txid = line.get(TXID)
        key = (txid if isinstance(txid, int) else 0, str(line.get(ROW_ID)))
        if key not in known:
            raise CorrectionRefused(
                f"line {number} is not a row that is in quarantine now: {TXID} {txid}, "
                f"{ROW_ID} {key[1]}"
            )
        if (edited := _edited(known[key], line, number)) is not None:
            first, other = by_place.get(edited.place, (number, edited))
            by_place[edited.place] = (number, _merged(first, other, number, edited))
    return [edited for _, edited in by_place.values()]


def _by_id(rows: Iterable[Row]) -> dict[tuple[int, str], Row]:
    return {(row["txid"], _id_of(row)): row for row in rows}


def _edited(row: Row, line: Mapping[str, Any], number: int) -> EditedRow | None:
    original = exported(row)
    for name in (line.keys() | original.keys()) - {VALUES}:
        if name not in original or not is_same(line.get(name, original[name]), original[name]):
            raise CorrectionRefused(f"line {number}: {name!r} is not for you to edit")
    shown, values = original.get(VALUES), line.get(VALUES)
    if is_same(shown, values):
        return None
    if not isinstance(shown, dict) or row["source"] is None:
        raise CorrectionRefused(f"line {number} cannot be corrected: {_why_not(row)}")
    if not isinstance(values, dict) or values.keys() != shown.keys():
        differ = sorted(shown.keys() ^ (values if isinstance(values, dict) else {}).keys())
        raise CorrectionRefused(f"line {number} does not have the columns of the row: {differ}")
    was = parse_exact(row["source"])
    changed = [name for name in shown if not is_same(shown[name], values[name])]
    _check_changed(changed, shown, values, was, number)
    place = {name: row[name] for name in ("txid", "xor", "item", "row")}
    ids = frozenset([_id_of(row)])
    return EditedRow(ids=ids, was=was, values={name: values[name] for name in was}, **place)


def _why_not(row: Row) -> str:
    if row["is_cut"]:
        return "its contents were cut"
    if row["count"] != 1:
        return "it is made of several source rows"
    return "it is not a row of the batch; a fan_out() or an earlier step has made it"


def _check_changed(
    changed: Iterable[str],
    shown: Mapping[str, Any],
    values: Mapping[str, Any],
    was: Mapping[str, Any],
    number: int,
) -> None:
    for name in changed:
        if shown[name] == MASKED:
            raise CorrectionRefused(f"line {number} cannot be corrected: {name!r} is masked")
        if name not in was:
            raise CorrectionRefused(
                f"line {number}: {name!r} does not have the source's value",
                remedy="edit other columns: this one is the spout's."
                if name.startswith("_")
                else "edit the columns that the process function has computed it from.",
            )
        if not _has_shape_of(values[name], shown[name]):
            raise CorrectionRefused(
                f"line {number}: {name!r} was {as_exact_json(shown[name])}, and "
                f"{as_exact_json(values[name])} is not of that kind",
                remedy="write a value of the column's type.",
            )


def _has_shape_of(value: Any, shown: Any) -> bool:
    """Say whether a text stays a text, and a struct keeps its fields; Spark checks the rest."""
    if value is None:
        return True
    if isinstance(shown, str):
        return isinstance(value, str) or shown in _NOT_FINITE
    if isinstance(shown, dict):
        return isinstance(value, dict) and value.keys() == shown.keys()
    return True


def _merged(first: int, edited: EditedRow, second: int, other: EditedRow) -> EditedRow:
    """Return what two lines say of one row of the source: it may be in quarantine twice."""
    common = edited.values.keys() & other.values.keys()
    if differ := sorted(n for n in common if not is_same(edited.values[n], other.values[n])):
        raise CorrectionRefused(
            f"lines {first} and {second} are one row of the source, and differ in {differ}",
            remedy="make the same changes in both, or in one of them only.",
        )
    return replace(
        other,
        ids=edited.ids | other.ids,
        was={**edited.was, **other.was},
        values={**edited.values, **other.values},
    )


def check_correctable(ledger: Ledger, replayable: Replayable, rows: Iterable[EditedRow]) -> None:
    """Raise ReplayNotPossible if no attempt could ever read what corrects these rows."""
    txids = sorted({edited.txid for edited in rows})
    for txid, why in replayable.refused(ledger, txids, at_once=True):
        raise ReplayNotPossible(f"txid {txid}: {why}")


def record_corrections(
    tx: DatabaseTransaction,
    replayable: Replayable,
    rows: Sequence[EditedRow],
    reason: str,
    by: str,
    requests: Mapping[int, int] | None = None,
) -> None:
    """Let every later attempt of the txids read these values; the caller holds the topology.

    :param requests: txid -> the request of a dry run; then only its attempts read them
    :raises CorrectionRefused: a row has left the quarantine, as it does when its person is erased,
        or has the values of the source again; nothing is recorded
    :raises ReplayNotPossible: see check_correctable
    """
    check_correctable(tx, replayable, rows)  # others have committed or compacted since it was asked
    topology, txids = replayable.topology, sorted({edited.txid for edited in rows})
    there = _by_id(tx.all("quarantined_rows", topology=topology, txids=txids))
    for edited in rows:
        if any((edited.txid, row_id) not in there for row_id in edited.ids):
            raise CorrectionRefused(
                f"a row of txid {edited.txid} has left the quarantine since it was compared"
            )
        names = ("txid", "xor", "item", "row")
        place = {"topology": topology, **{name: getattr(edited, name) for name in names}}
        was, becomes = _beside_earlier(edited, tx.first("correction_of_row", **place))
        request_id = requests[edited.txid] if requests else None
        if request_id is None:
            tx.run("end_correction", reason=f"corrected again: {reason}", **place)
        tx.run(
            "record_correction",
            was=as_exact_json(was),
            becomes=as_exact_json(becomes),
            reason=reason,
            by=by,
            request_id=request_id,
            **place,
        )


def _beside_earlier(row: EditedRow, earlier: Row | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a row's values in the source, and those that are read instead.

    What an earlier correction has changed stays, in columns that the edited line does not have.

    :raises CorrectionRefused: the values are those of the source again
    """
    was, becomes = {**row.was}, row.becomes
    if earlier is not None:
        was = {**parse_exact(earlier["was"]), **was}
        kept = parse_exact(earlier["becomes"])
        becomes |= {name: kept[name] for name in kept if name not in row.was}
    if not becomes:
        raise CorrectionRefused(
            f"a row of txid {row.txid} has the values of the source again",
            remedy="take its corrections back with `reliability quarantine forget`.",
        )
    return was, becomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Corrections that were taken back, and what makes the tables agree: of skipped txids nothing.

    :param count: how many there were, without those of dry runs
    :param to_replay: have committed: a replay reads the source's values
    :param to_clear: the runs that process the others when they are cleared
    """

    count: int
    to_replay: tuple[int, ...]
    to_clear: tuple[RunToClear, ...]


def forget_corrections(
    connection: LedgerConnection, topology: str, txids: Sequence[int], reason: str
) -> Forgotten:
    """Take the corrections of txids back: each later attempt reads the source's values.

    Attempts that have read them and have not committed are fenced.

    :raises ReplayNotPossible: a committed txid with some cannot be replayed; nothing was changed
    """
    replayable = Replayable.of(connection, topology)
    with holding_at_rest(connection, topology) as (tx, locked):
        corrected = tx.all("corrected_txids", topology=topology, txids=list(txids))
        wanted = [row["txid"] for row in corrected if not row["is_skipped"]]
        committed = [txid for txid in wanted if txid < locked["curr_txid"]]
        for txid, why in replayable.refused(tx, committed):
            raise ReplayNotPossible(
                f"txid {txid} keeps its corrections: {why}",
                remedy="deliver the difference as a new file.",
            )
        ended = [_end_corrections(tx, topology, txid, reason) for txid in txids]
        why = f"corrections were forgotten: {reason}"
        tx.run("fence_what_was_read", topology=topology, txids=wanted, reason=why)
        rows = tx.all("emitted_txids", topology=topology, txids=wanted)
        uncommitted = [row for row in rows if not row["has_committed"]]
        return Forgotten(
            count=sum(ended),
            to_replay=tuple(row["txid"] for row in rows if row["has_committed"]),
            to_clear=tuple(runs_to_clear(tx, topology, uncommitted)),
        )


def _end_corrections(tx: DatabaseTransaction, topology: str, txid: int, reason: str) -> int:
    """End the corrections of a txid; return how many there were, without those of dry runs."""
    ended = tx.all("end_corrections_of_txid", reason=reason, **TxidKey(topology, txid))
    return sum(not row["is_dry_run"] for row in ended)
