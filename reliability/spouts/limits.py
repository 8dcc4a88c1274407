"""How much one batch may hold, and how items are cut by that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reliability.core.errors import InvalidDefinition
from reliability.spouts.file_item import FileItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """At most so many files, rows and stored bytes in a batch; None is no limit."""

    files: int
    rows: int | None
    bytes: int | None

    def __post_init__(self) -> None:
        for name in ("files", "rows", "bytes"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise InvalidDefinition(f"a spout's max_{name}_per_batch starts at 1")

    def hold(self, items: Sequence[FileItem]) -> bool:
        """Say whether a batch may hold all of these."""
        return (
            len({item.path for item in items}) <= self.files
            and (self.rows is None or sum(item.rows for item in items) <= self.rows)
            and (self.bytes is None or sum(item.bytes for item in items) <= self.bytes)
        )


def cut_files(items: Sequence[FileItem], limits: Limits) -> list[tuple[FileItem, ...]]:
    """Fill one batch after the other, in the order of the items.

    What is larger than a limit and cannot be cut any more is a batch of its own. Row groups of a
    file that follow each other in a batch become one item.
    """
    batches: list[list[FileItem]] = []
    for item in items:
        if batches and limits.hold([*batches[-1], item]):
            batches[-1].append(item)
        else:
            batches.append([item])
    return [_join(batch) for batch in batches]


def _join(batch: Sequence[FileItem]) -> tuple[FileItem, ...]:
    joined: list[FileItem] = []
    for item in batch:
        if joined and _follows(joined[-1], item):
            before = joined.pop()
            item = replace(
                before,
                last_group=item.last_group,
                rows=before.rows + item.rows,
                group_bytes=before.group_bytes + item.group_bytes,
            )
        joined.append(item)
    return tuple(joined)


def _follows(item: FileItem, after: FileItem) -> bool:
    return (
        item.path == after.path
        and item.last_group == after.first_group
        and item.first_row + item.rows == after.first_row
    )
