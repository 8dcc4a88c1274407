"""A Postgres server of our own on this machine: made, started, stopped, killed.

Listens on 127.0.0.1 only, asks for a password, and keeps its data where the account that
runs it can reach it (see accounts.py). Every method may be called in any condition, also
after a power cut.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil

from dev.services.accounts import server_account, server_home
from dev.services.credentials import ROLES, SUPERUSER, Credentials, quick_secret
from dev.services.files import write_private
from dev.services.ports import HOST, Ports
from dev.services.postgres_binaries import Binaries, find_binaries, reachable
from dev.services.processes import family, is_gone, kill, run, wait_until

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
#: A statement a line. By default a name without a schema would mean the ledger's, which is called
#: like its role.
ROLE_AND_DATABASE = """\
CREATE ROLE {name} LOGIN PASSWORD '{password}'
ALTER ROLE {name} SET search_path = public
CREATE DATABASE {name} OWNER {name}
"""


@dataclass(kw_only=True)
class EmbeddedPostgres:
    """One server and the folder for its data; `settings` are more than those above."""

    root: Path
    home: Path
    ports: Ports
    credentials: Credentials
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.account = server_account()
        self.data_dir = self.home / "data"
        self.log = self.home / "server.log"

    @cached_property
    def binaries(self) -> Binaries:
        """An existing cluster is bound to the major version that made it."""
        server_home(self.home, self.account)
        made_by = self.data_dir / "PG_VERSION"
        major = int(made_by.read_text()) if made_by.is_file() else None
        return reachable(find_binaries(self.root, major), self.home, self.account)

    @property
    def port(self) -> int:
        """The port on which the server listens, or would listen if it were started."""
        status = self._status() if self.is_running() else []
        return int(status[3]) if len(status) > 3 else self.ports.port("postgres")

    def up(self) -> None:
        """Make the cluster and start the server, as far as needed."""
        server_home(self.home, self.account)
        self._initialise()
        self.start()
        self.credentials.write_libpq_files(self.port)

    def _initialise(self) -> None:
        """Make the cluster unless it exists. One whose making was cut off is made again."""
        if (self.data_dir / SETTINGS_FILE).is_file():
            return
        shutil.rmtree(self.data_dir, ignore_errors=True)
        self._run(
            *("initdb", "--pgdata", str(self.data_dir), "--username", SUPERUSER),
            # no local socket is there for a peer; so initdb asks for no password
            *("--auth-local", "peer", "--auth-host", "scram-sha-256"),
            *("--encoding", "UTF8", "--locale", "C", "--data-checksums", "--no-sync"),
        )
        statements = [f"ALTER ROLE {SUPERUSER} PASSWORD '{self._secret(SUPERUSER)}'\n"]
        statements += (ROLE_AND_DATABASE.format(name=r, password=self._secret(r)) for r in ROLES)
        self._run(
            *("postgres", "--single", "-D", str(self.data_dir)),
            *("-c", "exit_on_error=on", "postgres"),
            statements="".join(statements),
        )
        with (self.data_dir / "postgresql.conf").open("a") as configuration:
            configuration.write(f"include = '{SETTINGS_FILE}'\n")
        self._write_settings()

    def _secret(self, role: str) -> str:
        """Return what the server is told of a role's password; of a throwaway one, only a hash."""
        password = self.credentials.password(role)
        return quick_secret(password) if NO_FSYNC.items() <= self.settings.items() else password

    def start(self) -> None:
        """Start unless it runs already, recovering from a crash or a kill if there was one."""
        # A server that is still starting, or just dying of a kill, is neither up nor down.
        wait_until(lambda: self.is_ready() or not self.is_running(), "Postgres", START_SECONDS)
        if self.is_running():
            return
        self._clear_the_way()
        self.ports.free_port("postgres")
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
        if postmaster := self.postmaster():
            kill(family(postmaster))

    def is_running(self) -> bool:
        return self.postmaster() is not None

    def is_ready(self) -> bool:
        """Say whether the server, by its own word, takes connections."""
        return self.is_running() and self._status()[7:] == ["ready"]

    def postmaster(self) -> psutil.Process | None:
        """Return the main process, by the pid in its file, if that is really our server."""
        with suppress(psutil.Error, IndexError):
            process = psutil.Process(int(self._status()[0]))
            if self._is_ours(process) and not is_gone(process):
                return process
        return None

    def _status(self) -> list[str]:
        with suppress(OSError):
            text = (self.data_dir / "postmaster.pid").read_text()
            return [line.strip() for line in text.splitlines()]
        return []

    def _clear_the_way(self) -> None:
        """Deal with what a killed server leaves behind.

        Its backends end by themselves a moment later, and a start before that fails on the
        shared memory they still hold. A pid file whose number now means another process
        makes Postgres believe in a second server.
        """
        left = [process for process in psutil.process_iter() if self._is_ours(process)]
        wait_until(lambda: all(map(is_gone, left)), "end of a killed server's processes", 30)
        (self.data_dir / "postmaster.pid").unlink(missing_ok=True)

    def _is_ours(self, process: psutil.Process) -> bool:
        """Every process of a server works in its data directory."""
        with suppress(psutil.Error):
            works_in = Path(process.cwd())
            return process.name() == "postgres" and works_in == self.data_dir.resolve()
        return False

    def _write_settings(self) -> None:
        """Written before each start: the port may be another one."""
        settings = {**SETTINGS, "port": str(self.ports.port("postgres")), **self.settings}
        lines = (f"{name} = '{value}'\n" for name, value in settings.items())
        write_private(self.data_dir / SETTINGS_FILE, "".join(lines))
        self.account.own(self.data_dir / SETTINGS_FILE)

    def _run(self, program: str, *arguments: str, statements: str | None = None) -> None:
        command = [self.binaries.program(program), *arguments]
        what = f"{program} (log: {self.log})"
        run(command, what, input=statements, cwd=self.home, **self.account.options())
