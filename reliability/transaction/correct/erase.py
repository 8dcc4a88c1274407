"""Erase persons: their rows go from everything that the ledger knows of, and stay gone (H12).

In one transaction under the topology's lock:

1. fence all live attempts: those that begin later know whom to leave out
2. delete the rows from the states' tables, contributions and staged remains
3. delete them from the quarantine, with corrections, examples and texts that quote rows
4. record a salted hash of each person, and how much has gone

What rows have added to the totals of several persons stays: nothing tells it apart. So a replay of
the same batch gives these states the same contribution, and the others what is left of theirs.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliability.core.erasure import (
    ERASED,
    ErasedKeys,
    Person,
    Persons,
    Quarantined,
    person_of,
    shown_in,
    type_of_person,
)
from reliability.core.errors import AuditFailed, EraseNotPossible, RowsUnaccounted
from reliability.core.names import name_of_table
from reliability.core.state import State
from reliability.core.texts import as_json, parse_exact
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, check_at_rest, lock_topology
from reliability.ledger.queries import queries
from reliability.ledger.roles import act_as_owner
from reliability.states.erasure import ErasedRows, count_shown, erase_rows, values_where
from reliability.states.kinds import StoredState
from reliability.transaction.commit.participant import rolled_back
from reliability.transaction.correct.park import NOT_RECORDED
from reliability.transaction.topology.declare import declared_tables

#: Spark compares each row with all persons of a topology; an erasure, each text with its own.
MOST_PERSONS, MOST_AT_ONCE = 10_000, 1_000
_QUOTING = [AuditFailed.code, RowsUnaccounted.code]


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What an erasure has done, or would do.

    :param keys: the persons as the ledger records them, each a `column` and a `hash`
    :param states: what has gone from the states that tell persons apart
    :param quarantined: rows of the quarantine, and `corrections` of such rows
    :param examples: of audits and of rows that were changed by hand; `texts` are other texts
    :param fenced: live attempts, which begin again
    :param totals: states without the column: what the rows have added to them stays
    :param unclear: rows of the quarantine that stay, of which nobody can say whose they are
    """

    topology: str
    keys: Sequence[Mapping[str, str]]
    states: tuple[ErasedRows, ...]
    quarantined: int
    corrections: int
    examples: int
    texts: int
    fenced: int
    totals: tuple[str, ...]
    unclear: int
    is_dry_run: bool

    def counts(self) -> dict[str, Any]:
        """Return what the ledger keeps of it."""
        counted = ("quarantined", "corrections", "examples", "texts", "fenced", "unclear")
        states = {one.state: {"rows": one.rows, "staged": one.staged} for one in self.states}
        return {"states": states, **{name: getattr(self, name) for name in counted}}


def erase(
    connection: LedgerConnection,
    topology: str,
    keys: Sequence[tuple[str, str]],
    *,
    reason: str,
    by: str = NOT_RECORDED,
    dry_run: bool = False,
) -> Erased:
    """Erase persons from a topology, or show what that would do; safe to repeat.

    :param keys: columns, each with a value
    :raises EraseNotPossible: it cannot be done exactly; nothing was changed
    :raises LedgerBusy: a change of the states is in progress, or somebody holds the tables
    :raises RightMissing: the ledger has roles, and this one is not the owner
    """
    patient = connection.transaction(patience=PATIENCE_SECONDS)
    with rolled_back(connection) if dry_run else patient as tx:
        check_at_rest(lock_topology(tx, topology), topology)
        act_as_owner(tx, topology, "erase")
        # before any table is read, or a merge would wait for this, and this for the merge
        staged = tx.all("tables_of_attempts", topology=topology, state=None)
        states = _states(tx, topology)
        persons = _persons([own.state for own in states], keys)
        _copy(tx, persons)
        columns = list(dict.fromkeys(person.column for person in persons))
        _check_exact(tx, states, columns)
        fenced = tx.run(
            "fence_what_was_read", topology=topology, txids=None, reason="rows were erased"
        )
        gone = [
            erase_rows(
                tx,
                own,
                _tell(own.state, columns),
                [row["table_id"] for row in staged if row["state"] == own.name],
            )
            for own in states
            if _tell(own.state, columns)
        ]
        tx.run("hold_what_quotes_rows")
        quarantined, unclear = _erase_quarantined(tx, topology, persons)
        _check_known(states, columns, persons, quarantined + unclear)
        salt, known = _salt(tx, topology)
        hashes = [person.hashed(salt) for person in persons]
        _check_number(known, columns, hashes)
        done = Erased(
            topology=topology,
            keys=[
                {"column": person.column, "hash": hash_}
                for person, hash_ in zip(persons, hashes, strict=True)
            ],
            states=tuple(gone),
            quarantined=quarantined,
            corrections=_erase_corrections(tx, topology, persons),
            examples=tx.one("forget_examples", topology=topology)["examples"],
            texts=tx.one("forget_texts", topology=topology, instead=ERASED, quoting=_QUOTING)[
                "texts"
            ],
            fenced=fenced,
            totals=tuple(own.name for own in states if not _tell(own.state, columns)),
            unclear=unclear,
            is_dry_run=dry_run,
        )
        tx.one(
            "record_erasure",
            topology=topology,
            by=by,
            reason=reason or "a dry run",
            counts=as_json(done.counts()),
            salt=salt,
            columns=[person.column for person in persons],
            hashes=hashes,
        )
    return done


