"""A topology as a whole: declare, pause and resume it; the databases that hold its states."""
