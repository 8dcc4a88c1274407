"""The trial of each combination of versions: `make matrix`."""
