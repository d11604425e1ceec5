"""How families of models write tool calls into text, and a reader that finds them (`Reader`).

`dialects_for_model(name)` gives the dialects of a model, best first; `ALL_DIALECTS` is every
dialect, for reading by detection.

    dialect          what a dialect and a form of call are, and what reading them gives
    offered_tools    the tools on offer: names, and types of arguments
    registry         the dialects, and which family of models writes which
    reader           reads a reply: prose, reasoning and calls, while it arrives
    regions          parts of a reply that are not prose, each followed to its end
    fences           fenced blocks
    reasoning        the tags that set reasoning apart
    visible_text     the text of a reply, put together around what is taken out of it

Forms of calls: `tagged_calls`, `parameter_tags`, `section_tokens`, `pythonic`, `harmony`, `gemma`,
`mistral`, `functionary`. JSON: `call_shapes`, `lenient_json`, `brackets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .dialect import Dialect
    from .reader import Reading, ReplyReader
    from .registry import ALL_DIALECTS, FENCED, dialects_for_model, starts_in_reasoning

__all__ = [
    "ALL_DIALECTS",
    "FENCED",
    "Dialect",
    "Reading",
    "ReplyReader",
    "dialects_for_model",
    "starts_in_reasoning",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".dialect": ("Dialect",),
        ".reader": ("Reading", "ReplyReader"),
        ".registry": ("ALL_DIALECTS", "FENCED", "dialects_for_model", "starts_in_reasoning"),
    },
)
