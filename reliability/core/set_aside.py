"""What a process function does to the number of rows on purpose, each with a reason (V8).

For every state, emitted = staged + dropped + quarantined - added by a fan-out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from reliability.core.errors import InvalidDefinition
from reliability.core.fold import OWN, Fold

MAX_REASON = 200  # characters
#: what happens to a row that cannot be read or stored
FAIL, QUARANTINE = "fail", "quarantine"
#: a column of a batch: why a row cannot be read; such rows go into the quarantine
MALFORMED = f"{OWN}malformed"
#: the reason of a row with a value that cannot be stored, or does not fit its column
INVALID_VALUE = "INVALID_VALUE"
#: what a quarantined row shows of a malformed record: its line, what is wrong, and its text
TOLD = ("_line", "_why", "_record")
MASKED = "***"  # instead of a value that the quarantine must not show


class Kind(Enum):
    """What became of the rows: dropped, kept beside the tables, or made from others."""

    DROPPED = "DROPPED"
    QUARANTINED = "QUARANTINED"
    FANNED_OUT = "FANNED_OUT"


@dataclass(frozen=True, slots=True)
class SetAside:
    """The tuples of a batch that a state does not get, for one reason.

    :param fold: their XOR and count. A fan-out's XOR is 0, and its count is less than 0: so many
        rows were added
    """

    kind: Kind
    reason: str
    fold: Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row that is kept beside the tables.

    :param item: the file that it is from, if that is known
    :param row: its index there, from 0
    :param contents: its columns as JSON
    :param is_cut: the contents were too long to be kept whole
    :param fold: of the source rows in it: one, unless rows were aggregated before
    :param source: those of its columns that the process function has not changed, as JSON with the
        source's values; None if the row is not one row of the batch
    """

    reason: str
    contents: str
    fold: Fold
    item: str | None = None
    row: int | None = None
    is_cut: bool = False
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A row of a batch that a person has corrected.

    :param xor: its id when it was corrected; another one if a file before its own is excluded
    :param item: the file that it is from, if that is known
    :param row: its index there, if that is known
    :param was: the values of its columns in the source, corrected or not, a JSON object
    :param becomes: what is read instead of some of them, a JSON object
    """

    xor: int
    item: str | None
    row: int | None
    was: str
    becomes: str


def check_malformed(malformed: str, of: str) -> None:
    """Raise InvalidDefinition unless it says what happens to a row that cannot be read or stored.

    :param of: what it is declared for, such as "topology purchases"
    """
    if malformed not in (FAIL, QUARANTINE):
        raise InvalidDefinition(f"{of}: malformed is {malformed!r}, not {FAIL!r} or {QUARANTINE!r}")


def check_told(names: Iterable[str]) -> None:
    """Raise InvalidDefinition if a column is called like what tells of a malformed record."""
    if taken := sorted(name for name in names if name.lower() in TOLD):
        raise InvalidDefinition(
            f"the spout's schema has the columns {taken}, which tell of a malformed record",
            remedy="rename them in the schema, or fail on malformed records.",
        )


def combined(set_aside: Iterable[SetAside]) -> list[SetAside]:
    """Return one for each kind and reason, without those of no rows."""
    folds: defaultdict[tuple[Kind, str], Fold] = defaultdict(Fold)
    for aside in set_aside:
        folds[aside.kind, aside.reason] += aside.fold
    return [SetAside(*key, fold) for key, fold in folds.items() if fold != Fold()]


def check_reason(reason: str) -> str:
    """Return a reason as the ledger stores it.

    :raises InvalidDefinition: it is empty or too long
    """
    text = " ".join(reason.split())
    if not 0 < len(text) <= MAX_REASON:
        raise InvalidDefinition(
            f"a reason has 1 to {MAX_REASON} characters, not {len(text)}",
            remedy="name the kind of row, not the row: one reason stands for many rows.",
        )
    return text
