"""FileItem: a file, or a part of one, as a batch has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from reliability.core.spout import STORED, WHOLE, SourceItem, source_item
from reliability.spouts.file_names import schemes_of_store
from reliability.spouts.parquet_columns import Columns


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class FileItem:
    """A file as it was at emission, or some of its Parquet row groups.

    :param path: relative to RELIABILITY_HOME, absolute, or a URI with the pattern's scheme
    :param size: bytes of the whole file
    :param rows: of this item, from the file's footer or counted in its text, not by Spark
    :param footer_digest: of a Parquet footer; empty for text
    :param etag: the object store's own digest; empty if it has none
    :param is_numbered: of text: its records have tuple ids, by their numbers
    :param first_group: an item that is not the whole file is [first_group, last_group)
    :param last_group: None for the whole file
    :param first_row: the index in the file of the item's first row
    :param group_bytes: the stored size of these row groups
    :param columns: of a Parquet file that was just read; the ledger does not store them
    :param columns_without_values: those of them that have no type, because no row has a value
    """

    kind: ClassVar[str] = "file"
    path: str
    size: int
    mtime_ns: int
    rows: int
    footer_digest: str = ""
    etag: str = ""
    is_text: bool = False
    is_numbered: bool = False
    first_group: int = 0
    last_group: int | None = None
    first_row: int = 0
    group_bytes: int = 0
    columns: Columns = field(default=(), compare=False, repr=False, metadata={STORED: False})
    columns_without_values: frozenset[str] = field(
        default=frozenset(), compare=False, repr=False, metadata={STORED: False}
    )

    @property
    def is_whole(self) -> bool:
        return self.last_group is None

    @property
    def is_counted(self) -> bool:
        return self.is_text and not self.is_numbered

    @property
    def bytes(self) -> int:
        return self.size if self.is_whole else self.group_bytes

    @property
    def identity(self) -> str:
        rows = f"#{self.first_row}-{self.first_row + self.rows}"
        return self.source if self.is_whole else self.source + rows

    @property
    def source(self) -> str:
        scheme, mark, rest = self.path.partition("://")
        return schemes_of_store(scheme)[0] + mark + rest if mark else self.path

    @property
    def part(self) -> str:
        if self.is_whole:
            return WHOLE
        return f"{{[{self.first_row},{self.first_row + self.rows})}}"


def ordinals(items: Iterable[SourceItem]) -> dict[str, int]:
    """Return the ordinal of each file of a batch, by its path: that of its first item.

    A tuple id is the hash of this ordinal and of the row's index in the file, so the pieces of one
    file share an ordinal.
    """
    found: dict[str, int] = {}
    for ordinal, item in enumerate(items):
        if isinstance(item, FileItem):
            found.setdefault(item.path, ordinal)
    return found
