"""Fold text at words for a terminal, so that what a person copies from it is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reliability.cli.terminal import COMMAND, style_of

if TYPE_CHECKING:
    from rich.text import Text

Piece = tuple[str, str]  # a text and its style

# In backticks, or from a colon to the end of the line: as remedies and next steps are written.
_COMMAND = re.compile(r"`(?:reliability|airflow) [^`]*`|(?<=: )(?:reliability|airflow) \S.*$")
_SHELL_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")
_WORD = re.compile(r"\s*\S+")
_LEAST = 20  # columns; less room than that is as good as none


class Command(str):
    """A text that is not broken at any of its words."""

    __slots__ = ()


def styled(text: str, marks: Sequence[str] = ()) -> Iterator[Piece]:
    """Yield the pieces of a text: its commands, the first of each word to mark, and the rest."""
    end = 0
    for found in _COMMAND.finditer(text):
        yield from _marked(text[end : found.start()], marks)
        yield Command(found[0]), COMMAND
        end = found.end()
    yield from _marked(text[end:], marks)


def _marked(text: str, marks: Sequence[str]) -> Iterator[Piece]:
    places = sorted(
        (found.start(), found.end())
        for word in dict.fromkeys(marks)
        if (found := re.search(rf"(?<![\w/.-]){re.escape(word)}(?![\w/-])", text))
    )
    end = 0
    for start, stop in places:
        yield text[end:start], ""
        yield text[start:stop], style_of(text[start:stop])
        end = stop
    yield text[end:], ""


def fold(
    pieces: Sequence[Piece], width: int, hang: int = 2, *, whole: bool = True, least: int = _LEAST
) -> list[Text]:
    """Fold a text at words; further lines are indented by `hang` columns.

    A command stays on one line if that is wide enough; otherwise backslashes continue it, as in a
    shell. A word that is too long is left whole: the terminal wraps it, and it is copied as it is.

    :param whole: False for a live view, which would cut such a word off
    """
    from rich.text import Text

    width = max(width, least)
    lines = [Text()]
    for space, word, style in _words(pieces, width, hang, whole=whole):
        line = lines[-1]
        if line.cell_len + _length(space + word) <= width or not line.plain.strip():
            line.append(space)
        else:
            room = width - hang
            lines.append(Text(" " * hang if _length(word) <= room else ""))
        lines[-1].append(word, style)
        if word.endswith(" \\"):
            lines.append(Text(" " * hang + "  "))
    return lines


def _words(
    pieces: Sequence[Piece], width: int, hang: int, *, whole: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield what is not broken, each with the space before it and its style."""
    space = ""
    for text, style in pieces:
        if isinstance(text, Command):
            parts = _continued(text, width - hang - 2) if _length(text) > width - hang else [text]
            for part in parts:
                yield space, part, style
                space = ""
            continue
        end = 0
        for found in _WORD.finditer(text):
            word = found[0].lstrip()
            before = space + found[0][: -len(word)]
            yield from _broken(before, word, style, width if not whole else 0)
            space, end = "", found.end()
        space += text[end:]


def _broken(space: str, word: str, style: str, width: int) -> Iterator[tuple[str, str, str]]:
    while width and _length(word) > width:
        yield space, word[:width], style
        space, word = "", word[width:]
    yield space, word, style


def _continued(command: str, width: int) -> list[str]:
    """Break a command between its words, as a shell continues it."""
    lines: list[str] = []
    for word in _SHELL_WORD.findall(command):
        if lines and _length(lines[-1]) + _length(word) + 3 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
