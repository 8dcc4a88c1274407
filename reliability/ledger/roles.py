"""Roles with parts of the rights (S8): make them, and act as the owner of the ledger.

A role of a ledger is made for each kind, and granted to the login roles of processes. Without
them, one role owns the ledger and all tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.errors import InvalidDefinition, RightMissing
from reliability.core.names import LONGEST_NAME
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.migrations import applied_as_sql, migrate, missing_migrations

OWNER, COORDINATOR, EXECUTOR, READER, PAGE = KINDS = (
    "owner",
    "coordinator",
    "executor",
    "reader",
    "page",
)
PREFIX = "reliability"
SCHEMAS = ("public",)
_WHO_MAKES_ROLES = (
    "run it as a superuser, or as a role with CREATEROLE that owns the database; or let one of "
    "them run what `reliability migrate --roles --plan` prints."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesWanted:
    """The roles that a ledger is to have.

    :param prefix: their names are it, an underscore and the kind
    :param schemas: where the owner may make targets, beside the schemas of declared states
    :param page_acts: the role of the page has the coordinator's rights too, for a person's verbs
    """

    prefix: str = PREFIX
    schemas: tuple[str, ...] = SCHEMAS
    page_acts: bool = False

    def __post_init__(self) -> None:
        if not self.prefix or len(self.name(COORDINATOR).encode()) > LONGEST_NAME:
            raise InvalidDefinition(
                f"prefix of roles: {self.prefix!r} makes no name of a role",
                remedy=f"use one of 1 to {LONGEST_NAME - len('_' + COORDINATOR)} bytes.",
            )

    def name(self, kind: str) -> str:
        return f"{self.prefix}_{kind}"


def make_roles(connection: LedgerConnection, wanted: RolesWanted) -> list[str]:
    """Make the roles, bring the ledger up to date as its owner, and grant what is missing.

    Safe to repeat.

    :returns: the statements that were run, and migrations as `-- applied NAME`
    :raises RightMissing: this role may not; `roles_as_sql` is for one that may
    :raises MigrationChanged, LedgerTooNew, EncodingUnsupported, LedgerBusy: see `migrate`
    """
    try:
        with connection.transaction() as tx:
            made = tx.all("statements_for_roles", **_parameters(wanted, all=False))
            done = [_execute(tx, row["statement"]) for row in made]
    except RightMissing as error:
        raise RightMissing(error.what, remedy=_WHO_MAKES_ROLES) from error
    done += [f"-- applied {migration}" for migration in migrate(connection)]
    with connection.transaction() as tx:
        tx.run("act_as", role=wanted.name(OWNER))
        tx.run("record_roles", prefix=wanted.prefix)
        for row in tx.all("role_statements_of_ledger", **_of_ledger(wanted)):
            tx.run("act_as", role=wanted.name(OWNER) if row["as_owner"] else "none")
            done.append(_execute(tx, row["statement"]))
    return done


def roles_as_sql(connection: LedgerConnection, wanted: RolesWanted) -> list[str]:
    """Return the statements with which a superuser does what `make_roles` does; change nothing.

    What is there already is left out.

    :raises MigrationChanged, LedgerTooNew, EncodingUnsupported: see `migrate`
    """
    missing = missing_migrations(connection)
    with connection.transaction(reads_only=True) as tx:
        made = tx.all("statements_for_roles", **_parameters(wanted, all=True))
        script = [row["statement"] for row in made]
        if missing:
            return [
                *script,
                tx.filled("act_as", role=wanted.name(OWNER)),
                *applied_as_sql(tx, missing),
                tx.filled("record_roles", prefix=wanted.prefix),
                tx.filled("act_as", role="none"),
                tx.filled("run_role_statements", **_of_ledger(wanted)),
            ]
        if {row["name"] for row in tx.all("roles")} != {wanted.name(kind) for kind in KINDS}:
            script.append(tx.filled("record_roles", prefix=wanted.prefix))
        lacking = tx.all("role_statements_of_ledger", **_of_ledger(wanted))
        return script + [row["statement"] for row in lacking]


def _parameters(wanted: RolesWanted, *, all: bool) -> dict[str, object]:
    return {"prefix": wanted.prefix, "page_acts": wanted.page_acts, "all": all}


def _of_ledger(wanted: RolesWanted) -> dict[str, object]:
    return {"prefix": wanted.prefix, "schemas": list(wanted.schemas)}


def _execute(tx: DatabaseTransaction, statement: str) -> str:
    tx.cursor.execute(statement)
    return statement


# --- the owner ---------------------------------------------------------------------------------


def act_as_owner(tx: DatabaseTransaction, topology: str, verb: str = "") -> None:
    """Take the role of the ledger's owner until the end of the transaction, if this role may.

    What is made then is the owner's. In a ledger without roles, one that may not goes on as it is.

    :param topology: what is declared or changed, for the remedy
    :param verb: of the command line, with which a person does this; by default a task does
    :raises RightMissing: the ledger has roles, and this one is not the owner
    """
    row = tx.first("act_as_owner")
    if row is None or row["is_owner"] or not tx.all("roles"):
        return
    as_owner = f"as a role that has {row['owner']}"
    remedy = (
        f"run `reliability declare {topology}`, or `reliability alter {topology}` after its "
        f"first commit, {as_owner}; then clear the task."
    )
    raise RightMissing(
        f"role {row['role']} may not make or change tables; that is for {row['owner']}",
        remedy=f"run `reliability {verb} {topology}` {as_owner}." if verb else remedy,
        topology=topology,
    )
