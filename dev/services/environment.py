"""One development environment: Postgres, Airflow and Spark, brought up and down as a whole.

Both directions may be called at any time and go on from whatever is there: nothing, half of
it, or what a power cut has left. Several environments of one clone, say the user's and that
of a test run, live side by side when their `state_dir` differs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import psutil

from dev.services.accounts import memory, server_home_path
from dev.services.airflow import COMPONENTS, AirflowServices
from dev.services.airflow_api import AirflowApi
from dev.services.credentials import Credentials
from dev.services.engine import WarmEngine
from dev.services.java import Java, find_java
from dev.services.ports import Ports
from dev.services.postgres import NO_FSYNC, EmbeddedPostgres
from dev.services.processes import MARKER, family, kill, marked, run
from dev.services.spark_conf import Profile, SparkConf, without_spark

PREFERRED_PORTS = {"airflow": 8080}
#: What would lead our programs to another Airflow or Postgres of the user's.
FOREIGN = ("AIRFLOW", "PG", "RELIABILITY_")
Progress = Callable[[str], None]


def forget_others() -> None:
    """Take from this process's own variables what would lead it to others of the user's."""
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]


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
        self.profile: Profile = profile
        self.wanted_engine = engine
        self.airflow_settings: dict[str, str] = {}
        home = server_home_path(self.state_dir, memory() if throwaway else None)
        ports = Ports(file=self.state_dir / "ports.json", preferred=PREFERRED_PORTS)
        self.credentials = Credentials(state_dir=self.state_dir, store=home / "passwords.json")
        self.postgres = EmbeddedPostgres(
            root=self.root,
            home=home,
            ports=ports,
            credentials=self.credentials,
            settings={**(NO_FSYNC if throwaway else {}), **(postgres_settings or {})},
        )
        self.engine = WarmEngine(state_dir=self.state_dir)
        self.airflow = AirflowServices(
            root=self.root,
            state_dir=self.state_dir,
            ports=ports,
            postgres=self.postgres,
            common_env=self.marked_env,
            more_settings=self.airflow_settings,
        )

    def up(self, progress: Progress = print) -> None:
        """Start all that does not run yet and return when all of it answers."""
        started = time.monotonic()
        if not self.postgres.is_ready():
            self.airflow.stop()  # what has just lost its database looks alive, and dies later
        self.up_postgres(progress)
        with ThreadPoolExecutor() as pool:
            # Neither needs the other: on two cores they take little more than the longer.
            for step in [pool.submit(self.airflow.migrate), pool.submit(self.migrate)]:
                step.result()
        progress("schemas are in place")
        if self.wanted_engine == "warm":
            self.start_engine()
            progress("the warm engine is up")
        elif self.wanted_engine == "submit":
            self.engine.stop()
        self.airflow.start()
        self.airflow.wait_healthy(progress)
        if not self.spark.archive.is_file():
            progress("archiving Spark's classes, once, so that each job starts faster")
            self.spark.build_archive()
        progress(f"up after {time.monotonic() - started:.0f} s: {self.airflow.url}")

    def up_postgres(self, progress: Progress = silent) -> None:
        """Start Postgres only, with its roles, databases and libpq files."""
        self.postgres.up()
        progress(f"Postgres {self.postgres.binaries.major} on port {self.postgres.port}")

    def migrate(self) -> None:
        """Install or update our own schema in the database `reliability`."""
        command = [str(self.root / ".venv" / "bin" / "reliability"), "migrate"]
        run(command, "reliability migrate", env=self.env(), cwd=self.root)

    def start_engine(self) -> None:
        """Start the warm engine unless it runs."""
        self.engine.run(self.root, self.marked_env())

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
        home = self.postgres.home
        shutil.rmtree(home, ignore_errors=True)
        if home.parent != self.state_dir:
            with suppress(OSError):
                home.parent.rmdir()
        for name in ("run", "logs", "airflow", "engine"):
            shutil.rmtree(self.state_dir / name, ignore_errors=True)
        for name in ("airflow-passwords.json", "airflow-jwt-secret", "pgpass", "pg_service.conf"):
            (self.state_dir / name).unlink(missing_ok=True)

    def restart(self) -> list[str]:
        """Start what has died of all that `up` has started; return its names."""
        dead = []
        if not self.postgres.is_running():
            dead.append("Postgres")
            self.postgres.start()
        if self.wanted_engine == "warm" and not self.engine.is_alive():
            dead.append("the warm engine")
            self.start_engine()
        components = [name for name in COMPONENTS if not self.airflow.background(name).is_alive()]
        if components:
            self.airflow.start()
        return [*dead, *(f"Airflow {name}" for name in components)]

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

    def marked_env(self) -> dict[str, str]:
        """Return the same for what runs in the background."""
        return {**self.env(), MARKER: str(self.state_dir)}

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
            "RELIABILITY_TEST_DSN": "service=admin",  # tests of pipelines make databases
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

    def enter(self) -> None:
        """Let this process find the environment, and nothing of the user's beside it."""
        forget_others()
        os.environ.update(self.own_env())

    def api(self) -> AirflowApi:
        return self.airflow.api()

    def processes(self) -> list[psutil.Process]:
        """Return every process of this environment, descendants included."""
        leaders = [self.airflow.background(name).find() for name in COMPONENTS]
        leaders.append(self.postgres.postmaster())
        families = [member for leader in leaders if leader for member in family(leader)]
        return [*{*families, *marked(str(self.state_dir))}]

    @cached_property
    def java(self) -> Java:
        return find_java(self.root)

    @cached_property
    def spark(self) -> SparkConf:
        return SparkConf(root=self.root, java=self.java)
