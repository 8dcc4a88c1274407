"""A topology as a whole: declared, paused, resumed; the databases that hold its states."""
