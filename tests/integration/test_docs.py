"""The worked examples of the protocol are doctests, on a real ledger."""

from __future__ import annotations

import doctest
from functools import partial

from psycopg2.sql import SQL

from tests.support.fix_postgres import ROOT
from tests.support.words import Words

PAGE = ROOT / "tests" / "integration" / "worked_examples.md"
EXAMPLES = doctest.DocTestParser().get_doctest(PAGE.read_text(), {}, PAGE.name, str(PAGE), lineno=0)


def test_the_worked_examples(connection):
    names = {"words_of": partial(Words, connection), "start_again": partial(_forget, connection)}
    examples = doctest.DocTest(
        EXAMPLES.examples, names, PAGE.name, str(PAGE), 0, EXAMPLES.docstring
    )
    assert len(examples.examples) > 20
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    runner.run(examples)
    assert runner.summarize().failed == 0


def _forget(connection) -> None:
    with connection.transaction() as tx:
        tx.run(SQL("DROP TABLE public.words, reliability_contribution.words__words;"
                   "TRUNCATE reliability.topology CASCADE"))  # fmt: skip
