"""Who may see and do what: Airflow's login and its permissions.

The only module that uses what Airflow does not declare as public; the other modules of the page
take these names from here. Tested against a running Airflow, for each role.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api import security
from airflow.api_fastapi.core_api.security import GetUserDep, get_user, requires_access_dag
from airflow.models.dag import DagModel
from fastapi import Depends, FastAPI, HTTPException, Request

from reliability_airflow.page import reading

#: a request that changes something must have it: another site's form or image cannot set it
HEADER = "X-Reliability"

logged_in = Depends(get_user)


def check_names(request: Request) -> None:
    """Refuse an address with a name that no topology and no DAG has, before a database is asked.

    :raises HTTPException: 404
    """
    if any("\0" in name for name in request.path_params.values()):
        raise HTTPException(HTTPStatus.NOT_FOUND, "Not Found")


has_possible_names = Depends(check_names)


def _allowed(request: Request, user: Any, method: Literal["GET", "PUT"]) -> list[bool]:
    """Say of each DAG of the address's topology whether the user may do this with its runs."""
    return [_may(user, method, each) for each in reading.dags_of(request.path_params["topology"])]


def _reads(request: Request, user: GetUserDep) -> None:
    if not any(_allowed(request, user, "GET")):
        raise HTTPException(HTTPStatus.FORBIDDEN, "Forbidden")


def _acts(request: Request, user: GetUserDep) -> None:
    if not all(_allowed(request, user, "PUT")):
        raise HTTPException(HTTPStatus.FORBIDDEN, "Forbidden")


may_read = Depends(_reads)
may_act = Depends(_acts)
may_read_dag = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
#: [reliability] correction_roles in Airflow's configuration
SECTION, CORRECTION_ROLES = "reliability", "correction_roles"


def check_correction_role(user: GetUserDep) -> None:
    """Refuse a change by a user who has none of the roles that are named for corrections.

    :raises HTTPException: 403
    """
    if not has_correction_role(user):
        named = ", ".join(correction_roles())
        raise HTTPException(
            403, f"corrections need one of these roles: {named} ([{SECTION}] {CORRECTION_ROLES})"
        )


may_correct = Depends(check_correction_role)


def prepare(app: FastAPI) -> None:
    """Let Airflow's dependencies find its auth manager: a mounted application has none."""
    if from_app := getattr(security, "auth_manager_from_app", None):  # since 3.2
        app.dependency_overrides[from_app] = get_auth_manager


def readable_dags(user: GetUserDep) -> set[str]:
    """Return the ids of the DAGs that the user may read."""
    dag_ids: set[str] = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return dag_ids


def name_of(user: GetUserDep) -> str:
    """Return the user's name, for the ledger."""
    return str(user.get_name())


def may_read_runs_of(user: Any, dag_id: str) -> bool:
    """Say whether the user may read the runs of a DAG; the DAG itself is not enough."""
    return _may(user, "GET", dag_id)


def may_act_on(user: Any, dag_id: str) -> bool:
    """Say whether the user may change the runs of a DAG; a topology's, of all its DAGs.

    A role for corrections is needed, too, if any is named.
    """
    return _may(user, "PUT", dag_id) and has_correction_role(user)


def correction_roles() -> list[str]:
    """Return Airflow's roles whose users may correct; none named: all who may edit runs."""
    from airflow.configuration import conf

    named = str(conf.get(SECTION, CORRECTION_ROLES, fallback="") or "")
    return [role.strip() for role in named.split(",") if role.strip()]


def has_correction_role(user: Any) -> bool:
    """Say whether the user has one of them.

    A user of Airflow's simple login has one role, a user of FAB several. One whose login knows no
    roles has none.
    """
    wanted = {role.casefold() for role in correction_roles()}
    return not wanted or not wanted.isdisjoint(role.casefold() for role in _roles_of(user))


def _roles_of(user: Any) -> list[str]:
    own = getattr(user, "roles", None) or [getattr(user, "role", None)]
    return [str(getattr(role, "name", role)) for role in own if role is not None]


def _may(user: Any, method: Literal["GET", "PUT"], dag_id: str) -> bool:
    details: dict[str, Any] = {"id": dag_id}
    if "team_name" in DagDetails.__dataclass_fields__:  # since 3.2
        details["team_name"] = DagModel.get_team_name(dag_id)
    return bool(
        get_auth_manager().is_authorized_dag(
            method=method,
            access_entity=DagAccessEntity.RUN,
            details=DagDetails(**details),
            user=user,
        )
    )


def same_origin(request: Request) -> None:
    """Refuse a change that another site may have asked for: cookies alone do not prove intent.

    :raises HTTPException: 403
    """
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if HEADER not in request.headers:
        raise HTTPException(403, f"this request lacks the header {HEADER}, which the page sets")
    if site != "same-origin":
        raise HTTPException(403, "this request does not come from the page, but from another site")
    if origin is not None and urlsplit(origin).netloc != (host := request.headers.get("host")):
        raise HTTPException(
            403, f"the page was not loaded from {origin}: this is {host}. A proxy must pass on Host"
        )


from_the_page = Depends(same_origin)
User = GetUserDep
ReadableDags = Annotated[set[str], Depends(readable_dags)]
UserName = Annotated[str, Depends(name_of)]
