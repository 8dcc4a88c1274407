"""Where a driver imports pyspark from, if an archive and an installation are at hand."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from reliability.cli import doctor
from reliability.core.errors import NotPossible, SparkNotSupported
from reliability.spark import driver
from reliability.spark.check import local_spark
from reliability.spark.imports import ARCHIVE, prefer_installed_pyspark, two_releases
from reliability.spark.supported import check_release


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


@pytest.mark.parametrize(("size", "verdict"), [(7, "WARNING"), (8, "FAIL")])
def test_doctor_sees_pyspark_client_file_by_file(tmp_path, monkeypatch, size, verdict):
    """uv unpacks both at once: which of them a file is of differs from file to file."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "conf.py").write_text("a = 1 #")
    record = f"pyspark/conf.py,sha256=x,{size}\npyspark/jars/a.jar,sha256=x,9\n"
    for name, files in {"pyspark": record, "pyspark_client": ""}.items():
        (info := tmp_path / f"{name}-4.3.0.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.3.0\n"
        (info / "METADATA").write_text(metadata)
        (info / "RECORD").write_text(files)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    [found] = doctor._pyspark()
    assert found.verdict is doctor.CheckStatus[verdict]
    assert "pip install --force-reinstall --no-deps pyspark==4.3.0" in found.todo


@pytest.mark.parametrize("release", ["3.5.9", "5.0.0"])
def test_another_spark_is_refused_by_driver_check_and_doctor(monkeypatch, release):
    """Spark 3.5 failed in the middle, as if by an error of the process function."""
    with pytest.raises(SparkNotSupported, match=f"this is Spark {release}"):
        check_release(release)
    monkeypatch.setattr(doctor, "version", lambda _: release)
    [found] = doctor._pyspark()
    assert found.verdict is doctor.CheckStatus.FAIL
    assert "docs/deployment/versions.md" in found.todo
    assert "Remedy(" not in found.todo
    monkeypatch.setattr("pyspark.__version__", release)
    with pytest.raises(SparkNotSupported), local_spark([]):
        pass


@pytest.mark.parametrize("release", ["4.0.0", "4.3.0", "4.2.0.dev3"])
def test_each_spark_4_is_taken(release):
    check_release(release)


def test_a_driver_refuses_another_spark_before_it_asks_it_for_anything(monkeypatch):
    spark = SimpleNamespace(version="3.5.9")
    monkeypatch.setattr(driver, "own_session", lambda _: nullcontext(spark))
    monkeypatch.setattr(driver, "load_topology", lambda *_: None)
    grant = SimpleNamespace(topology="shop")
    nobody: Any = None
    submission: Any = SimpleNamespace(grant=grant, module="shop", engine="submit", step="process")
    with pytest.raises(SparkNotSupported, match=r"this is Spark 3\.5\.9"):
        driver.process_attempt(nobody, submission)
