"""What became of one vector: pass, FAIL, or a difference on purpose, with its reason.

A difference is on purpose in three cases: the vector says that it records a defect
(`upstream_quirk`), it is told in a dialect that is not ours, or a rule of the adapter covers the
op and the field under a stated condition. A name of a vector or of a file never is a reason.
What follows from a difference differs with it; our own expectations hold all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

EVERYTHING = "everything"


class Verdict(str, Enum):
    """What is printed of a vector."""

    PASS = "pass"
    DIFFERS = "differs on purpose"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one vector, with each reason once, or with what failed."""

    file: str
    vector: str
    verdict: Verdict
    why: tuple[str, ...] = ()


def always(_: Mapping[str, Any]) -> bool:
    """Every condition is met."""
    return True


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference that is meant.

    :param op: the op at which it shows, or several of them: `ack|fail`
    :param when: of the facts that the adapter states at that moment, with `expected` and `found`
    :param field: the compared field, or several of them; `*` for each
    :param carries: what follows in the same scope (a root, a key) differs with it
    :param spreads: what follows in any scope differs with it
    """

    op: str
    reason: str
    when: Callable[[Mapping[str, Any]], bool] = always
    field: str = "*"
    carries: bool = True
    spreads: bool = False

    def covers(self, op: str, field: str, facts: Mapping[str, Any]) -> bool:
        """Say whether the difference is this rule's."""
        ops, fields = self.op.split("|"), self.field.split("|")
        return op in ops and ("*" in fields or field in fields) and self.when(facts)


class Failed(Exception):
    """A difference that nothing excuses, or an expectation of our own that was not met."""


class UnknownOp(Failed):
    """The vector asks for something that no adapter knows."""


@dataclass
class Comparison:
    """Compares one vector's fields one by one, and remembers what was excused.

    :param dialect: why what this vector expects is not ours, if it is told in another dialect
    """

    rules: Sequence[Rule]
    quirk: str | None = None
    dialect: str | None = None
    reasons: list[str] = field(default_factory=list)
    compared: int = 0
    _op: str = ""
    _number: int = 0
    _facts: Mapping[str, Any] = field(default_factory=dict)
    _carried: dict[Hashable, str] = field(default_factory=dict)
    _unused: list[str] = field(default_factory=list)

    def at(self, number: int, op: str, **facts: Any) -> None:
        """Go on to the next op; `facts` are what the rules' conditions look at."""
        self._number, self._op, self._facts = number, op, facts

    def field(
        self, name: str, expected: Any, found: Any, scope: Hashable = EVERYTHING, **facts: Any
    ) -> None:
        """Compare one field.

        :param scope: what the field is about: a rule's difference is carried on within it
        :param facts: what rules' conditions look at, besides the facts of the op
        :raises Failed: they differ, and nothing excuses it
        """
        self.compared += 1
        if _plain(expected) == _plain(found):
            return
        facts = {**self._facts, **facts, "expected": expected, "found": found}
        reason = self._excuse(name, scope, facts)
        difference = f"{name}: expected {_plain(expected)}, found {_plain(found)}"
        if reason is None:
            raise Failed(f"{self.where}: {difference}")
        if not any(reason in known for known in self.reasons):
            self.reasons.append(f"{self.where}: {difference}: {reason}")

    def _excuse(self, name: str, scope: Hashable, facts: Mapping[str, Any]) -> str | None:
        for carried in (scope, EVERYTHING):
            if carried in self._carried:
                return self._carried[carried]
        for rule in self.rules:
            if rule.covers(self._op, name, facts):
                if rule.carries:
                    self._carried[EVERYTHING if rule.spreads else scope] = rule.reason
                return rule.reason
        return self.quirk or self.dialect

    def carry(self, reason: str, scope: Hashable = EVERYTHING) -> None:
        """Excuse what is to come in a scope: an op of its history has no counterpart."""
        self._carried.setdefault(scope, reason)

    def no_use(self, reason: str) -> None:
        """Note that an op has no counterpart; a vector of such ops alone is not compared."""
        if reason not in self._unused:
            self._unused.append(reason)

    def ours(self, holds: bool, what: str) -> None:
        """State what has to hold here whatever the original did."""
        if not holds:
            raise Failed(f"{self.where}: our own expectation is not met: {what}")

    @property
    def where(self) -> str:
        return f"op {self._number} {self._op}" if self._op else "before the first op"

    def outcome(self, file: str, vector: str) -> Outcome:
        """Return the verdict on a vector that ran through."""
        if self.reasons:
            return Outcome(file, vector, Verdict.DIFFERS, tuple(self.reasons))
        if self.compared:
            return Outcome(file, vector, Verdict.PASS)
        if self._unused:
            return Outcome(file, vector, Verdict.DIFFERS, tuple(self._unused))
        return Outcome(file, vector, Verdict.FAIL, ("nothing in it could be compared",))


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
