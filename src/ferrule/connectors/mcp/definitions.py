"""What a server says of itself: its tools, bounded and hashed, without invisible characters.

A definition is kept as the server sent it, since its hash and the difference after a change are
made from that. What a model reads is derived from it: texts without invisible characters (control,
direction, zero width, tags), descriptions of at most `DESCRIPTION` characters, and the name of the
server in front, so that it is clear whose words these are.

Everything is bounded: the number of tools (`MAX_TOOLS`), the bytes of one definition
(`MAX_DEFINITION`), and what `schemas.py` says. A tool out of bounds is left out and named with the
reason; the others stay. A list that does not have the protocol's form is refused as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.connectors.bounded_schemas import (
    drop_null_keywords,
    make_arguments,
    make_output,
    nesting_depth,
)
from ferrule.connectors.json_values import mapping_or_empty
from ferrule.connectors.text_cleaning import clean_json, clean_text
from ferrule.core.calls import encode_json
from ferrule.core.errors import ToolDefinitionError
from ferrule.core.value_class import frozen
from ferrule.tools.definition import Output
from ferrule.tools.forking import cached_property

from .raw_results import LEFT_OUT

MAX_TOOLS = 2048
MAX_DEFINITION = 48 * 1024
MAX_DESCRIPTION = 2_000
MAX_INSTRUCTIONS = 4_000
_MAX_NAMED = 20
_MAX_DEPTH = 64
_KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,90}")


@dataclass(frozen=True)
class ToolDefinition:
    """One tool as the server described it.

    `raw` holds the keys that mean something and nothing else.
    """

    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) of all that the server says of the tool."""
        text = json.dumps(self.raw, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def schema(self) -> Mapping[str, Any]:
        """The input schema with its texts cleaned."""
        return cast("Mapping[str, Any]", clean_json(self.raw["inputSchema"]))

    @cached_property
    def output(self) -> Output | None:
        """The checker of what the tool returns; None if it promises nothing.

        Raises:
            ToolDefinitionError: The schema of what it returns cannot be used.
        """
        schema = clean_json(self.raw.get("outputSchema"))
        return make_output(self.name, mapping_or_empty(schema)) if schema else None

    @property
    def description(self) -> str:
        """The description for the model, cleaned and cut."""
        text = self.raw.get("description") or self.raw.get("title") or self.name
        return clean_text(str(text))[:MAX_DESCRIPTION].strip() or self.name

    def hint(self, name: str) -> bool | None:
        """Return an annotation (`readOnlyHint`, …), or None if it is not a boolean.

        It is a claim of the server, not a fact.
        """
        value = mapping_or_empty(self.raw.get("annotations")).get(name)
        return value if isinstance(value, bool) else None

    @property
    def requires_task(self) -> bool:
        """Whether the tool runs only as a task of the 2025-11-25 protocol."""
        return mapping_or_empty(self.raw.get("execution")).get("taskSupport") == "required"


@frozen
class Manifest:
    """What a server offered when it was last listed. `era` is the version that was spoken."""

    era: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    resources: bool = False
    prompts: bool = False
    instructions: str = ""
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Sentences about tools that are not offered, and promises that are not checked."""

    def get_tool(self, name: str) -> ToolDefinition | None:
        """Return a tool by the server's name for it."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def digest(self) -> str:
        """Return the digest that an approval of the definitions is bound to: of all but the era."""
        parts = [
            sorted(tool.hash for tool in self.tools),
            self.resources,
            self.prompts,
            self.instructions,
        ]
        return hashlib.sha256(encode_json(parts).encode("utf-8", "replace")).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "era": self.era,
            "tools": [dict(tool.raw) for tool in self.tools],
            "resources": self.resources,
            "prompts": self.prompts,
            "instructions": self.instructions,
        }


def manifest_from_json(stored: Mapping[str, Any]) -> Manifest:
    """Read a stored manifest. Raises KeyError, TypeError or ValueError if it is damaged."""
    tools = tuple(ToolDefinition(dict(raw)) for raw in stored["tools"])
    for tool in tools:
        _ = tool.raw["name"], tool.raw["inputSchema"]
    return Manifest(
        era=str(stored["era"]),
        tools=tools,
        resources=bool(stored["resources"]),
        prompts=bool(stored["prompts"]),
        instructions=str(stored["instructions"]),
    )


def read_manifest(
    listed: Iterable[Mapping[str, Any]],
    *,
    era: str,
    resources: bool,
    prompts: bool,
    instructions: str,
    has_more_pages: bool = False,
) -> Manifest:
    """Read what a server listed. Never raises: what cannot be used is left out and named.

    Args:
        listed: The tools as JSON.
        era: The version of the protocol that the server speaks.
        resources: Whether the server has resources.
        prompts: Whether the server has prompts.
        instructions: The server's text on how to use it.
        has_more_pages: Whether the server had more pages of tools than were read.
    """
    tools: dict[str, ToolDefinition] = {}
    left_out = ["it lists more pages of tools than are read"] if has_more_pages else []
    for sent in listed:
        raw = _drop_null_keywords(sent)
        name = clean_text(str(raw.get("name", "")))[:60]
        problem = _problem(raw)
        if not problem and str(raw["name"]) in tools:
            problem = "it is listed twice, and the first one counts"
        if not problem and len(tools) == MAX_TOOLS:
            problem = f"there are more than {MAX_TOOLS} tools"
        if problem:
            left_out.append(f"tool `{name}` is left out: {problem}")
        else:
            tools[str(raw["name"])] = tool = ToolDefinition(
                {key: raw[key] for key in _KEYS if raw.get(key) is not None}
            )
            try:
                _ = tool.output
            except ToolDefinitionError as error:
                reason = clean_text(error.detail)[:300]
                left_out.append(f"what it returns is not checked: {reason}")
    unnamed = len(left_out) - _MAX_NAMED
    if unnamed > 0:
        left_out = [*left_out[:_MAX_NAMED], f"{unnamed} more tools are left out"]
    return Manifest(
        era=era,
        tools=tuple(tools[name] for name in sorted(tools)),
        resources=resources,
        prompts=prompts,
        instructions=clean_text(instructions)[:MAX_INSTRUCTIONS],
        left_out=tuple(left_out),
    )


def _drop_null_keywords(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a definition whose schemas have no keywords that are null."""
    if nesting_depth(dict(raw), _MAX_DEPTH) > _MAX_DEPTH:
        return raw  # which is left out
    schemas = {
        key: drop_null_keywords(raw[key])
        for key in ("inputSchema", "outputSchema")
        if isinstance(raw.get(key), Mapping)
    }
    return {**raw, **schemas}


def _problem(raw: Mapping[str, Any]) -> str:
    if LEFT_OUT in raw:
        return clean_text(str(raw[LEFT_OUT]))[:300]
    name = raw.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "its name cannot be the name of a tool"
    if nesting_depth(dict(raw), _MAX_DEPTH) > _MAX_DEPTH or not isinstance(
        raw.get("inputSchema"), Mapping
    ):
        return "its schema is missing or nested too deeply"
    if len(encode_json(dict(raw)).encode("utf-8", "replace")) > MAX_DEFINITION:
        return f"its definition has more than {MAX_DEFINITION} bytes"
    try:
        make_arguments(name, cast("Mapping[str, Any]", raw["inputSchema"]))
    except ToolDefinitionError as error:
        return clean_text(error.detail)[:300]
    return ""
