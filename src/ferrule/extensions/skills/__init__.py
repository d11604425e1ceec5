"""Skills: texts that say how to do a kind of task, found in folders and read by the model when it
needs them.

Modules: `catalogue`, `git_ignored`, `loading`, `resources`, `skill_file`, `tool`.
"""
