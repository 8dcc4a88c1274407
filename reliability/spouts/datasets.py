"""Where a batch's files are, as OpenLineage names it: by folder, not by file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from reliability.core.lineage import Dataset
from reliability.spouts.file_item import FileItem
from reliability.spouts.file_names import is_uri, locate, split_uri


def datasets_of_files(items: Iterable[FileItem]) -> Sequence[Dataset]:
    """Return a dataset for each folder, with the rows and bytes that the batch reads in it."""
    found: dict[tuple[str, str], list[FileItem]] = defaultdict(list)
    for item in items:
        found[_folder(locate(item.source))].append(item)
    return [
        Dataset(
            namespace=namespace,
            name=name,
            rows=sum(item.rows for item in read),
            files=len({item.source for item in read}),
            bytes=sum(item.bytes for item in read),
        )
        for (namespace, name), read in found.items()
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
