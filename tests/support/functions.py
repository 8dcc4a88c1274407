"""pyspark's functions for tests, which call what its stubs lack."""

from typing import Any

from reliability.deployment import lazy

F: Any = lazy.F
