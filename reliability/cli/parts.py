"""What verbs print: lines and tables, as they are in a pipe, and laid out for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from reliability.cli.layout import Layout, lay_out
from reliability.cli.terminal import ASIDE, HEADING, TOPOLOGY, console, say, style_of
from reliability.cli.wrap import Piece, fold, styled
from reliability.core.texts import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

Below = Sequence[tuple[str, str]]  # what stands under a row of a table: names and texts


class Part(Protocol):
    """A part of what a verb prints."""

    def print_plain(self) -> None:
        """Print it into a pipe or a file."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Lay it out for a terminal."""


def show(parts: Iterable[Part]) -> None:
    """Print the parts of an answer."""
    out = console()
    for part in parts:
        if out.is_terminal:
            out.print(part, crop=False, soft_wrap=True)
        else:
            part.print_plain()


@dataclass(frozen=True, slots=True)
class Line:
    """A line, which a terminal folds.

    :param marks: words in it to colour by their meaning
    :param head: what stands before it: a topology
    :param hang: by how much a terminal indents its further lines
    :param only: print it on a terminal only, or in a pipe only
    """

    text: str = ""
    marks: Sequence[str] = ()
    head: str = ""
    hang: int = 2
    style: str = ""
    only: Literal["", "terminal", "pipe"] = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))

    def print_plain(self) -> None:
        if self.only != "terminal":
            say(self.head + self.text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if self.only == "pipe":
            return
        pieces: list[Piece] = [(self.head, TOPOLOGY)] if self.head else []
        pieces += [(self.text, self.style)] if self.style else styled(self.text, self.marks)
        yield from fold(pieces, options.max_width, self.hang, whole=not console.is_alt_screen)


SPACE = Line(only="terminal")


def heading(text: str) -> Line:
    """Return a heading, for a terminal only: in a pipe a table has its title."""
    return Line(text, style=HEADING, only="terminal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts. On a terminal that is too narrow, some columns stand below each row.

    :param columns: heading -> "left" or "right"
    :param coloured: columns whose words, or whose headings, have a meaning
    :param least: columns that go below a row first; by default the last ones
    :param below: what a terminal shows below each row; below the last of rows that have the same
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[str]]
    empty: str = ""
    coloured: Sequence[str] = ()
    least: Sequence[str] = ()
    below: Sequence[Below] = field(default=())

    def __post_init__(self) -> None:
        rows = [[printable(cell) for cell in row] for row in self.rows]
        below = [[(name, printable(text)) for name, text in one] for one in self.below]
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "below", below)

    def print_plain(self) -> None:
        from rich.table import Table

        if not self.rows and self.empty:
            return say(self.empty)
        table = Table(title=self.title or None, title_justify="left")
        for name, justify in self.columns.items():
            right = justify == "right"
            # fold: keep values that a person copies complete
            table.add_column(
                name, justify="right" if right else "left", no_wrap=right, overflow="fold"
            )
        for row in self.rows:
            table.add_row(*row)
        console().print(table)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        if not self.rows and self.empty:
            yield Text(self.empty)
            return
        if self.title:
            yield Text(self.title, HEADING)
        layout = lay_out(self.columns, self.rows, self.least, options.max_width)
        whole = not console.is_alt_screen
        yield from layout.head("-" if options.ascii_only else "─")
        for place, row in enumerate(self.rows):
            yield from layout.lines(row, [self._style(n, cell) for n, cell in enumerate(row)])
            for below in self._under(layout, place):
                if below not in self._under(layout, place + 1):
                    yield from fold(below[-1], options.max_width, below[1], whole=whole)

    def _under(self, layout: Layout, place: int) -> list[tuple[str, int, list[Piece]]]:
        """Return what stands under a row: the row's name, the indent, the text.

        What rows have in common stands under the last of them: the columns that do not fit, if the
        rows begin with the same text; and all of `below`.
        """
        if place >= len(self.rows):
            return []
        row, names = self.rows[place], list(self.columns)
        rest: list[Piece] = []
        for column in layout.rest:
            if text := row[column]:
                rest.append((f"{'  ' if rest else '    '}{names[column]} ", ASIDE))
                style = self._style(column, text)
                rest += [(text, style)] if style else styled(text)
        found = [(row[0], 6, rest)] if rest else []
        for name, text in self.below[place] if self.below else ():
            found.append(("", 10, [(f"    {name:4}  ", ASIDE), *styled(text)]))
        return found

    def _style(self, place: int, cell: str) -> str:
        name = list(self.columns)[place]
        if name not in self.coloured or cell in ("", "0"):
            return ""
        return style_of(cell) or (style_of(name) if self.columns[name] == "right" else "")
