"""The settings of a run: declared in one table, read from every layer, merged and checked.

Modules: `merge`, `settings`, `table`, `values`, `yaml_tree`.
"""
