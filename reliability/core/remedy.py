"""What a person does about an error, as data: words, and commands by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from string import Formatter

#: The command lines that remedies name.
COMMANDS = {
    "alter": "reliability alter {topology}",
    "exclude": "reliability exclude {topology} {file} --reason '…'",
    "forget": "reliability quarantine forget {topology} {txid} --reason '…'",
    "migrate": "reliability migrate",
    "park": "reliability park {topology} {txid} --reason '…'",
    "refreeze": "reliability replay {topology} {txid} --refreeze --reason '…'",
    "release": "reliability release {topology}",
    "replay": "reliability replay {topology} {txid}",
    "resume_runs": "reliability resume-runs {topology}",
    "rollback": "reliability rollback {topology} {earlier} --reason '…'",
    "show": "reliability show {topology} {txid}",
    "show_json": "reliability show {topology} {txid} --json",
    "skip": "reliability skip {topology} {txid} --reason '…'",
    "status": "reliability status",
    "topologies": "reliability topologies {topology}",
    "txids": "reliability txids {topology}",
    "unskip": "reliability unskip {topology} {txid} --reason '…'",
    "verify": "reliability verify",
}


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a person does about an error.

    :param text: its fields are names of `COMMANDS`, and `{topology}`, `{txid}` and others
    :param names: what fields stand for; the error knows its topology and its txid

    >>> Remedy("fix the cause, then {release}.").render(topology="shop")
    'fix the cause, then `reliability release shop`.'
    >>> Remedy("see {show}.", {"txid": 3}).render(topology="", txid=7)
    'see `reliability show TOPOLOGY 3`.'
    """

    text: str
    names: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def literal(cls, text: str) -> Remedy:
        """Return a remedy with this very text, which has no fields."""
        return cls(_escaped(text))

    def about(self, **names: object) -> Remedy:
        return replace(self, names={**names, **self.names})

    def then(self, text: str) -> Remedy:
        """Return it with more to do afterwards."""
        return replace(self, text=f"{self.text} {text}")

    def runs(self, command: str) -> bool:
        """Say whether one of its commands is that of this name."""
        return any(name == command for _, name, _, _ in Formatter().parse(self.text))

    def to_text(self) -> str:
        """Return the text of an equal remedy that has no names of its own.

        >>> Remedy("see {file}, then {release}.", {"file": "{a}.csv"}).to_text()
        'see {{a}}.csv, then {release}.'
        >>> Remedy("run {exclude}.", {"file": "a.csv"}).to_text()
        "run `reliability exclude {topology} a.csv --reason '…'`."
        """
        parts: list[str] = []
        for text, name, _, _ in Formatter().parse(self.text):
            parts.append(_escaped(text))
            if name is not None:
                parts.append(self._filled(name))
        return "".join(parts)

    def _filled(self, name: str) -> str:
        if name in self.names:
            return _escaped(str(self.names[name]))
        line = COMMANDS.get(name, "")
        if any(own in self.names for _, own, _, _ in Formatter().parse(line)):
            return f"`{Remedy(line, self.names).to_text()}`"
        return f"{{{name}}}"

    def render(self, **names: object) -> str:
        """Return it for a person; what is not known is in capitals, for the person to fill in."""
        known = _Names({name: value for name, value in names.items() if value}, **self.names)
        for command, line in COMMANDS.items():
            known[command] = f"`{line.format_map(known)}`"
        return self.text.format_map(known)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


class _Names(dict[str, object]):
    def __missing__(self, name: str) -> str:
        return name.upper()
