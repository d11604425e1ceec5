"""Agents from files: Markdown with front matter that limits the agent and text that instructs it.

Modules: `agent_file`, `loading`.
"""
