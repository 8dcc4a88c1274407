"""What a pipeline author writes: State and Topology, checked when they are made."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reliability.core.aggregators import (
    ROW_COUNT,
    Column,
    CombinerAggregator,
    aggregator_from_definition,
)
from reliability.core.errors import InvalidDefinition, LedgerCorruption
from reliability.core.spout import Spout
from reliability.core.types import is_supported

NAME = re.compile(r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$")
LONGEST_NAME = 28  # <topology>__<state> must fit Postgres's 63 characters, with room for a suffix


@dataclass(frozen=True)
class State:
    """A target table with a key, values and their aggregators.

    :param name: the state's name, and its table's unless `table` says otherwise
    :param key: column name -> Postgres type; no key at all makes a table of one row
    :param values: column name -> aggregator
    :param table: `table` or `schema.table`, if it is not `public.<name>`
    """

    name: str
    key: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, CombinerAggregator] = field(default_factory=dict)
    table: str = ""

    def __post_init__(self) -> None:
        _check_name("state", self.name)
        if not self.values:
            raise InvalidDefinition(f"state {self.name} has no values")
        for column in (*self.key, *self.values):
            _check_name(f"column of state {self.name}", column)
        if shared := self.key.keys() & self.values.keys():
            raise InvalidDefinition(f"state {self.name}: {sorted(shared)} are key and value")
        for column, type_ in self.key.items():
            _check_type(f"column {column} of state {self.name}", type_)
        for stored in self.columns():
            _check_type(f"column {stored.name} of state {self.name}", stored.type)
        for part in self.target:
            _check_name(f"table of state {self.name}", part)

    @property
    def target(self) -> tuple[str, str]:
        """Return the target table as (schema, table)."""
        schema, _, table = (self.table or self.name).rpartition(".")
        return (schema or "public", table)

    def columns(self) -> tuple[Column, ...]:
        """Return the stored columns: those of each value in order, then the hidden row count."""
        stored = [c for name, value in self.values.items() for c in value.columns(name)]
        return (*stored, ROW_COUNT)

    def definition(self) -> dict[str, Any]:
        """Return the state's shape as plain data: equal shapes give equal data."""
        return {
            "name": self.name,
            "target": ".".join(self.target),
            # jsonb forgets the order of an object's members; a table's columns have one
            "key": [[name, type_] for name, type_ in self.key.items()],
            "values": [[name, value.definition()] for name, value in self.values.items()],
        }

    @classmethod
    def from_definition(cls, data: Mapping[str, Any]) -> State:
        """Read what `definition` wrote: the ledger commits without the pipeline's code."""
        try:
            values = {name: aggregator_from_definition(d) for name, d in data["values"]}
            key = dict(data["key"])
            return cls(data["name"], key=key, values=values, table=data["target"])
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerCorruption(f"unreadable state definition: {data!r}") from error

    def digest(self) -> str:
        """Return a digest of the definition."""
        return digest_of(self.definition())


@dataclass(frozen=True)
class Topology:
    """One ordered pipeline: a spout, a process function, its states, its configuration.

    :param process: `(batch: DataFrame) -> {state name: DataFrame}`; every frame keeps the
        columns `_x` and `_n`
    :param max_spout_pending: how many txids may be between begin and commit (Trident's default: 1)
    :param lease_seconds: a running attempt that shows no progress for so long is taken for dead;
        progress is a Spark task that ended, so this is more than the longest one takes
    :param module: the module that holds this object; the process function's unless given
    """

    name: str
    spout: Spout
    process: Callable[..., Mapping[str, Any]]
    states: Sequence[State]
    max_spout_pending: int = 1
    lease_seconds: int = 900
    module: str = ""

    def __post_init__(self) -> None:
        _check_name("topology", self.name)
        if not self.states:
            raise InvalidDefinition(f"topology {self.name} has no states")
        names = [state.name for state in self.states]
        targets = [state.target for state in self.states]
        if len(set(names)) < len(names) or len(set(targets)) < len(targets):
            raise InvalidDefinition(f"topology {self.name} has two states of one name or table")
        if self.max_spout_pending < 1:
            raise InvalidDefinition(f"topology {self.name}: max_spout_pending starts at 1")
        if self.lease_seconds < 1:
            raise InvalidDefinition(f"topology {self.name}: lease_seconds starts at 1")
        if not self.module:
            object.__setattr__(self, "module", getattr(self.process, "__module__", ""))


def digest_of(data: object) -> str:
    """Return a digest of plain data that does not depend on the order of its keys."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _check_name(what: str, name: str) -> None:
    # A leading or double underscore is ours: hidden columns, and <topology>__<state>.
    if not NAME.match(name) or len(name) > LONGEST_NAME:
        raise InvalidDefinition(
            f"{what}: {name!r} is not a name",
            remedy=f"use lower case, digits and single underscores, at most {LONGEST_NAME} long.",
        )


def _check_type(what: str, type_: str) -> None:
    # Types stand in CREATE TABLE as they are written.
    if not is_supported(type_):
        raise InvalidDefinition(
            f"{what}: type {type_!r} is not supported",
            remedy="write it as Postgres shows it: bigint, numeric(14,2), text, timestamptz …",
        )
