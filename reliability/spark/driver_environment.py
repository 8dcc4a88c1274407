"""What the driver of a step finds on this host: spark-submit, a Java, this Python, its code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from reliability.spark.imports import CODE

JAVAS = (17, 21, 25)
INSTALLED = Path("/usr/lib/jvm")
OPTIONS = "SPARK_SUBMIT_OPTS"
#: The quick compiler alone: for jobs of seconds, not of minutes. It gets the room for compiled code
#: that both have by default, which is five times what Java gives it alone.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
#: They would give a driver a session of Spark Connect, which has no JVM of its own.
_CONNECT = ("SPARK_CONNECT_MODE", "SPARK_LOCAL_REMOTE", "SPARK_REMOTE")
#: The property against the same. spark-submit has to know it before the driver makes a session.
CLASSIC = {"spark.api.mode": "classic"}
# Spark's launcher requires this module; a Java that was built without it does not start.
_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


def find_spark_submit(
    environment: Mapping[str, str] = os.environ, name: str = "spark-submit"
) -> str | None:
    """Return the path of spark-submit: in SPARK_HOME, on the PATH, or beside this Python."""
    return which(name, path=_search_path(environment))


def driver_environment(
    environment: Mapping[str, str],
    code: Sequence[str] = (),
    *,
    master: str = "",
    deploy_mode: str | None = None,
) -> dict[str, str]:
    """Return an environment for a driver, however this process was started.

    In it, spark-submit, a Java and this Python are found. It has none of Airflow's settings,
    connections and keys (G10), and no Spark Connect. Spark's properties `spark.pyspark.python` and
    `spark.pyspark.driver.python` override its Python.

    :param code: folders with the pipeline's code, for find_code in the driver
    :param master: where the executors run; unless it is local, the path of their Python is unknown,
        and PYSPARK_PYTHON stays as it is
    :param deploy_mode: `cluster` means the same for the driver's Python
    """
    found = {
        name: value
        for name, value in environment.items()
        if not name.lstrip("_").startswith(("AIRFLOW", "RELIABILITY_AIRFLOW", *_CONNECT))
    }
    found["PATH"] = _search_path(environment)
    if deploy_mode != "cluster":
        found["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        found["PYSPARK_PYTHON"] = sys.executable
    home = java_home(found)
    found.pop("JAVA_HOME", None)
    if home:
        found["JAVA_HOME"] = home
    if code:
        found[CODE] = os.pathsep.join(code)
    return found


def with_temporary_folder(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return an environment in which the driver's JVM and its Python use this temporary folder.

    A JVM that is killed deletes nothing itself. spark.local.dir, if it is set, wins for Spark's own
    files.

    >>> with_temporary_folder({}, "/tmp/of mine")["SPARK_SUBMIT_OPTS"]
    '"-Djava.io.tmpdir=/tmp/of mine"'
    """
    options = f'{environment.get(OPTIONS, "")} "-Djava.io.tmpdir={folder}"'.strip()
    return {**environment, "TMPDIR": folder, OPTIONS: options}


def quick_options(environment: Mapping[str, str]) -> str:
    """Return the options of a JVM for jobs of seconds; the last of two is the one that counts.

    >>> quick_options({"SPARK_SUBMIT_OPTS": "-XX:ReservedCodeCacheSize=512m"}).split()[1:]
    ['-XX:ReservedCodeCacheSize=240m', '-XX:ReservedCodeCacheSize=512m']
    """
    return " ".join([*QUICK, environment.get(OPTIONS, "")]).strip()


def _search_path(environment: Mapping[str, str]) -> str:
    home = environment.get("SPARK_HOME")
    folders = [
        *([str(Path(home) / "bin")] if home else []),
        *environment.get("PATH", os.defpath).split(os.pathsep),
        str(Path(sys.executable).parent),
    ]
    return os.pathsep.join(dict.fromkeys(filter(None, folders)))


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
