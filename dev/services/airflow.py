"""Airflow on this machine: four components as four processes, all on 127.0.0.1.

Not `airflow standalone`: on TERM that ends alone and leaves its components running, and it
serves task logs on every network address, which cannot be switched off there.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from dev.errors import DevError
from dev.services.airflow_api import AirflowApi
from dev.services.files import write_private
from dev.services.ports import HOST, Ports
from dev.services.postgres import EmbeddedPostgres
from dev.services.processes import (
    AIRFLOW,
    Background,
    family,
    kill,
    marked,
    run,
    stop_all,
    title,
    wait_until,
)

#: Component -> its command. The API server reads task logs from the disk: no log servers.
COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
USER = "admin"
#: The first writes airflow.cfg, with the keys that all components share.
MIGRATE = """
from airflow.configuration import write_default_airflow_configuration_if_needed
from airflow.utils.db import upgradedb
write_default_airflow_configuration_if_needed()
upgradedb()
"""
START_SECONDS = 240
STOP_SECONDS = 5


@dataclass(kw_only=True)
class AirflowServices:
    """The components of one environment, their settings and their metadata database."""

    root: Path
    state_dir: Path
    ports: Ports
    postgres: EmbeddedPostgres
    #: Returns what every process of the environment gets, Airflow or not.
    common_env: Callable[[], Mapping[str, str]]
    #: What a test adds, or sets otherwise.
    more_settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home = self.state_dir / AIRFLOW
        self.passwords_file = self.state_dir / "airflow-passwords.json"
        self.jwt_secret_file = self.state_dir / "airflow-jwt-secret"
        self._python = str(self.root / ".venv" / "bin" / "python")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.ports.port('airflow')}"

    def api(self, user: str = USER) -> AirflowApi:
        password = self.passwords_of(user)[user]
        return AirflowApi(base_url=self.url, username=user, password=password)

    def settings(self) -> dict[str, str]:
        """Return our settings as variables, which win over any airflow.cfg."""
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.root / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            # The default looks the machine's name up in DNS, which hangs on some laptops.
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            # The key that Airflow makes is shorter than it wants, and each use of it warns.
            "AIRFLOW__API_AUTH__JWT_SECRET_CMD": f"cat {shlex.quote(str(self.jwt_secret_file))}",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords_file),
            # libpq and asyncpg both take the password from PGPASSFILE.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": (
                f"postgresql+psycopg2://airflow@{HOST}:{self.postgres.port}/airflow"
            ),
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(self.ports.port("airflow")),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            # A task whose supervisor was killed is given up after this, not after 5 minutes.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            # Only then does a scheduler look for tasks of one that was stopped or killed.
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
                {
                    "conn_type": "spark",
                    "host": "local[2]",
                    "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
                }
            ),
            **self.more_settings,
        }

    def env(self) -> dict[str, str]:
        """Return the variables for an `airflow` command against this environment."""
        return {**self.common_env(), **self.settings()}

    def migrate(self) -> None:
        """Bring the metadata database to this version of Airflow.

        Done as `airflow db migrate` does it, which first logs itself to a table that is not there
        yet: an error in the log of Postgres.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        command = [self._python, "-c", MIGRATE]
        run(command, "the migration of Airflow's database", env=self.env(), cwd=self.home)

    def start(self) -> None:
        """Start what does not run, all at once; restart what runs with other settings."""
        if not self.background("api-server").is_alive():
            self.ports.free_port("airflow")  # a stranger may have taken ours since the last time
        if not self.background("scheduler").is_alive():
            self._end_workers()
        self.passwords_of(USER)
        if not self.jwt_secret_file.is_file():
            write_private(self.jwt_secret_file, secrets.token_urlsafe(48))
        self.home.mkdir(parents=True, exist_ok=True)
        component, env = str(Path(__file__).with_name("airflow_component.py")), self.env()
        made_from = {**self.settings(), "RELIABILITY_ENGINE": env.get("RELIABILITY_ENGINE", "")}
        for name, arguments in COMPONENTS.items():
            command = [self._python, component, *arguments]
            self.background(name).start(command, env, self.home, depends_on=made_from)

    def _end_workers(self) -> None:
        """End the workers of a scheduler that was killed alone.

        They hold its session with Postgres, and so what it had locked: the next scheduler passes
        over these runs, for ever.
        """
        for process in marked(str(self.state_dir)):
            if title(process).startswith("airflow worker "):
                kill(family(process))

    def wait_healthy(self, progress: Callable[[str], None]) -> None:
        """Wait until all four report a heartbeat made by the processes that run now."""
        said: set[str] = set()

        def all_healthy() -> bool:
            for name in COMPONENTS:
                one = self.background(name)
                if not one.is_alive():
                    raise DevError(f"Airflow's {name} ended; the end of {one.log}:\n{one.tail()}")
            for name in self.healthy():
                if name not in said:
                    said.add(name)
                    progress(f"Airflow {name} is up")
            return len(said) == len(COMPONENTS)

        wait_until(all_healthy, "Airflow, all four components healthy", START_SECONDS)

    def healthy(self) -> list[str]:
        """Return the components that run and whose latest heartbeat is their own.

        Right after a crash Airflow still calls the dead predecessor healthy, for 30 seconds.
        """
        report = self.api().health() or {}
        return [name for name in COMPONENTS if self._is_fresh(name, report)]

    def stop(self) -> None:
        stop_all((self.background(name) for name in COMPONENTS), STOP_SECONDS)

    def background(self, name: str) -> Background:
        return Background(name=name, state_dir=self.state_dir)

    def _is_fresh(self, name: str, report: Mapping[str, Mapping[str, str | None]]) -> bool:
        process = self.background(name).find()
        if process is None:
            return False
        if name == "api-server":  # which has no heartbeat: it is what answers
            return bool(report)
        key = name.replace("-", "_")
        one = report.get(key, {})
        heartbeat = one.get(f"latest_{key}_heartbeat")
        if one.get("status") != "healthy" or heartbeat is None:
            return False
        return datetime.fromisoformat(heartbeat).timestamp() > process.create_time()

    def passwords_of(self, *users: str) -> dict[str, str]:
        """Return the passwords of all users that have one, among them these.

        They are made before Airflow starts: anybody may read those that it makes, and it empties
        the file to add one.
        """
        known: dict[str, str] = {}
        if self.passwords_file.is_file():
            known = json.loads(self.passwords_file.read_text())
        if missing := {user: secrets.token_urlsafe(18) for user in users if user not in known}:
            write_private(self.passwords_file, json.dumps(known | missing))
        return known | missing
