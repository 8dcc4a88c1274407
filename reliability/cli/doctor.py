"""`reliability doctor`: check what commands, tasks and drivers need on this host."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from reliability.cli import options
from reliability.cli.app import FAILED, ledger, verb
from reliability.cli.parts import Table, answer
from reliability.core.definitions import WARM
from reliability.core.errors import (
    AirflowNotSupported,
    DeployModeNotSupported,
    EngineUnavailable,
    NotPossible,
    PythonNotSupported,
    ReliabilityError,
    RightMissing,
    SparkConnectionMissing,
    SparkNotSupported,
)
from reliability.core.leases import Leases
from reliability.core.names import DISTRIBUTION
from reliability.core.sessions import lacking_sessions, sessions_at_once
from reliability.core.texts import with_code
from reliability.deployment.address import (
    DatabaseAddress,
    address_of,
    executor_address,
    service_files,
)
from reliability.deployment.airflow_connections import (
    find_connection,
    has_database,
    is_set_up,
    named_conn_id,
    parallelism,
)
from reliability.deployment.supported import check_airflow, check_python
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import ENCODINGS, check_migrated, migrations
from reliability.ledger.roles import COORDINATOR, OWNER
from reliability.states.tables import check_rights
from reliability.transaction.inspect.overview import for_a_person, overviews
from reliability.transaction.topology.declare import tables_of

if TYPE_CHECKING:
    from reliability.deployment.airflow_api import Airflow

HOUSEKEEPING = "reliability_housekeeping"
MIN_POSTGRES = 150000  # UNIQUE NULLS NOT DISTINCT
MAX_CLOCK_SECONDS = 5
DEFAULT = "spark_default"  # of topology_dag
POOLER_TRIES = 5
_SECRET = re.compile(r"^\s*(ssl)?password\s*=", re.MULTILINE | re.IGNORECASE)
_JAVA = re.compile(r'version "(?:1\.)?(\d+)')


class CheckStatus(str, Enum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check, and what to do about it."""

    verdict: CheckStatus
    check: str
    what: str
    todo: str = ""


_ok = partial(CheckResult, CheckStatus.OK)
_warning = partial(CheckResult, CheckStatus.WARNING)
_fail = partial(CheckResult, CheckStatus.FAIL)


@verb(
    "reliability doctor", "reliability doctor --conn-id spark_of_mine", "reliability doctor --json"
)
def doctor(conn_id: options.ConnIds = None, as_json: options.AsJson = False) -> None:
    """Check this host, its databases and the topologies, and print what to do.

    Exits with 1 if a check fails. Run it on each host, as the user that runs tasks there.
    """
    results = [*_host(conn_id or ()), *_databases()]
    rows = [(result.verdict.value, result.check, result.what, result.todo) for result in results]
    page = Table(("", "check", "what", "what to do"), rows, coloured=[""])
    has_failed = any(result.verdict is CheckStatus.FAIL for result in results)
    answer(results, [page], as_json=as_json, code=FAILED if has_failed else 0)


# --- this host -----------------------------------------------------------------------------------


def _host(conn_ids: Sequence[str] = ()) -> Iterator[CheckResult]:
    yield from _libpq_files()
    yield _spark()
    yield from _pyspark()
    yield _java()
    yield _engine()
    yield _airflow()
    if find_spec("airflow"):
        for conn_id in conn_ids or [DEFAULT]:
            yield _spark_connection(conn_id, CheckStatus.FAIL if conn_ids else CheckStatus.WARNING)


def _libpq_files() -> Iterator[CheckResult]:
    service = service_files()[0]
    passwords = Path(os.environ.get("PGPASSFILE") or Path.home() / ".pgpass")
    yield _service_file(service)
    if (mode := _mode(passwords)) is None:
        yield _absent("pass file", passwords)
    elif mode & 0o077:
        todo = (
            f"chmod 600 {passwords}; of a mounted secret, whose mode stays, put the password into "
            "the service file instead"
        )
        yield _fail("pass file", f"{passwords} has mode {mode:04o}, so libpq ignores it", todo)
    else:
        yield _ok("pass file", f"{passwords}, mode {mode:04o}")
    if "PGPASSWORD" in os.environ:
        todo = "put it into a pass file: every process started here inherits it"
        yield _warning("PGPASSWORD", "is in the environment", todo)


