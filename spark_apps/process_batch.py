"""The one spark-submit entry point: process one attempt of one topology."""

from __future__ import annotations

from reliability.spark.driver import run

if __name__ == "__main__":
    run()
