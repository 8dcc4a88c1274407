"""The commit phase: apply changes to the states, one at a time."""
