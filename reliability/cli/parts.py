"""What verbs print: lines and tables, laid out so that what a person copies is complete.

A pipe is a terminal of any width, without colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from reliability.cli.output import format_value, print_json
from reliability.cli.terminal import ASIDE, COMMAND, HEADING, TOPOLOGY, console, style_of
from reliability.core.texts import printable

RIGHT = ">"  # before the heading of a column that is justified to the right
GAP = 2  # columns between two of a table

# In backticks, or from a colon to the end of the line: as remedies and next steps are written.
_COMMAND = re.compile(r"`(?:reliability|airflow) [^`]*`|(?<=: )(?:reliability|airflow) \S.*$")
_GLUE = "\ue000"  # a blank at which a line is not broken


class Part(Protocol):
    """A part of what a verb prints."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Lay it out."""


def answer(document: Any, page: Iterable[Part | str], *, as_json: bool, code: int = 0) -> None:
    """Print the answer of a command, and end it with an exit code.

    :param document: the answer for a program
    :param page: the answer for a person, in parts and lines; a generator does not run for a program
    """
    if as_json:
        print_json(document)
    else:
        show(page)
    if code:
        raise typer.Exit(code)


def show(parts: Iterable[Part | str]) -> None:
    """Print the parts of an answer; a text is a line."""
    out = console()
    for part in parts:
        out.print(Line(part) if isinstance(part, str) else part, crop=False, soft_wrap=True)


def styled(text: str, marks: Iterable[str] = ()) -> Text:
    """Return a text with its commands in bold, and the first of each word to mark in its colour."""
    marked = Text(text)
    for word in marks:
        if place := re.search(rf"(?<![\w/.-]){re.escape(word)}(?![\w/-])", text):
            marked.stylize(style_of(word), *place.span())
    marked.highlight_regex(_COMMAND, COMMAND)
    return marked


def fold(text: Text, console: Console, width: int, hang: int) -> Iterator[Text]:
    """Fold a text at words, but in no command; indent all lines but the first.

    A word or a command that is too long is left whole: the terminal wraps it, and it is copied as
    it is. In a live view, which would cut it off, it is broken.
    """
    text = text.copy()
    text.plain = _COMMAND.sub(lambda command: command[0].replace(" ", _GLUE), text.plain)
    if console.is_alt_screen:
        lines = text.wrap(console, width - hang)
    else:
        lines = text.divide(_breaks(text.plain, width - hang))
    for number, line in enumerate(lines):
        line.plain = line.plain.replace(_GLUE, " ")
        line.rstrip()
        yield Text(" " * hang).append_text(line) if number else line


def _breaks(text: str, width: int) -> list[int]:
    """Return where a text is broken, so that each part fits if its words do.

    >>> _breaks("one two three", 8), _breaks("    seventeen one", 3)
    ([8], [14])
    """
    breaks, begin = [], 0
    for word in re.finditer(r"\S+", text):
        if cell_len(text[begin : word.end()]) > width and text[begin : word.start()].strip():
            begin = word.start()
            breaks.append(begin)
    return breaks


@dataclass(frozen=True, slots=True)
class Line:
    """A line, which a terminal folds.

    :param marks: words in it to colour by their meaning
    :param head: what stands before it: a topology
    :param hang: by how much its further lines are indented
    """

    text: str = ""
    marks: Sequence[str] = ()
    head: str = ""
    hang: int = 2
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text = styled(printable(self.text), self.marks)
        text.stylize(self.style)
        whole = Text.assemble((self.head, TOPOLOGY), text)
        yield from fold(whole, console, options.max_width, self.hang)


SPACE = Line()


def entries(title: str, entries: Iterable[Sequence[str]], *marks: str) -> list[Part]:
    """Return a list whose entries are too long for a table: a line, and indented lines below it.

    :param marks: words to colour by their meaning
    """
    lines: list[Part] = [
        Line(f"{'    ' if place else '  '}{line}", marks, hang=6 if place else 4)
        for entry in entries
        for place, line in enumerate(filter(None, entry))
    ]
    return [Line(title, style=HEADING), *lines] if lines else []


# --- tables --------------------------------------------------------------------------------------

