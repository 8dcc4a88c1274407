"""Audits: what must hold of a state's rows before readers can see them.

An audit looks at the contribution of an attempt when it is sealed, or at the table as it would be
when the attempt commits. Each row that it finds is a violation. The package `states` makes SQL of
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import TypeVar

from reliability.core.errors import AuditFailed, InvalidDefinition, LedgerBusy
from reliability.core.names import fitted, parts_of
from reliability.core.statement_key import StatementKey

CONTRIBUTION_PLACE = "{contribution}"
TABLE_PLACE = "{table}"
LONGEST_AUDIT_NAME = 100
# lock_not_available and deadlock_detected
_WAITED_FOR_A_LOCK = frozenset({"55P03", "40P01"})
Bound = int | float | Decimal | date | str
Word = TypeVar("Word", bound=Enum)


class Severity(str, Enum):
    """What a violation does."""

    ERROR = "error"  # the attempt fails
    WARN = "warn"  # it is recorded and logged


class Of(str, Enum):
    """Which rows an audit looks at."""

    CONTRIBUTION = "contribution"  # what the attempt has staged, at its seal
    TABLE = "table"  # the target as it would be, at the commit


@dataclass(frozen=True)
class Audit:
    """One audit of a state; made by the functions below.

    :param name: tells it from the other audits of its state
    :param columns: the columns of the state that it names
    """

    name: str
    of: Of
    severity: Severity
    columns: tuple[str, ...]


@dataclass(frozen=True)
class NotNull(Audit):
    """No row has NULL in any of these columns."""


@dataclass(frozen=True)
class Unique(Audit):
    """No two rows are equal in these columns; a row with NULL in one of them equals none."""


@dataclass(frozen=True)
class InRange(Audit):
    """Each value that is not NULL lies between the bounds, which are in the range."""

    least: Bound | None
    most: Bound | None


@dataclass(frozen=True)
class References(Audit):
    """Each value that is not NULL is in a column of another table.

    :param to: schema, table and column
    """

    to: tuple[str, str, str]


@dataclass(frozen=True)
class Query(Audit):
    """A query of the user's returns no row.

    :param sql: with a placeholder for the rows that it looks at
    """

    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOutcome(StatementKey):
    """What an audit has found.

    :param violations: their number; None if its query failed, or there is no result
    :param examples: a few of them, each as JSON
    :param problem: why its query failed, in Postgres's words
    :param error_code: the SQLSTATE of that
    """

    state: str
    name: str
    of: Of
    severity: Severity
    violations: int | None
    examples: Sequence[str] = ()
    problem: str | None = None
    error_code: str | None = None

    @property
    def is_violated(self) -> bool:
        """Return whether it found a violation, or could not look."""
        return bool(self.violations) or self.problem is not None

    @property
    def fails(self) -> bool:
        """Return whether the attempt must not commit."""
        return self.is_violated and self.severity is Severity.ERROR

    @property
    def found(self) -> str:
        """Return the number of violations with its noun."""
        return f"{self.violations:,} violation{'' if self.violations == 1 else 's'}"

    def __str__(self) -> str:
        audited = f"state {self.state}: audit {self.name}"
        if self.violations is None and self.problem is None:
            return f"{audited} has no result"
        if self.violations is None:
            return f"{audited} could not run: {self.problem}"
        shown = f", for example {', '.join(self.examples)}" if self.examples else ""
        return f"{audited} found {self.found}{shown}"

    def foretell(self, change: str) -> str:
        """Say what it would mean for a change.

        >>> found = AuditOutcome(
        ...     state="days", name="a", of=Of.TABLE, severity=Severity.ERROR, violations=2
        ... )
        >>> print(found.foretell("txid 7"))
        txid 7 would be refused: state days: audit a found 2 violations
        """
        return f"{change}{' would be refused' if self.fails else ', a warning'}: {self}"


def refuse_violations(outcomes: Iterable[AuditOutcome]) -> None:
    """Raise AuditFailed if an audit whose violations are errors has found one.

    :raises LedgerBusy: there is none, but such an audit has waited for a lock for too long

    >>> refuse_violations(
    ...     AuditOutcome(state="days", name=name, of=Of.TABLE, severity=severity, violations=1)
    ...     for name, severity in (("a", Severity.WARN), ("b", Severity.ERROR))
    ... )  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    reliability.core.errors.AuditFailed: [AUDIT_FAILED] state days: audit b found 1 violation. ...
    """
    failed = [outcome for outcome in outcomes if outcome.fails]
    if violated := [each for each in failed if each.error_code not in _WAITED_FOR_A_LOCK]:
        raise AuditFailed("; ".join(map(str, violated)))
    if failed:
        raise LedgerBusy("; ".join(map(str, failed)))


def not_null(*columns: str, of: str = "contribution", severity: str = "error") -> Audit:
    """Demand that no row has NULL in any of these columns.

    :param of: "contribution" or "table"
    :param severity: "error", or "warn" to record violations only
    """
    return NotNull(*_named("not_null", columns, of, Of.CONTRIBUTION, severity), columns)


def in_range(
    column: str,
    *,
    least: Bound | None = None,
    most: Bound | None = None,
    of: str = "contribution",
    severity: str = "error",
) -> Audit:
    """Demand that each value that is not NULL is at least `least` and at most `most`.

    :param of: "contribution" or "table"
    :param severity: "error", or "warn" to record violations only
    """
    for bound in (least, most):
        if isinstance(bound, bool) or not isinstance(bound, Bound | None):
            raise InvalidDefinition(f"in_range of {column}: {bound!r} cannot be a bound")
    bounds = {"least": least, "most": most}
    given = [f"{name}={bound}" for name, bound in bounds.items() if bound is not None]
    if not given:
        raise InvalidDefinition(f"in_range of {column} has no bound", remedy="set least= or most=.")
    named = _named("in_range", (column, *given), of, Of.CONTRIBUTION, severity)
    return InRange(*named, (column,), least, most)


def unique(*columns: str, of: str = "table", severity: str = "error") -> Audit:
    """Demand that no two rows are equal in these columns; NULL equals nothing, as in Postgres.

    :param of: "table" or "contribution"
    :param severity: "error", or "warn" to record violations only
    """
    return Unique(*_named("unique", columns, of, Of.TABLE, severity), columns)


def references(column: str, to: str, *, of: str = "contribution", severity: str = "error") -> Audit:
    """Demand that each value that is not NULL is in a column of another table of the database.

    :param to: `schema.table.column`, or `table.column` for a table in public; a part with a dot of
        its own stands in double quotes
    :param of: "contribution" or "table"; of another state of the topology, "table" also sees what
        the same txid adds to it
    :param severity: "error", or "warn" to record violations only
    """
    try:
        parts = parts_of(to)
    except ValueError:
        parts = []
    if len(parts) not in (2, 3):
        raise InvalidDefinition(
            f"references of {column}: {to!r} is not a column of a table",
            remedy="write schema.table.column.",
        )
    schema, table, referenced = parts if len(parts) == 3 else ("public", *parts)
    named = _named("references", (column, to), of, Of.CONTRIBUTION, severity)
    return References(*named, (column,), (schema, table, referenced))


def audit(name: str, sql: str, *, severity: str = "error") -> Audit:
    """Demand that a query returns no row: each row is a violation.

    The query is one SELECT and changes nothing. In it, `{contribution}` stands for what the
    attempt has staged for the state: its key and values, in rows that are not added to the table
    yet. `{table}` stands for the state's table as it would be after the commit. All other braces
    stay as they are.

    :param name: what it is called in errors and in the ledger
    :param severity: "error", or "warn" to record violations only
    """
    places = [place for place in (CONTRIBUTION_PLACE, TABLE_PLACE) if place in sql]
    if len(places) != 1:
        how = "both {contribution} and {table}" if places else "neither {contribution} nor {table}"
        raise InvalidDefinition(
            f"audit {name}: its SQL names {how}",
            remedy="read FROM {contribution}, what an attempt has staged, or FROM {table}, the "
            "table as it would be.",
        )
    of = Of.TABLE if places == [TABLE_PLACE] else Of.CONTRIBUTION
    return Query(name, of, _word(Severity, severity), (), sql.strip().rstrip(";").rstrip())


def check_audits(state: str, audits: Sequence[Audit], columns: Collection[str]) -> None:
    """Raise InvalidDefinition unless these can be the audits of a state.

    :param columns: the columns of its key and its values
    """
    names = set()
    for entry in audits:
        if not isinstance(entry, Audit):
            raise InvalidDefinition(
                f"state {state}: {entry!r} is not an audit",
                remedy="use not_null(), in_range(), unique(), references() or audit().",
            )
        if not entry.name.strip() or len(entry.name) > LONGEST_AUDIT_NAME or "\0" in entry.name:
            raise InvalidDefinition(
                f"state {state}: the name of an audit has 1 to {LONGEST_AUDIT_NAME} characters, "
                f"not {entry.name!r}",
                remedy='give a query of yours a short name: audit("…", …).',
            )
        if entry.name in names:
            raise InvalidDefinition(
                f"state {state} has two audits with the name {entry.name}",
                remedy="remove one, or give it another name.",
            )
        names.add(entry.name)
        for column in entry.columns:
            if column not in columns:
                raise InvalidDefinition(
                    f"state {state}: audit {entry.name} names the column {column}, which the state "
                    "does not have",
                    remedy=f"its columns are {', '.join(columns)}.",
                )


def _named(
    called: str, arguments: tuple[str, ...], of: str, usual: Of, severity: str
) -> tuple[str, Of, Severity]:
    """Return what every audit has; it is named like the call that makes it.

    >>> not_null("a", "b").name, in_range("x", least=0, of="table").name
    ('not_null(a, b)', 'in_range(x, least=0, of=table)')
    """
    if not arguments:
        raise InvalidDefinition(f"{called}() names no column")
    given = arguments if of == usual.value else (*arguments, f"of={of}")
    name = fitted(f"{called}({', '.join(given)})", LONGEST_AUDIT_NAME)
    return name, _word(Of, of), _word(Severity, severity)


def _word(words: type[Word], word: str) -> Word:
    try:
        return words(word)
    except ValueError:
        known = " or ".join(f'"{member.value}"' for member in words)
        raise InvalidDefinition(
            f"an audit has {words.__name__.lower()}={word!r}", remedy=f"write {known}."
        ) from None
