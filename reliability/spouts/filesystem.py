"""Find, inspect and open files, local and remote.

A plain path is local. pyarrow reads URIs of s3, gs, hdfs and abfs; fsspec reads others.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from errno import ELOOP, ENOENT, ENOTDIR
from functools import cache
from stat import S_ISDIR, S_ISREG
from typing import Any, NamedTuple, TypeVar

from reliability.core.errors import SourceUnreadable
from reliability.deployment.lazy import fs, pa
from reliability.deployment.settings import home
from reliability.spouts.file_names import (
    S3_SCHEMES,
    identity_of_folder,
    is_uri,
    locate,
    split_uri,
    without_file_scheme,
)
from reliability.spouts.patterns import (
    ANY_FOLDERS,
    asks_for_files,
    fits,
    has_wildcard,
    is_hidden,
    matches,
    split,
)

Value = TypeVar("Value")
_AT_ONCE = 16
#: a name that is not there, or a link that leads nowhere
_NOTHING_THERE = (ENOENT, ENOTDIR, ELOOP)


class Stat(NamedTuple):
    """What a file system knows about a file without reading it; 0 or empty is unknown."""

    size: int
    mtime_ns: int
    etag: str


# --- find ----------------------------------------------------------------------------------------


def find_files(pattern: str) -> list[str]:
    """Return the files that match a glob, sorted; a file has one path, however it is spelled.

    :raises SourceUnreadable: a folder cannot be listed, or symbolic links give a file two paths
    """
    pattern = without_file_scheme(pattern)
    try:
        paths = _find_remote(pattern) if is_uri(pattern) else _find_local(pattern)
    except (OSError, ValueError) as error:  # of the system or of pyarrow; of a NUL in the pattern
        raise SourceUnreadable(f"{pattern} cannot be listed: {error}") from error
    return sorted(paths)


def _find_local(pattern: str) -> set[str]:
    folder, parts = _local_parts(pattern)
    paths = set()
    identities: dict[str, str] = {}
    for below in _walk(os.path.join(home(), folder), parts, asks_for_files(parts)):
        listed = os.path.join(folder, below) if has_wildcard(pattern) else pattern
        parent, name = os.path.split(listed)
        if parent not in identities:
            identities[parent] = identity_of_folder(parent)
        paths.add(os.path.join(identities[parent], name))
    _check_links(paths)
    return paths


def _folder_error(path: str) -> SourceUnreadable:
    # The files in it would never be read, and nobody would know.
    return SourceUnreadable(
        f"{path} is a folder, and the pattern asks for files",
        remedy="to read the files in it, write a pattern that ends in /* or **; otherwise move or "
        "rename the folder.",
    )


def _local_parts(pattern: str) -> tuple[str, list[str]]:
    """Return the folder before the first wildcard, as it is written, and the components after."""
    written = pattern.split("/")
    folders, _ = split(written)
    folder = "/".join(folders)
    parts = [part for part in written[len(folders) :] if part]
    return folder.rstrip("/") or ("/" if pattern.startswith("/") else ""), parts


def _walk(folder: str, parts: Sequence[str], only_files: bool) -> Iterator[str]:
    """Yield the matching files below a folder, relative to it; some may repeat.

    :param only_files: raise SourceUnreadable if a folder matches
    """
    if not parts:
        return
    part, *rest = parts
    if part == ANY_FOLDERS:
        for below in _folders_below(folder):
            for name in _walk(os.path.join(folder, below), rest or ["*"], only_files):
                yield os.path.join(below, name)
        return
    matching = [(part, os.path.join(folder, part))]
    if has_wildcard(part):
        matching = [(each.name, each.path) for each in _entries(folder) if fits(part, each.name)]
    for name, path in matching:
        mode = _mode(path)
        if not rest and S_ISREG(mode):
            yield name
        elif not rest and only_files and S_ISDIR(mode):
            raise _folder_error(path)
        elif rest and S_ISDIR(mode):
            for below in _walk(path, rest, only_files):
                yield os.path.join(name, below)


def _mode(path: str) -> int:
    """Return what a path is, for the functions of `stat`; 0 if a link leads nowhere.

    `os.path.isfile` would pass over a file that cannot be looked at, and nobody would know.

    :raises OSError: it cannot be looked at
    """
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return 0
        raise


def _folders_below(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a folder, as "", and all folders below it, without hidden ones and cycles of links."""
    real = os.path.realpath(folder)
    if real in above:
        return
    yield ""
    for entry in _entries(folder):
        if is_hidden(entry.name):
            continue
        is_folder = S_ISDIR(_mode(entry.path)) if entry.is_symlink() else entry.is_dir()
        if is_folder:
            for below in _folders_below(entry.path, (*above, real)):
                yield os.path.join(entry.name, below)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _check_links(paths: Iterable[str]) -> None:
    """Raise SourceUnreadable if two paths are one file: its rows would count twice."""
    root = home()
    seen: dict[tuple[int, int], str] = {}
    for path in sorted(paths):
        full = os.path.join(root, path)
        try:
            info = os.stat(full)
        except FileNotFoundError:
            continue  # it has just been deleted
        other = seen.setdefault((info.st_dev, info.st_ino), full)
        # Hard links are separate files.
        if other != full and os.path.realpath(other) == os.path.realpath(full):
            raise SourceUnreadable(
                f"{other} and {path} are one file, by a symbolic link: its rows would count twice",
                remedy="write a pattern that matches only one of them.",
            )


