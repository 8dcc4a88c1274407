"""Airflow on this machine: four components as four processes, all on 127.0.0.1.

Not `airflow standalone`: on TERM that ends alone and leaves its components running, and it
serves task logs on every network address, which cannot be switched off there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from dev.errors import DevError
from dev.services.airflow_api import AirflowApi
from dev.services.credentials import Credentials, write_private
from dev.services.ports import HOST
from dev.services.processes import Background, last_lines, stop_all, wait_until

#: Component -> its command. The API server reads task logs from the disk: no log servers.
COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
#: Component -> its name in the answer of /monitor/health.
REPORTED_AS = {
    "api-server": "metadatabase",
    "scheduler": "scheduler",
    "dag-processor": "dag_processor",
    "triggerer": "triggerer",
}
USER = "admin"
START_SECONDS = 240
STOP_SECONDS = 5


class AirflowError(DevError):
    """A component of Airflow did not do its work; the message quotes its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowServices:
    """The components of one environment, their settings and their metadata database."""

    root: Path
    state_dir: Path
    port: int
    postgres_port: int
    credentials: Credentials
    #: What every process of the environment gets, Airflow or not.
    common_env: Mapping[str, str]
    #: What a test adds, or sets otherwise.
    more_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.state_dir / "airflow"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def passwords_file(self) -> Path:
        return self.state_dir / "airflow-passwords.json"

    def api(self) -> AirflowApi:
        return AirflowApi(base_url=self.url, username=USER, password=self._password())

    def settings(self) -> dict[str, str]:
        """Return our settings as variables, which win over any airflow.cfg."""
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.root / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.root / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            # The default looks the machine's name up in DNS, which hangs on some laptops.
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords_file),
            # libpq and asyncpg both take the password from PGPASSFILE.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": (
                f"postgresql+psycopg2://airflow@{HOST}:{self.postgres_port}/airflow"
            ),
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(self.port),
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
        return {**self.common_env, **self.settings()}

    def migrate(self) -> None:
        """Bring the metadata database to this version of Airflow."""
        self.home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            self._command("db", "migrate"),
            env=self.env(),
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AirflowError(f"airflow db migrate failed: {last_lines(done)}")

    def start(self) -> None:
        """Start what does not run, all at once; restart what runs with other settings."""
        self._write_passwords()
        self.home.mkdir(parents=True, exist_ok=True)
        engine = {"RELIABILITY_ENGINE": self.common_env.get("RELIABILITY_ENGINE", "")}
        for name, arguments in COMPONENTS.items():
            command = self._command(*arguments)
            made_from = {**self.settings(), **engine}
            self.background(name).start(command, self.env(), self.home, depends_on=made_from)

    def wait_healthy(self, progress: Callable[[str], None]) -> None:
        """Wait until all four report a heartbeat made by the processes that run now."""
        said: set[str] = set()

        def all_healthy() -> bool:
            self._complain_about_dead()
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
        return [name for name, key in REPORTED_AS.items() if self._is_fresh(name, report.get(key))]

    def stop(self) -> None:
        stop_all((self.background(name) for name in COMPONENTS), STOP_SECONDS)

    def background(self, name: str) -> Background:
        return Background(name=name, state_dir=self.state_dir)

    def _is_fresh(self, name: str, report: Mapping[str, str | None] | None) -> bool:
        process = self.background(name).find()
        if process is None or not report or report.get("status") != "healthy":
            return False
        heartbeat = report.get(f"latest_{REPORTED_AS[name]}_heartbeat")
        if heartbeat is None:
            return name == "api-server"
        return datetime.fromisoformat(heartbeat).timestamp() > process.create_time()

    def _complain_about_dead(self) -> None:
        for name in COMPONENTS:
            background = self.background(name)
            if not background.is_alive():
                raise AirflowError(
                    f"Airflow's {name} ended; the end of {background.log}:\n{background.tail()}"
                )

    def _write_passwords(self) -> None:
        """Written beforehand: Airflow would make its own in a file anybody may read."""
        text = json.dumps({USER: self._password()})
        if not self.passwords_file.is_file() or self.passwords_file.read_text() != text:
            write_private(self.passwords_file, text)

    def _password(self) -> str:
        return self.credentials.password(f"airflow-{USER}")

    def _command(self, *arguments: str) -> list[str]:
        python = self.root / ".venv" / "bin" / "python"
        return [str(python), str(Path(__file__).with_name("airflow_component.py")), *arguments]
