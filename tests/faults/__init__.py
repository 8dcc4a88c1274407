"""Faults of real processes: each change that they make of a ledger, times each kind of fault."""
