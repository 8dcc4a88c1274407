"""`python -m reliability` is the command line."""

import os
import sys

if sys.path[0] == os.getcwd():  # Python puts it first; local files must not shadow modules
    sys.path.append(sys.path.pop(0))

from reliability.cli import app

app()
