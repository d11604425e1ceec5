"""Built-ins that scripts ask the run for: one file for each kind of thing, each a table from names to functions."""
