"""Requests to the page that nobody means well: by everybody, to each address that it has.

The addresses and their parameters are those of the application's own OpenAPI document.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from reliability.ledger.connection import LedgerConnection
from reliability_airflow.page.addresses import PREFIX
from tests.support.fix_page import FROM_THE_PAGE, Rights, airflow_with_page, shop_named
from tests.support.fix_postgres import all_texts
from tests.support.fix_shop import shop_with

pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx`")
#: the second is in one of the ledgers only
NAMES = ("rich", "many")
#: of each address
EXAMPLES = int(os.environ.get("RELIABILITY_REQUESTS", "6"))
PEOPLE = {
    "nobody": Rights(is_logged_in=False, may_read=False, may_act=False),
    "a stranger": Rights(may_read=False, may_act=False),
    "a reader": Rights(may_act=False),
    "an editor": Rights(),
}
#: what no answer and no log may have: a traceback, a statement, what Postgres says of its place
LEAKS = re.compile(
    r"Traceback \(most|\bFile \"[^\"]+\", line|psycopg2|\bLINE \d+:|\bDETAIL:|\bCONTEXT:"
    r"|\b(SELECT|UPDATE|INSERT INTO|DELETE FROM|WITH)\b[^<]*\breliability\."
)
TEXTS = [
    *("", "\0", "rich\0", "\ud800", "\u202e", "²", "~", "%(topology)s", "{0}"),
    *("x" * 9000, "9" * 5000),
    *("'; DROP TABLE public.rich_log; --", "a\r\nSet-Cookie: a=b", "<script>alert(1)</script>"),
    *("1..99999999999999999999", "9999-12-31T23:59:59.999999-23:59", '{"a": [[[[]]]]}'),
]
texts = st.sampled_from(TEXTS) | st.text(st.characters(), max_size=20)
NUMBERS = (13, 2**31, 2**63 - 1, 2**63, 10**30, -1)
moments = st.datetimes(timezones=st.none() | st.timezones()).map(lambda when: when.isoformat())


def mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Four of five are usual: what is wrong first hides what comes behind it."""
    return st.integers(0, 4).flatmap(lambda number: usual if number else other)


small = st.integers(0, 6).map(str)
numbers = mostly(small, (st.sampled_from(NUMBERS) | st.integers()).map(str))


def values(schema: Mapping[str, Any]) -> st.SearchStrategy[str]:
    """Texts for a parameter, most of them of its type."""
    kinds = [one for one in schema.get("anyOf", [schema]) if one["type"] != "null"]
    right = {"integer": numbers, "string": texts, "array": texts}[kinds[0]["type"]]
    if kinds[0].get("format") == "date-time":
        right = moments
    return mostly(right, texts)


def is_one_part(text: str) -> bool:
    """Say whether a text is a part of a path that leads anywhere, however it is escaped."""
    return bool(text) and not {*"/\n"} & {*text} and text not in (".", "..")


def escaped(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


@dataclass(frozen=True)
class Address:
    """A method and an address of the page, with what it takes."""

    method: str
    path: str
    parameters: tuple[Mapping[str, Any], ...]
    form: Mapping[str, Any]
    content_type: str

    def requests(self) -> st.SearchStrategy[dict[str, Any]]:
        return st.composite(lambda draw: self._request(draw))()

    def _request(self, draw: st.DrawFn) -> dict[str, Any]:
        """Draw what `client.request` takes."""
        path, pairs = self.path, []
        for parameter in self.parameters:
            name, schema = parameter["name"], parameter["schema"]
            if parameter["in"] == "path":
                known = small if name == "txid" else mostly(st.just(NAMES[0]), st.just(NAMES[1]))
                value = draw(mostly(known, values(schema).filter(is_one_part)))
                path = path.replace(f"{{{name}}}", escaped(value))
            else:
                pairs += draw(_pairs(name, values(schema)))
        if self.path.endswith("/explain"):  # they are not in the document
            own = st.sampled_from(["exact", "log", "recomputed"])
            pairs += draw(_pairs("state", own)) + draw(_pairs("key.k", numbers | texts))
            pairs += draw(_pairs("key.word", texts)) + draw(_pairs("null.k", texts))
        pairs += draw(_pairs("nosuch", texts))
        headers, body = draw(_bodies(self)) if self.method == "POST" else ({}, b"")
        return {
            "method": self.method,
            "url": f"{PREFIX}{path}?{_encoded(pairs)}",
            "content": body,
            "headers": {"Accept": draw(st.sampled_from(["text/html", "*/*"])), **headers},
        }


def _encoded(pairs: list[tuple[str, str]]) -> str:
    return "&".join(f"{escaped(name)}={escaped(value)}" for name, value in pairs)


def _pairs(name: str, value: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str]]]:
    """One of a name, or none, or two."""
    one = st.tuples(st.just(name), value)
    return mostly(st.lists(one, min_size=1, max_size=1), st.lists(one, max_size=2))


FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
JSON = "application/json"
TOPOLOGY = {"name": "topology", "in": "path", "schema": {"type": "string"}}  # not every function's
PART = '--x\r\nContent-Disposition: form-data; name="{}"; filename="a"\r\n\r\n1\r\n'
ELSEWHERE: list[dict[str, str]] = [{}, {**FROM_THE_PAGE, "Origin": "https://evil.example"}]


TASK = {"task_id": texts, "map_index": st.integers(), "state": st.none() | texts}
RUN = {
    "tasks": st.lists(
        mostly(st.fixed_dictionaries(TASK), st.fixed_dictionaries({}, optional=TASK))
    ),
    "emitted": st.none() | st.lists(st.integers()),
    "txids": st.lists(st.integers()),
    "group": texts,
}


