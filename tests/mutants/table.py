"""Read the table of mutants, `mutants.diff`: its first lines say how it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("mutants.diff")
_HEADER = re.compile(
    r"@@ (?P<path>\S+) @@ (?P<rule>\w+)(?P<histories> \(histories\))?: (?P<name>.+)"
)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A product in which a rule does not hold.

    :param rule: as PROTOCOL numbers it
    :param name: what the mutant does, in a few words
    :param tests: all of them fail with it
    :param in_histories: the simulation finds it within its histories, too
    """

    rule: str
    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    in_histories: bool


def _mutants(text: str) -> Iterator[Mutant]:
    """Read what is between two blank lines as a mutant; the first of them is the explanation."""
    for block in text.rstrip("\n").split("\n\n")[1:]:
        header, *lines = block.split("\n")
        said = _HEADER.fullmatch(header)
        if said is None:
            raise ValueError(f"{TABLE.name} has no mutant in {header!r}")
        yield Mutant(
            rule=said["rule"],
            name=said["name"],
            path=said["path"],
            old="".join(f"{line[1:]}\n" for line in lines if line[0] in "- "),
            new="".join(f"{line[1:]}\n" for line in lines if line[0] in "+ "),
            tests=tuple(line for line in lines if line[0] not in "-+ "),
            in_histories=said["histories"] is not None,
        )


MUTANTS = tuple(_mutants(TABLE.read_text()))
