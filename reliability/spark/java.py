"""Find a Java that can start Spark if the environment has none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from shutil import which

JAVAS = (17, 21, 25)
INSTALLED = Path("/usr/lib/jvm")
# Spark's launcher requires this module; a Java that was built without it does not start.
_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


def java_home(environment: Mapping[str, str], installed: Path = INSTALLED) -> str | None:
    """Return the JAVA_HOME that spark-submit needs; None if `java` is on the PATH.

    :param installed: the folder of the host's Java installations, searched if the environment has
        neither JAVA_HOME nor `java`
    """
    home = environment.get("JAVA_HOME")
    if home and which(str(Path(home) / "bin" / "java")):
        return home
    if which("java", path=environment.get("PATH", os.defpath)):
        return None
    found = {_version(folder): str(folder) for folder in sorted(installed.glob("*"), reverse=True)}
    return next((found[version] for version in JAVAS if version in found), home)


def _version(home: Path) -> int:
    """Return the version of the Java in a folder; 0 if it cannot start Spark."""
    try:
        release = (home / "release").read_text()
    except OSError:
        return 0
    version = _VERSION.search(release)
    can_start = _MODULE in release and which(str(home / "bin" / "java"))
    return int(version[1]) if version and can_start else 0
