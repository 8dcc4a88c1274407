"""The processing phase: what runs in the Spark driver and in its tasks."""
