"""The rows of a state that a change of the topology, or a dry run of one, changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from reliability.core.column import is_hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """A row that differs from its contributions.

    :param expected: the row by its contributions, None if there should be no row
    :param found: the row in the table, None if it is missing
    """

    key: Mapping[str, Any]
    expected: Mapping[str, Any] | None
    found: Mapping[str, Any] | None

    def describe(self) -> str:
        """Return it as a text, without hidden columns.

        >>> Differing(key={"day": None}, expected={"n": 3, "_txid": 1}, found=None).describe()
        'day=NULL: expected n 3; found no row'
        """
        key = ", ".join(f"{name}={format_cell(value)}" for name, value in self.key.items())
        expected, found = format_row(self.expected), format_row(self.found)
        return f"{key or 'its row'}: expected {expected}; found {found}"


def format_row(values: Mapping[str, Any] | None) -> str:
    """Format the visible columns of a row; None is a row that does not exist."""
    if values is None:
        return "no row"
    visible = {name: value for name, value in values.items() if not is_hidden(name)}
    return ", ".join(f"{name} {format_cell(value)}" for name, value in visible.items())


def format_cell(value: Any) -> str:
    """Format one value of a row.

    >>> format_cell(None), format_cell(b"\\x00\\xff"), format_cell(7)
    ('NULL', '\\\\x00ff', '7')
    """
    if isinstance(value, (bytes, memoryview)):
        return f"\\x{bytes(value).hex()}"
    return "NULL" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """Rows that a change found other than their contributions say, and wrote as these say (H8).

    :param examples: some of these rows, as texts

    >>> str(ByHand(missing=1, examples=("k=1: expected n 3; found no row",))).partition(". ")[0]
    'rows that were changed by hand are overwritten: 1 missing; k=1: expected n 3; found no row'
    """

    missing: int = 0
    surplus: int = 0
    different: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        counts = {"missing": self.missing, "surplus": self.surplus, "different": self.different}
        named = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        shown = "".join(f"; {example}" for example in self.examples[:SHOWN_EXAMPLES])
        return (
            f"rows that were changed by hand are overwritten: {named}{shown}. They are no part of "
            "the difference; `reliability verify` finds all such rows"
        )


SHOWN_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How many rows of a state's table were added, changed and removed.

    :param moved: value -> the change of its sum over the table; only of Count and Sum, and only if
        it is not 0
    :param by_hand: rows that it met and that somebody had changed; they are not in the counts

    >>> print(Difference(state="totals", rows_changed=2, moved={"revenue": Decimal("-1.50")}))
    totals: 2 rows changed; revenue -1.50
    >>> print(Difference(state="totals", rows_added=1))
    totals: 1 row added
    >>> print(Difference(state="totals"))
    totals: unchanged
    """

    state: str
    rows_added: int = 0
    rows_changed: int = 0
    rows_removed: int = 0
    moved: Mapping[str, Decimal] = field(default_factory=dict)
    by_hand: ByHand | None = None

    @property
    def is_nothing(self) -> bool:
        return self.rows_added == self.rows_changed == self.rows_removed == 0

    def __str__(self) -> str:
        if self.is_nothing:
            return f"{self.state}: unchanged"
        added, changed, removed = self.rows_added, self.rows_changed, self.rows_removed
        counts = {"added": added, "changed": changed, "removed": removed}
        rows = [f"{n:,} row{'' if n == 1 else 's'} {what}" for what, n in counts.items() if n]
        sums = [f"{name} {by:+,}" for name, by in self.moved.items()]
        return f"{self.state}: {', '.join(rows)}{'; ' if sums else ''}{', '.join(sums)}"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Difference:
        moved = {name: Decimal(str(by)) for name, by in data["moved"].items()}
        by_hand = data.get("by_hand")
        if by_hand is not None and not isinstance(by_hand, ByHand):
            by_hand = ByHand(**{**by_hand, "examples": tuple(by_hand["examples"])})
        return cls(**{**data, "moved": moved, "by_hand": by_hand})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "moved": {name: str(by) for name, by in self.moved.items()}}
