"""What a view's security barrier costs its readers: `python -m benchmarks.barrier [ROWS]`.

Each question is asked of the same rows through a view with the barrier and one without, in turn.
"""

from __future__ import annotations

import sys
from functools import partial

from psycopg2.sql import SQL

from benchmarks.study import in_turn, show, spreads, study

ROUNDS = 5
VIEWS = {"open_view": "false", "barrier_view": "true"}
TABLES = """
CREATE TABLE public.staged AS
SELECT i AS id, mod(i, 200) AS batch, 'customer ' || mod(i, 9973) AS customer, mod(i, 100) AS price
  FROM generate_series(1, {rows}) AS i;
CREATE INDEX ON public.staged (id);
CREATE TABLE public.header AS SELECT generate_series(0, 199) AS batch;
ALTER TABLE public.header ADD PRIMARY KEY (batch);
CREATE TABLE public.keys AS SELECT (random() * {rows})::int AS id FROM generate_series(1, 50);
"""
VIEW = """
CREATE VIEW public.{view} WITH (security_barrier = {barrier}) AS
SELECT id, customer, price FROM public.staged WHERE EXISTS (
    SELECT FROM public.header WHERE header.batch = staged.batch)
"""
QUESTIONS = {
    "a key": "SELECT * FROM public.{view} WHERE id = 4711",
    "a range": "SELECT sum(price) FROM public.{view} WHERE id BETWEEN 1000 AND 90000",
    "a sum": "SELECT customer, sum(price) FROM public.{view} GROUP BY customer",
    "LIKE": "SELECT count(*) FROM public.{view} WHERE customer LIKE '%%99%%'",
    "a join with 50 keys": "SELECT count(*) FROM public.{view} AS v JOIN public.keys USING (id)",
}


def main(rows: int) -> None:
    with study() as server, server.ledger() as (connection, _):

        def run(statement: str) -> None:
            connection.run(SQL(statement))

        run(TABLES.format(rows=rows))
        run("ANALYZE")
        for view, barrier in VIEWS.items():
            run(VIEW.format(view=view, barrier=barrier))
        for what, question in QUESTIONS.items():
            jobs = {view: partial(run, question.format(view=view)) for view in VIEWS}
            show(f"{what}, seconds", spreads(in_turn(jobs, ROUNDS)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000)
