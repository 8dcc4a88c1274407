"""State: the definition of one target table, of one of three kinds.

The kinds differ in how much history they keep, and so in which committed txids can be replayed:

- ContributionState, the default, keeps every txid's contribution, for ever or for a History; any
  kept txid can be replayed
- OpaqueState keeps each row's value before its last txid; the last txid can be replayed
- TransactionalState keeps nothing; no txid can be replayed

The last two are Trident's OpaqueValue and TransactionalValue, with a table row as the value.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar

from reliability.core.aggregators import Append, Upsert, aggregator_from_definition, columns_of
from reliability.core.audits import Audit, check_audits
from reliability.core.column import (
    INTERNAL,
    ROW_COUNT,
    Column,
    CombinerAggregator,
    Generated,
    hidden,
    written,
)
from reliability.core.errors import InvalidDefinition, LedgerCorruption
from reliability.core.fold import OWN
from reliability.core.names import check_database, check_name, name_of_table, parts_of
from reliability.core.types import is_supported

#: Postgres's times and numbers have ends, and its indexes.
MOST_DAYS, MOST_TXIDS = 1_000_000, 10**12
MOST_KEY_COLUMNS = 32
_NOT_OF_USERS = frozenset({"reliability", "reliability_contribution", "information_schema"})


class StateKind(str, Enum):
    """How much history a state keeps."""

    CONTRIBUTION = "CONTRIBUTION"
    OPAQUE = "OPAQUE"
    TRANSACTIONAL = "TRANSACTIONAL"


@dataclass(frozen=True)
class History:
    """How long the contribution of each txid can be replaced; older ones are folded by key.

    With both numbers, the longer applies.

    :param txids: keep the last `txids` committed txids
    :param days: keep what was committed or last replayed within the last `days` days
    """

    txids: int | None = None
    days: float | None = None

    def __post_init__(self) -> None:
        if self.txids is None and self.days is None:
            raise InvalidDefinition(
                "a History without txids and days keeps nothing",
                remedy="write History(txids=…) or History(days=…); without keep=, all is kept.",
            )
        if self.txids is not None and not 1 <= self.txids <= MOST_TXIDS:
            raise InvalidDefinition(f"History: txids must be from 1 to {MOST_TXIDS:,}")
        if self.days is not None and not 0 < self.days <= MOST_DAYS:
            raise InvalidDefinition(f"History: days must be more than 0, and at most {MOST_DAYS:,}")


@dataclass(frozen=True)
class State:
    """A target table with a key, values and their aggregators, which keeps every contribution.

    :param name: the state's name, and its table's unless `table` is given
    :param key: up to 32 times column name -> Postgres type; without a key the table has one row
    :param values: column name -> aggregator
    :param table: `table` or `schema.table`, if it is not `public.<name>`; a part with a dot of its
        own stands in double quotes. Capitals stay capitals
    :param database: the name of the database with the table, if it is not the ledger's
    :param keep: how long each txid's contribution can be replaced, by default for ever. Not part
        of the definition: it may change at any time
    :param as_view: for appended rows: make the target a view of the staged rows, so that no commit
        copies them. By default it is a table
    :param audits: what must hold of its rows before readers see them. Not part of the definition:
        they may change at any time, and each attempt has those of the code that seals it
    """

    name: str
    key: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, CombinerAggregator] = field(default_factory=dict)
    table: str = ""
    database: str = ""
    keep: History | None = None
    as_view: bool = False
    audits: Sequence[Audit] = ()

    kind: ClassVar[StateKind] = StateKind.CONTRIBUTION

    def __post_init__(self) -> None:
        check_name("state", self.name)
        for column in (*self.key, *self.values):
            check_name(f"column of state {self.name}", column)
        for part in self.target:
            check_name(f"table of state {self.name}", part)
        if (schema := self.target[0]).startswith("pg_") or schema in _NOT_OF_USERS:
            raise InvalidDefinition(f"table of state {self.name}: schema {schema} is not for users")
        if self.database:
            check_database(f"database of state {self.name}", self.database)
        self._check_values()
        self._check_columns()
        check_audits(self.name, self.audits, [*self.key, *self.values])
        for name, type_ in (*self.key.items(), *((c.name, c.type) for c in self.all_columns())):
            if not is_supported(type_):  # it is copied into CREATE TABLE as it is
                raise InvalidDefinition(
                    f"column {name} of state {self.name}: type {type_!r} is not supported",
                    remedy="use a Postgres type such as bigint, numeric(14,2), text or "
                    "timestamptz.",
                )

    def _check_columns(self) -> None:
        """Refuse names that are taken; for Spark, `A` is `a`."""
        columns = Counter(column.name for column in self.all_columns())
        columns.subtract([*self.values])  # each has one column of its own name
        inner = {*INTERNAL, *+columns}
        if self.kind is StateKind.OPAQUE:
            inner |= {hidden(c.name, "previous") for c in self.columns()}
            inner.add(hidden("_txid", "previous"))
        taken = dict.fromkeys(map(str.lower, inner), "a column that this package needs there")
        for name in (*self.key, *self.values):
            if name.lower().startswith(OWN) or name.lower() in taken:
                other = taken.get(name.lower(), "the names that this package keeps for itself")
                raise InvalidDefinition(
                    f"column {name} of state {self.name} would be taken for {other}",
                    remedy="give it another name; Spark ignores whether letters are capitals.",
                )
            taken[name.lower()] = f"column {name}"

    def _check_values(self) -> None:
        if not self.values:
            raise InvalidDefinition(f"state {self.name} has no values")
        if len(self.key) > MOST_KEY_COLUMNS:
            raise InvalidDefinition(
                f"state {self.name}: an index of Postgres, and so a key, has at most "
                f"{MOST_KEY_COLUMNS} columns",
                remedy="make one column of several in the process function, such as their hash.",
            )
        if shared := self.key.keys() & self.values.keys():
            raise InvalidDefinition(f"state {self.name}: {sorted(shared)} are both key and value")
        if self.is_append and not all(isinstance(v, Append) for v in self.values.values()):
            raise InvalidDefinition(f"state {self.name}: either all values are Append, or none is")
        if self.is_append and self.kind is not StateKind.CONTRIBUTION:
            raise InvalidDefinition(
                f"state {self.name}: appended rows are their own history",
                remedy="make it a ContributionState, which keeps nothing else for them.",
            )
        if self.keep is not None and (self.is_append or self.kind is not StateKind.CONTRIBUTION):
            raise InvalidDefinition(
                f"state {self.name}: it keeps no history that keep= could limit",
                remedy="remove keep=; only a ContributionState keeps contributions, and not for "
                "appended rows, which are the table itself.",
            )
        if self.as_view and not self.is_append:
            raise InvalidDefinition(
                f"state {self.name}: only appended rows can be read through a view",
                remedy="remove as_view=True, or make all values Append.",
            )
        orders = [list(v.by.items()) for v in self.values.values() if isinstance(v, Upsert)]
        if any(order != orders[0] for order in orders):
            raise InvalidDefinition(f"state {self.name}: all Upserts must have the same `by`")

    @property
    def target(self) -> tuple[str, str]:
        """Return the target table as (schema, table)."""
        try:
            parts = parts_of(self.table) if self.table else [self.name]
        except ValueError:
            parts = []
        if len(parts) not in (1, 2):
            raise InvalidDefinition(
                f"table of state {self.name}: {self.table!r} is not a table",
                remedy="write table, or schema.table; a part with a dot or a quote of its own in "
                'double quotes, such as "Sales.2026".days.',
            )
        return ("public" if len(parts) == 1 else parts[0], parts[-1])

    @property
    def is_append(self) -> bool:
        """Say whether every row of a frame becomes a row of the table."""
        return any(isinstance(value, Append) for value in self.values.values())

    def cannot_replay(self, txid: int, last: int) -> str | None:
        """Return why this kind cannot replace a txid, None if it can.

        :param last: the last txid that has committed
        """
        return None

    def cannot_go_back(self, to_txid: int, last: int) -> str | None:
        """Return why this kind cannot go back to a txid, None if it can; `last` as above."""
        return None

    def all_columns(self) -> tuple[Column | Generated, ...]:
        """Return the columns besides the key: those of each value, then the hidden row count."""
        return self._all_columns

    @cached_property
    def _all_columns(self) -> tuple[Column | Generated, ...]:
        return (*columns_of(self.values), *(() if self.is_append else (ROW_COUNT,)))

    def columns(self) -> tuple[Column, ...]:
        """Return the columns that are written: all but the generated ones."""
        return written(self.all_columns())

    def carried(self) -> set[str]:
        """Return the columns whose values Spark does not compare, only groups by or hands on."""
        return {*self.key, *(column.name for column in self.columns() if not column.is_compared)}

    def reads(self) -> set[str]:
        """Return the columns of the frame that the key and the values read."""
        return {*self.key}.union(*(value.reads() for value in self.values.values()))

    def reads_as(self) -> list[tuple[str, str]]:
        """Return the columns of the frame whose values it stores, or adds up, with their types."""
        values = self.values.values()
        named = [(getattr(v, "column", None), getattr(v, "type", "")) for v in values]
        typed = ((name, type_) for name, type_ in named if name and type_)
        orders = (item for v in values for item in getattr(v, "by", {}).items())
        return list(dict.fromkeys([*self.key.items(), *typed, *orders]))

    def definition(self) -> dict[str, Any]:
        """Return the state's shape as plain data; equal shapes give equal data."""
        data: dict[str, Any] = {
            "name": self.name,
            "target": name_of_table(*self.target),
            # jsonb does not keep the order of an object's members; columns are ordered
            "key": [[name, type_] for name, type_ in self.key.items()],
            "values": [[name, value.definition()] for name, value in self.values.items()],
        }
        if self.kind is not StateKind.CONTRIBUTION:
            data["kind"] = self.kind.value
        if self.database:
            data["database"] = self.database
        if self.as_view:
            data["as_view"] = True
        return data

    @classmethod
    def from_definition(cls, data: Mapping[str, Any]) -> State:
        """Read what `definition` wrote: the ledger can commit without the pipeline's code."""
        try:
            values = {name: aggregator_from_definition(d) for name, d in data["values"]}
            return _KINDS[StateKind(data.get("kind", StateKind.CONTRIBUTION))](
                data["name"],
                key=dict(data["key"]),
                values=values,
                table=data["target"],
                database=data.get("database", ""),
                as_view=data.get("as_view", False),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerCorruption(f"unreadable state definition: {data!r}") from error

    def digest(self) -> str:
        return digest_of(self.definition())


ContributionState = State
"""The default by its full name: keeps every txid's contribution, so that it can be replaced."""


@dataclass(frozen=True)
class OpaqueState(State):
    """A State that keeps each row's values before its last txid, so that this txid can be replayed.

    A replay restores the previous values of keys that the new batch lacks, or deletes the keys.
    """

    kind = StateKind.OPAQUE

    def cannot_replay(self, txid: int, last: int) -> str | None:
        if txid == last:
            return None
        return "is an OpaqueState, which can replace only the txid that has committed last"

    def cannot_go_back(self, to_txid: int, last: int) -> str | None:
        if to_txid == last - 1:
            return None
        return f"is an OpaqueState, which can go back to txid {last - 1} only"


@dataclass(frozen=True)
class TransactionalState(State):
    """A State that keeps only the values: the smallest, and no committed txid can be replayed."""

    kind = StateKind.TRANSACTIONAL

    def cannot_replay(self, txid: int, last: int) -> str | None:
        return "is a TransactionalState, which keeps no history"

    def cannot_go_back(self, to_txid: int, last: int) -> str | None:
        return self.cannot_replay(to_txid, last)


_KINDS: dict[StateKind, type[State]] = {
    kind.kind: kind for kind in (ContributionState, OpaqueState, TransactionalState)
}


def replay_refusal(
    states: Iterable[State],
    txid: int,
    curr_txid: int,
    compacted_through: Mapping[str, int] | None = None,
) -> str | None:
    """Return why a topology with these states cannot replay `txid`, None if it can.

    A replay is granted for all states or for none: otherwise two tables of one txid could come from
    different runs of the code (H5). A txid that has not committed is never a replay.

    :param compacted_through: state -> the last txid that can no longer be taken out of it; "" ->
        the last txid that any state, in any database, is going to fold

    >>> from reliability import Count
    >>> opaque = OpaqueState("totals", values={"n": Count()})
    >>> replay_refusal([opaque], txid=7, curr_txid=8)
    >>> replay_refusal([opaque], txid=6, curr_txid=8)
    'state totals is an OpaqueState, which can replace only the txid that has committed last'
    >>> replay_refusal([], txid=4, curr_txid=8, compacted_through={"days": 0, "customers": 4})
    'state customers has compacted its history through txid 4'
    """
    if txid >= curr_txid:
        return None
    for state in states:
        if why := state.cannot_replay(txid, last=curr_txid - 1):
            return f"state {state.name} {why}"
    return beyond_history(txid, compacted_through or {})


def beyond_history(txid: int, compacted_through: Mapping[str, int]) -> str | None:
    """Return why a txid can no longer be taken out of every state, None if it can."""
    horizon, state = max(((n, name) for name, n in compacted_through.items()), default=(0, ""))
    if txid > horizon:
        return None
    subject = f"state {state}" if state else "a state of the topology"
    return f"{subject} has compacted its history through txid {horizon}"


def digest_of(data: object) -> str:
    """Return a digest of plain data, independent of the order of its keys."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
