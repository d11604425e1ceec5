"""What a person was shown of a call: a digest of the preview and of the files that it is about.

An approval is for what was shown. The digest is taken before the question and again before the
call runs; if both differ, the question is asked again. It covers, for a call that may change
something: the text of its preview, the content (or absence) of each path that it touches, and the
scripts that its commands name (`bash build.sh`, `./run`, `sh < x`), with the file in which a build
tool looks up what to run. Between the second look and the call
itself remains a moment in which a change is not seen.

Content is read only of what tools may read in the workspace. Of anything else (a secret, a file
outside, what a link leads to) size, time and number are taken: a question opens nothing, and the
journal holds no digest of a secret.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ferrule.core.errors import ToolFailed
from ferrule.permissions import filesystem
from ferrule.permissions.approvals import ApprovalRequest
from ferrule.permissions.call_analysis import analyse_call
from ferrule.permissions.command_analysis.named_scripts import find_build_files, find_scripts
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.tools.definition import SideEffect, Tool

MAX_BYTES = 64 * 1024 * 1024
"""Of a larger file size, time and number are taken instead of the content."""
MAX_NAMES = 5_000
"""Names of a folder that are looked at."""


async def digest_files(
    tool: Tool,
    values: Mapping[str, Any],
    gate: PermissionGate,
    workspace: filesystem.Workspace | None,
) -> str:
    """Return the digest of the files that a call is about; empty for one that only reads.

    Args:
        tool: The tool.
        values: The arguments of the call.
        gate: What judges it.
        workspace: What files are read through; without one, none is read.
    """
    if tool.side_effect in (SideEffect.NONE, SideEffect.READ):
        return ""
    return await asyncio.to_thread(_digest, tool, values, gate, workspace)


def digest_shown(request: ApprovalRequest, files: str) -> str:
    """Return the digest of a preview and of the files it is about; empty if there are none."""
    if not files:
        return ""
    text = f"{files}\0{request.preview}\0{request.preview_error}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(
    tool: Tool,
    values: Mapping[str, Any],
    gate: PermissionGate,
    workspace: filesystem.Workspace | None,
) -> str:
    digest = hashlib.sha256()
    for path in dict.fromkeys(_paths_of(tool, values, gate)):
        digest.update(b"\0path\0" + os.fsencode(path) + b"\0" + _describe(path, workspace))
    return digest.hexdigest()


def _paths_of(tool: Tool, values: Mapping[str, Any], gate: PermissionGate) -> Iterator[str]:
    """Yield the absolute paths whose content decides what the call would do."""
    context = gate.locate(tool, values)
    case = analyse_call(tool, values, context)
    if not case.analyses:
        yield from (need.value for need in case.needs if need.kind in ("read", "write"))
        return
    for analysis in case.analyses:
        for part in analysis.parts:
            names = (*find_scripts(part, analysis.parts), *find_build_files(part))
            for folder in part.folders or ("",):
                start = posixpath.join(context.starting_folder, folder)
                yield from (posixpath.join(start, name) for name in names)


def _describe(path: str, workspace: filesystem.Workspace | None) -> bytes:
    """Return what is at a path: its content, or why there is none. Links are not followed."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            # What the link leads to is looked at, so that a script behind one is seen, too.
            target = os.stat(path)  # noqa: PTH116 - text paths throughout
            return b"link\0" + os.fsencode(Path(path).readlink()) + b"\0" + _encode_status(target)
        if stat.S_ISDIR(status.st_mode):
            return b"folder\0" + _describe_folder(path)
        if stat.S_ISREG(status.st_mode):
            return b"file\0" + _describe_file(path, status, workspace)
        return b"other"
    except OSError as error:
        return f"error {error.errno}".encode()


def _describe_file(
    path: str, status: os.stat_result, workspace: filesystem.Workspace | None
) -> bytes:
    if workspace is None or status.st_size > MAX_BYTES:
        return _encode_status(status)
    try:
        return hashlib.sha256(workspace.read(path, limit=MAX_BYTES)).digest()
    except ToolFailed:
        return _encode_status(status)


def _describe_folder(path: str) -> bytes:
    digest = hashlib.sha256()
    left = MAX_NAMES
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted((*names, *folders)):
            left -= 1
            if left < 0:
                return digest.digest()
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - text paths throughout
            digest.update(os.fsencode(name) + b"\0" + _encode_status(status))
    return digest.digest()


def _encode_status(status: os.stat_result) -> bytes:
    if stat.S_ISDIR(status.st_mode):
        return b"folder"
    return f"{status.st_mode} {status.st_size} {status.st_ctime_ns} {status.st_ino}".encode()
