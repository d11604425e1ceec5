"""Hooks from files, commands, servers and functions, and guards that ship."""
