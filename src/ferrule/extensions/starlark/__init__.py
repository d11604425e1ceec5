"""Run Starlark scripts in worker processes that can do nothing but ask this process.

Packages: `inside`.
Modules: `pool`, `process`, `script`.
"""
