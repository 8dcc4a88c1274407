"""What spark-submit is told on this machine, and an archive of JVM classes to start from.

Handed over as SPARK_SUBMIT_OPTS and not in a folder named by SPARK_CONF_DIR: that folder
becomes the head of the JVM's class path, and a JVM refuses to archive classes when its class
path has a folder with files in it. Starting a session without the archive takes about half
as long again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dev.services.java import Java
from dev.services.ports import HOST
from reliability.spark.driver_environment import OPTIONS, QUICK

Profile = Literal["default", "demo"]

PROPERTIES: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.sql.shuffle.partitions": "4",
}
#: A missing or foreign archive is passed over in silence: the JVM then just starts slower.
QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
ONE_THREAD = "-XX:+UseSerialGC"  # collects garbage: for jobs of seconds, too
TRAINING_JOB = Path(__file__).with_name("training_job.py")
TRAINING_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConf:
    """The options of spark-submit for one clone and one Java."""

    root: Path
    java: Java

    @property
    def folder(self) -> Path:
        """Beside the jars: a JVM takes an archive only with those that it was made with."""
        return self.root / ".venv" / "spark"

    @property
    def archive(self) -> Path:
        """Where the archive of this Java with the locked jars lies or would lie."""
        made_from = (self.root / "requirements.lock", TRAINING_JOB)
        digest = hashlib.sha256(f"{self.java.version} {self.java.home}".encode())
        for file in made_from:
            digest.update(file.read_bytes())
        return self.folder / f"classes-{digest.hexdigest()[:16]}.jsa"

    def env(self, profile: Profile = "default") -> dict[str, str]:
        """Return the variables that make any spark-submit of the venv a local, quiet one."""
        options = [*self._options(), *QUIET, f"-XX:SharedArchiveFile={self.archive}"]
        if profile == "demo":
            options += [*QUICK, ONE_THREAD]
        return {
            "JAVA_HOME": str(self.java.home),
            "SPARK_LOCAL_IP": HOST,
            OPTIONS: join(options),
        }

    def build_archive(self) -> bool:
        """Build the archive unless it is there; return whether it is there now.

        It only saves time, so a JVM that cannot build one is no error.
        """
        if self.archive.is_file():
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            draft = Path(scratch) / "classes.jsa"
            self._train(draft, Path(scratch))
            if not draft.is_file():
                return False
            for old in self.folder.glob("classes-*.jsa"):
                old.unlink()
            draft.replace(self.archive)
        return True

    def _train(self, draft: Path, scratch: Path) -> None:
        """Run a job like ours; at its end the JVM writes down all classes it has loaded."""
        programs = self.root / ".venv" / "bin"
        options = [*self._options(), *QUIET, f"-XX:ArchiveClassesAtExit={draft}"]
        environment = {
            **without_spark(os.environ),
            **self.env(),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            OPTIONS: join(options),
        }
        job = (str(TRAINING_JOB), str(scratch / "data"))
        with (self.folder / "training.log").open("w") as log, suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [str(programs / "spark-submit"), "--master", "local[2]", *job],
                env=environment,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=TRAINING_SECONDS,
                check=False,
            )

    def _options(self) -> list[str]:
        logging = self.root / "compose" / "spark" / "log4j2.properties"
        properties = [f"-D{name}={value}" for name, value in PROPERTIES.items()]
        return [*properties, f"-Dlog4j2.configurationFile={logging.as_uri()}"]


def without_spark(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would point spark-submit at another Spark, Java or configuration."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(("SPARK_", "PYSPARK_")) and name != "JAVA_HOME"
    }


def join(options: list[str]) -> str:
    """Join options for Spark's launcher, which splits at blanks outside double quotes."""
    quoted = (option.replace("\\", "\\\\").replace('"', '\\"') for option in options)
    return " ".join(f'"{option}"' if " " in option else option for option in quoted)
