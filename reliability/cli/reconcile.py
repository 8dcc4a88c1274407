"""`reliability reconcile`: find runs about which Airflow and the ledger disagree (G9).

After a restore from backup, the ledger may lack what Airflow shows as done.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import FOUND, AsJson, Yes, check_asked, ledger, rows_of, verb, warn
from reliability.cli.bars import followed
from reliability.cli.disagreement import NEXT, DisagreeingRun, compare
from reliability.cli.output import print_json, print_table
from reliability.cli.replay import DAG_ID
from reliability.cli.terminal import say

if TYPE_CHECKING:
    from reliability.cli.airflow import Airflow


AirflowUrl = Annotated[
    str,
    typer.Option(metavar="URL", help="Airflow's address; by default RELIABILITY_AIRFLOW_URL."),
]
AllowHttp = Annotated[
    bool,
    typer.Option("--allow-http", help="Allow sending the token unencrypted to another host."),
]


@verb(
    "reliability reconcile --airflow http://localhost:8080",
    "reliability reconcile --repair",
)
def reconcile(
    airflow: AirflowUrl = "",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Clear the runs that Airflow shows as success and are not done."
        ),
    ] = False,
    allow_http: AllowHttp = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Compare Airflow's runs with the ledger, and print where they disagree.

    The token is read from RELIABILITY_AIRFLOW_TOKEN, or from the file named by
    RELIABILITY_AIRFLOW_TOKEN_FILE. Exits with 3 if something was found and not repaired.
    """
    from reliability.cli.airflow import Airflow

    api = Airflow.of(airflow, allow_http=allow_http)
    findings, compared = _find(api)
    to_clear = [one for one in findings if one.what.is_repaired_by_clearing] if repair else []
    if to_clear:
        if not as_json:
            _print(findings)
        check_asked(f"Clear {len(to_clear)} runs in Airflow?", yes=yes)
        for one in followed(to_clear, "clear"):
            api.clear(one.dag_id, one.run_id)
    _print_report(findings, to_clear, compared, as_json=as_json)
    if len(findings) > len(to_clear):
        raise typer.Exit(FOUND)


def _find(api: Airflow) -> tuple[list[DisagreeingRun], int]:
    from reliability.core.leases import DEFAULT_LEASES

    findings: list[DisagreeingRun] = []
    compared, lease = 0, DEFAULT_LEASES.request
    with ledger() as connection:
        dags = rows_of(connection, "dags_of_topologies")
        for row in followed(dags, "ask Airflow for the runs of", "DAGs"):
            dag_id = row["dag_id"]
            if dag_id == DAG_ID:
                continue
            runs = api.runs(dag_id)
            listed = list(runs or ())  # first: a run that ends meanwhile is still at work
            rows = rows_of(connection, "runs_of_dag", dag_id=dag_id, request_lease=lease)
            known = {r["run_id"]: r for r in rows}
            if runs is None and known:
                warn(f"Airflow has no DAG {dag_id}; the ledger has {len(known)} runs of it")
            compared += len(listed)
            findings += compare(dag_id, listed, known, partial(api.emitted, dag_id))
    return findings, compared


# --- output --------------------------------------------------------------------------


def _print(findings: list[DisagreeingRun]) -> None:
    print_table(
        "",
        dict.fromkeys(("DAG", "run", "interval", "txids", "Airflow says", "next"), "left"),
        [
            (one.dag_id, one.run_id, one.interval, one.txids, one.says, NEXT[one.what])
            for one in findings
        ],
    )


def _print_report(
    findings: list[DisagreeingRun], cleared: list[DisagreeingRun], compared: int, *, as_json: bool
) -> None:
    if as_json:
        document: dict[str, Any] = {
            "runs": compared,
            "findings": [
                {
                    "what": one.what.name,
                    "dag_id": one.dag_id,
                    "run_id": one.run_id,
                    "interval": one.interval or None,
                    "txids": one.txids,
                    "cleared": one in cleared,
                }
                for one in findings
            ],
        }
        return print_json(document)
    if findings and not cleared:
        _print(findings)
    if cleared:
        say(f"{len(cleared)} runs cleared")
    if not findings:
        say(f"Airflow and the ledger agree about {compared} runs")
