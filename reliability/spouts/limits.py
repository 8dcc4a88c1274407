"""How much one batch may contain, and how items are cut to fit."""

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
                raise InvalidDefinition(f"a spout's max_{name}_per_batch must be at least 1")

    def allow(self, items: Sequence[FileItem]) -> bool:
        """Say whether one batch may contain all of these items."""
        return (
            len({item.path for item in items}) <= self.files
            and (self.rows is None or sum(item.rows for item in items) <= self.rows)
            and (self.bytes is None or sum(item.bytes for item in items) <= self.bytes)
        )


def cut_files(items: Sequence[FileItem], limits: Limits) -> list[tuple[FileItem, ...]]:
    """Fill one batch after another, in the order of the items.

    An item that is larger than a limit and cannot be cut further is a batch of its own. Adjacent
    row groups of a file become one item.
    """
    batches: list[list[FileItem]] = []
    for item in items:
        if batches and limits.allow([*batches[-1], item]):
            batches[-1].append(item)
        else:
            batches.append([item])
    return [_join(batch) for batch in batches]


def _join(batch: Sequence[FileItem]) -> tuple[FileItem, ...]:
    joined: list[FileItem] = []
    for item in batch:
        if joined and _are_consecutive(joined[-1], item):
            previous = joined.pop()
            item = replace(
                previous,
                last_group=item.last_group,
                rows=previous.rows + item.rows,
                group_bytes=previous.group_bytes + item.group_bytes,
            )
        joined.append(item)
    return tuple(joined)


def _are_consecutive(first: FileItem, second: FileItem) -> bool:
    return (
        first.path == second.path
        and first.last_group == second.first_group
        and first.first_row + first.rows == second.first_row
    )
