"""Process one step of an attempt, by spark-submit: what reliability/spark/process_batch.py does."""

from __future__ import annotations

from reliability.spark.driver import run

if __name__ == "__main__":
    run()
