"""The commit phase: one change of the states after the other."""
