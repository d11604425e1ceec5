"""What people already have for other programs, used as it is: `make foreign`.

Modules: `hooks`, `openapi`, `setups`, `skills`, `table`.
"""
