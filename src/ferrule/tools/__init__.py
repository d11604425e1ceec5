"""What a tool is: definition, schema from a signature, catalog, reliability. Knows nothing of models, files or people."""
