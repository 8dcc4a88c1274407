"""What a person would submit: aggregate a file with Spark, and add it to a table with psycopg2.

A retry after the commit adds the file twice.
"""

from __future__ import annotations

import sys
from contextlib import closing

import psycopg2
from psycopg2.extras import execute_values
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ADD = """
    INSERT INTO plain_totals AS t VALUES %s
    ON CONFLICT (customer_id) DO UPDATE SET
        n = t.n + excluded.n, amount = t.amount + excluded.amount
"""


def main() -> None:
    spark = SparkSession.builder.appName("plain").getOrCreate()
    rows = spark.read.parquet(sys.argv[1]).groupBy("customer_id")
    totals = [tuple(row) for row in rows.agg(F.count("*"), F.sum("amount")).collect()]
    connection = psycopg2.connect("service=reliability")
    with closing(connection), connection, connection.cursor() as cursor:
        execute_values(cursor, ADD, totals)
    spark.stop()


if __name__ == "__main__":
    main()
