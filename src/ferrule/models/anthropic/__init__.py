"""Anthropic's Messages protocol, and every server that speaks it.

Modules: `answers`, `client`.
"""
