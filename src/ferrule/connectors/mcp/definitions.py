"""What a server says of itself: its tools, bounded, hashed, with nothing in them that a person
would not see.

A definition is kept as the server sent it, since that is what its hash and the difference after a
change are made from. What a model reads is made from it: texts without invisible characters
(control, direction, zero width, tags), descriptions of at most `DESCRIPTION` characters, and the
name of the server in front, so that it is known whose words these are.

Bounds are on everything: tools (`MAX_TOOLS`), bytes of one definition (`MAX_DEFINITION`), and what
`schemas.py` says. A tool out of bounds is left out and named with the reason, and the others stay.
A list that is not of the protocol's form is refused as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from ferrule.connectors.cleaning import clean, cleaned
from ferrule.connectors.json_values import mapping_of
from ferrule.connectors.schemas import arguments_of, depth_of
from ferrule.core.calls import compact
from ferrule.core.errors import ToolDefinitionError

MAX_TOOLS = 128
MAX_DEFINITION = 48 * 1024
DESCRIPTION = 2_000
INSTRUCTIONS = 4_000
_KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,90}")


@dataclass(frozen=True)
class Definition:
    """One tool, as the server described it (`raw`: the keys that mean something, nothing else)."""

    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) over all that the server says of the tool."""
        text = json.dumps(self.raw, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def schema(self) -> Mapping[str, Any]:
        """The input schema, texts in it cleaned."""
        return cast("Mapping[str, Any]", cleaned(self.raw["inputSchema"]))

    @property
    def description(self) -> str:
        """For the model: cleaned and cut."""
        said = self.raw.get("description") or self.raw.get("title") or self.name
        return clean(str(said))[:DESCRIPTION].strip() or self.name

    def hint(self, name: str) -> bool | None:
        """An annotation (`readOnlyHint`, …), or None where it is not a truth value. A claim, no
        fact.
        """
        found = mapping_of(self.raw.get("annotations")).get(name)
        return found if isinstance(found, bool) else None

    @property
    def must_be_task(self) -> bool:
        """Whether the tool runs only as a task of the 2025-11-25 protocol."""
        return mapping_of(self.raw.get("execution")).get("taskSupport") == "required"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a server offers, as it was listed once. `era` is the version that was spoken."""

    era: str = ""
    tools: tuple[Definition, ...] = ()
    resources: bool = False
    prompts: bool = False
    instructions: str = ""
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Sentences about tools that are not offered."""

    def get(self, name: str) -> Definition | None:
        """A tool by the server's name for it."""
        return next((one for one in self.tools if one.name == name), None)

    def digest(self) -> str:
        """What an approval of the definitions is bound to: all but the era."""
        said = [
            sorted(one.hash for one in self.tools),
            self.resources,
            self.prompts,
            self.instructions,
        ]
        return hashlib.sha256(compact(said).encode("utf-8", "replace")).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return {
            "era": self.era,
            "tools": [dict(one.raw) for one in self.tools],
            "resources": self.resources,
            "prompts": self.prompts,
            "instructions": self.instructions,
        }

    def text(self) -> str:
        """All of it for a person, one fact a line, so that two of them can be compared line by
        line.
        """
        lines = [f"resources: {self.resources}", f"prompts: {self.prompts}"]
        if self.instructions:
            lines += ["instructions:", *(f"  {line}" for line in self.instructions.splitlines())]
        for one in self.tools:
            lines += [
                f"tool {one.name}",
                *(f"  {line}" for line in _indented(one.raw).splitlines()),
            ]
        return "\n".join(lines) + "\n"


def from_json(given: Mapping[str, Any]) -> Manifest:
    """A manifest that was kept. Raises KeyError, TypeError or ValueError where it is damaged."""
    tools = tuple(Definition(dict(one)) for one in given["tools"])
    for one in tools:
        _ = one.name, one.raw["inputSchema"]
    instructions = str(given["instructions"])
    return Manifest(
        str(given["era"]), tools, bool(given["resources"]), bool(given["prompts"]), instructions
    )


def read_manifest(
    listed: Iterable[Mapping[str, Any]],
    *,
    era: str,
    resources: bool,
    prompts: bool,
    instructions: str,
    more: bool = False,
) -> Manifest:
    """From what a server listed; `more`: it had more pages. Never raises for what it says: what
    cannot be used is left out and named.
    """
    kept: dict[str, Definition] = {}
    left_out = ["it lists more pages of tools than are read"] if more else []
    for raw in listed:
        name = clean(str(raw.get("name", "")))[:60]
        problem = _problem(raw)
        if not problem and str(raw["name"]) in kept:
            problem = "it is listed twice, and the first one counts"
        if not problem and len(kept) == MAX_TOOLS:
            problem = f"there are more than {MAX_TOOLS} tools"
        if problem:
            left_out.append(f"tool `{name}` is left out: {problem}")
        else:
            kept[str(raw["name"])] = Definition(
                {key: raw[key] for key in _KEYS if raw.get(key) is not None}
            )
    tools = tuple(kept[name] for name in sorted(kept))
    most = len(left_out) - 20
    said = (*left_out[:20], f"{most} more tools are left out") if most > 0 else tuple(left_out)
    return Manifest(era, tools, resources, prompts, clean(instructions)[:INSTRUCTIONS], said)


def _problem(raw: Mapping[str, Any]) -> str:
    name = raw.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "its name cannot be the name of a tool"
    if depth_of(dict(raw), 64) > 64 or not isinstance(raw.get("inputSchema"), Mapping):
        return "its schema is missing or nested too deeply"
    if len(compact(dict(raw)).encode("utf-8", "replace")) > MAX_DEFINITION:
        return f"its definition has more than {MAX_DEFINITION} bytes"
    try:
        arguments_of(name, cast("Mapping[str, Any]", raw["inputSchema"]))
    except ToolDefinitionError as error:
        return clean(error.detail)[:300]
    return ""


def _indented(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True)
