"""Files, local and remote: find them, look at them, open them.

A plain path is local. A URI is what pyarrow can reach (s3, gs, hdfs, abfs), else what fsspec can;
`file:` is a plain path, so that a file has one name whichever way the pattern is written.
"""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from reliability.core.errors import SourceUnreadable
from reliability.settings import home

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_GLOB = re.compile(r"[*?[]")
# Spark's names for what pyarrow knows under another one
_PYARROW_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What a file system tells of a file without reading it; 0 or empty is not told."""

    size: int
    mtime_ns: int
    etag: str


def find_files(pattern: str) -> list[str]:
    """Return the files that match a glob, sorted: plain paths as the pattern has them, or URIs."""
    pattern = _plain(pattern)
    if _is_uri(pattern):
        try:
            return _find_remote(pattern)
        except OSError as error:  # pyarrow's errors of input and output are among them
            raise SourceUnreadable(f"{pattern} cannot be listed: {error}") from error
    found = glob.glob(pattern, root_dir=home(), recursive=True)
    return sorted(path for path in found if (home() / path).is_file())


def locate(path: str) -> str:
    """Return where a file lies now, as Spark takes it.

    A relative path stays relative in the ledger: a clone that moves, or a deployment behind a
    symbolic link, must not make new source items of files that were counted.
    """
    return path if _is_uri(path) else str(home() / path)


def name_in_spark(uri: str) -> str:
    """Return what `locate` gives for the file that Spark calls by this, its own, URI."""
    parsed = urlparse(uri)
    path = unquote(parsed.path)
    return path if parsed.scheme == "file" else f"{parsed.scheme}://{parsed.netloc}{path}"


def stat(path: str) -> Stat:
    """Look at a file; raise FileNotFoundError if there is none."""
    from pyarrow.fs import FileType

    filesystem, inner = open_filesystem(path)
    _forget_listings(filesystem)
    info = filesystem.get_file_info(inner)
    if info.type != FileType.File:
        raise FileNotFoundError(f"{locate(path)} is no file")
    return Stat(size=info.size or 0, mtime_ns=info.mtime_ns or 0, etag=_etag(filesystem, inner))


def open_filesystem(path: str) -> tuple[FileSystem, str]:
    """Return the file system of a path, and the path in it."""
    from pyarrow.fs import LocalFileSystem

    if not _is_uri(path):
        return LocalFileSystem(), locate(path)
    scheme, authority, rest = _split(path)
    filesystem, root = _remote(scheme, authority)
    return filesystem, f"{root}{rest}"


def _is_uri(path: str) -> bool:
    return "://" in path


def _plain(path: str) -> str:
    if not path.startswith("file:"):
        return path
    return unquote("/" + path.removeprefix("file:").lstrip("/"))


def _split(uri: str) -> tuple[str, str, str]:
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    return scheme, authority, path


@cache
def _remote(scheme: str, authority: str) -> tuple[FileSystem, str]:
    """Return a file system and its root, which ends with a slash."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    known = _PYARROW_SCHEMES.get(scheme, scheme)
    try:
        filesystem, root = FileSystem.from_uri(f"{known}://{authority}/")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        filesystem, root = _fsspec(scheme, authority, error)
    return filesystem, root.rstrip("/") + "/"


def _fsspec(scheme: str, authority: str, refusal: Exception) -> tuple[FileSystem, str]:
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    try:
        from fsspec.core import url_to_fs

        filesystem, root = url_to_fs(f"{scheme}://{authority}/")
    except (ImportError, ValueError, OSError) as error:
        raise SourceUnreadable(
            f"{scheme}://{authority} cannot be reached: pyarrow says {refusal}, fsspec {error}",
            remedy="install the fsspec package for it, or what pyarrow lacks.",
        ) from error
    return PyFileSystem(FSSpecHandler(filesystem)), root


def _forget_listings(filesystem: Any) -> None:
    # fsspec may answer from an old listing, and a file that changed would not show.
    if handler := getattr(filesystem, "handler", None):
        handler.fs.invalidate_cache()


def _etag(filesystem: Any, path: str) -> str:
    # pyarrow's own file systems do not tell it, fsspec's do.
    handler = getattr(filesystem, "handler", None)
    if handler is None:
        return ""
    info = handler.fs.info(path)
    return str(info.get("ETag") or info.get("etag") or "").strip('"')


def _find_remote(pattern: str) -> list[str]:
    from pyarrow.fs import FileSelector, FileType

    scheme, authority, path = _split(pattern)
    filesystem, root = _remote(scheme, authority)
    _forget_listings(filesystem)
    parts = path.split("/")
    literal = next((n for n, part in enumerate(parts) if _GLOB.search(part)), len(parts) - 1)
    folder = "/".join(parts[:literal])
    selector = FileSelector(
        f"{root}{folder}".rstrip("/") or "/",
        allow_not_found=True,
        recursive=literal < len(parts) - 1 or parts[-1] == "**",
    )
    wanted = re.compile(_glob_as_regex("/".join(parts[literal:])))
    found = []
    for info in filesystem.get_file_info(selector):
        below = _below(info.path, f"{root}{folder}")
        if info.type == FileType.File and wanted.fullmatch(below):
            found.append(f"{scheme}://{authority}/" + "/".join(filter(None, [folder, below])))
    return sorted(found)


def _below(path: str, folder: str) -> str:
    # Some file systems list paths without the slash that their root starts with.
    return path.lstrip("/").removeprefix(folder.strip("/")).lstrip("/")


def _glob_as_regex(pattern: str) -> str:
    """Translate a glob as Python's `glob` reads it: no wildcard matches a leading dot.

    >>> bool(re.fullmatch(_glob_as_regex("**/part-?.*"), "a/b/part-1.parquet"))
    True
    >>> bool(re.fullmatch(_glob_as_regex("**/*.parquet"), "a/.b/part-1.parquet"))
    False
    """
    *folders, name = pattern.split("/")
    return "".join("(?:(?!\\.)[^/]+/)*" if f == "**" else _part(f) + "/" for f in folders) + (
        "(?:(?!\\.)[^/]+/)*(?!\\.)[^/]+" if name == "**" else _part(name)
    )


def _part(part: str) -> str:
    if not _GLOB.search(part):
        return re.escape(part)
    pieces = re.split(r"(\*|\?|\[[^]]+\])", part)
    translated = "".join(_piece(piece) for piece in pieces)
    return translated if part[0] == "." else f"(?!\\.){translated}"


def _piece(piece: str) -> str:
    if piece == "*":
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if piece.startswith("[") and piece.endswith("]"):
        return f"[^{piece[2:]}" if piece.startswith("[!") else piece
    return re.escape(piece)
