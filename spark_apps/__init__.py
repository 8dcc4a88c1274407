"""The spark-submit entry point, and the example topologies."""
