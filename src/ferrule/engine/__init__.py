"""The engine: one dispatcher is the only way to a tool, one driver carries out what the machine says."""
