"""All that runs: Airflow with its Postgres, the ledger's Postgres, a Spark cluster, a warm engine.

The ledger has a server of its own, as in many deployments, so that it can be killed every few
seconds while Airflow runs on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg2
from psycopg2.extensions import connection as Connection

from dev.services.environment import Environment
from dev.services.ports import HOST, Ports
from dev.services.processes import Background, family, marked, run
from tests.chaos.bank import HERE, MART

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ("spark-master", "spark-worker")
#: What notices within seconds what otherwise takes minutes; an hour has room for more faults then.
AIRFLOW = {
    "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "dags"),
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "30",
}


class Stack(Environment):
    """The environment whose processes are killed; the ledger's server is one of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ROOT, folder, profile="demo", engine="warm")
        self.ledger = Environment(ROOT, folder / "ledger", profile="demo")
        self.delivered = folder / "delivered"
        self.spark_ports = Ports(file=folder / "spark-ports.json")
        self.work = folder / "spark"

    def begin(self, say: Callable[[str], None]) -> None:
        """Start all of it in an empty state."""
        self.ledger.up_postgres(say)
        with closing(self.session("postgres", "postgres")) as session:
            session.cursor().execute(f"CREATE DATABASE {MART} OWNER reliability")
        self.start_cluster()
        self.airflow_settings.update({**AIRFLOW, "AIRFLOW_CONN_SPARK_CLUSTER": self._connection()})
        self.up(say)

    def migrate(self) -> None:
        super().migrate()
        command = [str(ROOT / ".venv" / "bin" / "reliability"), "migrate", "--database", MART]
        run(command, "reliability migrate", env=self.env(), cwd=ROOT)

    def dsn(self, database: str, role: str = "reliability") -> str:
        """Return where a database of the ledger's server is."""
        server, password_file = self.ledger.postgres, self.ledger.credentials.pass_file
        return (
            f"host={HOST} port={server.port} dbname={database} user={role} passfile={password_file}"
        )

    def session(self, database: str, role: str = "reliability") -> Connection:
        """Open a session with a database of the ledger's server."""
        session: Connection = psycopg2.connect(self.dsn(database, role))
        session.autocommit = True
        return session

    def rows(self, database: str, question: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask a database of the ledger's server."""
        with closing(self.session(database)) as session:
            cursor = session.cursor()
            cursor.execute(question, parameters or None)
            return cursor.fetchall()

    def own_env(self) -> dict[str, str]:
        return {
            **super().own_env(),
            "RELIABILITY_DSN": self.dsn(HERE),
            f"RELIABILITY_DSN_{MART.upper()}": self.dsn(MART),
            "CHAOS_FOLDER": str(self.delivered),
        }

    # --- Spark's cluster -------------------------------------------------------------------------

    def node(self, name: str) -> Background:
        return Background(name=name, state_dir=self.state_dir)

    def start_cluster(self) -> None:
        """Start what does not run of the master and its worker; it finds the master again."""
        import pyspark  # which the rest of the program has no use for

        port = str(self.spark_ports.port("master"))
        home = Path(pyspark.__file__).parent
        env = self.marked_env() | {
            "SPARK_HOME": str(home),
            "SPARK_WORKER_DIR": str(self.work),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        master = ("master.Master", "--host", HOST, "--port", port, "--webui-port", "0")
        worker = (
            *("worker.Worker", "--host", HOST, "--port", "0", "--webui-port", "0"),
            *("--cores", "2", "--memory", "3g", f"spark://{HOST}:{port}"),
        )
        for name, (program, *arguments) in zip(CLUSTER, (master, worker), strict=True):
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}"]
            self.node(name).start([*command, *arguments], env, ROOT, depends_on={})

    def _connection(self) -> str:
        return json.dumps(
            {
                "conn_type": "spark",
                "host": f"spark://{HOST}",
                "port": self.spark_ports.port("master"),
                "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
            }
        )

    # --- up and down -----------------------------------------------------------------------------

    def restart(self) -> list[str]:
        """Start what has died; return its names."""
        self._end_orphans()
        dead = []
        if not self.ledger.postgres.is_ready():
            dead.append("the ledger's Postgres")
            self.ledger.postgres.start()
        gone = [name for name in CLUSTER if not self.node(name).is_alive()]
        self.start_cluster()
        return [*dead, *gone, *super().restart()]

    def _end_orphans(self) -> None:
        """End what a killed scheduler has left, as a service manager does.

        Its workers keep its sessions with Airflow's database open, and so its locks.
        """
        scheduler = self.airflow.background("scheduler").find()
        own = family(scheduler) if scheduler else []
        for process in marked(str(self.state_dir)):
            with suppress(psutil.Error):
                title = " ".join(process.cmdline())
                if process not in own and title.startswith("airflow worker"):
                    process.kill()

    def stop_cluster(self) -> None:
        for name in CLUSTER:
            self.node(name).stop()

    def down(self, progress: Callable[[str], None] = lambda _: None) -> None:
        self.stop_cluster()
        super().down(progress)
        self.ledger.down()

    def destroy(self) -> None:
        super().destroy()
        self.ledger.destroy()
        for folder in (self.delivered, self.work):
            shutil.rmtree(folder, ignore_errors=True)
