"""Exports of a journal for people and programs.

| module | what it contains |
|---|---|
| `jsonl` | sessions as JSON lines, and importing them |
| `archive` | closed sessions moved to files of their own |
| `bundles` | sessions in one file with their artifacts |
| `redaction` | records without secrets |
| `steps`, `transcripts` | sessions for people: steps; plain text, Markdown, a screenplay |
"""