def persons_where(
    connection: LedgerConnection, topology: str, column: str, condition: str, state: str = ""
) -> list[tuple[str, str]]:
    """Return the values of a column in the rows of a state's table that meet a condition.

    Read in a transaction of its own, in which Postgres refuses every write.

    :param state: may be left out if only one state has the column
    :raises EraseNotPossible: no state, or several, are meant; or no row meets the condition
    """
    with connection.transaction(reads_only=True) as tx:
        own = [
            tables
            for tables in _states(tx, topology)
            if state in ("", tables.name) and column in (*tables.state.key, *tables.state.values)
        ]
        if len(own) != 1:
            raise EraseNotPossible(
                f"{len(own)} states of {topology} have a column {column}",
                remedy="name one of them with --state.",
            )
        rows = tx.all(values_where(own[0], column, condition))
    values = [row["value"] for row in rows if row["value"] is not None]
    if not values:
        raise EraseNotPossible(
            f"no row of {own[0].target_name} meets the condition", remedy="nothing was changed."
        )
    return [(column, value) for value in values]


# --- whether it is possible ----------------------------------------------------------------------


def _states(tx: DatabaseTransaction, topology: str) -> list[StoredState]:
    others = [row["database"] for row in tx.all("participants", topology=topology)]
    if others:
        raise EraseNotPossible(
            f"{topology} has states in other databases, {', '.join(others)}, and several databases "
            "cannot be changed at one moment",
            remedy="give each database a topology of its own.",
        )
    return declared_tables(tx, topology)


def _persons(states: Sequence[State], keys: Sequence[tuple[str, str]]) -> list[Person]:
    if not 0 < len(keys) <= MOST_AT_ONCE:
        raise EraseNotPossible(
            f"these are {len(keys):,} persons, and 1 to {MOST_AT_ONCE:,} can be erased at once",
            remedy="name one at least, and more of them in several calls.",
        )
    persons = [person_of(states, column, value) for column, value in keys]
    return list(dict.fromkeys(persons))


def _tell(state: State, columns: Iterable[str]) -> list[str]:
    """Return the columns by which each row of a state is one person's."""
    return [column for column in columns if type_of_person(state, column)]


def _check_exact(
    tx: DatabaseTransaction, states: Sequence[StoredState], columns: Sequence[str]
) -> None:
    for own in states:
        for column in columns:
            shown = [*shown_in(own.state, column)]
            if shown and (rows := tx.one(count_shown(own, column, shown))["rows"]):
                keys = " and ".join(own.state.key) or "none"
                rows_meant = " OR ".join(f"{name_of_table(name)} = …" for name in shown)
                raise EraseNotPossible(
                    f"{rows:,} rows of state {own.name}, contributions among them, show the person "
                    f"as {' or '.join(shown)}, and such a row may hold what others have added",
                    remedy=f"erase these rows by their key first ({keys}): `reliability erase "
                    f"{own.topology} --key COLUMN --state {own.name} --where '{rows_meant}'`.",
                )


def _check_known(
    states: Sequence[StoredState], columns: Sequence[str], persons: Sequence[Person], found: int
) -> None:
    for column in columns:
        if not found and not any(_tell(own.state, [column]) for own in states):
            raise EraseNotPossible(
                f"no state has a column {column} that tells a person, and no row in quarantine has "
                "the value",
                remedy="name a column of a key, or of appended rows.",
            )


def _check_number(known: ErasedKeys, columns: Iterable[str], hashes: Sequence[str]) -> None:
    before = {h for salts in known.hashes.values() for each in salts.values() for h in each}
    if len(before | {*hashes}) > MOST_PERSONS:
        raise EraseNotPossible(
            f"more than {MOST_PERSONS:,} persons would be left out of each batch",
            remedy="leave rows out at the source, and replay the txids.",
        )


# --- the rows ------------------------------------------------------------------------------------


def _copy(tx: DatabaseTransaction, persons: Iterable[Person]) -> None:
    """Hand the persons over by COPY: in a statement, Postgres's log might show them."""
    tx.run("create_persons")
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(
        (p.column, p.value, p.text, json.dumps(p.value, ensure_ascii=False)[1:-1]) for p in persons
    )
    tx.copy(queries()["copy_persons"], io.BytesIO(text.getvalue().encode()))


def _erase_quarantined(
    tx: DatabaseTransaction, topology: str, persons: Sequence[Person]
) -> tuple[int, int]:
    """Delete rows from the quarantine; return their number, and that of the unclear ones."""
    gone, unclear, wanted = [], 0, Persons(persons)
    for row in tx.all("quarantined_rows_to_judge", topology=topology):
        contents = Quarantined.of(row["contents"], is_cut=row["is_cut"])
        source = parse_exact(row["source"] or "{}")  # its columns before a correction
        is_theirs = wanted.have(contents)
        if is_theirs or wanted.are_in(source):
            gone.append(row)
        elif is_theirs is None:
            unclear += 1
    tx.run(
        "erase_quarantined",
        topology=topology,
        txids=[row["txid"] for row in gone],
        attempt_ids=[row["attempt_id"] for row in gone],
        steps=[row["step"] for row in gone],
        numbers=[row["number"] for row in gone],
    )
    return len(gone), unclear


def _erase_corrections(tx: DatabaseTransaction, topology: str, persons: Sequence[Person]) -> int:
    wanted = Persons(persons)
    ids = [
        row["correction_id"]
        for row in tx.all("corrections_to_judge", topology=topology)
        for values in [(parse_exact(row["was"]), parse_exact(row["becomes"]))]
        if any(wanted.are_in(each) for each in values)
    ]
    return tx.run("erase_corrections", ids=ids) if ids else 0


def _salt(tx: DatabaseTransaction, topology: str) -> tuple[str, ErasedKeys]:
    """Return the salt of the topology's keys, and those that are known."""
    rows = tx.all("erased_keys", topology=topology)
    return (rows[0]["salt"] if rows else secrets.token_hex(16)), ErasedKeys.of(rows)