def _service_file(path: Path) -> CheckResult:
    check = "service file"
    if (mode := _mode(path)) is None:
        return _absent(check, path)
    try:
        is_secret = _SECRET.search(path.read_text(errors="replace")) is not None
    except OSError as error:
        return _fail(check, f"{path}: {error.strerror}", "let this user read it")
    if not is_secret:  # others may read it; compose mounts it so
        return _ok(check, f"{path}, without a password")
    if mode & 0o077:
        todo = f"chmod 600 {path}; nothing in a container, where nobody else is"
        return _warning(check, f"{path} has a password, and mode {mode:04o}", todo)
    return _ok(check, f"{path}, mode {mode:04o}")


def _absent(check: str, path: Path) -> CheckResult:
    return _ok(check, f"there is no {path}; only addresses that libpq has to find need one")


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _spark() -> CheckResult:
    from reliability.spark.driver_environment import find_spark_submit

    program = find_spark_submit()
    if program is None:
        todo = f"install {DISTRIBUTION}[spark], or set SPARK_HOME; only hosts that submit need it"
        return _warning("spark-submit", "is neither on the PATH nor beside this Python", todo)
    return _ok("spark-submit", program)


def _pyspark() -> Iterator[CheckResult]:
    from reliability.spark.imports import TwoReleases, files_of_client, two_releases
    from reliability.spark.supported import check_release

    if mixed := two_releases():
        yield _fail("pyspark", str(mixed), mixed.command)
    try:
        check_release(release := version("pyspark"))
    except PackageNotFoundError:  # a Spark of the host's own: the driver checks it
        return
    except SparkNotSupported as error:
        yield _fail("pyspark", error.what, error.what_to_do)
        return
    if not mixed and (count := files_of_client()) is not None:
        what = f"pyspark-client is installed over it; {count} of its Python files are not its own"
        judge = _fail if count else _warning
        yield judge("pyspark", what, TwoReleases(release, release).command)


