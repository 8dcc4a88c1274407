"""Where a driver imports pyspark from, if an archive and an installation are at hand."""

from __future__ import annotations

import sys

import pytest

from reliability.cli import doctor
from reliability.core.errors import NotPossible
from reliability.spark.check import local_spark
from reliability.spark.imports import ARCHIVE, prefer_installed_pyspark, two_releases


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that lays files of one release over jars of 4.3.0."""

    def lay(files):
        folder = tmp_path / "pyspark"
        (folder / "jars").mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "version.py").write_text(f'__version__: str = "{files}"\n')
        (folder / "jars" / "spark-core_2.13-4.3.0.jar").touch()
        monkeypatch.syspath_prepend(str(tmp_path))
        for module in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
            monkeypatch.delitem(sys.modules, module)
        return str(tmp_path)

    return lay


def path_after(site):
    path = [str(site + "/" + str(ARCHIVE)), site, "elsewhere/" + str(ARCHIVE)]
    prefer_installed_pyspark(path)
    return path


def test_the_archive_is_left_out_if_the_same_release_is_installed(install):
    site = install("4.3.0")
    assert two_releases() is None
    assert path_after(site) == [site, "elsewhere/" + str(ARCHIVE)]
    assert not [*doctor._pyspark()]


def test_the_archive_stays_if_pyspark_client_was_installed_over_pyspark(install):
    """Every Python function would fail: its files of another release do not fit the JVM."""
    site = install("4.1.3")
    assert len(path_after(site)) == 3


def test_doctor_and_check_print_what_mends_two_releases_of_pyspark(install):
    install("4.1.3")
    mends = "pip install --force-reinstall --no-deps pyspark==4.3.0"
    [found] = doctor._pyspark()
    assert found.verdict is doctor.CheckStatus.FAIL
    assert "files are of 4.1.3 and its jars of 4.3.0" in found.what
    assert mends in found.todo
    with pytest.raises(NotPossible, match=mends), local_spark([]):
        pass


def test_an_archive_alone_is_of_one_release(tmp_path):
    assert two_releases(tmp_path / "pyspark.zip" / "pyspark") is None
