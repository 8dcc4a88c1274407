"""Ledgers in which the first txids of a `Shop` have committed: made once, copied for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from reliability.ledger.connection import LedgerConnection
from reliability.states import attempt_table
from tests.replay.shop import Shop, made
from tests.support.fix_postgres import database_of, new_database


@pytest.fixture(scope="session")
def shop_databases(template) -> Iterator[Callable[..., str]]:
    """Name the database with so many txids: what `origin` is where each test has such a shop.

    `make` makes the shop; with `min_rows` rows or more, an attempt has tables of its own.
    """
    made: dict[tuple[object, ...], str] = {}
    with ExitStack() as stack:

        def database(
            txids: int,
            make: Callable[[LedgerConnection], Shop] = Shop,
            min_rows: int = attempt_table.MIN_ROWS,
        ) -> str:
            if (txids, make, min_rows) not in made:
                dsn = stack.enter_context(new_database(template))
                with (
                    patch.object(attempt_table, "MIN_ROWS", min_rows),
                    LedgerConnection(dsn) as connection,
                ):
                    make(connection).commit_first(txids)
                made[txids, make, min_rows] = database_of(dsn)
            return made[txids, make, min_rows]

        yield database


def shop_with(
    txids: int, *delivered: int, make: Callable[[LedgerConnection], Shop] = Shop
) -> tuple[Any, Any]:
    """Return the fixtures `origin` and `shop` of a module: so many txids have committed.

    :param delivered: the batches that are emitted beyond them, as `made` numbers them
    """

    @pytest.fixture
    def origin(
        shop_databases: Callable[..., str], template: str, request: pytest.FixtureRequest
    ) -> str:
        return shop_databases(txids, make) if "shop" in request.fixturenames else template

    @pytest.fixture
    def shop(connection: LedgerConnection) -> Shop:
        one = make(connection).with_first(txids)
        if delivered:
            one.deliver(*map(made, delivered))
        return one

    return origin, shop
