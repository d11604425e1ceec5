"""Tool search in a session: which deferred tools its model has found, and the tools that find them.

Modules: `automatic`, `discovery`, `index`, `search_tools`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .discovery import ToolDiscovery
    from .index import Indexes

__all__ = ["Indexes", "ToolDiscovery"]

__getattr__, __dir__ = lazy_names(
    __name__, {".discovery": ("ToolDiscovery",), ".index": ("Indexes",)}
)
