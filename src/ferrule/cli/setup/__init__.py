"""`ferrule setup`: choose the model that is used when none is named.

Modules: `command`, `dialogue`.
"""
