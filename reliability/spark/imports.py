"""Where a driver and its Python workers import pyspark and the pipeline's code from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

CODE = "RELIABILITY_CODE"  # the folders with code of the pipeline that is not installed
PACKAGE = Path(__file__).resolve().parent
ARCHIVE = Path("pyspark") / "python" / "lib" / "pyspark.zip"
# pip and Maven write differently what follows: 4.2.0.dev3, 4.2.0-preview3
_RELEASE = r"(\d+\.\d+\.\d+)"
_JAR = re.compile(rf"spark-core_[\d.]+-{_RELEASE}")
_VERSION = re.compile(rf"__version__[^=]*= *[\"']{_RELEASE}")


@dataclass(frozen=True, slots=True)
class TwoReleases:
    """A pyspark whose Python files and jars are of two releases.

    pip unpacks pyspark-client over pyspark, whatever the release of either.
    """

    files: str
    jars: str

    def __str__(self) -> str:
        return (
            f"pyspark's Python files are of {self.files} and its jars of {self.jars}, as if "
            "pyspark-client was installed over it"
        )

    @property
    def command(self) -> str:
        """What mends it."""
        return (
            "pip uninstall -y pyspark-client; "
            f"pip install --force-reinstall --no-deps pyspark=={self.jars}"
        )


def two_releases(folder: Path | None = None) -> TwoReleases | None:
    """Return what the folder `pyspark` mixes, by default the installed one; None if nothing."""
    if folder is None:
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            return None
        folder = Path(spec.origin).parent
    jars = next(filter(None, (_JAR.match(jar.name) for jar in folder.glob("jars/*.jar"))), None)
    try:
        files = _VERSION.search((folder / "version.py").read_text())
    except OSError:  # in an archive, which is of one release
        return None
    if not jars or not files or files[1] == jars[1]:
        return None
    return TwoReleases(files[1], jars[1])


def files_of_client() -> int | None:
    """Return how many Python files of pyspark are not its own; None without pyspark-client.

    Which of the two was unpacked last differs from file to file: some tools unpack both at once.
    """
    try:
        distribution("pyspark-client")
        files = distribution("pyspark").files or []
    except PackageNotFoundError:
        return None
    python = [file for file in files if file.suffix == ".py" and file.size is not None]
    sizes = ((file.size, Path(str(file.locate()))) for file in python)
    return sum(not path.is_file() or path.stat().st_size != size for size, path in sizes)


def prefer_installed_pyspark(path: list[str]) -> None:
    """Remove `…/pyspark/python/lib/pyspark.zip` from a module path that also has `…`.

    spark-submit puts the archive first. Both have the same files, but an archive has no byte code:
    every process would compile pyspark, which takes most of a second. The archive stays if it is
    of another installation, or if the installed files are not of the release of the jars.
    """
    for entry in [*path]:
        if entry.endswith(str(ARCHIVE)):
            folder = Path(entry).parents[3]
            if str(folder) in path and not two_releases(folder / "pyspark"):
                path.remove(entry)


def drop_package_folder(path: list[str]) -> None:
    """Take the folder of this package off a module path.

    spark-submit runs `process_batch.py` as a file, so Python puts its folder first. A module of the
    pipeline that is called `session` or `values` would then be ours.
    """
    path[:] = [entry for entry in path if Path(entry).resolve() != PACKAGE]


def find_code(path: list[str]) -> None:
    """Append the folders that RELIABILITY_CODE names to a module path.

    Airflow too puts a DAG folder last. On PYTHONPATH, a DAG file with the name of a standard module
    would replace that module.
    """
    folders = os.environ.get(CODE, "").split(os.pathsep)
    path += [folder for folder in folders if folder and folder not in path]
