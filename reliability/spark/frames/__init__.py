"""Frames that account for their rows: what the accounting reads and changes in Spark's plans."""
