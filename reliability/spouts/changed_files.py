"""How a changed source file is found: at a seal, after a commit, and under another name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reliability.core.spout import SourceItem
from reliability.spouts.file_item import FileItem
from reliability.spouts.filesystem import Stat, of_each, stat
from reliability.spouts.footer import read_file


def changes_of(item: FileItem) -> list[str]:
    """Say what of a file is not as it was when it was emitted."""
    # a copy of the same bytes, by which a store moves a file to another class, has another time
    compared = ["size", "etag" if item.etag else "mtime_ns"]
    if item.is_text:
        now: Stat | FileItem = stat(item.path)
    else:  # if the footer is the same, so are the row groups
        now = read_file(item.path)
        compared += ["rows", "footer_digest"] if item.is_whole else ["footer_digest"]
    values = [(name, getattr(item, name), getattr(now, name)) for name in compared]
    return [f"{name} {old} is now {new}" for name, old, new in values if old != new]


def changed_since(items: Iterable[SourceItem]) -> Iterator[tuple[str, str]]:
    """Yield the files that are other than when they were read, each with what differs.

    Size and ETag are compared, or the time where there is no ETag. A file that is gone has not
    changed: it may be archived.

    :raises OSError: the source cannot be read
    """
    files = {item.path: item for item in items if isinstance(item, FileItem)}
    differences = of_each(files, lambda path: _difference(files[path]))
    yield from ((path, why) for path, why in zip(files, differences, strict=True) if why)


def _difference(item: FileItem) -> str:
    try:
        now = stat(item.path)
    except FileNotFoundError:
        return ""
    if now.size != item.size:
        return f"{item.size:,} bytes then, {now.size:,} now"
    if item.etag:
        return "of the same size, with another ETag" if now.etag != item.etag else ""
    return "of the same size, written again" if now.mtime_ns != item.mtime_ns else ""


def second_deliveries(
    new: Iterable[SourceItem], counted: Iterable[SourceItem]
) -> Mapping[str, str]:
    """Return which items look like a file that counted already, by their identities.

    They have the same rows and the same Parquet footer, or the same ETag.
    """
    known = {mark: item.identity for item in counted for mark in _marks(item)}
    return {
        item.identity: known[mark]
        for item in new
        for mark in _marks(item)
        if known.get(mark, item.identity) != item.identity
    }


def _marks(item: SourceItem) -> Iterator[tuple[object, ...]]:
    if isinstance(item, FileItem):
        part = (item.rows, item.first_group, item.last_group)
        if item.footer_digest:
            yield ("footer", item.footer_digest, *part)
        if item.etag:
            yield ("etag", item.etag, *part)
