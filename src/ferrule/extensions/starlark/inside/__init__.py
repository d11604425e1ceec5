"""What runs inside a worker process.

It is imported there without the rest of Ferrule: nothing here may import from outside.

Modules: `frames`, `jail`, `names`, `preprocessing`, `computed`, `scripts`, `worker`.
"""