def _find_remote(pattern: str) -> set[str]:
    scheme, authority, path = split_uri(pattern)
    # as Hadoop resolves it, without `.`, `..` and empty ones
    parts = [part for part in posixpath.normpath(f"/{path}").split("/") if part]
    if not parts:
        return set()
    filesystem, root = _remote(scheme, authority)
    _forget_listings(filesystem)
    folders, wanted = split(parts)
    folder = "/".join(folders)
    selector = fs.FileSelector(
        f"{root}{folder}".rstrip("/") or "/",
        allow_not_found=True,
        recursive=len(wanted) > 1 or wanted[-1] == ANY_FOLDERS,
    )
    listed = filesystem.get_file_info(selector)
    if (
        not listed
        and filesystem.get_file_info(root.rstrip("/") or "/").type == fs.FileType.NotFound
    ):
        raise SourceUnreadable(f"{scheme}://{authority} does not exist")
    paths = set()
    for info in listed:
        below = _below(info.path, f"{root}{folder}")
        if not matches(wanted, below.split("/")):
            continue
        if info.type == fs.FileType.Directory and asks_for_files(wanted):
            raise _folder_error(f"{scheme}://{info.path}")
        if info.type == fs.FileType.File:
            paths.add(f"{scheme}://{authority}/" + "/".join(filter(None, [folder, below])))
    return paths


def _below(path: str, folder: str) -> str:
    # Some file systems list paths without the slash that their root starts with.
    return path.lstrip("/").removeprefix(folder.strip("/")).removeprefix("/")


# --- inspect and open ----------------------------------------------------------------------------


def stat(path: str) -> Stat:
    """Inspect a file; raise FileNotFoundError if it does not exist or is not a file."""
    filesystem, inner = open_filesystem(path)
    _forget_listings(filesystem)
    info = filesystem.get_file_info(inner)
    if info.type != fs.FileType.File:
        raise FileNotFoundError(f"{locate(path)} is not a file")
    return Stat(size=info.size or 0, mtime_ns=info.mtime_ns or 0, etag=_etag(filesystem, inner))


def look(path: str) -> fs.FileInfo:
    """Return what is at a path, which may be nothing.

    :raises SourceUnreadable: its file system does not tell, as of a folder that may not be searched
    """
    filesystem, inner = open_filesystem(path)
    _forget_listings(filesystem)
    try:
        return filesystem.get_file_info(inner)
    except OSError as error:
        raise SourceUnreadable(f"{locate(path)} cannot be looked at: {error}") from error


def of_each(paths: Iterable[str], call: Callable[[str], Value]) -> list[Value]:
    """Return what a function makes of each file, in their order.

    An object store answers each question after some milliseconds, so many are asked at once.

    :raises Exception: what the call for the first of them raises that fails
    """
    paths = [*paths]
    if not any(map(is_uri, paths)):
        return [call(path) for path in paths]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [*pool.map(call, paths)]


def open_filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path, and the path within it."""
    if not is_uri(path):
        return fs.LocalFileSystem(), locate(path)
    scheme, authority, rest = split_uri(path)
    filesystem, root = _remote(scheme, authority)
    return filesystem, f"{root}{rest}"


@cache
def _remote(scheme: str, authority: str) -> tuple[fs.FileSystem, str]:
    """Return a file system and its root, which ends with a slash."""
    known = "s3" if scheme in S3_SCHEMES else scheme
    try:
        filesystem, root = fs.FileSystem.from_uri(f"{known}://{authority}/")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        filesystem, root = _fsspec(scheme, authority, error)
    return filesystem, root.rstrip("/") + "/"


def _fsspec(scheme: str, authority: str, refusal: Exception) -> tuple[fs.FileSystem, str]:
    try:
        from fsspec.core import url_to_fs

        filesystem, root = url_to_fs(f"{scheme}://{authority}/")
    except (ImportError, ValueError, OSError) as error:
        raise SourceUnreadable(
            f"{scheme}://{authority} cannot be read: pyarrow: {refusal}; fsspec: {error}",
            remedy="install the fsspec package for this scheme, or what pyarrow needs for it.",
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), root


def _forget_listings(filesystem: Any) -> None:
    # fsspec may use an old listing, which hides a change of a file.
    if handler := getattr(filesystem, "handler", None):
        handler.fs.invalidate_cache()


def _etag(filesystem: Any, path: str) -> str:
    if isinstance(filesystem, fs.LocalFileSystem):
        return ""
    if handler := getattr(filesystem, "handler", None):
        known = handler.fs.info(path)
    else:
        with filesystem.open_input_file(path) as file:
            known = {name: value.decode() for name, value in (file.metadata() or {}).items()}
    lower = {str(name).lower(): value for name, value in known.items()}
    return str(lower.get("etag") or "").strip('"')
