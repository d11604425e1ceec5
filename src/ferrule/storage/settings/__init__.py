"""The settings of a run: declared in one table, read from every layer, merged and checked.

| module | what it contains |
|---|---|
| `table` | every setting, with its type, texts, and what a repository may do |
| `yaml_tree` | YAML files as a tree with places |
| `values` | values read from files, environment and flags |
| `merge` | the layers merged |
| `restrictions` | which settings only restrict, and hold without trust |
| `mistakes` | all mistakes of settings at once |
| `settings` | the settings of a run |
| `writing` | single settings written into the person's own file |
"""
