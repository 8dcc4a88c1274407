"""What a process finds where it runs: its settings, and the code of the topologies."""
