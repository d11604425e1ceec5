"""The plugin `code`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool

from . import code_tool

READING = (
    "add_task",
    "file_outline",
    "file_tree",
    "get_current_time",
    "get_working_directory",
    "git_command",
    "list_files",
    "list_tasks",
    "read_file",
    "read_file_tail",
    "search_files",
    "update_task",
)
"""The tools that ship and change nothing outside the session."""


@frozen
class CodeMode:
    """The tool `run_code`: short scripts whose functions are other tools.

    Attributes:
        tools: The names of these tools; one that the agent does not have is left out.
    """

    name: ClassVar[str] = "code"
    tools: tuple[str, ...] = READING

    def setup(self, setup: Setup) -> Parts:
        """Return the tool."""
        return Parts(catalog=CatalogChanges(add=self._make_tools))

    def _make_tools(self, catalog: Catalog) -> Iterable[Tool]:
        found = [catalog.get(name) for name in self.tools]
        return (code_tool([tool for tool in found if tool is not None]),)
