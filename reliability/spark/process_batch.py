"""The file that spark-submit runs: process one step of an attempt of a topology."""

from __future__ import annotations

from reliability.spark.driver import run

if __name__ == "__main__":
    run()
