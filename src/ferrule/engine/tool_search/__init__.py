"""Tool search in a session: which deferred tools its model has found, and the tools that find them.

Modules: `discovery`, `index`, `search_tools`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .discovery import ToolDiscovery, defer_many, first_specs
    from .index import Indexes
    from .search_tools import list_deferred_tools, prepare_search

__all__ = [
    "Indexes",
    "ToolDiscovery",
    "defer_many",
    "first_specs",
    "list_deferred_tools",
    "prepare_search",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".discovery": ("ToolDiscovery", "defer_many", "first_specs"),
        ".index": ("Indexes",),
        ".search_tools": ("list_deferred_tools", "prepare_search"),
    },
)
