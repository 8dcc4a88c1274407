"""`make chaos`: the whole stack under a bank's work, while its processes are killed at random."""
