"""Bring the ledger's schema up to date: numbered files, forward only, one transaction each.

Releases overlap: while a deployment replaces one by the next, code of both works with the ledger.
So a file first adds what the next release needs (expand), and a later release removes what nobody
uses any more (contract). A file with which older code goes on says so in a line of its own:

    -- Code that knows migration 0010 goes on.

Without it, only code that knows the file itself goes on.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

from reliability.core.errors import (
    EncodingUnsupported,
    LedgerBusy,
    LedgerNotMigrated,
    LedgerTooNew,
    LedgerTooOld,
    MigrationChanged,
    RightMissing,
)
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.queries import queries, sql_folder

# Encodings in which bytes sort like code points, as in Spark; SQL_ASCII stores the client's UTF-8
# bytes unchanged.
ENCODINGS = ("UTF8", "LATIN1", "SQL_ASCII")
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_GOES_ON = re.compile(r"^-- Code that knows migration (\d{4}) goes on\.$", re.MULTILINE)

#: A statement that waits for a lock lets nobody else have it meanwhile: it gives up soon, and all
#: that wait behind it go first.
LOCK_SECONDS = 2.0
PAUSE_SECONDS = 1.0
MOST_TRIES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMigration:
    """One file of sql/migrations."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def record(self) -> dict[str, object]:
        """Return what the ledger keeps of it."""
        own = {"number": self.number, "name": self.name}
        return {**own, "checksum": self.checksum, "oldest_code": self.oldest_code}

    @property
    def oldest_code(self) -> int:
        """Return the number of the last migration that code must know to go on after this one."""
        match = _GOES_ON.search(self.text)
        return int(match[1]) if match else self.number

    def __str__(self) -> str:
        return f"{self.number:04d}_{self.name}"


def migrations(folder: Path | None = None) -> list[LedgerMigration]:
    """Return the migrations of this release in order; raise ValueError for a gap or a bad name."""
    read = []
    for path in sorted((folder or sql_folder() / "migrations").glob("*.sql")):
        match = _FILE.match(path.name)
        if match is None:
            raise ValueError(f"{path.name} is not named NNNN_what_changes.sql")
        read.append(
            LedgerMigration(
                number=int(match[1]), name=match[2], text=path.read_text(encoding="utf-8")
            )
        )
    if [m.number for m in read] != list(range(1, len(read) + 1)):
        raise ValueError(f"migrations are not numbered 1, 2, 3 …: {[m.number for m in read]}")
    return read


def migrate(
    connection: LedgerConnection, available: list[LedgerMigration] | None = None
) -> list[LedgerMigration]:
    """Apply the missing migrations and return them; safe to repeat and to run concurrently.

    :raises MigrationChanged: an applied migration differs from its file
    :raises LedgerTooNew: the ledger has migrations with which this release cannot work
    :raises EncodingUnsupported: texts sort differently in this database than in Spark
    :raises LedgerBusy: others held a lock for a minute; what was applied before stays
    :raises RightMissing: there is something to apply, and this role may not
    """
    known = migrations() if available is None else available
    applied: list[LedgerMigration] = []
    tries = 0
    while True:
        try:
            migration = _apply_next(connection, known)
        except LedgerBusy:
            tries += 1
            if tries == MOST_TRIES:
                raise
            time.sleep(PAUSE_SECONDS)
            continue
        if migration is None:
            return applied
        applied.append(migration)


def _grant_rights(tx: DatabaseTransaction) -> None:
    """Give the roles of the ledger, if it has any, their rights on what is new (S8).

    It may be another process that has made it, and was killed then.
    """
    if tx.one("table_exists", table="reliability.role")["exists"]:
        tx.run("grant_rights")


def _apply_next(
    connection: LedgerConnection, known: list[LedgerMigration]
) -> LedgerMigration | None:
    with connection.transaction(patience=LOCK_SECONDS) as tx:
        role = tx.first("act_as_owner")
        if role is not None and not role["is_owner"]:
            _check_nothing_is_missing(tx, known, role)
            return None
        _check_encoding(tx)
        tx.run("create_migration_table")
        missing = _missing(tx, known)
        if not missing:
            _grant_rights(tx)
            return None
        tx.cursor.execute(missing[0].text)
        tx.run("record_migration", **missing[0].record)
    return missing[0]


def _check_encoding(tx: DatabaseTransaction) -> None:
    server = tx.one("server_facts")
    if server["encoding"] not in ENCODINGS:
        raise EncodingUnsupported(
            f"database {server['database']} has encoding {server['encoding']}"
        )


def _check_nothing_is_missing(
    tx: DatabaseTransaction, known: list[LedgerMigration], role: Row
) -> None:
    if missing := _missing(tx, known):
        raise RightMissing(
            f"the ledger lacks {missing[0]}, and role {role['role']} may not change it; that is "
            f"for {role['owner']}",
            remedy=f"run `reliability migrate` as a role that has {role['owner']}.",
        )


def missing_migrations(
    connection: LedgerConnection, available: list[LedgerMigration] | None = None
) -> list[LedgerMigration]:
    """Return the migrations that `migrate` would apply; change nothing.

    :raises MigrationChanged, LedgerTooNew: as for `migrate`
    """
    known = migrations() if available is None else available
    with connection.transaction(reads_only=True) as tx:
        return _missing(tx, known) if _has_ledger(tx) else known


def migrations_as_sql(
    connection: LedgerConnection, available: list[LedgerMigration] | None = None
) -> list[str]:
    """Return the statements with which a person does what `migrate` does; change nothing.

    :raises MigrationChanged, LedgerTooNew, EncodingUnsupported: as for `migrate`
    """
    missing = missing_migrations(connection, available)
    with connection.transaction(reads_only=True) as tx:
        if not missing and not tx.one("lacks_rights")["lacks"]:
            return []
        applied = applied_as_sql(tx, missing) if missing else []
    return [queries()["act_as_owner"], *applied, queries()["grant_rights"]]


def applied_as_sql(tx: DatabaseTransaction, missing: list[LedgerMigration]) -> list[str]:
    """Return the statements that apply these migrations, and record them.

    :raises EncodingUnsupported: as for `migrate`
    """
    _check_encoding(tx)
    statements = [queries()["create_migration_table"]]
    for migration in missing:
        statements += [migration.text, tx.filled("record_migration", **migration.record)]
    return statements


def check_migrated(connection: LedgerConnection) -> None:
    """Raise unless this release can work with the ledger's schema."""
    with connection.transaction() as tx:
        if not _has_ledger(tx):
            raise LedgerNotMigrated("this database has no ledger yet")
        if missing := _missing(tx, migrations()):
            raise LedgerTooOld(f"the ledger does not have migration {missing[0].number}")


def _has_ledger(tx: DatabaseTransaction) -> bool:
    return bool(tx.one("table_exists", table="reliability.migration")["exists"])


def _missing(tx: DatabaseTransaction, known: list[LedgerMigration]) -> list[LedgerMigration]:
    applied = {row["number"]: row for row in tx.all("applied_migrations")}
    last = known[-1].number
    for number, row in applied.items():
        if number > last and row["oldest_code"] > last:
            raise LedgerTooNew(
                f"the ledger has migration {number}, which needs code that knows migration "
                f"{row['oldest_code']}; this release knows {last}"
            )
    for migration in known:
        own = applied.get(migration.number)
        if own is not None and own["checksum"] != migration.checksum:
            raise MigrationChanged(f"{migration} was changed after it was applied")
    return [migration for migration in known if migration.number not in applied]
