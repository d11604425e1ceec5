"""The plugin `shapes`: tools in the forms that a family of models was trained on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup
from ferrule.storage.plugins.manifests import list_coding_tools
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import BUILTIN_NAMESPACE, Loading, Tool
from ferrule.tools.usual_arguments import accept_usual_arguments

_FAMILIES = {
    "gpt": re.compile(r"gpt-|codex|o\d"),
    "gemini": re.compile(r"gemini-"),
    # Qwen Code's names; smaller models of the family do better with tools described in full.
    "qwen": re.compile(r"qwen.*coder"),
    "claude": re.compile(r"(?:[\w.]*anthropic\.)?claude-[a-z]+-(?:[4-9]|\d\d)(?:\D|$)"),
}


@frozen
class FamilyTools:
    """The tools of the model's family, each made of calls of our own.

    The tools whose place they take are kept from the model and do the work. If one of those is not
    there, or another tool has one of these names, the tools stay as they are. So they do where the
    settings or an agent name one of our own.

    Attributes:
        shapes: The family, `own` for none, or `auto` for the model's.
        profile: The tools that a run offers; with `all` the tools stay as they are.
    """

    name: ClassVar[str] = "shapes"
    shapes: str = "auto"
    profile: str | None = "coding"

    def setup(self, setup: Setup) -> Parts:
        """Return the tools of the family of the agent's model."""
        family = load_family(choose_family(self.shapes, setup.model), setup.model)
        if self.profile == "all" or not family.added:
            return Parts()
        shaping = _Shaping(family, setup)
        return Parts(catalog=CatalogChanges(add=shaping.add, present=shaping.present))


def choose_family(chosen: str, model: str) -> str:
    """Return the family of a model: the one that the settings name, or its own; `own` for none."""
    if chosen != "auto":
        return chosen
    name = model.rpartition("/")[2].partition(":")[2] or model.rpartition("/")[2]
    families = (family for family, named in _FAMILIES.items() if named.match(name.lower()))
    return next(families, "own")


@frozen
class Family:
    """The tools of a family, those whose place they take, and those with other parameter names."""

    added: tuple[Tool, ...] = ()
    replaced: tuple[str, ...] = ()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])


def load_family(shapes: str, model: str) -> Family:
    """Return the tools of a family; OpenAI's tool types only for its Responses API."""
    match shapes:
        case "gpt":
            return _load_openai(model)
        case "claude":
            from . import anthropic

            return Family(anthropic.SHAPES, anthropic.REPLACED)
        case "gemini":
            from . import gemini

            return Family(gemini.SHAPES, gemini.REPLACED, gemini.RENAMED)
        case "qwen":
            from . import qwen

            return Family(qwen.SHAPES, qwen.REPLACED, qwen.RENAMED)
        case _:
            return Family()


def _load_openai(model: str) -> Family:
    from ferrule.toolkits.files.patch_tool import apply_patch

    if model.startswith("openai-responses:"):
        from . import openai

        typed = openai.choose_shapes(model)
        if typed:
            return Family(typed, openai.REPLACED)
    return Family((apply_patch,), ("edit_file",))


class _Shaping:
    """Puts the tools of a family in the place of ours, or leaves all as they are."""

    def __init__(self, family: Family, setup: Setup) -> None:
        self._family = family
        self._is_named = setup.internals.is_named
        self._ours: frozenset[str] = frozenset()
        """Our own tools that the family's take the place of; empty if they do not."""

    def add(self, tools: Catalog) -> tuple[Tool, ...]:
        family = self._family
        if any(map(self._is_named, list_coding_tools())):
            return ()
        own = (*family.replaced, *family.renamed)
        hidden = {name for name in own if f"{BUILTIN_NAMESPACE}::{name}" in tools}
        is_whole = all(name in tools or name in hidden for name in own)
        if not is_whole or any(tool.full_name in tools for tool in family.added):
            return ()
        # What a file put in the place of one is the person's, and stays.
        self._ours = frozenset(own) - hidden
        return tuple(map(accept_usual_arguments, family.added))

    def present(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [self._shape(tool) if tool.full_name in self._ours else tool for tool in tools]

    def _shape(self, tool: Tool) -> Tool:
        names = self._family.renamed.get(tool.full_name)
        if names is None:
            return replace(tool, loading=Loading.INTERNAL)
        from .renamed_arguments import rename_parameters

        return rename_parameters(tool, names)
