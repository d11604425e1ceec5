"""Cohere's chat protocol, version 2, and every server that speaks it.

Modules: `answers`, `client`.
"""
