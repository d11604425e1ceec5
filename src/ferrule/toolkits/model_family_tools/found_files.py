"""Files that are found by globs: their names, and their texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.core.errors import RetryCall
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.search.rows import SearchResult
from ferrule.toolkits.search.scope import Scope, find_files
from ferrule.tools.context import Context

from .calls import ShapeCalls

MAX_NAMES = 200
MAX_READ = 40
_GLOB = re.compile(r"[*?\[{]")


def find_names(context: Context, pattern: str, folder: str) -> str:
    """Return the names of files below a folder that match a glob, the last changed first."""
    workspace = context.resource(Workspace)
    scope = Scope(folder, (pattern,))
    names = list(find_files(workspace, scope, SearchResult(), lambda: False))
    if not names:
        return f"[no file matches `{pattern}`]"
    found = sorted(names, key=lambda name: -workspace.stat(name).modified)
    rows = found[:MAX_NAMES]
    if len(found) > MAX_NAMES:
        rows.append(f"[{MAX_NAMES} of {len(found)} files shown; name a smaller folder or glob]")
    return "\n".join(rows)


async def read_each(calls: ShapeCalls, context: Context, include: Sequence[str]) -> str:
    """Read files by paths and globs, each by a call of its own, and return their texts."""
    if not include:
        raise RetryCall("`include` needs at least one path or glob")
    names: dict[str, None] = {}
    for pattern in include:
        if _GLOB.search(pattern):
            listed = await calls.call(context, "glob", {"pattern": pattern})
            names |= dict.fromkeys(row for row in listed.split("\n") if not row.startswith("["))
        else:
            names[pattern] = None
    if not names:
        return "no file matches"
    parts: list[str] = []
    for name in list(names)[:MAX_READ]:
        result = await calls.result(context, "read_file", {"path": name})
        text = result.data if result.success else calls.failure("read_file", result).message
        parts.append(f"--- {name} ---\n{text}")
    if len(names) > MAX_READ:
        parts.append(f"[{MAX_READ} of {len(names)} files read; name the others]")
    return "\n\n".join(parts)
