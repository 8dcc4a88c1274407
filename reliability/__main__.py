"""`python -m reliability` is the command line."""

import os
import sys

if sys.path[0] == os.getcwd():  # Python puts it first: what lies here is not to shadow anything
    sys.path.append(sys.path.pop(0))

from reliability.cli import app

app()
