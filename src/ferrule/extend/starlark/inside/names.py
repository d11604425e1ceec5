"""The names that a script finds: which there are, and which of them are answered by the owner of the worker.

Source: requirement 003, "Built-ins available inside run", and systems.md §4.1 for the further members.
"""

from __future__ import annotations

ASKED: dict[str, tuple[str, ...]] = {
    "exec": ("run",),
    "fs": (
        "read", "write", "append", "exists", "stat", "list", "find", "mkdir", "move", "remove", "replace", "replace_all",
        "read_lines", "insert_at", "replace_lines",
    ),
    "http": ("get", "post"),
    "cache": ("get", "set", "has", "delete", "clear"),
    "meta": (
        "tool_register", "hook_register", "agent_register", "register_tool", "register_hook", "register_agent",
        "call_tool", "list_tools",
    ),
    "time": ("now",),
    "uuid": ("v4",),
    "": ("delegate", "env", "random", "sleep"),
}  # fmt: skip
"""Namespace to members that do something outside: each is one message to the owner. `""`: names of their own."""

COMPUTED: dict[str, tuple[str, ...]] = {
    "re": ("match", "search", "findall", "replace", "split"),
    "string": ("truncate", "pad_left", "pad_right", "trim"),
    "math": ("floor", "ceil", "round"),
    "hash": ("sha256", "md5"),
    "base64": ("encode", "decode"),
    "url": ("parse", "encode"),
    "crypto": ("hmac_sha256",),
    "set": ("union", "intersection", "difference"),
    "template": ("render",),
    "validate": ("email", "url", "json"),
    "": ("block", "allow", "modify"),
}
"""Members that only compute: they are worked out in the worker. `json` is the Starlark library's own."""

TOLD: dict[str, tuple[str, ...]] = {"log": ("info", "warn", "error", "debug"), "": ("print",)}
"""Members that tell the owner something and get no answer."""


def namespaces() -> dict[str, tuple[str, ...]]:
    """Every namespace with its members, for documentation and completion; `""` holds plain functions."""
    found: dict[str, tuple[str, ...]] = {"json": ("encode", "decode")}
    for table in (ASKED, COMPUTED, TOLD):
        for space, members in table.items():
            found[space] = (*found.get(space, ()), *members)
    return found


def full(space: str, member: str) -> str:
    """`fs.read`, or `env` alone."""
    return f"{space}.{member}" if space else member
