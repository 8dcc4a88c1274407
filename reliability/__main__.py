"""`python -m reliability` is the command line."""

from reliability.cli import app

app()
