"""Which columns of a table a terminal is wide enough for, and how wide each of them is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reliability.cli.terminal import ASIDE, HEADING
from reliability.cli.wrap import fold

if TYPE_CHECKING:
    from rich.text import Text

_PROSE = 24  # columns; a text that is longer, and has several words, may be folded to that


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns that stand beside each other, with their widths; the others stand below each row.

    :param names: the headings of all columns; :param right: which of them are right-justified
    """

    names: Sequence[str]
    right: Sequence[bool]
    widths: Mapping[int, int]
    gap: int

    @property
    def rest(self) -> list[int]:
        """Return the places of the columns that stand below."""
        return [place for place in range(len(self.names)) if place not in self.widths]

    def head(self, rule: str) -> Iterator[Text]:
        """Yield the headings, and a rule under each."""
        yield from self.lines(self.names, [HEADING] * len(self.names))
        yield from self.lines(
            [rule * self.widths.get(place, 0) for place in range(len(self.names))],
            [ASIDE] * len(self.names),
        )

    def lines(self, row: Sequence[str], styles: Sequence[str]) -> Iterator[Text]:
        """Yield the lines of a row."""
        from rich.text import Text

        cells = {
            place: fold([(row[place], styles[place])], width, 0, least=1)
            for place, width in self.widths.items()
        }
        for number in range(max(map(len, cells.values()))):
            line = Text()
            for place, folded in cells.items():
                cell = folded[number] if number < len(folded) else Text()
                pad = " " * (self.widths[place] - cell.cell_len)
                line.append(" " * self.gap if place else "")
                line.append_text(Text(pad) + cell if self.right[place] else cell + Text(pad))
            line.rstrip()
            yield line


def lay_out(
    columns: Mapping[str, str], rows: Sequence[Sequence[str]], least: Sequence[str], width: int
) -> Layout:
    """Find the widths; take columns out until the others fit."""
    from rich.cells import cell_len

    names, right = list(columns), [side == "right" for side in columns.values()]
    cells = [[name, *(row[place] for row in rows)] for place, name in enumerate(names)]
    full = [max(map(cell_len, column)) for column in cells]
    narrow = [
        max(_PROSE, *(cell_len(word) for cell in column for word in cell.split() or [""]))
        if full[place] > _PROSE and any(cell.count(" ") > 1 for cell in column)
        else full[place]
        for place, column in enumerate(cells)
    ]
    leaving = [names.index(name) for name in least if name in names]
    leaving += [place for place in reversed(range(1, len(names))) if place not in leaving]
    stay = list(range(len(names)))
    while True:
        for widths in (full, narrow):
            for gap in (2, 1):
                used = sum(min(widths[place], full[place]) for place in stay) + gap * (
                    len(stay) - 1
                )
                if used <= width or (len(stay) == 1 and widths is narrow):
                    found = {place: min(widths[place], full[place]) for place in stay}
                    _widen(found, full, width - used)
                    return Layout(names=names, right=right, widths=found, gap=gap)
        stay.remove(leaving.pop(0))


def _widen(widths: dict[int, int], full: Sequence[int], room: int) -> None:
    """Give what is left to the columns that are folded."""
    for place in sorted(widths, key=lambda place: full[place] - widths[place]):
        lacking = [p for p in widths if widths[p] < full[p]]
        if room <= 0 or place not in lacking:
            continue
        more = min(room // len(lacking), full[place] - widths[place])
        widths[place] += more
        room -= more
