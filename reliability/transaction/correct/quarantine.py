"""Corrected rows come back as a correcting replay of their txid; nothing counts twice (V9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reliability.core.errors import CorrectionRefused
from reliability.core.set_aside import MASKED
from reliability.core.statement_key import TxidKey
from reliability.core.texts import as_exact_json, parse_exact
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row

#: of an exported row, beside its columns
TXID, ROW_ID, REASON, ITEM, ROW = "_txid", "_id", "_reason", "_item", "_row"
_OURS = (TXID, ROW_ID, REASON, ITEM, ROW)


@dataclass(frozen=True, slots=True)
class EditedRow:
    """A quarantined row with the values that a person has changed."""

    txid: int
    xor: int
    was: Mapping[str, Any]
    becomes: Mapping[str, Any]


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
    told = {
        TXID: row["txid"],
        ROW_ID: str(row["xor"]),
        REASON: row["reason"],
        ITEM: row["item"],
        ROW: row["row"],
    }
    return {**told, **_contents(row)}


def edited_rows(rows: Sequence[Row], edited: Iterable[Mapping[str, Any]]) -> list[EditedRow]:
    """Compare edited rows with those in quarantine; return those that differ.

    :raises CorrectionRefused: a row is not in quarantine, or cannot be corrected by itself
    """
    known = {(row["txid"], str(row["xor"])): row for row in rows}
    found = []
    for place, line in enumerate(edited, start=1):
        key = (line.get(TXID), str(line.get(ROW_ID)))
        if key not in known:
            raise CorrectionRefused(
                f"line {place} is not a row in quarantine: {TXID} {key[0]}, {ROW_ID} {key[1]}"
            )
        if (one := _edited(known[key], line, place)) is not None:
            found.append(one)
    return found


def _edited(row: Row, line: Mapping[str, Any], place: int) -> EditedRow | None:
    before = _contents(row)
    becomes = {
        name: value
        for name, value in line.items()
        if name not in _OURS and (name not in before or before[name] != value)
    }
    if not becomes:
        return None
    if row["is_cut"] or row["count"] != 1:
        why = "its contents were cut" if row["is_cut"] else "it is made of several source rows"
        raise CorrectionRefused(f"line {place} cannot be corrected: {why}")
    if unknown := becomes.keys() - before.keys():
        raise CorrectionRefused(f"line {place} has columns that the row has not: {sorted(unknown)}")
    if hidden := [name for name in becomes if before[name] == MASKED]:
        raise CorrectionRefused(f"line {place} cannot be corrected: {hidden} are masked")
    was = {name: before[name] for name in becomes}
    return EditedRow(row["txid"], row["xor"], was, becomes)


def _contents(row: Row) -> dict[str, Any]:
    if row["is_cut"]:
        return {"_contents": row["contents"]}
    contents: dict[str, Any] = parse_exact(row["contents"])
    return contents


def record_corrections(
    connection: LedgerConnection,
    topology: str,
    rows: Sequence[EditedRow],
    reason: str,
    by: str,
    requests: Mapping[int, int] | None = None,
) -> None:
    """Let every later attempt of the txids read these values.

    :param requests: txid -> the request of a dry run; then only its attempts read them
    :raises CorrectionRefused: a row has the values of the source again; nothing is recorded
    """
    with connection.transaction() as tx:
        for edited in rows:
            place: dict[str, Any] = {"topology": topology, "txid": edited.txid, "xor": edited.xor}
            row = _after_earlier(edited, tx.first("correction_of_row", **place))
            request_id = requests[row.txid] if requests else None
            if request_id is None:
                tx.run("end_correction", reason=f"corrected again: {reason}", **place)
            tx.run(
                "record_correction",
                was=as_exact_json(row.was),
                becomes=as_exact_json(row.becomes),
                reason=reason,
                by=by,
                request_id=request_id,
                **place,
            )


def _after_earlier(row: EditedRow, earlier: Row | None) -> EditedRow:
    """Return a row as it is edited now, beside what an earlier correction has changed in it.

    A row that went into the quarantine again has the corrected values there, not the source's.

    :raises CorrectionRefused: the values are those of the source again
    """
    if earlier is None:
        return row
    was = {**row.was, **parse_exact(earlier["was"])}
    becomes = {**parse_exact(earlier["becomes"]), **row.becomes}
    changed = [name for name in becomes if becomes[name] != was[name]]
    if not changed:
        raise CorrectionRefused(
            f"a row of txid {row.txid} has the values of the source again",
            remedy="take its corrections back with `reliability quarantine forget`.",
        )
    return replace(
        row,
        was={name: was[name] for name in changed},
        becomes={name: becomes[name] for name in changed},
    )


def end_corrections(tx: DatabaseTransaction, topology: str, txid: int, reason: str) -> int:
    """End the corrections of a txid; return how many there were."""
    return len(tx.all("end_corrections_of_txid", reason=reason, **TxidKey(topology, txid)))
