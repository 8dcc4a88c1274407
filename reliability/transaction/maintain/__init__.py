"""What runs by itself: the sweep and the compaction."""
