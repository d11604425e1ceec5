"""Go back to an earlier point of a session, with the files that its tools have changed since.

Modules: `changes`, `file_copies`, `rewind`.
"""
