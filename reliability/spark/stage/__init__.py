"""From a state's frame to its staged rows, and from staged rows to a frame."""
