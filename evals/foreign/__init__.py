"""What people already have for other programs, used as it is: `make lab NAME=foreign`.

Modules: `hooks`, `openapi`, `setups`, `skills`, `table`.
"""
