"""The tools of a session that programs outside may call: MCP clients, and other frameworks.

Left out are tools for other tools only, those that rules deny outright, those that need a scope
which is not held, and the tools of the tool search.
"""

from __future__ import annotations

from ferrule.tools.definition import SEARCH_TOOLS_SOURCE, Tool

from .session import Session


def list_served_tools(session: Session) -> dict[str, Tool]:
    """Return the tools that a program outside may call, by the names that providers accept."""
    names = session.catalog.api_names()
    return {names[tool.full_name]: tool for tool in session.catalog if _is_served(session, tool)}


def find_served_tool(session: Session, name: str) -> Tool | None:
    """Return the tool that is called by this name, or None if it is not served."""
    tool = session.catalog.get(name)
    return tool if tool is not None and _is_served(session, tool) else None


def _is_served(session: Session, tool: Tool) -> bool:
    return tool.source != SEARCH_TOOLS_SOURCE and session.is_usable(tool)
