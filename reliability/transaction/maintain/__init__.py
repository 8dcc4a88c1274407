"""Automatic maintenance: the sweep and the compaction."""
