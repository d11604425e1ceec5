"""Build the approval request of a prepared call, and apply a person's answer.

An approval is for what was shown. The digest is taken before the question and again before the
call runs; if both differ, the question is asked again. It covers, for a call that may change
something: the text of its preview, the content (or absence) of each path that it touches, and the
scripts that its commands name (`bash build.sh`, `./run`, `sh < x`), with the file in which a build
tool looks up what to run, the program that a script's first line names, and each file that a word
of a program names which is not known to take data (`sed --file=x`). Where only the shell knows what
an interpreter runs, it covers the files that match (`bash x*.sh`), or all that lie where it starts
(`sh $X`). Between the second look and the call itself remains a moment in which a change is not
seen.

Content is read only of what tools may read in the workspace. Of anything else (a secret, a file
outside, what a link leads to) size, time and number are taken: a question opens nothing, and the
journal holds no digest of a secret.
"""

from __future__ import annotations

import asyncio
import glob
import hashlib
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.events import ConsentAnswered, PersonAnswered, ToolAnswered
from ferrule.core.join_policy import build_cancelled_result
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import Refuser
from ferrule.permissions import filesystem
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest, Approver
from ferrule.permissions.call_analysis import analyse_call, start_commands
from ferrule.permissions.command_analysis.named_scripts import (
    find_build_files,
    find_named_files,
    find_script_patterns,
    find_scripts,
)
from ferrule.permissions.command_analysis.syntax import CommandPart
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.tools.context import Context
from ferrule.tools.definition import SideEffect, Tool

from .dispatcher import PreparedCall
from .hooks.broken_guards import log_broken_guard
from .session_log import SessionLog


class AskingSession(Protocol):
    """A session, as far as its approver and its log are concerned."""

    @property
    def approver(self) -> Approver: ...

    @property
    def log(self) -> SessionLog: ...

    @property
    def gate(self) -> PermissionGate: ...


@frozen
class CurrentApprover:
    """Asks the session's current approver, for handlers that must ask.

    An interface may replace the approver after the session was opened. An answer is in the journal
    before the handler goes on.
    """

    session: AskingSession

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask, as `Approver.ask`. Deny rules and the mode `dontAsk` answer in a person's place.

        Raises JournalError, which is not an approval, if the answer cannot be written.
        """
        refusal = self.session.gate.find_question_refusal(request.tool, request.values)
        if refusal:
            refuser: Refuser = "mode" if self.session.gate.mode == "dontAsk" else "rule"
            answer = ApprovalAnswer("deny", by="gate", note=refusal, refused_by=refuser)
        else:
            answer = await self.session.approver.ask(request)
        event = ConsentAnswered(
            request.call.id,
            request.tool.name,
            request.reason,
            answer.choice,
            request.digest,
            answer.grant,
            answer.by,
            answer.note,
            answer.refuser,
        )
        self.session.log.record(event)
        if answer.choice in ("session", "remember"):
            self.session.gate.open_named_folders(request.tool, request.values)
        return answer


async def request_approval(
    prepared: PreparedCall,
    context: Context,
    approver: Approver,
    gate: PermissionGate,
    ended: Callable[[str], str | None] = lambda call_id: None,
) -> PersonAnswered | ToolAnswered:
    """Ask for an approval, apply the answer to the gate, and return it as an event.

    An error on the way counts as a denial. `ended` says why the request was withdrawn, if it was:
    then that is the call's result.
    """
    tool = prepared.tool
    decision = prepared.decision
    values = prepared.values
    assert tool is not None and decision is not None and values is not None
    call_id = prepared.call.id
    digest = prepared.evaluation.digest
    now = gate.decide(tool, values)
    if now.verdict == "allow" and not prepared.approval_reason:
        # An answer to an earlier call of this turn already covers this one.
        return PersonAnswered(call_id, "session", digest, now.rule, by="an earlier answer")
    if now.verdict == "deny":
        # An earlier command has changed the folder in which this one would start.
        return PersonAnswered(
            call_id, "deny", digest, now.rule, by="gate", note=now.reason, refused_by=now.refuser
        )
    try:
        request, shown = await _build_with_digest(prepared, context, gate)
        answer = await approver.ask(request)
        gate.apply_answer(tool, answer.choice, answer.grant, offers=decision.offers)
    except asyncio.CancelledError:
        why = ended(call_id)
        if why is None:
            raise
        return ToolAnswered(build_cancelled_result(prepared.call, why))
    except Exception as error:  # noqa: BLE001  boundary: an approver that breaks has not said yes (fail closed)
        log_broken_guard("the approver", call_id, error)
        message = str(error)
        if not isinstance(error, FerruleError):
            message = f"{type(error).__name__}: {message}"
        return PersonAnswered(
            call_id,
            "deny",
            digest,
            by="error",
            note=f"nobody could be asked: {message}",
            refused_by="error",
        )
    return PersonAnswered(
        call_id,
        answer.choice,
        digest,
        answer.grant,
        answer.by,
        answer.note,
        shown,
        answer.refuser,
        answer.hint,
    )


async def has_changed(
    shown: str, prepared: PreparedCall, context: Context, gate: PermissionGate
) -> bool:
    """Whether a person would now be shown something else than when they approved a call."""
    if not shown:
        return False
    _, now = await _build_with_digest(prepared, context, gate)
    return now != shown


async def _build_with_digest(
    prepared: PreparedCall, context: Context, gate: PermissionGate
) -> tuple[ApprovalRequest, str]:
    """Return a request, and the digest of what it shows.

    Files are looked at before the preview is made: one that changes meanwhile is seen before the
    call runs.
    """
    assert prepared.tool is not None and prepared.values is not None
    workspace = context.resources.get(filesystem.Workspace)
    files = await digest_files(
        prepared.tool,
        prepared.values,
        gate,
        workspace if isinstance(workspace, filesystem.Workspace) else None,
    )
    request = await build_request(prepared, context)
    return request, digest_shown(request, files)


async def build_request(
    prepared: PreparedCall, context: Context, *, died: str = ""
) -> ApprovalRequest:
    """Build what a person is shown. A preview that fails is none; it never decides anything.

    `died` explains an unknown outcome, see `ApprovalRequest`.
    """
    tool = prepared.tool
    decision = prepared.decision
    values = prepared.values
    assert tool is not None and decision is not None and values is not None
    shown = ""
    why_none = ""
    if tool.preview is not None:
        try:
            shown = await tool.preview(values, context)
        except ToolFailed as failure:
            # Not the end of the call: a yes is for its arguments, and what is in their way may
            # change. Nor does the model learn without a yes why it would fail.
            why_none = f"this call would fail now: {failure}"
        except Exception as error:  # noqa: BLE001  boundary: the person learns that there is no preview, and why
            why_none = f"no preview: {error}"
    return ApprovalRequest(
        call=prepared.call,
        tool=tool,
        risk=str(tool.risk),
        reason=died or decision.reason,
        labels=decision.labels,
        preview=shown,
        offers=() if died else decision.offers,
        digest=prepared.evaluation.digest,
        identity=context.identity,
        values=values,
        has_unknown_outcome=bool(died),
        preview_error=why_none,
    )


MAX_BYTES = 64 * 1024 * 1024
"""Of a larger file size, time and number are taken instead of the content."""
MAX_NAMES = 5_000
"""Names of a folder that are looked at."""
MAX_INTERPRETERS = 5
"""Scripts that one script's first line leads to; Linux follows no more."""


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
    context = start_commands(tool, values, context)
    for analysis in case.analyses:
        for part in analysis.parts:
            names = (*find_scripts(part, analysis.parts), *find_build_files(part))
            for folder in part.folders or ("",):
                start = posixpath.join(context.starting_folder, folder)
                yield from (posixpath.join(start, name) for name in names)
                yield from _find_named_files(part, start)
                for pattern in find_script_patterns(part):
                    matches = glob.iglob(pattern, root_dir=start, include_hidden=True)  # noqa: PTH207 - text paths throughout
                    found = sorted(islice(matches, MAX_NAMES))
                    yield from (posixpath.join(start, name) for name in found)


