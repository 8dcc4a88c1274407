"""The secrets of the containers, and `make verify-compose`."""
