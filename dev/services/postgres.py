"""A Postgres server of our own on this machine: made, started, stopped, killed.

Listens on 127.0.0.1 only, asks for a password, and keeps its data where the account that
runs it can reach it (see accounts.py). Every method may be called in any condition, also
after a power cut.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg2
import psycopg2.extensions
from psycopg2 import sql

from dev.errors import DevError
from dev.services.accounts import Account
from dev.services.credentials import ROLES, SUPERUSER, Credentials
from dev.services.ports import HOST
from dev.services.postgres_binaries import Binaries
from dev.services.processes import descendants, kill, last_lines, wait_until

START_SECONDS = 60
#: What a development server needs to differ from the default.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "max_connections": "120",
}
SETTINGS_FILE = "reliability.conf"
#: For databases whose loss does not matter, as in tests: no waiting for the disk.
NO_FSYNC: Mapping[str, str] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


class PostgresError(DevError):
    """A server program failed; the message carries what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedPostgres:
    """One server: binaries, a folder for its data, the port, and who runs it."""

    binaries: Binaries
    home: Path
    port: int
    credentials: Credentials
    account: Account = field(default_factory=Account)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    def up(self) -> None:
        """Initialise and start as far as needed, then see that roles and databases exist."""
        self.initialise()
        wait_until(self._serves, f"Postgres with its databases (log: {self.log})", START_SECONDS)
        self.credentials.write_libpq_files(self.port)

    def initialise(self) -> None:
        """Make the cluster unless it exists. One whose making was cut off is made anew."""
        if (self.data_dir / SETTINGS_FILE).is_file():
            return
        shutil.rmtree(self.data_dir, ignore_errors=True)
        password_file = self.home / "initial-password"
        self._write(password_file, self.credentials.password(SUPERUSER))
        try:
            self._run(
                *("initdb", "--pgdata", str(self.data_dir), "--username", SUPERUSER),
                *("--auth", "scram-sha-256", "--pwfile", str(password_file)),
                *("--encoding", "UTF8", "--locale", "C", "--data-checksums", "--no-sync"),
            )
        finally:
            password_file.unlink(missing_ok=True)
        with (self.data_dir / "postgresql.conf").open("a") as configuration:
            configuration.write(f"include = '{SETTINGS_FILE}'\n")
        self._write_settings()

    def start(self) -> None:
        """Start unless it runs already, recovering from a crash or a kill if there was one."""
        # A server that is still starting, or just dying of a kill, is neither up nor down.
        wait_until(lambda: self.is_ready() or not self.is_running(), "Postgres", START_SECONDS)
        if self.is_running():
            return
        self._clear_the_way()
        self._write_settings()
        self._run(
            *("pg_ctl", "start", "--wait", "--timeout", str(START_SECONDS), "--silent"),
            *("--pgdata", str(self.data_dir), "--log", str(self.log)),
        )

    def stop(self) -> None:
        """Stop, ending open sessions; what they had not committed is rolled back."""
        if self.is_running():
            self._run(
                *("pg_ctl", "stop", "--wait", "--timeout", "30", "--silent"),
                *("--mode", "fast", "--pgdata", str(self.data_dir)),
            )

    def kill(self) -> None:
        """End every process of the server with SIGKILL, as a power cut would."""
        postmaster = self.postmaster()
        if postmaster is None:
            return
        kill([postmaster, *descendants(postmaster)])

    def is_running(self) -> bool:
        return self.postmaster() is not None

    def is_ready(self) -> bool:
        """Say whether the server, by its own word and by trying, takes connections."""
        with suppress(OSError):
            status = (self.data_dir / "postmaster.pid").read_text().splitlines()[7:8]
            if self.is_running() and [word.strip() for word in status] == ["ready"]:
                with socket.create_connection((HOST, self.running_port() or self.port), timeout=1):
                    return True
        return False

    def postmaster(self) -> psutil.Process | None:
        """Return the main process, by the pid in its file, if that is really our server."""
        pid_file = self.data_dir / "postmaster.pid"
        with suppress(OSError, ValueError, IndexError, psutil.Error):
            process = psutil.Process(int(pid_file.read_text().splitlines()[0]))
            if self._is_ours(process) and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None

    def running_port(self) -> int | None:
        """Return the port the running server listens on, whatever we would choose today."""
        if not self.is_running():
            return None
        lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        return int(lines[3])

    def ensure_databases(self) -> None:
        """Make the roles and, owned by each, the database of the same name."""
        connection = self._connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("select rolname from pg_roles")
                roles = {name for (name,) in cursor.fetchall()}
                cursor.execute("select datname from pg_database")
                databases = {name for (name,) in cursor.fetchall()}
                for name in ROLES:
                    role = sql.Identifier(name)
                    password = sql.Literal(self.credentials.password(name))
                    if name not in roles:
                        create = sql.SQL("create role {} login password {}")
                        cursor.execute(create.format(role, password))
                        # By default a name without a schema would mean the ledger's, which is
                        # called like its role.
                        path = sql.SQL("alter role {} set search_path = public")
                        cursor.execute(path.format(role))
                    if name not in databases:
                        cursor.execute(sql.SQL("create database {} owner {}").format(role, role))
        finally:
            connection.close()

    def _serves(self) -> bool:
        """Try once. A server hit by SIGKILL a moment ago looks alive until it refuses."""
        self.start()
        try:
            self.ensure_databases()
        except psycopg2.OperationalError as error:
            if "password" in str(error):
                raise PostgresError(
                    f"the data in {self.home} has other passwords than "
                    f"{self.credentials.state_dir}: give both up with `make clean`"
                ) from error
            return False
        return True

    def _connect(self) -> psycopg2.extensions.connection:
        connection = psycopg2.connect(
            host=HOST,
            port=self.port,
            dbname="postgres",
            user=SUPERUSER,
            password=self.credentials.password(SUPERUSER),
            connect_timeout=10,
        )
        connection.autocommit = True
        return connection

    def _clear_the_way(self) -> None:
        """Deal with what a killed server leaves behind.

        Its backends end by themselves a moment later, and a start before that fails on the
        shared memory they still hold. A pid file whose number now means another process
        makes Postgres believe in a second server; only then is the file removed, and only
        when nothing works in the data directory any more.
        """
        wait_until(lambda: not self._leftovers(), "end of a killed server's processes", 30)
        pid_file = self.data_dir / "postmaster.pid"
        with suppress(OSError, ValueError, IndexError):
            if psutil.pid_exists(int(pid_file.read_text().splitlines()[0])):
                pid_file.unlink()

    def _leftovers(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.name() == "postgres" and self._is_ours(process):
                    found.append(process)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        """Every process of a server works in its data directory."""
        return Path(process.cwd()) == self.data_dir.resolve()

    def _write_settings(self) -> None:
        """Written before each start: the port may have been chosen anew."""
        settings = {**SETTINGS, "port": str(self.port), **self.settings}
        lines = (f"{name} = '{value}'\n" for name, value in settings.items())
        self._write(self.data_dir / SETTINGS_FILE, "".join(lines))

    def _write(self, path: Path, text: str) -> None:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text)
        self.account.own(path)

    def _run(self, program: str, *arguments: str) -> None:
        done = self.account.run([self.binaries.program(program), *arguments], cwd=self.home)
        if done.returncode != 0:
            raise PostgresError(f"{program} failed: {last_lines(done)} (log: {self.log})")
