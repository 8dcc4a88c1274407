"""From an empty clone to a working `.venv`, and the locks that it is made from."""
