"""Internal tools that scripts work with: exact file contents, plain facts about paths, requests.

They are tools like any other, so a script's `fs.read` passes the run's gate, rules and workspace,
and is in the journal; its `http.get` meets rules for hosts and plan mode. A request of a file that
a person allowed needs no further approval, unless a rule asks. An agent that has tools from files
needs these in its catalog (`sources.LoadedTools.make_tools` adds them).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.extensions.builtins.scope import running_scripts
from ferrule.permissions.filesystem.entry import FileEntry
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, URL, Loading, Tool

PIECE_SIZE = 40_000
"""Characters that one call returns at most. For most files that is less than a result may hold."""
MAX_ENTRIES = 200
WEB_PIECE_SIZE = 8_000
"""Characters of a body in one result: as JSON each may take six bytes."""
LONGEST_REQUEST = 310.0
"""Seconds. A script's own timeout for a request is at most 300."""


@tool(side_effect="read", risk="medium")
def read_text(
    path: Annotated[str, READS, "Path of the file, relative to the workspace."],
    context: Context,
    offset: Annotated[int, "Characters to skip."] = 0,
    limit: Annotated[int, "Characters to return at the most."] = PIECE_SIZE,
) -> dict[str, Any]:
    """Read the exact text of a file, in pieces: `text`, and `next`, the offset of the following
    piece or null at the end.
    """
    text = context.resource(Workspace).read_text(path)
    if not 0 <= offset <= len(text):
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, f"`offset` = {offset}: `{path}` has {len(text)} characters"
        )
    end = offset + max(1, min(limit, PIECE_SIZE))
    return {"text": text[offset:end], "next": end if end < len(text) else None}


@tool(side_effect="read", risk="safe")
def stat_path(
    path: Annotated[str, READS, "Path of the file or folder, relative to the workspace."],
    context: Context,
    entries: Annotated[bool, "For a folder: say the same of each entry in it."] = False,
    skip: Annotated[int, "Entries to leave out at the beginning."] = 0,
) -> dict[str, Any]:
    """Tell what a path is: kind (file, dir, link, other), size in bytes, time of the last change
    (seconds since 1970).
    """
    workspace = context.resource(Workspace)
    facts = _facts(workspace.stat(path))
    if entries:
        found = sorted(workspace.entries(path), key=lambda entry: entry.name)
        facts["entries"] = [_facts(entry) for entry in found[skip : skip + MAX_ENTRIES]]
        facts["next"] = skip + MAX_ENTRIES if skip + MAX_ENTRIES < len(found) else None
    return facts


@tool(side_effect="external", risk="safe", timeout=LONGEST_REQUEST)
async def web_request(
    method: Annotated[Literal["GET", "POST"], "What is asked."],
    url: Annotated[str, URL, "The address."],
    script: Annotated[str, "The call whose script asks."],
    context: Context,
    body: Annotated[str | None, "What is sent."] = None,
) -> dict[str, Any]:
    """Send the request that a script has ready. A hook may change its body; its address is what the
    script asked for.
    """
    scope = running_scripts(context).get(script)
    if scope is None or scope.pending_request is None:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, "nothing was requested: no script waits for this"
        )
    request, until = scope.pending_request
    if (request.method, request.target.url) != (method, url):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"`{url}` was not requested: it is not what the script asked for",
        )
    sent = replace(request, body=None if body is None else body.encode())
    answer = await scope.web.send(sent, until)
    scope.response_body = answer["body"]
    return {**answer, **_piece(scope.response_body, 0)}


@tool(side_effect="none", risk="safe")
async def web_body(
    script: Annotated[str, "The call whose script asks."],
    offset: Annotated[int, "Characters to skip."],
    context: Context,
) -> dict[str, Any]:
    """More of the body that came in answer to a script's request: `body`, and `next`, the offset of
    the following piece or null.
    """
    scope = running_scripts(context).get(script)
    if scope is None or not 0 <= offset <= len(scope.response_body):
        raise ToolFailed(ErrorType.NOT_FOUND, "there is no such body")
    return _piece(scope.response_body, offset)


def _piece(text: str, offset: int) -> dict[str, Any]:
    """Return a piece small enough for a result, however its characters are encoded."""
    end = offset + WEB_PIECE_SIZE
    return {"body": text[offset:end], "next": end if end < len(text) else None}


def _facts(entry: FileEntry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "name": entry.name,
        "kind": entry.kind,
        "size": entry.size,
        "modified": entry.modified,
    }


INTERNAL_TOOLS: tuple[Tool, ...] = tuple(
    replace(made, loading=Loading.INTERNAL)
    for made in (read_text, stat_path, web_request, web_body)
)
