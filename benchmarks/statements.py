"""The SQL that several contestants share, so that they do the same work.

Standard library only: workers run in two environments.
"""

from __future__ import annotations

ROW = """
    id bigint, customer_id bigint, amount numeric(14,2), ts timestamptz, kind text, qty integer
"""
#: The tables, as a person would make them.
TABLES = (
    "CREATE TABLE batches (batch_id text PRIMARY KEY)",
    f"CREATE TABLE orders ({ROW})",
    """CREATE TABLE parts (
        part bigint PRIMARY KEY, lines bigint, quantity numeric(20,2), revenue numeric(20,4),
        last_shipped date)""",
    """CREATE TABLE customers (
        customer bigint PRIMARY KEY, orders bigint, spent numeric(20,2), last_order date)""",
    "CREATE TABLE totals (customer_id bigint PRIMARY KEY, n bigint, amount numeric(14,2))",
)
APPEND = "INSERT INTO orders SELECT * FROM staged"
UPSERT = """
    INSERT INTO orders AS t
    SELECT id, customer_id, amount, ts, kind, qty FROM staged ORDER BY id
    ON CONFLICT (id) DO UPDATE SET
        customer_id = excluded.customer_id, amount = excluded.amount, ts = excluded.ts,
        kind = excluded.kind, qty = excluded.qty
    WHERE excluded.ts >= t.ts
"""
ADD_PARTS = """
    INSERT INTO parts AS t
    SELECT part, lines, quantity, revenue, last_shipped FROM staged ORDER BY part
    ON CONFLICT (part) DO UPDATE SET
        lines = t.lines + excluded.lines, quantity = t.quantity + excluded.quantity,
        revenue = t.revenue + excluded.revenue,
        last_shipped = greatest(t.last_shipped, excluded.last_shipped)
"""
ADD_CUSTOMERS = """
    INSERT INTO customers AS t
    SELECT customer, orders, spent, last_order FROM staged ORDER BY customer
    ON CONFLICT (customer) DO UPDATE SET
        orders = t.orders + excluded.orders, spent = t.spent + excluded.spent,
        last_order = greatest(t.last_order, excluded.last_order)
"""
ADD_TOTALS = """
    INSERT INTO totals AS t SELECT customer_id, n, amount FROM staged ORDER BY customer_id
    ON CONFLICT (customer_id) DO UPDATE SET
        n = t.n + excluded.n, amount = t.amount + excluded.amount
"""
#: Both DuckDB and Spark understand these.
GROUPED = {
    "lineitem": """
        SELECT l_partkey AS part, count(*) AS lines, sum(l_quantity) AS quantity,
            sum(l_extendedprice * (1 - l_discount)) AS revenue, max(l_shipdate) AS last_shipped
        FROM {source} GROUP BY l_partkey""",
    "orders": """
        SELECT o_custkey AS customer, count(*) AS orders, sum(o_totalprice) AS spent,
            max(o_orderdate) AS last_order
        FROM {source} GROUP BY o_custkey""",
    "totals": """
        SELECT customer_id, count(*) AS n, sum(amount) AS amount
        FROM {source} GROUP BY customer_id""",
}