@st.composite
def _bodies(draw: st.DrawFn, address: Address) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a form, or of a run; some are of other types, or broken."""
    form = address.form
    headers = draw(mostly(st.just(FROM_THE_PAGE), st.sampled_from(ELSEWHERE)))
    pairs = [pair for name, schema in form.items() for pair in draw(_pairs(name, values(schema)))]
    bodies = {
        FORM: _encoded(pairs),
        PARTS: "".join(PART.format(name) for name, _ in pairs),
        JSON: json.dumps({name: {"a": [value, None, {}]} for name, value in pairs}),
    }
    if address.content_type == JSON:
        bodies[JSON] = json.dumps(draw(st.fixed_dictionaries(RUN)))
    content_type = draw(mostly(st.just(address.content_type), st.sampled_from([*bodies])))
    body = draw(mostly(st.just(bodies[content_type].encode()), st.binary(max_size=40)))
    return {"Content-Type": content_type, **headers}, body


def is_no_json(body: bytes) -> bool:
    try:
        json.loads(body or b"0")  # nothing is read of an empty one
    except ValueError:
        return True
    return False


def addresses(airflow: Any) -> Iterator[Address]:
    """Yield all that the application has, but for its static files."""
    (page,) = (route.app for route in airflow.routes if route.path == PREFIX)
    document = page.openapi()
    own = [route for route in page.routes if hasattr(route, "methods")]
    assert {route.path for route in own} == set(document["paths"])
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            form, content_type = {}, FORM
            if "requestBody" in operation:
                [(content_type, content)] = operation["requestBody"]["content"].items()
                form = schemas[content["schema"]["$ref"].rpartition("/")[2]]["properties"]
            taken = tuple(operation.get("parameters", (TOPOLOGY,)))
            yield Address(method.upper(), path, taken, form, content_type)


@dataclass
class Page:
    """The page, the rights of who asks next, and what must not be told."""

    client: Any
    rights: Rights
    addresses: list[Address]
    secrets: tuple[str, ...]
    caplog: Any

    def ask(self, person: str, request: Mapping[str, Any]) -> Any:
        """Send a request as a person; whatever is answered tells nothing of the inside."""
        vars(self.rights).update(vars(PEOPLE[person]))
        self.caplog.clear()
        answer = self.client.request(**request)
        assert answer.status_code < 500
        for said in (answer.text, str(answer.headers), self.caplog.text):
            assert not LEAKS.search(said)
            assert not any(secret in said for secret in self.secrets)
        return answer


def fuzz(
    addresses: Sequence[Address], check: Callable[[Address, str, Any, Any], None], page: Page
) -> None:
    """Send requests to each address, and check what is answered to whom.

    Half of them are those of somebody with all rights, as more can go wrong behind them.
    """
    for address in addresses:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a history does not shrink
        )
        @given(st.sampled_from([*PEOPLE, *3 * ["an editor"]]), address.requests())
        def ask(person: str, request: Mapping[str, Any]) -> None:
            check(address, person, request, page.ask(person, request))  # noqa: B023

        ask()


@pytest.fixture
def page(airflow_home, rights, environment, caplog) -> Iterator[Page]:
    from fastapi.testclient import TestClient

    caplog.set_level(logging.INFO)
    caplog.set_level(logging.WARNING, "httpx")  # the client's own: it writes addresses
    secrets = tuple(map(environment.credentials.password, ("reliability", "postgres")))
    with airflow_with_page(rights) as airflow:
        client = TestClient(airflow, follow_redirects=False)
        yield Page(client, rights, list(addresses(airflow)), secrets, caplog)


def test_who_reads_by_any_request_hears_no_more_than_he_may_and_changes_nothing(
    page, full, ledgers
):
    shown = set()

    def check(address, person, request, answer):
        if answer.status_code in (200, 303):
            shown.add(address.path)
        if person == "nobody":
            assert answer.status_code == 401
        elif "%00" in request["url"].partition("?")[0]:
            assert answer.status_code == 404
        elif person == "a stranger" and address.path == "/":
            assert not any(f">{name}<" in answer.text for name in NAMES)
        elif person == "a stranger":
            assert answer.status_code == 403

    reads = [address for address in page.addresses if address.method == "GET"]
    with LedgerConnection(ledgers.full) as connection:
        before = all_texts(connection)
        fuzz(reads, check, page)
        assert all_texts(connection) == before
    assert len(shown) > len(reads) / 2  # most have shown something to somebody


def new_shop(connection):
    return shop_named(connection, NAMES[0])


# Five txids of a topology, three of which have committed; the test has them for itself.
origin, shop = shop_with(3, 4, 5, make=new_shop)


def test_a_request_that_is_refused_changes_nothing(page, shop):
    """By whoever it is: without rights, without the page, and with rights, of a wrong form."""
    before = all_texts(shop.connection)
    done = set()

    def check(address, person, request, answer):
        nonlocal before
        headers = request["headers"]
        is_of_the_page = "X-Reliability" in headers and "Origin" not in headers
        types = {address.content_type, headers["Content-Type"]}
        # the body is read before anybody is asked who he is
        if answer.status_code == 400:
            assert headers["Content-Type"] in (PARTS, JSON)
        elif types == {JSON} and is_no_json(request["content"]):
            assert answer.status_code == 422
        elif person == "nobody":
            assert answer.status_code == 401
        elif "%00" in request["url"].partition("?")[0]:
            assert answer.status_code == 404
        elif person != "an editor" or not is_of_the_page:
            assert answer.status_code == 403
        after = all_texts(shop.connection)
        if answer.status_code == 200:
            done.add(address.path)
        else:
            assert after == before
        before = after

    writes = [address for address in page.addresses if address.method == "POST"]
    fuzz(writes, check, page)
    assert done  # some were what a person would ask
