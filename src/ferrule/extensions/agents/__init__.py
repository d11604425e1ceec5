"""Agents from files: Markdown whose front matter says what one may use, and whose text is its
instructions.

Modules: `files`, `loading`, `scripts`.
"""
