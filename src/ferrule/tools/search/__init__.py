"""Find a tool among many: an index of tools and the strategies that rank them, without I/O.

Modules: `bm25`, `document`, `embeddings`, `field_weights`, `index`, `inverted_index`,
`options`, `default_ranking`, `word_pieces`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .options import ToolSearch

__all__ = ["ToolSearch"]

DEFER_ABOVE = 40
"""Default number of tools above which the tools of servers and documents are deferred."""

__getattr__, __dir__ = lazy_names(__name__, {".options": ("ToolSearch",)})
