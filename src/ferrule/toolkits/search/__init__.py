"""`search_files`: look for text in the files of the workspace, by ripgrep or by Python.

Modules: `matcher`, `pack`, `pattern`, `python`, `ripgrep`, `rows`, `scope`, `search_files`.
"""
