"""One development environment: Postgres, Airflow and Spark, brought up and down as a whole.

Both directions may be called at any time and go on from whatever is there: nothing, half of
it, or what a power cut has left. Several environments of one clone, say the user's and that
of a test run, live side by side when their `state_dir` differs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import psutil

from dev.errors import DevError
from dev.services.accounts import server_account, server_home, server_home_path
from dev.services.airflow import COMPONENTS, AirflowServices
from dev.services.airflow_api import AirflowApi
from dev.services.credentials import Credentials
from dev.services.engine import WarmEngine
from dev.services.java import Java, find_java
from dev.services.memory import memory
from dev.services.ports import Ports
from dev.services.postgres import NO_FSYNC, EmbeddedPostgres
from dev.services.postgres_binaries import (
    Binaries,
    find_binaries,
    installed_binaries,
    reachable_binaries,
)
from dev.services.processes import MARKER, descendants, kill, last_lines, marked
from dev.services.spark_conf import Profile, SparkConf, without_spark

PREFERRED_PORTS = {"airflow": 8080}
#: What would lead our programs to another Airflow or Postgres of the user's.
FOREIGN = ("AIRFLOW", "PG", "RELIABILITY_")
Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Report no progress."""


class Environment:
    """Everything that runs for one state directory.

    `postgres_settings` adds server settings. With `throwaway` the loss of its databases does not
    matter: the server waits for no disk, and has its data in memory if it can. `profile` chooses
    how the JVMs of Spark compile. `engine` is what runs the steps of topologies that do not choose:
    "warm", "submit" or, as it was before, "". `airflow_settings` may be changed until Airflow is
    started.
    """

    def __init__(
        self,
        root: Path,
        state_dir: Path | None = None,
        *,
        postgres_settings: Mapping[str, str] | None = None,
        throwaway: bool = False,
        profile: Profile = "default",
        engine: str = "",
    ) -> None:
        self.root = root.resolve()
        self.state_dir = (state_dir or root / ".reliability").resolve()
        self.postgres_settings = {**(NO_FSYNC if throwaway else {}), **(postgres_settings or {})}
        self.scratch = memory() if throwaway else None
        self.airflow_settings: dict[str, str] = {}
        self.profile: Profile = profile
        self.wanted_engine = engine
        self.engine = WarmEngine(root=self.root, state_dir=self.state_dir)
        self.ports = Ports(file=self.state_dir / "ports.json", preferred=PREFERRED_PORTS)
        self.credentials = Credentials(state_dir=self.state_dir)

    def up(self, progress: Progress = print) -> None:
        """Start all that does not run yet and return when all of it answers."""
        started = time.monotonic()
        if not self.postgres.is_ready():
            self.airflow.stop()  # what has just lost its database looks alive, and dies later
        self.up_postgres(progress)
        with ThreadPoolExecutor() as pool:
            # None of these needs another: on two cores they take little more than the longest.
            steps = [
                pool.submit(self.airflow.migrate),
                pool.submit(self.migrate),
            ]
            for step in steps:
                step.result()
        progress("schemas are in place")
        self._start_or_stop_engine(progress)
        self._keep_or_move_airflow()
        self.airflow.start()
        self.airflow.wait_healthy(progress)
        if not self.spark.archive.is_file():
            progress("archiving Spark's classes, once, so that each job starts faster")
            self.spark.build_archive()
        progress(f"up after {time.monotonic() - started:.0f} s: {self.airflow.url}")

    def up_postgres(self, progress: Progress = silent) -> None:
        """Start Postgres only, with its roles, databases and libpq files."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        self.postgres.up()
        progress(f"Postgres {self.postgres.binaries.major} on port {self.postgres.port}")

    def migrate(self) -> None:
        """Install or update our own schema in the database `reliability`."""
        done = subprocess.run(
            [str(self.root / ".venv" / "bin" / "reliability"), "migrate"],
            env=self.env(),
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise DevError(f"reliability migrate failed: {last_lines(done)}")

    def down(self, progress: Progress = silent) -> None:
        """Stop everything, orphans of killed workers included. Data stays."""
        self.airflow.stop()
        self.engine.stop()
        kill(marked(str(self.state_dir)))
        progress("Airflow is down")
        self.postgres.stop()
        progress("Postgres is down")

    def destroy(self) -> None:
        """Stop everything and delete all of its data."""
        self.down()
        home = server_home_path(self.state_dir, self.scratch)
        shutil.rmtree(home, ignore_errors=True)
        if home.parent != self.state_dir:
            with suppress(OSError):
                home.parent.rmdir()
        for name in ("run", "logs", "airflow", "engine"):
            shutil.rmtree(self.state_dir / name, ignore_errors=True)
        for name in ("passwords.json", "airflow-passwords.json", "pgpass", "pg_service.conf"):
            (self.state_dir / name).unlink(missing_ok=True)
        # Worked out from what is gone now; the next `up` starts from nothing.
        for name in ("postgres", "airflow"):
            self.__dict__.pop(name, None)

    def status(self) -> dict[str, str]:
        """Say of each part whether it runs; starts and stops nothing."""
        postgres = f"up, port {self.postgres.port}" if self.postgres.is_running() else "down"
        healthy = self.airflow.healthy()
        parts = {"postgres": postgres}
        for name in COMPONENTS:
            alive = self.airflow.background(name).is_alive()
            parts[name] = "healthy" if name in healthy else "starting or ill" if alive else "down"
        parts["warm engine"] = "up" if self.engine.is_alive() else "down"
        return parts

    def env(self) -> dict[str, str]:
        """Return the variables for any program of this environment: reliability, spark-submit.

        Python may write its bytecode: every Airflow process otherwise compiles all of Airflow
        again, which more than doubles the time it takes to start.
        """
        inherited = {
            name: value
            for name, value in without_spark(os.environ).items()
            if not name.startswith(FOREIGN) and name != "PYTHONDONTWRITEBYTECODE"
        }
        return {**inherited, **self.own_env()}

    def own_env(self) -> dict[str, str]:
        """Return only the variables that this environment adds or replaces."""
        local = "127.0.0.1,localhost"
        no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        proxies = no_proxy if local in no_proxy else ",".join(filter(None, (no_proxy, local)))
        folders = [str(self.root / ".venv" / "bin"), os.environ.get("PATH", os.defpath)]
        return {
            **self.credentials.env(),
            **self.spark.env(self.profile),
            "RELIABILITY_DSN": "service=reliability",
            "RELIABILITY_HOME": str(self.root),
            "RELIABILITY_ENGINE_FOLDER": str(self.engine.folder),
            **({"RELIABILITY_ENGINE": "warm"} if self.engine.is_alive() else {}),
            "PATH": os.pathsep.join(folders),
            # A proxy for the internet must not be asked for Airflow's own API.
            "NO_PROXY": proxies,
            "no_proxy": proxies,
            # On macOS a forked worker otherwise dies in Kerberos or Objective-C code.
            "PGGSSENCMODE": "disable",
            "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",
        }

    def airflow_env(self) -> dict[str, str]:
        """Return the variables for an `airflow` command against this environment."""
        return self.airflow.env()

    def api(self) -> AirflowApi:
        return self.airflow.api()

    def processes(self) -> list[psutil.Process]:
        """Return every process of this environment, descendants included."""
        family = [
            member for name in COMPONENTS for member in self.airflow.background(name).family()
        ]
        postmaster = self.postgres.postmaster()
        servers = [postmaster, *descendants(postmaster)] if postmaster else []
        every = [*family, *marked(str(self.state_dir)), *servers]
        return list({process.pid: process for process in every}.values())

    @cached_property
    def java(self) -> Java:
        return find_java(self.root)

    @cached_property
    def spark(self) -> SparkConf:
        return SparkConf(root=self.root, java=self.java)

    @cached_property
    def postgres(self) -> EmbeddedPostgres:
        account = server_account()
        self.state_dir.mkdir(parents=True, exist_ok=True)
        home = server_home(self.state_dir, account, self.scratch)
        server = EmbeddedPostgres(
            binaries=reachable_binaries(self._binaries(home), home, account),
            home=home,
            port=0,
            credentials=self.credentials,
            account=account,
            settings=self.postgres_settings,
        )
        return replace(server, port=server.running_port() or self.ports.free_port("postgres"))

    @cached_property
    def airflow(self) -> AirflowServices:
        return self._airflow_on(self.ports.port("airflow"))

    def start_engine(self) -> None:
        """Start the warm engine unless it runs."""
        self.engine.start({**self.env(), MARKER: str(self.state_dir)})

    def _start_or_stop_engine(self, progress: Progress) -> None:
        if self.wanted_engine == "warm":
            self.start_engine()
            progress("the warm engine is up")
        elif self.wanted_engine == "submit":
            self.engine.stop()

    def _keep_or_move_airflow(self) -> None:
        """Choose another port when a stranger has taken ours since the last time."""
        is_alive = self.airflow.background("api-server").is_alive()
        port = self.ports.port if is_alive else self.ports.free_port
        self.airflow = self._airflow_on(port("airflow"))

    def _airflow_on(self, port: int) -> AirflowServices:
        return AirflowServices(
            root=self.root,
            state_dir=self.state_dir,
            port=port,
            postgres_port=self.postgres.port,
            credentials=self.credentials,
            common_env={**self.env(), MARKER: str(self.state_dir)},
            more_settings=self.airflow_settings,
        )

    def _binaries(self, home: Path) -> Binaries:
        """An existing cluster is bound to the major version that made it."""
        made_by = home / "data" / "PG_VERSION"
        if made_by.is_file():
            return installed_binaries(self.root, int(made_by.read_text()))
        return find_binaries(self.root)
