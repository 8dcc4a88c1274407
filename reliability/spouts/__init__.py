"""Spouts: what a batch is cut from, and how it is counted at the source, without Spark."""
