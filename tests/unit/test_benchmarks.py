"""The benchmarks' pure parts: statistics, ratios, tables, and the section of the page."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module

import pytest

from benchmarks.cases import CASES, cases_of
from benchmarks.contestants.spark_jdbc import NO_JAR
from benchmarks.job import Database
from benchmarks.places import PAGE
from benchmarks.report import BEGIN, END, replaced, section
from benchmarks.results import Measurement, Results
from benchmarks.sizes import QUICK, SIZES


def runs(contestant, *seconds, mode="warm", phases=None):
    return [
        Measurement(contestant=contestant, mode=mode, seconds=s, phases=phases or {})
        for s in seconds
    ]


def results(*measurements, missing=None):
    return Results(
        case="append",
        date="2026-11-22",
        size={**asdict(QUICK), "leaves_out": ["airflow"]},
        machine="2 cores",
        settings={"fsync": "on"},
        amount=100,
        measurements=measurements,
        missing=missing or {},
    )


def test_without_this_project_there_are_no_ratios():
    assert results(*runs("dlt", 6.0)).summaries("warm")["ratio"].isna().all()


def test_results_survive_their_file(tmp_path):
    written = results(*runs("this project", 2.0, phases={"commit": 0.5}), missing={"a": "b"})
    written.save(tmp_path)
    read = Results.load(tmp_path, "append")
    assert read is not None
    assert asdict(read) == {**asdict(written), "measurements": [asdict(written.measurements[0])]}
    assert Results.load(tmp_path, "upsert") is None


def test_the_section_has_ratios_spread_phases_limits_and_what_is_missing():
    whole = results(
        *runs("this project", 2.0, 4.0, 3.0, phases={"commit": 0.5}),
        *runs("this project, without history", 1.5),
        *runs("psql \\copy, binary, two sessions", 0.3),
        *runs("this project", 9.0, mode="cold"),
        missing={"Spark JDBC": NO_JAR},
    )
    found = section([whole])
    assert "Medians of 3 warm and 1 cold runs." in found
    assert "| this project | 3.00 | 2.00–4.00 | 33 | 1.00 | 9.00 | 9.00–9.00 | 1.00 |" in found
    assert "| this project, without history | 1.50 | 1.50–1.50 | 66 | 0.50 | | | |" in found
    assert "| *psql \\copy, binary, two sessions* | 0.30 | 0.30–0.30 | 333 | 0.10 | | | |" in found
    assert "The warm seconds of this project: commit 0.50." in found
    assert f"Not measured: append: Spark JDBC: {NO_JAR}" in found
    assert "images/bench-append.svg" in found


def test_the_page_has_one_place_for_the_section():
    page = PAGE.read_text()
    assert (page.count(BEGIN), page.count(END)) == (1, 1)
    assert replaced(replaced(page, "one\n"), "two\n") == replaced(page, "two\n")


@pytest.mark.parametrize("name", CASES)
def test_the_rows_of_a_case_have_names_of_their_own(name):
    labels = [entry.label for entry in CASES[name].entries]
    assert len(labels) == len(set(labels))
    assert all(CASES[name].what(size) for size in SIZES.values())


@pytest.mark.parametrize("name", sorted({*CASES} - {"airflow"}))
def test_each_part_in_a_case_is_an_operation_of_its_contestant(name):
    for entry in CASES[name].entries:
        if not entry.contestant.is_peer:  # whose packages are in another environment
            module = import_module(f"benchmarks.contestants.{entry.contestant.name}")
            assert callable(getattr(module, entry.operation or name))
            assert not entry.base or callable(getattr(module, entry.base))


def test_the_quick_suite_leaves_airflow_out():
    assert {*CASES} - {*cases_of(QUICK)} == {"airflow"}


def test_no_password_is_in_what_programs_are_called_with():
    database = Database(host="h", port=1, name="n", user="u", password="p")
    assert "p" not in database.libpq.replace("port", "").split()
