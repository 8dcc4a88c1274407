"""The command line: what a person does by hand, with the same functions that Airflow's tasks use.

`app` is a typer application; each module registers its verbs when it is imported.
"""

from importlib import import_module

from reliability.cli.app import app

__all__ = ["app"]

IN_THE_ORDER_OF_THE_HELP = (
    "status",
    "watch",
    "show",
    "txids",
    "lag",
    "completeness",
    "history",
    "check",
    "run",
    "replay",
    "control",
    "exclude",
    "quarantine",
    "airflow",
    "alter",
    "adopt",
    "erase",
    "maintenance",
    "engine",
    "doctor",
)
for _name in IN_THE_ORDER_OF_THE_HELP:
    import_module(f"reliability.cli.{_name}")
