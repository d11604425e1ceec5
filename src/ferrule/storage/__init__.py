"""What outlives a process: the journal, artifacts, settings, the audit and trust. Knows nothing of
models.

Packages: `artifacts`, `audit`, `export`, `journal`, `settings`, `statistics`.
Modules: `locations`, `paths`, `store_urls`, `trust`.
"""
