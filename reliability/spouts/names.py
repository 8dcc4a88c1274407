"""Names of files: where they lead, and what Spark makes of them.

A plain path is local, and so is `file:`; anything else with `://` is a URI.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from reliability.settings import home

# Spark takes a path for a glob; these mean something in one.
GLOB_IN_SPARK = frozenset("{}[]*?\\")
_FILE = "file:"


def locate(path: str) -> str:
    """Return where a file lies now, as Spark takes it.

    A relative path stays relative in the ledger: a clone that moves, or a deployment behind a
    symbolic link, must not make new source items of files that were counted.
    """
    return path if is_uri(path) else str(home() / path)


def is_uri(path: str) -> bool:
    """Say whether a path or pattern is not local; `without_file_scheme` comes first."""
    return "://" in path


def split_uri(uri: str) -> tuple[str, str, str]:
    """Return scheme, authority, and the path without its first slash."""
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    return scheme, authority, path


def without_file_scheme(pattern: str) -> str:
    """Return the path of a `file:` URI, and anything else as it is.

    >>> without_file_scheme("file:///a%20b/*"), without_file_scheme("file:/a")
    ('/a b/*', '/a')
    """
    if not pattern.startswith(_FILE):
        return pattern
    return unquote("/" + pattern.removeprefix(_FILE).lstrip("/"))


def name_in_spark(uri: str) -> str:
    """Return what `locate` gives for the file that Spark calls by this, its own, URI."""
    parsed = urlsplit(uri)
    path = unquote(parsed.path)
    return path if parsed.scheme == "file" else f"{parsed.scheme}://{parsed.netloc}{path}"
