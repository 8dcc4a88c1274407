"""The example topologies, and a file for spark-submit."""
