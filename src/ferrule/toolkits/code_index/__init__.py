"""The code index: where the source files of the workspace define and use names.

Modules:
    plugin          the plugin `index`
    tools           find_symbol, find_references, code_outline
    index           the index of a workspace, kept up to date by a thread of its own
    store           what it knows, in SQLite
    languages       languages, their grammars and queries (`queries/*.scm`)
    parser          the process that parses; `parser_process` runs it
    ranking         which definitions are used most
    outline         the outline as text
"""
