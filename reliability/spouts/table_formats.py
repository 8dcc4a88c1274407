"""Refuse the files of a table of Delta Lake, Iceberg or Hudi.

Such a table is rewritten in new files, and the old ones stay for a while. Only its log says which
of them are the table. By a pattern both would be read, and their rows would count twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from reliability.core.errors import SourceIsATable
from reliability.deployment.lazy import fs
from reliability.spouts.file_names import locate
from reliability.spouts.filesystem import open_filesystem

logger = logging.getLogger(__name__)

_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
# Iceberg's folders, side by side
_DATA, _METADATA, _METADATA_FILE = "data", "metadata", ".metadata.json"


def check_no_table(paths: Iterable[str]) -> None:
    """Raise SourceIsATable if files lie in a table, however deep.

    Of each folder on their way it is asked once what lies there by name. Only what may be Iceberg's
    metadata is listed.

    :param paths: of one pattern
    """
    folders: dict[str, str] = {}
    filesystem: fs.FileSystem | None = None
    for path in paths:
        filesystem, inner = open_filesystem(path)
        folder = inner.rpartition("/")[0]
        while folder and folder not in folders:
            folders[folder] = path
            folder = folder.rpartition("/")[0]
    if filesystem is None:
        return
    for place in _folders_among(filesystem, [f"{f}/{log}" for f in folders for log in _LOGS]):
        folder, _, log = place.rpartition("/")
        if place not in folders:  # somebody who reads the log itself may do so
            raise _refusal(folders[folder], log, _LOGS[log])
    parents = {
        f.removesuffix(_DATA): path for f, path in folders.items() if f.endswith(f"/{_DATA}")
    }
    for place in _folders_among(filesystem, [f"{parent}{_METADATA}" for parent in parents]):
        if _has_metadata_file(filesystem, place):
            raise _refusal(parents[place.removesuffix(_METADATA)], _METADATA, "Iceberg")


def _folders_among(filesystem: fs.FileSystem, paths: Sequence[str]) -> list[str]:
    infos: dict[str, fs.FileInfo] = {}
    try:
        infos = dict(zip(paths, filesystem.get_file_info(paths), strict=True))
    except OSError:  # one of them, such as a bucket's root, may not be looked at
        for path in paths:
            with suppress(OSError):
                infos[path] = filesystem.get_file_info(path)
    return [path for path, info in infos.items() if info.type == fs.FileType.Directory]


def _has_metadata_file(filesystem: fs.FileSystem, folder: str) -> bool:
    try:
        listed = filesystem.get_file_info(fs.FileSelector(folder))
    except OSError as error:  # it may not be looked at
        logger.warning("whether %s is that of a table of Iceberg is unknown: %s", folder, error)
        return False
    return any(info.base_name.endswith(_METADATA_FILE) for info in listed)


def _refusal(path: str, log: str, name: str) -> SourceIsATable:
    return SourceIsATable(
        f"{locate(path)} is a file of a table of {name}: a folder above it has {log}. Files that "
        "the table has replaced would count, too"
    )
