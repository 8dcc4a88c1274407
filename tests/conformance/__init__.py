"""Recorded behaviour of Storm and JStorm, played against what the pipeline itself runs."""
