"""The names that a script can use, and which of them the owner of the worker answers.

Sources: requirement 003, "Built-ins available inside run", and systems.md §4.1 for further members.
"""

from __future__ import annotations

OWNER_BUILTINS: dict[str, tuple[str, ...]] = {
    "exec": ("run",),
    "fs": (
        "read",
        "write",
        "append",
        "exists",
        "stat",
        "list",
        "find",
        "glob",
        "copy",
        "diff",
        "mkdir",
        "move",
        "remove",
        "replace",
        "replace_all",
        "read_lines",
        "line_count",
        "insert_at",
        "replace_lines",
        "delete_lines",
    ),
    "http": ("get", "post"),
    "cache": ("get", "set", "has", "delete", "clear"),
    "ctx": ("get", "set", "has", "delete", "clear", "snapshot"),
    "metrics": ("incr", "get", "reset", "snapshot"),
    "parallel": ("launch", "wait_all", "wait_any", "race", "join"),
    "meta": (
        "tool_register",
        "hook_register",
        "agent_register",
        "register_tool",
        "register_hook",
        "register_agent",
        "call_tool",
        "list_tools",
    ),
    "task": ("poll", "wait"),
    "time": ("now",),
    "uuid": ("v4", "v7"),
    "os": ("cwd", "hostname", "platform", "args"),
    "": ("delegate", "emit", "env", "random", "sleep"),
}
"""Namespaces and their members with effects outside: each call is one message to the owner.

`""` holds plain functions.
"""

WORKER_BUILTINS: dict[str, tuple[str, ...]] = {
    "re": ("match", "search", "findall", "find_all", "replace", "split"),
    "string": ("truncate", "pad_left", "pad_right", "trim", "upper", "lower", "split", "join"),
    "math": ("abs", "min", "max", "floor", "ceil", "round"),
    "hash": ("sha256", "sha1", "sha512", "md5"),
    "base64": ("encode", "decode"),
    "url": ("parse", "encode"),
    "crypto": ("hmac_sha256", "hmac_sha512"),
    "set": (
        "new",
        "values",
        "size",
        "contains",
        "union",
        "intersection",
        "intersect",
        "difference",
        "diff",
        "symmetric_difference",
        "is_subset",
    ),
    "template": ("render",),
    "validate": ("email", "url", "json"),
    "": ("block", "allow", "modify"),
}
"""Members that only compute, inside the worker. `json` is the Starlark library's own."""

REWRITTEN_CALLS = ("assert", "log")
"""Functions whose calls `inside.preprocessing` rewrites.

The library cannot bind their names: one is reserved and one is a namespace.
"""

OUTPUT_BUILTINS: dict[str, tuple[str, ...]] = {
    "log": ("info", "warn", "error", "debug"),
    "": ("print",),
}
"""Members that tell the owner something and get no answer."""


def list_namespaces() -> dict[str, tuple[str, ...]]:
    """Return every namespace with its members, for documentation and completion.

    `""` holds plain functions.
    """
    all_members: dict[str, tuple[str, ...]] = {"json": ("encode", "decode"), "": REWRITTEN_CALLS}
    for table in (OWNER_BUILTINS, WORKER_BUILTINS, OUTPUT_BUILTINS):
        for space, members in table.items():
            all_members[space] = (*all_members.get(space, ()), *members)
    return all_members


def full_name(space: str, member: str) -> str:
    """Return `fs.read`, or `env` for a plain function."""
    return f"{space}.{member}" if space else member
