"""What people and programs take out of a journal: transcripts, JSON lines, bundles and archives.

Modules: `archive`, `bundles`, `jsonl`, `redacted`, `story`, `transcripts`.
"""
