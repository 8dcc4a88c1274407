"""Names of files: a file has one name, however the pattern is spelled.

A local path is relative to RELIABILITY_HOME if it lies there, otherwise absolute. It has no `.`,
`..` or doubled slashes. A `file:` URI is a local path. Any other name with `://` is a URI, and
keeps the scheme of the pattern.
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from reliability.core.errors import SourceUnreadable
from reliability.deployment.settings import home, named_home
from reliability.spouts.patterns import is_hidden

# Spark reads a path as a glob; these characters have a meaning in one.
GLOB_IN_SPARK = frozenset("{}[]*?\\")
S3_SCHEMES = ("s3", "s3a", "s3n")
# Each is one store, which its readers know by different schemes.
STORES = (S3_SCHEMES, ("abfs", "abfss"), ("wasb", "wasbs"))
_FILE, _LOCALHOST = "file:", "//localhost/"


def locate(path: str) -> str:
    """Return the path or URI by which Spark finds a file now.

    The ledger keeps relative paths. If a clone moves, or a deployment lies behind a symbolic link,
    files that were counted must not become new source items.
    """
    return path if is_uri(path) else str(home() / path)


def is_uri(path: str) -> bool:
    """Say whether a path or pattern is remote; call `without_file_scheme` on a pattern first."""
    return "://" in path


def split_uri(uri: str) -> tuple[str, str, str]:
    """Return scheme, authority, and the path without its first slash."""
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    return scheme, authority, path


def without_file_scheme(pattern: str) -> str:
    """Return the path of a `file:` URI; return anything else unchanged.

    >>> without_file_scheme("file://localhost/a%20b/*"), without_file_scheme("file:/a")
    ('/a b/*', '/a')
    """
    if pattern[: len(_FILE)].lower() != _FILE:
        return pattern
    path = pattern[len(_FILE) :]
    if path[: len(_LOCALHOST)].lower() == _LOCALHOST:
        path = path[len(_LOCALHOST) :]
    return unquote("/" + path.lstrip("/"), errors="surrogateescape")


def identity_of_folder(folder: str) -> str:
    """Return the one path of a local folder: relative to RELIABILITY_HOME if it lies there."""
    root = str(home())
    path = _without_dots(os.path.join(root, folder))
    if os.path.isabs(folder) and named_home() is None:
        return path  # the next process may have another working folder
    if path == root or path.startswith(root.rstrip("/") + "/"):
        return path[len(root) :].lstrip("/")
    parts = path.strip("/").split("/")
    for length in range(len(parts) + 1):  # the path may lead to the home through a symbolic link
        if _is_same_folder("/" + "/".join(parts[:length]), root):
            return "/".join(parts[length:])
    return path


def _without_dots(path: str) -> str:
    """Resolve `.`, `..` and doubled slashes.

    Only a symbolic link before `..` is resolved, as the text would lead to another folder. Other
    links stay: their targets may change.
    """
    place = "/"
    for part in path.split("/"):
        if part == "..":
            place = os.path.dirname(os.path.realpath(place) if os.path.islink(place) else place)
        elif part not in ("", "."):
            place = os.path.join(place, part)
    return place


def _is_same_folder(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def names_of(path: str) -> list[str]:
    """Return the names that the ledger may have for a file; the first is the current one.

    A file inside RELIABILITY_HOME has an absolute path in it if it was emitted before the variable
    was set.
    """
    if is_uri(path):
        return [identity_of_uri(path)]
    homes = (str(home()), os.path.abspath(named_home() or ""))
    return list(dict.fromkeys([path, *(os.path.join(place, path) for place in homes)]))


def identity_of_uri(uri: str) -> str:
    """Return the name that the ledger gives to a URI: with the first scheme of its store.

    A local path stays as it is.
    """
    scheme, found, rest = uri.partition("://")
    schemes = next((schemes for schemes in STORES if scheme in schemes), [scheme])
    return f"{schemes[0]}{found}{rest}"


def identity_of_file(path: str) -> str:
    """Return the name that the ledger gives to a file, from any spelling of it.

    >>> identity_of_file("s3a://bucket/a.csv")
    's3://bucket/a.csv'
    """
    path = without_file_scheme(path)
    if is_uri(path):
        return identity_of_uri(path)
    folder, _, name = path.rpartition("/")
    folder = identity_of_folder(folder or ("/" if path.startswith("/") else "."))
    return f"{folder}/{name}" if folder else name


def identity_of_decoded(path: str) -> str:
    """Return the name that the ledger gives to a file, from a path or URI that is not encoded.

    >>> identity_of_decoded("file:/lake/a%20b")
    '/lake/a%20b'
    """
    for scheme in ("file://", "file:"):
        if path.startswith(f"{scheme}/"):
            return identity_of_file(path[len(scheme) :])
    return identity_of_file(path)


def check_name(path: str) -> None:
    """Raise SourceUnreadable if Spark cannot read a file of this name, whatever is in it."""
    if reason := _why_unreadable(path):
        printable = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise SourceUnreadable(
            f"Spark cannot read {printable}: {reason}",
            remedy="rename it, or write a pattern that does not match it; nothing was allocated.",
        )


def is_utf8(path: str) -> bool:
    """Say whether a name is valid UTF-8: Linux allows any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _why_unreadable(path: str) -> str:
    full = "/" + split_uri(path)[2] if is_uri(path) else locate(path)
    name = full.rpartition("/")[2]
    if not is_utf8(full):
        return "its name, or a folder's, is not UTF-8"
    if is_hidden(name):
        return "Spark ignores names that start with _ or . or end in ._COPYING_"
    # Where Hadoop has a name alone, it reads what precedes a colon as a scheme: in the name of a
    # checksum file, and in each folder of a path that it reads as a glob.
    if ":" in name or (":" in full and GLOB_IN_SPARK & {*full}):
        return "its name, or a folder's, has a colon, and Hadoop reads what precedes it as a scheme"
    if {"", ".", ".."} & {*full[1:].split("/")}:
        return "a part of its name is empty, . or .., and Hadoop changes such names"
    return ""


def name_in_spark(uri: str) -> str:
    """Convert a URI that Spark returns for a file into what `locate` returns for it."""
    parsed = urlsplit(uri)
    path = unquote(parsed.path)
    return path if parsed.scheme == "file" else f"{parsed.scheme}://{parsed.netloc}{path}"
