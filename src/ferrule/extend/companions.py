"""Two tools that scripts read files with: exact text and plain facts, where the model's own tools give lines to look at.

They are tools like any other, so a script's `fs.read` passes the run's gate, rules and workspace, and stands in the journal.
An agent that has tools from files needs them in its catalog (`sources.Loaded.tools` holds them).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.guard.entry import Entry
from ferrule.guard.workspace import Workspace
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, Loading, Tool

PIECE = 40_000
"""Characters that one call returns at the most. In most files that is less than a result may hold."""
MOST_ENTRIES = 200


@tool(side_effect="read", risk="medium")
def read_text(
    path: Annotated[str, READS, "Path of the file, relative to the workspace."],
    context: Context,
    offset: Annotated[int, "Characters to skip."] = 0,
    limit: Annotated[int, "Characters to return at the most."] = PIECE,
) -> dict[str, Any]:
    """Read the exact text of a file, in pieces: `text`, and `next`, the offset of the following piece or null at the end."""
    text = context.resource(Workspace).read_text(path)
    if not 0 <= offset <= len(text):
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, f"`offset` = {offset}: `{path}` has {len(text)} characters"
        )
    end = offset + max(1, min(limit, PIECE))
    return {"text": text[offset:end], "next": end if end < len(text) else None}


@tool(side_effect="read", risk="safe")
def stat_path(
    path: Annotated[str, READS, "Path of the file or folder, relative to the workspace."],
    context: Context,
    entries: Annotated[bool, "For a folder: say the same of each entry in it."] = False,
    skip: Annotated[int, "Entries to leave out at the beginning."] = 0,
) -> dict[str, Any]:
    """Tell what a path is: kind (file, dir, link, other), size in bytes, time of the last change (seconds since 1970)."""
    workspace = context.resource(Workspace)
    facts = _facts(workspace.stat(path))
    if entries:
        found = sorted(workspace.entries(path), key=lambda entry: entry.name)
        facts["entries"] = [_facts(entry) for entry in found[skip : skip + MOST_ENTRIES]]
        facts["next"] = skip + MOST_ENTRIES if skip + MOST_ENTRIES < len(found) else None
    return facts


def _facts(entry: Entry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "name": entry.name,
        "kind": entry.kind,
        "size": entry.size,
        "modified": entry.modified,
    }


COMPANIONS: tuple[Tool, ...] = tuple(
    replace(made, loading=Loading.INTERNAL) for made in (read_text, stat_path)
)
