"""The life of a batch: declare, emit, request, attempt, seal, commit, settle, sweep."""
