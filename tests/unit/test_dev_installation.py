"""What the set-up decides before anything is installed."""

from __future__ import annotations

from dev.install.uv import parse_pip_settings, uv_environment
from dev.services.credentials import Credentials
from dev.services.java import parse_major, parse_properties
from dev.services.postgres_binaries import parse_major as parse_postgres_major
from dev.services.spark_conf import join

LISTING = """\
global.index-url='https://first.example/simple'
global.find-links='/wheels /more-wheels'
install.index-url='https://second.example/simple'
:env:.extra-index-url='https://third.example/simple\\nhttps://fourth.example/simple'
:env:.cert='/certificates.pem'
"""


def test_install_section_wins_over_global_and_variables_over_both() -> None:
    settings = parse_pip_settings(LISTING + ":env:.index-url='https://fifth.example/simple'\n")
    assert settings["index-url"] == "https://fifth.example/simple"
    assert parse_pip_settings(LISTING)["index-url"] == "https://second.example/simple"


def test_package_sources_of_pip_reach_uv_under_its_own_names() -> None:
    environment = uv_environment(parse_pip_settings(LISTING), {})
    assert environment["UV_DEFAULT_INDEX"] == "https://second.example/simple"
    assert environment["UV_INDEX"] == "https://third.example/simple https://fourth.example/simple"
    assert environment["UV_FIND_LINKS"] == "/wheels,/more-wheels"
    assert environment["SSL_CERT_FILE"] == "/certificates.pem"
    assert environment["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_what_the_user_has_set_for_uv_stays() -> None:
    environment = uv_environment(
        parse_pip_settings(LISTING),
        {"UV_INDEX_URL": "https://mine.example/simple", "UV_LINK_MODE": "symlink"},
    )
    assert "UV_DEFAULT_INDEX" not in environment
    assert environment["UV_LINK_MODE"] == "symlink"


def test_nothing_configured_hands_over_no_package_source() -> None:
    assert "UV_DEFAULT_INDEX" not in uv_environment(parse_pip_settings(""), {})


def test_java_versions_old_and_new_are_understood() -> None:
    assert [
        parse_major(text) for text in ("17.0.15+6-Debian", "21.0.8+9-LTS", "25-ea", "1.8.0_4")
    ] == [
        17,
        21,
        25,
        8,
    ]


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
    credentials = Credentials(state_dir=tmp_path)
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
