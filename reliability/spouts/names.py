"""Names of files: one for each file, however the pattern is spelled, and what Spark makes of it.

A local path is relative to RELIABILITY_HOME if it lies there, else absolute, without `.`, `..` and
doubled slashes; `file:` is a local path. Anything else with `://` is a URI, and keeps the scheme
that the pattern has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from reliability.core.errors import SourceUnreadable
from reliability.settings import home, named_home
from reliability.spouts.patterns import is_hidden

# Spark takes a path for a glob; these mean something in one.
GLOB_IN_SPARK = frozenset("{}[]*?\\")
S3_SCHEMES = ("s3", "s3a", "s3n")
# Each is one store: which of its schemes a URI has depends on who reads it, and how.
STORES = (S3_SCHEMES, ("abfs", "abfss"), ("wasb", "wasbs"))
_FILE, _LOCALHOST = "file:", "//localhost/"


def locate(path: str) -> str:
    """Return where a file lies now, as Spark takes it.

    A relative path stays relative in the ledger: a clone that moves, or a deployment behind a
    symbolic link, must not make new source items of files that were counted.
    """
    return path if is_uri(path) else str(home() / path)


def is_uri(path: str) -> bool:
    """Say whether a path or pattern is not local; `without_file_scheme` comes first."""
    return "://" in path


def same_store(scheme: str) -> tuple[str, ...]:
    """Return the schemes of the store that this one belongs to; the first is that of its names."""
    return next((schemes for schemes in STORES if scheme in schemes), (scheme,))


def split_uri(uri: str) -> tuple[str, str, str]:
    """Return scheme, authority, and the path without its first slash."""
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    return scheme, authority, path


def without_file_scheme(pattern: str) -> str:
    """Return the path of a `file:` URI, and anything else as it is.

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
    own = str(home())
    path = _without_dots(os.path.join(own, folder))
    if os.path.isabs(folder) and named_home() is None:
        return path  # the working folder may be another one in the next process
    if path == own or path.startswith(own.rstrip("/") + "/"):
        return path[len(own) :].lstrip("/")
    parts = path.strip("/").split("/")
    for length in range(len(parts) + 1):  # the home may be spelled by way of a symbolic link
        if _is_same_folder("/" + "/".join(parts[:length]), own):
            return "/".join(parts[length:])
    return path


def _without_dots(path: str) -> str:
    """Resolve `.`, `..` and doubled slashes by the text; `..` behind a symbolic link by the folder.

    Only there the text would lead elsewhere. Other links stay: they may lead elsewhere tomorrow.
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


def spellings(found: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names under which a ledger may know each file; the first is the one it has now.

    Earlier releases wrote paths as the pattern had them, absolute ones inside RELIABILITY_HOME too,
    and URIs with the scheme that stood there.

    :param found: path -> the path as the pattern spells it
    """
    homes = (str(home()), os.path.abspath(named_home() or ""))
    known = {}
    for path, as_in_pattern in found.items():
        scheme, _, rest = path.partition("://")
        if not is_uri(path):
            names = [path, *(os.path.join(place, path) for place in homes)]
        else:
            names = [f"{s}://{rest}" for s in same_store(scheme)]
        known[path] = list(dict.fromkeys([*names, as_in_pattern]))
    return known


def check_name(path: str) -> None:
    """Raise SourceUnreadable if Spark cannot read a file of this name, be it as whole as it is."""
    if reason := _why_unreadable(path):
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise SourceUnreadable(
            f"Spark cannot read {shown}: {reason}",
            remedy="rename it, or write a pattern that does not match it; nothing was allocated.",
        )


def is_utf8(path: str) -> bool:
    """Say whether a name is text: Linux takes any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _why_unreadable(path: str) -> str:
    place = "/" + split_uri(path)[2] if is_uri(path) else locate(path)
    name = place.rpartition("/")[2]
    if not is_utf8(place):
        return "its name, or a folder's, is not UTF-8"
    if is_hidden(name):
        return "it passes over names that start with _ or . or end in ._COPYING_"
    # What stands before a colon Hadoop takes for a scheme, where it has the name alone: in the
    # name of a checksum file, and for each folder of a path that it takes for a glob.
    if ":" in name or (":" in place and GLOB_IN_SPARK & {*place}):
        return "there is a colon in its name, or in a folder's, which Hadoop takes for a scheme"
    if {"", ".", ".."} & {*place[1:].split("/")}:
        return "Hadoop takes its name for another one: a part of it is empty, . or .."
    return ""


def name_in_spark(uri: str) -> str:
    """Return what `locate` gives for the file that Spark calls by this, its own, URI."""
    parsed = urlsplit(uri)
    path = unquote(parsed.path)
    return path if parsed.scheme == "file" else f"{parsed.scheme}://{parsed.netloc}{path}"
