"""The command line: everything that a person does by hand, over the same calls as Airflow."""

from reliability.cli import reading
from reliability.cli.app import app

__all__ = ["app", "reading"]
