"""What runs inside a worker process. Imported there without the rest of Ferrule: nothing here may
import from outside.

Modules: `calls`, `frames`, `jail`, `names`, `pure`, `recursion`, `scripts`, `worker`.
"""
