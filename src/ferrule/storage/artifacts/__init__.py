"""Large outputs stored outside the journal, addressed by their hash.

`store` is the contract; `files`, `memory`, `objects` and `postgres` are the stores; `intake` is
what they share; `readers` reads parts of an artifact from any store.
"""
