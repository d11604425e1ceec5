"""Skills: texts that explain how to do a kind of task, which the model reads when it needs them.

Modules: `catalogue`, `git_ignored`, `loading`, `plugin`, `resources`, `skill_file`, `tool`.
"""
