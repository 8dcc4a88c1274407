"""The processing phase: attempts from their grant to PROCESSED."""