Below = Sequence[tuple[str, str]]  # what stands under a row of a table: names and texts


def right(columns: Iterable[str]) -> list[str]:
    """Return headings of columns that are justified to the right."""
    return [f"{RIGHT}{name}" for name in columns]


class Table:
    """A table. If it is wider than the terminal, some columns stand below each row.

    :param columns: the headings; ">" before one justifies its column to the right
    :param rows: values, which are formatted
    :param empty: what to print if there are no rows
    :param hide_empty: leave out columns in which no row has a value
    :param coloured: columns whose words, or whose headings, have a meaning
    :param least: columns that go below a row first; by default the last ones
    :param below: what else stands below each row; below the last of rows that have the same
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        title: str = "",
        empty: str = "",
        hide_empty: bool = False,
        coloured: Sequence[str] = (),
        least: Sequence[str] = (),
        below: Sequence[Below] = (),
    ) -> None:
        texts = [[printable(format_value(value)) for value in row] for row in rows]
        if hide_empty:
            filled = [any(row[place] for row in texts) for place in range(len(columns))]
            columns = [*compress(columns, filled)]
            texts = [[*compress(row, filled)] for row in texts]
        self._names = [column.removeprefix(RIGHT) for column in columns]
        self._is_right = [column.startswith(RIGHT) for column in columns]
        self._rows = texts
        self._title, self._empty = title, empty
        self._coloured, self._least = coloured, least
        self._below = [[(name, printable(text)) for name, text in rows] for rows in below]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if not self._rows and self._empty:
            yield from Line(self._empty).__rich_console__(console, options)
            return
        if self._title:
            yield from Line(self._title, style=HEADING).__rich_console__(console, options)
        widths = self.beside(options.max_width)
        yield self._line(self._names, widths, HEADING)
        rule = "-" if options.ascii_only else "─"
        yield self._line([rule * widths.get(n, 0) for n in range(len(self._names))], widths, ASIDE)
        for number, row in enumerate(self._rows):
            yield self._line(row, widths)
            following = self._under(number + 1, widths)
            for under in self._under(number, widths):
                if under not in following:
                    yield from fold(under[-1], console, options.max_width, under[1])

    def beside(self, width: int) -> Mapping[int, int]:
        """Return the columns that stand beside each other, with their widths."""
        columns = zip(self._names, *self._rows, strict=True)
        widths = dict(enumerate(max(map(cell_len, column)) for column in columns))
        leaving = [self._names.index(name) for name in self._least if name in self._names]
        leaving += [place for place in reversed(range(1, len(widths))) if place not in leaving]
        while len(widths) > 1 and sum(widths.values()) + GAP * (len(widths) - 1) > width:
            del widths[leaving.pop(0)]
        return widths

    def _line(self, row: Sequence[str], widths: Mapping[int, int], style: str = "") -> Text:
        line = Text()
        for place, width in widths.items():
            cell = Text(row[place], style or self._style(place, row[place]))
            cell.align("right" if self._is_right[place] else "left", width)
            line.append(" " * GAP if line else "").append_text(cell)
        line.rstrip()
        return line

    def _under(self, number: int, widths: Mapping[int, int]) -> list[tuple[str, int, Text]]:
        """Return what stands under a row: the row's name, the indent, the text.

        What rows have in common stands under the last of them: the columns that do not fit, if the
        rows begin with the same text; and all of `below`.
        """
        if number >= len(self._rows):
            return []
        row, rest = self._rows[number], Text()
        for place, text in enumerate(row):
            if text and place not in widths:
                rest.append("  " if rest else "    ").append(f"{self._names[place]} ", ASIDE)
                style = self._style(place, text)
                rest.append_text(Text(text, style) if style else styled(text))
        under = [(row[0], 6, rest)] if rest else []
        for name, text in self._below[number] if self._below else ():
            under.append(("", 10, Text.assemble((f"    {name:4}  ", ASIDE), styled(text))))
        return under

    def _style(self, place: int, cell: str) -> str:
        name = self._names[place]
        if name not in self._coloured or cell in ("", "0"):
            return ""
        return style_of(cell) or (style_of(name) if self._is_right[place] else "")
