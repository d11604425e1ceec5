"""What an approval of a server covers, as lines for a person: its start, and the tools it offers.

Nothing is left out: facts and keywords of schemas that have no words here are shown as JSON. Each
line says one fact, with its label, so that two texts can be compared line by line.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ferrule.connectors.json_values import mapping_or_empty

from .definitions import Manifest, ToolDefinition

_LABEL_WIDTH = 11
_LABELS = {
    "url": "address",
    "transport": "transport",
    "readable": "reads",
    "writable": "writes",
    "network": "hosts",
    "downloads from": "downloads",
    "env file": "env file",
    "confined by": "confined by",
    "oauth": "signs in",
    "folder": "named in",
}
"""Facts that are shown as they are, in this order."""
_SAID_ELSEWHERE = ("command", "workspace", "cwd", "env", "headers")
_SAID_OF_SCHEMAS = ("type", "description", "properties", "items", "required", "enum", "default")


def describe_facts(facts: Mapping[str, Any]) -> list[str]:
    """Return what is approved of a server's description, one fact a line.

    Args:
        facts: `McpServer.approval_facts()`.
    """
    return [f"{label:{_LABEL_WIDTH}} {_on_one_line(value)}" for label, value in _list_facts(facts)]


def _list_facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "command" in facts:
        yield "program", shlex.join(facts["command"])
        yield "works in", facts.get("cwd") or "this folder"
        yield "workspace", "may be read and written" if facts.get("workspace") else "is not shown"
        if not facts.get("network"):
            yield "hosts", "none"
    for key in (*_LABELS, *(key for key in facts if key not in (*_LABELS, *_SAID_ELSEWHERE))):
        if key == "transport" and "command" in facts and facts.get(key) == "stdio":
            continue
        for value in _list_values(facts.get(key)):
            yield _LABELS.get(key, key), value
    for key, label in (("env", "variables"), ("headers", "headers")):
        for name, value in mapping_or_empty(facts.get(key)).items():
            yield label, f"{name} = {value}"


def _list_values(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return [str(one) for one in cast("list[object]", value)]
    return [value if isinstance(value, str) else _encode(value)]


def describe_manifest(manifest: Manifest) -> list[str]:
    """Return what a server offers, one fact a line, with all that a model would read."""
    lines = [f"resources   {_yes_or_no(manifest.resources)}"]
    lines.append(f"prompts     {_yes_or_no(manifest.prompts)}")
    if manifest.instructions:
        lines += ["instructions for the model:", *_indent(manifest.instructions, 2)]
    for tool in manifest.tools:
        lines += ["", f"tool {tool.name}", *_describe_tool(tool)]
    return lines


def _describe_tool(tool: ToolDefinition) -> Iterator[str]:
    raw = tool.raw
    if raw.get("title"):
        yield f"  title: {_on_one_line(str(raw['title']))}"
    yield from _indent(str(raw.get("description") or ""), 2)
    for key, label in (("inputSchema", "takes"), ("outputSchema", "returns")):
        if key in raw:
            yield from _describe_schema(label, raw[key], 2)
    for key, value in raw.items():
        if key not in ("name", "title", "description", "inputSchema", "outputSchema"):
            yield f"  {key}: {_encode(value)}"


def _describe_schema(name: str, schema: Any, depth: int, *, is_required: bool = False) -> list[str]:
    """Return a value's name, type and description, then what it is made of."""
    space = " " * depth
    if not isinstance(schema, Mapping):
        return [f"{space}{_on_one_line(name)}: {_encode(schema)}"]
    known = cast("Mapping[str, Any]", schema)
    types = known.get("type")
    words = [_on_one_line(name), "of any type"]
    if types:
        words[1] = _on_one_line(types) if isinstance(types, str) else _encode(types)
    if is_required:
        words.append("(required)")
    if "enum" in known:
        words.append(f"one of {_encode(known['enum'])}")
    if "default" in known:
        words.append(f"default {_encode(known['default'])}")
    lines = [space + " ".join(words), *_indent(str(known.get("description") or ""), depth + 4)]
    rest = {key: value for key, value in known.items() if key not in _SAID_OF_SCHEMAS}
    if rest:
        lines.append(f"{space}    also {_encode(rest)}")
    required = known.get("required")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    parts = mapping_or_empty(known.get("properties"))
    for part, inner in parts.items():
        lines += _describe_schema(part, inner, depth + 2, is_required=part in needed)
    unnamed = [one for one in needed if one not in parts]
    if unnamed:
        lines.append(f"{space}    also requires {_encode(unnamed)}")
    if "items" in known:
        lines += _describe_schema("each item", known["items"], depth + 2)
    return lines


def _indent(text: str, depth: int) -> list[str]:
    return [" " * depth + line for line in text.splitlines()]


def _on_one_line(text: str) -> str:
    """Return a text that cannot begin a line of its own: as JSON if it has line breaks."""
    return text if text.isprintable() else _encode(text)


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, sort_keys=True)
