"""The web console: what runs, what it asks for and what it did, in a browser."""
