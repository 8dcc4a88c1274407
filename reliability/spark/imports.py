"""Import pyspark from where it is installed, not from the archive inside of it."""

from __future__ import annotations

from pathlib import Path

ARCHIVE = Path("pyspark") / "python" / "lib" / "pyspark.zip"


def prefer_installed_pyspark(path: list[str]) -> None:
    """Take `…/pyspark/python/lib/pyspark.zip` off a module path that also has its `…`.

    spark-submit puts the archive first. Both hold the same files, but nothing can keep byte code
    beside an archive: every process would compile pyspark anew, most of a second. An archive of
    another installation stays, its version may differ.
    """
    for entry in [*path]:
        if entry.endswith(str(ARCHIVE)) and str(Path(entry).parents[3]) in path:
            path.remove(entry)
