"""The fingerprint of a topology's code, which shows a person what code an attempt ran.

It holds the source digests of the user's modules and the versions of installed packages, but no
path. Modules are found by reading import statements, not in `sys.modules`: the same code has the
same fingerprint in every driver. Modules imported by a name in a string
(`import_module("shop.prices")`) are not found, nor is data that the code reads.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
from sys import stdlib_module_names
from typing import Any

from reliability.core.definitions import Topology
from reliability.core.names import DISTRIBUTION
from reliability.core.state import digest_of

UNKNOWN = "unknown"
ALWAYS = frozenset({"numpy", "pandas", "pyarrow", "pyspark", "reliability"})
# Spark puts some of these on the path from archives of its own, where they look like user code.
_BY_VERSION = ALWAYS | {"py4j", "reliability_airflow"}
# What is imported -> what is installed, where the name is another project's.
_INSTALLED_AS = {"reliability": DISTRIBUTION}
_WITH_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
_DIGITS = 16
_PARSER = threading.Lock()
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFingerprint:
    """The code that ran: module -> digest of its source, package -> version."""

    modules: Mapping[str, str]
    packages: Mapping[str, str]

    @property
    def contents(self) -> dict[str, Any]:
        return {"modules": dict(self.modules), "packages": dict(self.packages)}

    @property
    def digest(self) -> str:
        return digest_of(self.contents)


def fingerprint(topology: Topology) -> CodeFingerprint:
    """Read the code of a topology: its module, its steps' modules, and all that they import.

    What cannot be read is `unknown`, not an error: a missing fingerprint must not fail an attempt.
    """
    roots = {topology.module, *(_module_of(step.process) for step in topology.steps)} - {""}
    user_names = {_top(name): True for name in roots}
    modules = _read_all(roots, user_names)
    foreign = {name for name, is_user_code in user_names.items() if not is_user_code}
    return CodeFingerprint(modules=modules, packages=_versions(foreign | ALWAYS))


def digest_of_loaded() -> str:
    """Return a digest of the user's modules that this process has loaded, as their files are now.

    The cells of a notebook are in no file: what they have imported is known from here alone.
    """
    roots = {name for name in [*sys.modules] if _is_source(_top(name))}
    modules = _read_all(roots, {_top(name): True for name in roots})
    return CodeFingerprint(modules=modules, packages={}).digest


def _read_all(roots: set[str], user_names: dict[str, bool]) -> dict[str, str]:
    """Return the digests of these modules and of the user's modules that they import.

    :param user_names: whether a top-level name is the user's; names found on the way are added
    """
    digests: dict[str, str] = {}
    seen: set[str] = set()
    pending = [name for root in roots for name in _with_parents(root)]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        digest, imports = _read(name)
        if digest or name in roots:
            digests[name] = digest or UNKNOWN
        for imported in imports:
            top = _top(imported)
            if top not in user_names:
                user_names[top] = _is_source(top)
            if user_names[top]:
                pending += _with_parents(imported)
    return digests


def _module_of(process: Callable[..., Any]) -> str:
    while isinstance(process, partial):
        process = process.func
    return getattr(process, "__module__", None) or ""


def _top(name: str) -> str:
    return name.partition(".")[0]


def _with_parents(name: str) -> list[str]:
    """Return a module with its parents: importing a.b.c runs a, a.b and a.b.c.

    >>> _with_parents("a.b.c")
    ['a', 'a.b', 'a.b.c']
    """
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


# --- one module ----------------------------------------------------------------------------------


def _read(name: str) -> tuple[str, frozenset[str]]:
    """Return the digest of a module, empty if there is none, and what it imports."""
    try:
        spec = _find(name)
        if spec is None or spec.origin is None:  # an attribute, or a folder without __init__.py
            return "", frozenset()
        source = _source(spec)
    except Exception:  # custom finders and loaders may raise anything
        return UNKNOWN, frozenset()
    package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
    return hashlib.sha256(source).hexdigest()[:_DIGITS], _imports(source, package)


def _find(name: str) -> ModuleSpec | None:
    """Find a module as an import does, without importing its parents."""
    parent, _, last = name.rpartition(".")
    if not parent:
        return find_spec(last)
    spec = _find(parent)
    if spec is None or spec.submodule_search_locations is None:
        return None
    return PathFinder.find_spec(name, spec.submodule_search_locations)


def _source(spec: ModuleSpec) -> bytes:
    origin = Path(spec.origin or "")
    if origin.suffix != ".py":
        raise OSError(f"{origin.name} is not source code")
    try:
        return origin.read_bytes()
    except NotADirectoryError:  # it is in an archive
        loader: Any = spec.loader
        source: bytes = loader.get_data(spec.origin)
        return source


def parse(source: bytes | str) -> ast.Module:
    """Do as `ast.parse`, whatever other threads parse meanwhile.

    Python up to 3.11 has one recursion counter for all parsers: a second thread in one makes it
    raise SystemError (cpython#106905), which would fail the attempt. A traceback that is printed
    parses too, and takes no lock.
    """
    with _PARSER:
        for _ in range(_TRIES):
            with suppress(SystemError):
                return ast.parse(source)
        return ast.parse(source)


@lru_cache(maxsize=4096)  # each attempt in a notebook asks for all that is loaded
def _imports(source: bytes, package: str) -> frozenset[str]:
    """Return all imports in the source, except those in `if TYPE_CHECKING` blocks."""
    return frozenset(_each_import(source, package))


def _each_import(source: bytes, package: str) -> Iterator[str]:
    try:
        pending: list[ast.AST] = [parse(source)]
    except (SyntaxError, ValueError, RecursionError):  # for another Python, and never imported here
        return
    while pending:
        match pending.pop():
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                if base := _absolute("." * level + (module or ""), package):
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in names)  # may be a module, too
            case ast.If(
                test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"),
                orelse=orelse,
            ):
                pending += orelse
            case node:
                inner = ast.iter_child_nodes(node)
                pending += (n for n in inner if isinstance(n, _WITH_STATEMENTS))


def _absolute(name: str, package: str) -> str:
    try:
        return resolve_name(name, package)
    except ImportError:  # beyond the top level
        return ""


# --- user code or installed ----------------------------------------------------------------------


def _is_source(top: str) -> bool:
    """Say whether a top-level name is user code, not Python's or an installed package."""
    if top in stdlib_module_names or top in _BY_VERSION:
        return False
    try:
        spec = _find(top)
    except Exception:  # as above
        return False
    if spec is None:
        return False
    places = spec.submodule_search_locations or [spec.origin or ""]  # of a namespace, several
    return not any(
        {"site-packages", "dist-packages"} & {*folder.parts} or any(folder.glob("*.dist-info"))
        for folder in {Path(place).parent for place in places}
    )


# --- versions ------------------------------------------------------------------------------------


def _versions(imported: set[str]) -> dict[str, str]:
    """Return the versions of the installed packages of these top-level names, and of Python."""
    versions = {"python": platform.python_version()}
    others = set()
    for name in imported - stdlib_module_names:
        try:
            versions[name] = metadata.version(_INSTALLED_AS.get(name, name)) or UNKNOWN
        except Exception:  # there is none of that name, or its installation is broken
            others.add(name)
    return versions | _providers(others - _BY_VERSION)


def _providers(imported: set[str]) -> dict[str, str]:
    """Return the versions of packages whose name differs from the imported one, such as PyYAML."""
    versions: dict[str, str] = {}
    for distribution in metadata.distributions() if imported else ():
        files = [distribution.read_text(name) or "" for name in ("top_level.txt", "RECORD")]
        listed = "\n".join(["", *files, ""])
        if any(f"\n{name}{end}" in listed for name in imported for end in "/.\n"):
            versions.setdefault(distribution.metadata["Name"] or UNKNOWN, distribution.version)
    return versions
