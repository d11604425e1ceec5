"""What outlives a process: the journal, artifacts, settings, the audit, and trust.

Packages: `artifacts`, `audit`, `export`, `journal`, `settings`, `statistics`.
Modules: `locations`, `paths`, `store_urls`, `trust`.

Nothing here knows about models.
"""
