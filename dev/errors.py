"""What can go wrong in the development environment, each with one line on what to do."""

from __future__ import annotations


class DevError(Exception):
    """The environment cannot go on; the message is for the person at the terminal."""


class DeadlineError(DevError):
    """A condition was not reached in its time."""
