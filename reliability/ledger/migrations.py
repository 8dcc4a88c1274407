"""Bring the ledger's schema up to date: numbered files, forward only, one transaction each."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from reliability.core.errors import (
    EncodingUnsupported,
    LedgerNotMigrated,
    LedgerTooNew,
    MigrationChanged,
)
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.queries import sql_folder

# Encodings in which bytes sort like code points, as in Spark; SQL_ASCII stores the client's UTF-8
# bytes unchanged.
ENCODINGS = ("UTF8", "LATIN1", "SQL_ASCII")
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMigration:
    """One file of sql/migrations."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


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
    :raises LedgerTooNew: the ledger has migrations that this release does not have
    :raises EncodingUnsupported: texts sort differently in this database than in Spark
    """
    known = migrations() if available is None else available
    applied = []
    with connection.transaction() as tx:
        server = tx.one("server_facts")
        if server["encoding"] not in ENCODINGS:
            raise EncodingUnsupported(
                f"database {server['database']} has encoding {server['encoding']}"
            )
        tx.run("create_migration_table")
        for migration in _missing(_applied(tx), known):
            tx.cursor.execute(migration.text)
            tx.run(
                "record_migration",
                number=migration.number,
                name=migration.name,
                checksum=migration.checksum,
            )
            applied.append(migration)
    return applied


def check_migrated(connection: LedgerConnection) -> None:
    """Raise unless the ledger's schema is exactly that of this release."""
    with connection.transaction() as tx:
        if not tx.one("table_exists", table="reliability.migration")["exists"]:
            raise LedgerNotMigrated("this database has no ledger yet")
        if missing := _missing(_applied(tx), migrations()):
            raise LedgerNotMigrated(f"the ledger does not have migration {missing[0].number}")


def _applied(tx: DatabaseTransaction) -> dict[int, str]:
    return {row["number"]: row["checksum"] for row in tx.all("applied_migrations")}


def _missing(applied: dict[int, str], known: list[LedgerMigration]) -> list[LedgerMigration]:
    if newer := applied.keys() - {migration.number for migration in known}:
        raise LedgerTooNew(
            f"the ledger has migration {max(newer)}, which this release does not have"
        )
    for migration in known:
        if applied.get(migration.number, migration.checksum) != migration.checksum:
            raise MigrationChanged(
                f"{migration.number:04d}_{migration.name} was changed after it was applied"
            )
    return [migration for migration in known if migration.number not in applied]
