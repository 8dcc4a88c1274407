"""FileItem: a file, or a part of one, as a batch has it, and what several of them make up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from reliability.core.lineage import Dataset
from reliability.core.spout import STORED, WHOLE, SourceItem, source_item
from reliability.spouts.file_names import identity_of_uri, is_uri, locate, split_uri
from reliability.spouts.parquet_columns import Columns


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class FileItem(SourceItem):
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
        return identity_of_uri(self.path) if is_uri(self.path) else self.path

    @property
    def part(self) -> str:
        if self.is_whole:
            return WHOLE
        return f"{{[{self.first_row},{self.first_row + self.rows})}}"

    def is_followed_by(self, other: FileItem) -> bool:
        """Say whether the other has the next row groups of this file."""
        end = (self.path, self.last_group, self.first_row + self.rows)
        return end == (other.path, other.first_group, other.first_row)


def one_per_file(items: Iterable[FileItem]) -> list[FileItem]:
    """Return the last of the items of each file."""
    return [*{item.path: item for item in items}.values()]


def ordinals(items: Iterable[SourceItem]) -> dict[str, int]:
    """Return the ordinal of each file of a batch, by its path: that of its first item.

    A tuple id is the hash of this ordinal and of the row's index in the file, so the pieces of one
    file share an ordinal.
    """
    ordinal_of: dict[str, int] = {}
    for ordinal, item in enumerate(items):
        if isinstance(item, FileItem):
            ordinal_of.setdefault(item.path, ordinal)
    return ordinal_of


def joined(batch: Iterable[FileItem]) -> tuple[FileItem, ...]:
    """Make one item of adjacent row groups of a file."""
    items: list[FileItem] = []
    for item in batch:
        if items and items[-1].is_followed_by(item):
            previous = items.pop()
            item = replace(
                previous,
                last_group=item.last_group,
                rows=previous.rows + item.rows,
                group_bytes=previous.group_bytes + item.group_bytes,
            )
        items.append(item)
    return tuple(items)


def datasets_of_files(items: Iterable[FileItem]) -> Sequence[Dataset]:
    """Return a dataset for each folder, in the names of OpenLineage, with what the batch reads."""
    by_folder: dict[tuple[str, str], list[FileItem]] = defaultdict(list)
    for item in items:
        by_folder[_folder(locate(item.source))].append(item)
    return [
        Dataset(
            namespace=namespace,
            name=name,
            rows=sum(item.rows for item in read),
            files=len({item.source for item in read}),
            bytes=sum(item.bytes for item in read),
        )
        for (namespace, name), read in by_folder.items()
    ]


def _folder(path: str) -> tuple[str, str]:
    """Return namespace and name of the folder of a file.

    >>> _folder("s3://bucket/orders/2026-01/a.parquet"), _folder("/data/orders/a.csv")
    (('s3://bucket', 'orders/2026-01'), ('file', '/data/orders'))
    """
    if not is_uri(path):
        return "file", path.rpartition("/")[0] or "/"
    scheme, authority, rest = split_uri(path)
    return f"{scheme}://{authority}", rest.rpartition("/")[0] or "/"