def _java() -> CheckResult:
    """Check the Java that spark-submit would use."""
    from reliability.spark.driver_environment import JAVAS, driver_environment

    environment = driver_environment(os.environ)
    home = environment.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else which("java", path=environment["PATH"])
    todo = f"install OpenJDK {', '.join(map(str, JAVAS))}, or set JAVA_HOME"
    try:
        asked = subprocess.run(
            [program or "java", "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return _warning("Java", "not found", f"{todo}; only hosts that submit need it")
    match = _JAVA.search(asked.stderr + asked.stdout)
    if match is None or int(match[1]) not in JAVAS:
        problem = f"version {match[1]}" if match else "does not start"
        return _fail("Java", f"{program}: {problem}", todo)
    return _ok("Java", f"{match[1]}, {program}")


def _engine() -> CheckResult:
    """Check the warm engine; the ledger does not know which topologies choose it."""
    from reliability.spark.engine_socket import check_engine, socket_path

    check = "warm engine"
    is_chosen = os.environ.get("RELIABILITY_ENGINE") == WARM
    if not is_chosen and not socket_path().exists():
        return _ok(check, 'none runs; only topologies with engine="warm" need one')
    try:
        engine = check_engine()
    except EngineUnavailable as error:
        return _fail(check, error.message, error.what_to_do)
    return _ok(check, f"{engine['application_id']} on {engine['master']}, pid {engine['pid']}")


def _airflow() -> CheckResult:
    try:
        check_python(sys.version_info[:2])
        check_airflow(release := version("apache-airflow-core"))
    except PackageNotFoundError:
        todo = f"install {DISTRIBUTION}[airflow] if this host runs a part of Airflow"
        return _warning("Airflow", "is not installed", todo)
    except (AirflowNotSupported, PythonNotSupported) as error:
        return _fail("Airflow", error.what, error.what_to_do)
    return _ok("Airflow", release)


def _spark_connection(conn_id: str, otherwise: CheckStatus) -> CheckResult:
    """Check what a task makes of a connection, as far as this process finds it.

    :param otherwise: the verdict unless it leads to Spark: nobody may need the default connection
    """
    check = f"Spark connection {conn_id}"
    bad = partial(CheckResult, otherwise, check)
    if not is_set_up():
        return _ok(check, "not looked at: Airflow is not set up here")
    if f"AIRFLOW_CONN_{conn_id.upper()}" not in os.environ and not has_database():
        return _ok(check, "not looked at: Airflow's database is not known here")
    try:
        connection = find_connection(conn_id)
    except Exception as error:  # a secrets backend may raise anything, with a secret in its text
        create = SparkConnectionMissing.remedy.render(name=conn_id)
        what = f"Airflow has none, or cannot be asked: {type(error).__name__}"
        return bad(what, f"{create} If the DAGs name others: reliability doctor --conn-id NAME")

    from reliability_airflow.spark_connection import submit_of

    try:
        submit = submit_of(connection, {}, {}, ())
        submit.check()
    except FileNotFoundError as error:  # reported above
        return _ok(check, f"not looked at: {error}")
    except ValueError as error:
        return bad(str(error), "correct the connection")
    except DeployModeNotSupported as error:
        return bad(error.what, error.what_to_do)
    if submit.master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys():
        todo = "set HADOOP_CONF_DIR for the tasks, or replace the connection: docs/deploy.md, 5"
        return bad("leads to YARN, which spark-submit does not find without HADOOP_CONF_DIR", todo)
    return _ok(check, f"leads to {submit.master}")


# --- databases -----------------------------------------------------------------------------------


def _databases() -> Iterator[CheckResult]:
    yield from _database("")
    try:
        with ledger() as connection:
            others = [row["database"] for row in connection.all("participants", topology=None)]
            topologies = list(_topologies(connection))
            kept = list(_housekeeping(connection))
    except ReliabilityError:  # reported above
        return
    for database in others:
        yield from _database(database)
    yield from kept
    yield from topologies


def _database(database: str) -> Iterator[CheckResult]:
    """Check one database: the ledger's own, or a target database."""
    where = f"database {database or 'of the ledger'}"
    try:
        address = address_of(database)
        yield _address(f"{where}: address", address)
        with LedgerConnection(address, "reliability cli") as connection:
            yield from _server(connection, where)
            yield _pooler(connection, f"{where}: pooler")
            yield from _migrated(connection, where)
    except ReliabilityError as error:
        yield _fail(where, with_code(error.code, error.message), error.what_to_do)


def _address(check: str, address: DatabaseAddress) -> CheckResult:
    """Say where an address comes from, and what does not count beside it."""
    conn_id = named_conn_id(address.database)
    if conn_id and address.ask is None:
        what = f"by {address.origin}, not by Airflow's connection {conn_id}, which is configured"
        return _warning(check, what, "remove the one that is not meant")
    return _ok(check, f"by {address.origin}")


def _server(connection: LedgerConnection, where: str) -> Iterator[CheckResult]:
    before = datetime.now(timezone.utc)
    facts = connection.one("server_facts")
    after = datetime.now(timezone.utc)
    what = f"Postgres {facts['version']}, {facts['database']} as {facts['role']}"
    if facts["version_number"] < MIN_POSTGRES:
        yield _fail(where, what, "Postgres 15 or newer is needed")
    else:
        yield _ok(where, what)
    if not facts["has_ledger"] and not facts["may_create_schema"]:
        todo = f"GRANT CREATE ON DATABASE {facts['database']} TO {facts['role']};"
        yield _fail(f"{where}: rights to create", "may not create the ledger's schemas", todo)
    yield _clock(where, before, facts["now"], after)
    yield _durability(where, facts)
    yield _encoding(where, facts["encoding"])
    yield language(f"{where}: language", facts["messages"])


def _clock(where: str, before: datetime, there: datetime, after: datetime) -> CheckResult:
    check = f"{where}: clock"
    off = max((before - there).total_seconds(), (there - after).total_seconds(), 0.0)
    if off > MAX_CLOCK_SECONDS:
        todo = "synchronize both by NTP: leases use the database's clock, logs use this one"
        return _warning(check, f"differs by {off:.0f} s from this host's", todo)
    return _ok(check, f"within {max(off, (after - before).total_seconds()):.1f} s of this host's")


def _durability(where: str, facts: Any) -> CheckResult:
    check = f"{where}: durability"
    off = [name for name in ("fsync", "full_page_writes") if facts[name] != "on"]
    if off:
        todo = "switch it on: a power failure may lose commits or corrupt the cluster"
        return _fail(check, f"{' and '.join(off)} off", todo)
    if facts["synchronous_commit"] in ("off", "local"):
        setting = f"synchronous_commit is {facts['synchronous_commit']}"
        return _ok(check, f"{setting}; every transaction of the ledger switches it on")
    return _ok(check, f"fsync on, synchronous_commit {facts['synchronous_commit']}")


def _encoding(where: str, encoding: str) -> CheckResult:
    check = f"{where}: encoding"
    todo = "to store every character, create a database with ENCODING 'UTF8' TEMPLATE template0"
    if encoding not in ENCODINGS:
        return _fail(check, f"{encoding}: texts sort differently than in Spark", todo)
    if encoding == "UTF8":
        return _ok(check, encoding)
    lacks = {
        "SQL_ASCII": "stores bytes unchecked, so others may write invalid UTF-8",
        "LATIN1": "lacks characters, such as the euro sign; rows with them fail",
    }
    return _warning(check, f"{encoding}: it {lacks[encoding]}", todo)


def language(check: str, messages: str) -> CheckResult:
    """Say whether a refused login is known as one: it has no SQLSTATE, only the server's words.

    :param messages: lc_messages of this session; at a login, the server's own counts
    """
    if re.split(r"[-_. ]", messages)[0] in ("", "C", "POSIX", "en", "English"):
        return _ok(check, messages)
    what = f"{messages}: a refused login is taken for an outage, and tasks wait for days"
    return _warning(check, what, "set lc_messages = 'C' in postgresql.conf")


def _pooler(connection: LedgerConnection, check: str) -> CheckResult:
    """Look whether this session is one of the server's own, as a session of a pooler may be."""
    with LedgerConnection(connection.address, "reliability cli") as other:
        found = [
            (session is other, session.one("server_process")["pid"])
            for session in (connection, connection, other) * POOLER_TRIES
        ]
    if len({*found}) == 2 and len({pid for _, pid in found}) == 2:
        return _ok(check, "none, or one that keeps a session of the server for each client")
    todo = "let the address lead to the server itself, or to a pool in session mode"
    return _fail(check, "a pooler changes the server's session between transactions", todo)


def _migrated(connection: LedgerConnection, where: str) -> Iterator[CheckResult]:
    check_migrated(connection)
    yield _release(connection, f"{where}: ledger")
    yield from _rights(connection, where)
    yield from _sessions(connection, where)
    if (executors := executor_address(connection.database)) is not None:
        yield _executors(executors, f"{where}: executors")
    timeline = connection.one("server_timeline")
    if timeline["now"] is None:
        what = "the server does not report its timeline: a restore or failover is not detected"
        yield _warning(f"{where}: timeline", what, "after one, run `reliability restored`")


def _release(connection: LedgerConnection, check: str) -> CheckResult:
    last, known = connection.all("applied_migrations")[-1]["number"], migrations()[-1].number
    size = connection.one("ledger_size")
    what = f"is migrated; {size['ledger']}, and {size['contributions']} of contributions"
    if last > known:
        todo = "install that release here, too"
        return _ok(check, f"{what}. It has migration {last}, of a newer release", todo)
    return _ok(check, what)


def _sessions(connection: LedgerConnection, where: str) -> Iterator[CheckResult]:
    """Compare what topologies may need with what there is place for, and look at the login."""
    facts = connection.one("session_facts")
    loads = [(row["attempts"], row["staging"]) for row in connection.all("sessions_of_topologies")]
    wanted, others = sessions_at_once(loads, parallelism())
    limit, server, check = facts["connection_limit"], facts["places"], f"{where}: sessions"
    if lacking := lacking_sessions(wanted, others, server, limit):
        todo = (
            "lower max_spout_pending or max_staging_sessions, raise max_connections, or bound them "
            f"all: ALTER ROLE {facts['login']} CONNECTION LIMIT, above {others + 1}"
        )
        yield _warning(check, lacking, todo)
    else:
        bound = "" if limit is None else f", by CONNECTION LIMIT {limit}"
        most = f"attempts may have {wanted} at once{bound}" if loads else "there is no topology yet"
        yield _ok(check, f"{most}; the server has {server}")
    if facts["expires"]:
        what = f"the password of {facts['login']} is valid until {facts['valid_until']}"
        todo = f"ALTER ROLE {facts['login']} VALID UNTIL, with a new password"
        yield _warning(f"{where}: login", what, todo)
    if facts["autovacuum"] != "on":
        todo = "switch autovacuum and track_counts on: tables and catalogs grow without it"
        yield _warning(f"{where}: autovacuum", "is off", todo)


def _rights(connection: LedgerConnection, where: str) -> Iterator[CheckResult]:
    """Say which role this is, and check what it needs in the tables and schemas that are used."""
    facts = connection.one("role_facts")
    role, roles, own = facts["role"], facts["roles"], facts["own"]
    check = f"{where}: role"
    if not roles:
        yield _ok(check, f"{role}; {facts['owner']} owns the ledger, and there are no roles")
    elif own:
        yield _ok(check, f"{role} has {', '.join(roles[kind] for kind in own)}")
    else:
        todo = f"GRANT {roles[COORDINATOR]} TO {role}; for tasks, or one of the others"
        yield _fail(check, f"{role} has none of the ledger's roles", todo)
    yield _may_create(connection, f"{where}: rights to create")
    if own and not {OWNER, COORDINATOR} & {*own}:
        what = f"reads; a task needs {roles[COORDINATOR]}"
        yield _ok(f"{where}: rights", what)
    else:
        yield _may_change(connection, f"{where}: rights")


def _may_create(connection: LedgerConnection, check: str) -> CheckResult:
    """Check the schemas in which states have their tables; another one needs no right yet."""
    lacking = connection.all("schemas_without_create")
    if not lacking:
        return _ok(check, "tables can be made where states have theirs")
    names = ", ".join(row["schema"] for row in lacking)
    grants = " ".join(
        f"GRANT CREATE ON SCHEMA {row['schema']} TO {row['role']};" for row in lacking
    )
    what = f"{lacking[0]['role']} may make no tables in {names}"
    return _ok(check, what, f"only a new state there, or an index, needs it: {grants}")


def _may_change(connection: LedgerConnection, check: str) -> CheckResult:
    """Check what staging, committing and replaying need in the tables that are there."""
    with connection.transaction() as tx:
        tables = [
            table
            for row in tx.all("states", topology=None)
            for table in tables_of(row["topology"], [row["definition"]])
        ]
    try:
        with connection.transaction() as tx:
            check_rights(tx, tables)
    except RightMissing as error:
        what, _, grants = error.what.partition("; GRANT ")
        return _fail(check, what, f"GRANT {grants}")
    return _ok(check, "may stage, commit and replay")


def _executors(address: DatabaseAddress, check: str) -> CheckResult:
    """Check the role of Spark's executors, from this host."""
    try:
        with LedgerConnection(address, "reliability cli") as connection:
            facts = connection.one("executor_facts")
    except ReliabilityError as error:
        return _fail(check, with_code(error.code, error.message), error.what_to_do)
    role = f"{facts['role']}, by {address.origin}"
    if not facts["may_stage"]:
        todo = f"`reliability migrate --roles`, then GRANT the executors' role TO {facts['role']};"
        return _fail(check, f"{role}, may not stage", todo)
    if facts["may_commit"]:
        todo = f"take from {facts['role']} all but the executors' role"
        return _warning(check, f"{role}, may change the ledger or its tables, too", todo)
    if not facts["may_be_ended"]:
        todo = f"GRANT pg_signal_backend TO {facts['owner']}; as a superuser"
        return _warning(check, f"{role}; {facts['owner']} may not end a session that hangs", todo)
    return _ok(check, f"{role}, may only stage and ack")


# --- topologies --------------------------------------------------------------------------------


def _housekeeping(connection: LedgerConnection) -> Iterator[CheckResult]:
    """The ledger does not record sweeps; report what one would have found, and ask Airflow."""
    from reliability.deployment.airflow_api import URL, Airflow

    yield _left_behind(connection)
    url = os.environ.get(URL, "")
    if not url:
        yield _ok("Airflow's components", f"not looked at: {URL} is not set")
        return
    yield _components(url)
    dags = [row["dag_id"] for row in connection.all("dags_of_topology", topology=None)]
    pools = partial(_pools, dags)
    for check, look in (("housekeeping DAG", _housekeeping_dag), ("pools of tasks", pools)):
        try:
            yield look(check, Airflow.of(""))
        except NotPossible as error:
            yield _ok(check, f"not looked at: {error}")


def _components(url: str) -> CheckResult:
    """Ask for the components' health, which Airflow tells without a token."""
    from reliability.deployment.airflow_api import URL, Airflow

    check = "Airflow's components"
    todo = "restart what has died; in a clone of this project: make up"
    try:
        health = Airflow.without_token(url).health()
    except NotPossible as error:
        address = f"if it runs elsewhere, set {URL} to its address"
        return _fail(check, f"the api-server: {error}", f"{todo}; {address}")
    ill = [name.replace("_", " ") for name, status in health.items() if status != "healthy"]
    if ill:
        return _fail(check, f"no sign of life from: {', '.join(ill)}", todo)
    return _ok(check, f"{', '.join(health).replace('_', ' ')}: healthy")


def _housekeeping_dag(check: str, airflow: Airflow) -> CheckResult:
    dag = airflow.dag(HOUSEKEEPING)
    if dag is None:
        todo = f"put dags/{HOUSEKEEPING}.py into the folder of the DAGs"
        return _warning(check, f"Airflow has no DAG {HOUSEKEEPING}", todo)
    if dag.get("is_paused"):
        return _warning(check, "is paused", f"airflow dags unpause {HOUSEKEEPING}")
    return _ok(check, "is not paused")


def _pools(dags: Sequence[str], check: str, airflow: Airflow) -> CheckResult:
    """Look for pools in which tasks of topologies' DAGs wait for ever, without an error."""
    named = {name for dag_id in dags for name in airflow.pools_of(dag_id)}
    counts_deferred = {pool["name"]: pool["include_deferred"] for pool in airflow.pools()}
    if missing := sorted(named - counts_deferred.keys()):
        todo = "`airflow pools set`, or leave pool= out of the DAG: tasks in it never start"
        return _fail(check, f"there is no pool {' or '.join(missing)}", todo)
    if filling := sorted(name for name in named if counts_deferred[name]):
        todo = "`airflow pools set`, without --include-deferred"
        return _warning(check, f"tasks that wait fill the pool {' and '.join(filling)}", todo)
    return _ok(check, "each is there, and deferred tasks take no slot of it")


def _left_behind(connection: LedgerConnection) -> CheckResult:
    row = connection.one("left_behind", silence=Leases().request + 300)
    overdue = [f"{count} {name.replace('_', ' ')}" for name, count in row.items() if count]
    if overdue:
        todo = f"airflow dags unpause {HOUSEKEEPING}, or run `reliability sweep` every minute"
        return _warning("housekeeping", f"no sweep has run: {', '.join(overdue)}", todo)
    how = f"`airflow dags list-runs {HOUSEKEEPING}` shows when it ran last"
    return _ok("housekeeping", f"nothing is overdue; {how}")


def _topologies(connection: LedgerConnection) -> Iterator[CheckResult]:
    with connection.transaction() as tx:
        topologies = overviews(tx)
    for overview in topologies:
        check, notes = f"topology {overview.topology}", list(for_a_person(overview))
        urgent = [note.text for note in notes if note.is_urgent]
        yield from (_warning(check, text) for text in urgent)
        if not urgent:
            others = [f"{overview.committed} txids committed", *(note.text for note in notes)]
            yield _ok(check, "; ".join(others))
