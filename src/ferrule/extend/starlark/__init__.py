"""Runs Starlark: scripts in worker processes that can do nothing but ask this process."""
