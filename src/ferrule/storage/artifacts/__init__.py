"""Large outputs kept aside, addressed by their hash: in files, in an object store or in PostgreSQL.

Modules: `files`, `intake`, `objects`, `parts`, `postgres`, `store`.
"""
