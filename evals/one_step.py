"""One-step tasks over the built-in tools, asked without a session: the tools as a session offers
them, and whether a call is the expected one (`evals/tasks.yaml` says how tasks are written).

A call is right if the tool is the expected one and every argument equals the expected one; an
optional argument may be left out where its default is meant, and `./x` is `x`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from ferrule.core.calls import ToolCall
from ferrule.models.client import ToolSpec
from ferrule.tools.definition import Tool

TOOLKITS = (
    "files.tools",
    "files.browse",
    "search.search_files",
    "commands",
    "git.git_command",
    "tasks",
    "clock",
)
SYSTEM = "You are a careful assistant."


def load_tools() -> list[Tool]:
    """Return the built-in tools that the tasks are about."""
    found = [
        t for kit in TOOLKITS for t in importlib.import_module(f"ferrule.toolkits.{kit}").TOOLS
    ]
    return sorted(found, key=lambda tool: tool.full_name)


def specs(*, examples: bool) -> list[ToolSpec]:
    """The built-in tools as a session offers them."""
    return [
        ToolSpec(
            t.full_name,
            t.name,
            t.description,
            t.schema_json(),
            t.examples if examples else (),
            side_effect=t.declared_side_effect,
        )
        for t in load_tools()
    ]


def fits(call: ToolCall, expected: dict[str, Any], spec: ToolSpec) -> bool:
    """Whether the arguments are the expected ones."""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        return False
    properties = json.loads(spec.schema).get("properties", {})
    wanted = expected["arguments"]
    for name in {*given, *wanted}:
        default = properties.get(name, {}).get("default")
        value, want = given.get(name, default), wanted.get(name, default)
        allowed = want["any"] if isinstance(want, dict) and set(want) == {"any"} else [want]
        if _plain(value) not in [_plain(a) for a in allowed]:
            return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.removeprefix("./").rstrip("/") or value
    return [_plain(v) for v in value] if isinstance(value, list) else value


def judge(
    calls: Sequence[ToolCall], task: dict[str, Any], tools: dict[str, ToolSpec]
) -> tuple[bool, bool]:
    """(right tool, right tool and arguments). Several calls are judged by the first."""
    if not calls:
        return False, False
    call = calls[0]
    answers = [a for a in (task, *task.get("also", ())) if a["tool"] == call.tool]
    return bool(answers), any(fits(call, a, tools[call.tool]) for a in answers)
