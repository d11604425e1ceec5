"""`search_files`: search for text in the files of the workspace, with ripgrep and Python.

Modules:
    search_files     the plugin `search` and its tool, and `search` for programs
    pack             the tool as packs offer it
    scope            which files are searched
    pattern          from a pattern to a Python expression, and a wider one for ripgrep
    ripgrep          which files can have a match
    matcher_process  exact matching, in a process that can be ended
    matcher          that process: a script of its own
    rows             the result and its text
"""
