"""Finding a tool among many: the index and its strategies, without I/O."""
