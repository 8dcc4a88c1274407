"""A topology whose ledger and other database are known to Airflow's secrets backend alone.

Its process function is held while the file `hold` is in `DATES_FOLDER/rotating/`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dev.services.processes import wait_until
from reliability import Count, FileSpout, State, Topology

FOLDER = Path(os.environ.get("DATES_FOLDER", "dates"), "rotating")
DATABASE = "vault"
LEDGER_CONN_ID = "kept_ledger"
#: Is no secret, and goes wherever a setting of Spark's goes: a search that misses it is blind.
CANARY = "canary-of-the-search"
DATABASE_CONN_IDS = {DATABASE: "kept_vault"}


def counted(batch: Any) -> dict[str, Any]:
    """Count the words in two databases."""
    wait_until(lambda: not (FOLDER / "hold").exists(), "to be let go", 300)
    return {"rotating": batch, "rotating_in_vault": batch}


topology = Topology(
    "rotating",
    spout=FileSpout(f"{FOLDER}/{{data_interval_start:%Y-%m-%d}}/*.parquet", allow_empty=True),
    process=counted,
    states=[
        State("rotating", key={"word": "text"}, values={"times": Count()}),
        State(
            "rotating_in_vault", key={"word": "text"}, values={"times": Count()}, database=DATABASE
        ),
    ],
    max_spout_pending=2,
)
