"""The files of a session go where it goes on: kept after each call that may change them.

Modules: `plugin` (what switches it on), `session_files` (when files are kept and brought),
`kept_files` (what is kept, and how it is brought), `repositories` (what of git).
"""