def _find_named_files(part: CommandPart, start: str) -> Iterator[str]:
    """Yield the files that words of a command name, and build files in folders that they name."""
    for name in find_named_files(part):
        path = posixpath.join(start, name)
        if os.path.isfile(path):  # noqa: PTH113 - text paths throughout
            yield path
        elif path != start:
            yield from (posixpath.join(path, file) for file in find_build_files(part))


def _describe(
    path: str, workspace: filesystem.Workspace | None, interpreters: int = MAX_INTERPRETERS
) -> bytes:
    """Return what is at a path: its content, or why there is none. Links are not followed.

    `interpreters` says how often a script is still followed to the program of its first line.
    """
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            # What the link leads to is looked at, so that a script behind one is seen, too.
            target = os.stat(path)  # noqa: PTH116 - text paths throughout
            return b"link\0" + os.fsencode(Path(path).readlink()) + b"\0" + _encode_status(target)
        if stat.S_ISDIR(status.st_mode):
            return b"folder\0" + _describe_folder(path)
        if stat.S_ISREG(status.st_mode):
            return b"file\0" + _describe_file(path, status, workspace, interpreters)
        return b"other"
    except OSError as error:
        return f"error {error.errno}".encode()


def _describe_file(
    path: str, status: os.stat_result, workspace: filesystem.Workspace | None, interpreters: int
) -> bytes:
    if workspace is None or status.st_size > MAX_BYTES:
        return _encode_status(status)
    try:
        content = workspace.read(path, limit=MAX_BYTES)
    except ToolFailed:
        return _encode_status(status)
    digest = hashlib.sha256(content).digest()
    named = re.match(rb"#![ \t]*([^\s\0]+)", content)
    if named is None or not interpreters:
        return digest
    # A relative name begins where the command starts: at the root, as a rule, or beside the script.
    name = os.fsdecode(named[1])
    folders = dict.fromkeys((str(workspace.root), posixpath.dirname(path)))
    places = (posixpath.join(folder, name) for folder in folders)
    return digest + b"".join(_describe(place, workspace, interpreters - 1) for place in places)


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
