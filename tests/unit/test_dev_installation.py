"""What the set-up decides before anything is installed."""

from __future__ import annotations

import subprocess

from dev.services.credentials import Credentials
from dev.services.java import VECTOR_MODULE, make_home, parse_major, parse_properties
from dev.services.postgres_binaries import parse_major as parse_postgres_major
from dev.services.spark_conf import join


def test_java_versions_old_and_new_are_understood() -> None:
    assert [
        parse_major(text) for text in ("17.0.15+6-Debian", "21.0.8+9-LTS", "25-ea", "1.8.0_4")
    ] == [
        17,
        21,
        25,
        8,
    ]


def test_the_java_home_drops_one_option_and_is_the_runtime_otherwise(tmp_path) -> None:
    runtime = tmp_path / "runtime"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "lib").mkdir()
    java = runtime / "bin" / "java"
    java.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    java.chmod(0o755)
    home = make_home(runtime, tmp_path)
    command = [str(home / "bin" / "java"), VECTOR_MODULE, "-cp", "a b"]
    assert subprocess.check_output(command, text=True) == "-cp|a b|"
    assert (home / "lib").resolve() == runtime / "lib"
    assert make_home(runtime, tmp_path) == home


def test_java_tells_its_home_among_other_properties() -> None:
    said = "Property settings:\n    java.home = /opt/java 17\n    java.runtime.version = 17.0.1+1\n"
    assert parse_properties(said)["java.home"] == "/opt/java 17"


def test_postgres_version_of_a_distribution_and_of_a_beta() -> None:
    assert parse_postgres_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)") == 15
    assert parse_postgres_major("postgres (PostgreSQL) 18beta1") == 18
    assert parse_postgres_major("no such thing") == 0


def test_options_with_blanks_are_quoted_for_the_launcher_of_spark() -> None:
    assert join(["-Da=b", "-Dfile=/my files/x"]) == '-Da=b "-Dfile=/my files/x"'


def test_services_that_a_person_added_stay(tmp_path):
    credentials = Credentials(state_dir=tmp_path, store=tmp_path / "data" / "passwords.json")
    credentials.write_libpq_files(5432)
    for path, added in (
        (credentials.service_file, "[mart]\nhost=db\n"),
        (credentials.pass_file, "db:5:*:a:b\n"),
    ):
        path.write_text(path.read_text() + added)
    credentials.write_libpq_files(5433)
    assert credentials.service_file.read_text().endswith("[mart]\nhost=db\n")
    assert "port=5433" in credentials.service_file.read_text()
    assert "port=5432" not in credentials.service_file.read_text()
    assert credentials.pass_file.read_text().endswith("db:5:*:a:b\n")
