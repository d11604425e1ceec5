"""What outlives a process: the journal, settings and trust. Knows nothing of models."""
