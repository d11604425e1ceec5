"""`search_files`: search for text in the files of the workspace, with ripgrep and RE2.

Modules:
    search_files  the plugin `search` and its tool, and `search` for programs
    pack          the tool as packs offer it
    scope         which files are searched
    pattern       from a pattern to a compiled expression, and a wider one for ripgrep
    ripgrep       which files can have a match
    rows          the result and its text
"""
