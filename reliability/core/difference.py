"""The rows of a state that a replay, a rollback or a dry run changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How many rows of a state's table were added, changed and removed.

    :param moved: value -> the change of its sum over the table; only of Count and Sum, and only if
        it is not 0

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

    @property
    def is_nothing(self) -> bool:
        return self.rows_added == self.rows_changed == self.rows_removed == 0

    def __str__(self) -> str:
        if self.is_nothing:
            return f"{self.state}: unchanged"
        counts = {
            "added": self.rows_added,
            "changed": self.rows_changed,
            "removed": self.rows_removed,
        }
        rows = [
            f"{count:,} row{'' if count == 1 else 's'} {what}"
            for what, count in counts.items()
            if count
        ]
        sums = [f"{name} {by:+,}" for name, by in self.moved.items()]
        return f"{self.state}: {', '.join(rows)}{'; ' if sums else ''}{', '.join(sums)}"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Difference:
        """Read what `to_json` wrote."""
        moved = {name: Decimal(str(by)) for name, by in data["moved"].items()}
        return cls(**{**data, "moved": moved})

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "state": self.state,
            "rows_added": self.rows_added,
            "rows_changed": self.rows_changed,
            "rows_removed": self.rows_removed,
            "moved": {name: str(by) for name, by in self.moved.items()},
        }
