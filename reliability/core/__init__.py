"""The pure core: values and decisions. No IO, no clock, no randomness; standard library only."""
