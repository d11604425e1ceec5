"""Diffs of the editing tools: the text before and after a call, by the tool's own function.

Before a call runs, the text before is the file. Afterwards it is the copy kept for rewinding
(`engine.rewind.file_copies`), named in the journal by its hash, so a diff is the same live and when
a session is loaded. If no copy was kept, or it is older than artifacts are kept, there is no diff
and the result's text stands alone. Other tools that write have no diff either: what they would
change is not known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.events import FilesSeen
from ferrule.engine.rewind.states import NOTHING, parse_content
from ferrule.permissions.filesystem.workspace import Workspace, check_text
from ferrule.storage.artifacts.store import ArtifactStore, Scope
from ferrule.toolkits.files import edits, lines, tools
from ferrule.tools.definition import Tool

MAX_DIFF = 512 * 1024
"""Most characters before and after together; a larger diff is not sent."""

_CHANGES: dict[Callable[..., Any], Callable[[Mapping[str, Any]], edits.Change]] = {
    tools.write_file.handler: edits.plan_content_replacement,
    tools.edit_file.handler: edits.plan_text_replacement,
    tools.replace_lines.handler: edits.plan_line_replacement,
    tools.insert_lines.handler: edits.plan_line_insertion,
}
"""By handler and not by name: another tool may use one of these names."""


def preview_diff(
    tool: Tool, values: Mapping[str, Any], workspace: Workspace | None
) -> dict[str, Any] | None:
    """Return the diff of a call that has not run yet, as content of a call, or None.

    Reads the file through the workspace.
    """
    if workspace is None or tool.handler not in _CHANGES:
        return None
    path = str(values.get("path", ""))
    try:
        before = lines.decode(workspace.read(path)) if edits.exists(workspace, path) else None
    except (ToolFailed, OSError):
        return None
    return _diff(tool, values, workspace, before)


class RecordedDiffs:
    """Diffs of calls that have run, from the copies kept for rewinding."""

    def __init__(self, store: ArtifactStore, scope: Scope, workspace: Workspace | None) -> None:
        self._store = store
        self._scope = scope
        self._workspace = workspace

    def diff(
        self, tool: Tool, values: Mapping[str, Any], seen: FilesSeen | None
    ) -> dict[str, Any] | None:
        """Return a call's diff against the file as it was before, or None without a copy."""
        if self._workspace is None or seen is None or tool.handler not in _CHANGES:
            return None
        try:
            name = self._workspace.name(str(values.get("path", "")))
            state = dict(zip(seen.paths, seen.states, strict=False)).get(name)
            content = parse_content(state or "")
            if state is None or (state != NOTHING and content is None):
                return None
            before = None if content is None else self._text(content[0])
        except (ToolFailed, FerruleError, OSError):
            return None
        return _diff(tool, values, self._workspace, before)

    def _text(self, digest: str) -> str:
        artifact = self._store.find(self._scope, f"art-{digest}")
        data = self._store.read(self._scope, artifact.reference, 0, artifact.size)
        check_text(data, "the file")
        return lines.decode(data)


def _diff(
    tool: Tool, values: Mapping[str, Any], workspace: Workspace, before: str | None
) -> dict[str, Any] | None:
    try:
        name = workspace.name(str(values["path"]))
        after = _CHANGES[tool.handler](values)(before or "", name).text
    except (ToolFailed, LookupError, TypeError, ValueError):
        # Boundary of a look ahead: a call that would fail has no diff, and its result will say why.
        return None
    if after == before or len(before or "") + len(after) > MAX_DIFF:
        return None
    shown: dict[str, Any] = {"type": "diff", "path": str(workspace.root / name), "newText": after}
    return shown if before is None else {**shown, "oldText": before}


def first_line(diff: Mapping[str, Any]) -> int:
    """Return the first line, from 1, in which before and after differ."""
    before = str(diff.get("oldText") or "").split("\n")
    after = str(diff["newText"]).split("\n")
    pairs = enumerate(zip(before, after, strict=False), 1)
    return next(
        (number for number, (old, new) in pairs if old != new), min(len(before), len(after))
    )
