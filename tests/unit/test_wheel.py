"""What the wheel installs: two packages, the SQL among them, and nothing of a generic name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
# neither this checkout nor site-packages is on the path: what is found is what is installed
SEEN_FROM_OUTSIDE = """
import sys
sys.path.append(sys.argv[1])
from importlib.util import find_spec
from reliability.airflow_provider import get_provider_info
from reliability.ledger.queries import queries, sql_folder
from reliability.spark.launch import process_batch
print(sql_folder(), process_batch(), find_spec("reliability_airflow").origin, sep="\\n")
assert queries()
assert sorted((sql_folder() / "migrations").glob("*.sql"))
assert get_provider_info()["package-name"] == "airflow-provider-reliability"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [file] = folder.glob("*.whl")
    return file


def test_the_wheel_holds_two_packages_and_all_sql(wheel):
    names = ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert wheel.name.startswith("airflow_provider_reliability-")
    assert top == {"reliability", "reliability_airflow"}
    sql = {file.relative_to(ROOT / "sql") for file in (ROOT / "sql").rglob("*.sql")}
    assert {f"reliability/_sql/{file}" for file in sql} <= set(names)
    page = ROOT / "plugins" / "reliability_airflow" / "page"
    shown = [*page.glob("templates/*.html"), *page.glob("static/**/*.*")]
    assert {f"{file.relative_to(ROOT / 'plugins')}" for file in shown} <= set(names)


def test_an_installed_wheel_finds_its_sql_and_its_file_for_spark_submit(wheel, tmp_path):
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    subprocess.run([sys.executable, *pip, "--target", tmp_path, wheel], check=True)
    seen = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SEEN_FROM_OUTSIDE, tmp_path],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert [Path(path).relative_to(tmp_path) for path in seen] == [
        Path("reliability/_sql"),
        Path("reliability/spark/process_batch.py"),
        Path("reliability_airflow/__init__.py"),
    ]
