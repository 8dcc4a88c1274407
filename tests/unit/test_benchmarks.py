"""The benchmarks' pure parts: statistics, ratios, tables, and the section of the page."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.cases.all import CASES
from benchmarks.contestants import NO_JAR, PGBENCH, SPARK_JDBC, Contestant
from benchmarks.job import Database, Job
from benchmarks.places import PAGE
from benchmarks.report import BEGIN, END, replaced, section
from benchmarks.results import Measurement, Results, ratios, summary
from benchmarks.sizes import QUICK, SIZES
from benchmarks.suite import all_cases


def runs(contestant, *seconds, mode="warm", phases=None):
    return [
        Measurement(
            case="append",
            contestant=contestant,
            mode=mode,
            seconds=s,
            amount=100,
            phases=phases or {},
        )
        for s in seconds
    ]


def results(*measurements, missing=None):
    return Results(
        dates={"append": "2026-11-22"},
        size={**asdict(QUICK), "leaves_out": ["airflow"]},
        machine="2 cores",
        settings={"fsync": "on"},
        measurements=measurements,
        missing=missing or {},
    )


def test_ratios_are_to_the_first_row_of_this_project():
    found = results(
        *runs("this project", 2.0, 4.0, 3.0),
        *runs("this project, without history", 1.5),
        *runs("dlt", 6.0),
    ).summaries("append", "warm")
    assert ratios(found) == {"this project": 1, "this project, without history": 0.5, "dlt": 2}


def test_without_this_project_there_are_no_ratios():
    assert ratios([summary(runs("dlt", 6.0))]) == {}


def test_cold_and_warm_runs_are_apart():
    found = results(*runs("dlt", 1.0), *runs("dlt", 9.0, mode="cold"))
    assert [one.median for one in found.summaries("append", "cold")] == [9.0]
    assert [one.n for one in found.summaries("append", "warm")] == [1]


def test_results_survive_their_file(tmp_path):
    written = results(*runs("this project", 2.0, phases={"commit": 0.5}), missing={"a": "b"})
    written.save(tmp_path / "results.json")
    read = Results.load(tmp_path / "results.json")
    assert asdict(read) == {**asdict(written), "measurements": [asdict(written.measurements[0])]}


def test_the_section_has_ratios_spread_phases_limits_and_what_is_missing():
    found = section(
        results(
            *runs("this project", 2.0, 4.0, 3.0, phases={"commit": 0.5}),
            *runs("psql \\copy, binary, two sessions", 0.3),
            missing={"append: Spark JDBC": NO_JAR},
        )
    )
    assert "| this project | 3.00 | 2.00 to 4.00 | 3 | 33 | 1.00 |" in found
    assert "| *psql \\copy, binary, two sessions* | 0.30 |" in found
    assert "The warm seconds of this project: commit 0.50." in found
    assert f"Not measured: append: Spark JDBC: {NO_JAR}" in found
    assert "images/bench-append.svg" in found


def test_the_page_has_one_place_for_the_section():
    page = PAGE.read_text()
    assert (page.count(BEGIN), page.count(END)) == (1, 1)
    assert replaced(replaced(page, "one\n"), "two\n") == replaced(page, "two\n")


def test_a_contestant_without_its_program_says_how_to_get_it(tmp_path):
    assert "pgbench" in str(PGBENCH.lacks(str(tmp_path)))
    assert Contestant(name="a", label="a", promise="").lacks("") is None
    assert SPARK_JDBC.lacks("") in (None, NO_JAR)


@pytest.mark.parametrize("name", CASES)
def test_the_rows_of_a_case_have_names_of_their_own(name):
    labels = [entry.label for entry in CASES[name].entries]
    assert len(labels) == len(set(labels))
    assert all(CASES[name].what(size) for size in SIZES.values())


def test_the_quick_suite_leaves_airflow_out():
    assert {*CASES} - {*all_cases(QUICK)} == {"airflow"}


def test_a_job_survives_its_way_to_the_worker(tmp_path):
    database = Database(host="h", port=1, name="n", user="u", password="p")
    sizes = asdict(QUICK)
    job = Job(database=database, home=tmp_path, scratch=tmp_path, is_cold=True, sizes=sizes)
    assert Job.from_json(job.to_json()) == job
    assert "p" not in database.libpq.replace("port", "").split()
