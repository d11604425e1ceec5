"""`apply_patch`: a patch as calls of the tools that change one file each.

The tool itself changes nothing. Every file of the patch is a call of `write_file`, `edit_file`,
`move_path` or `delete_path`, with its own question, preview, hooks, copy for rewinding and record.
All of it is checked before the first call: a patch with a hunk that fits nowhere changes nothing.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.engine.usable_tools import UsableTools
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool

from . import edits, lines
from .edits import exists, invalid_arguments
from .patch import FileChange, explain_unfit, find_edits, parse_patch
from .tools import delete_path, edit_file, move_path, write_file

Step = tuple[str, dict[str, Any]]
"""A tool and its arguments."""

STEP_TOOLS = {each.full_name: each for each in (write_file, edit_file, move_path, delete_path)}


_DESCRIPTION = """Change files by a patch. Give a hunk about three lines of context on either side;
`@@ class A` or `@@ def f():` before it says where, if that is not enough. Example:
*** Begin Patch
*** Update File: src/app.py
@@ def main():
     name = read()
-    print(name)
+    print(name.strip())
*** Add File: src/new.py
+VALUE = 1
*** Delete File: old.py
*** End Patch"""


@tool(side_effect="none", risk="safe", parallel=False, description=_DESCRIPTION)
async def apply_patch(
    input: Annotated[str, "The patch, from `*** Begin Patch` to `*** End Patch`."],
    context: Context,
) -> str:
    """Change files by a patch."""
    return await run_patch(input, context)


async def run_patch(text: str, context: Context, folder: str = "") -> str:
    """Apply a patch, call by call.

    Args:
        text: The patch.
        context: The context of the call that applies it.
        folder: The folder of the workspace that its paths start from.

    Raises:
        RetryCall: It is no patch.
        ToolFailed: It does not fit, or a call was refused; what was done by then is said.
    """
    if context.call is None:
        raise ToolFailed(ErrorType.INTERNAL_ERROR, "a patch needs a session to make its calls")
    changes = [_move_to(folder, change) for change in parse_patch(text)]
    steps: list[Step] = []
    freed: set[str] = set()
    for change in changes:
        steps += _plan(change, context, freed)
        if change.target or change.action == "delete":
            freed.add(change.path)
    done: list[str] = []
    for name, arguments in steps:
        result = await context.call(name, arguments)
        if result.success:
            done.append(str(result.data))
            continue
        path = arguments.get("path") or arguments.get("source")
        before = f" Done before it: {'; '.join(done)}." if done else " Nothing was changed."
        raise ToolFailed(
            result.error_type, f"the patch stopped at `{path}`: {result.error_message}.{before}"
        )
    return "\n".join(done) or "the patch changes nothing"


def _move_to(folder: str, change: FileChange) -> FileChange:
    path = posixpath.join(folder, change.path)
    target = posixpath.join(folder, change.target) if change.target else ""
    # Models copy the line from another patch: a move to the same place is none.
    is_move = bool(target) and posixpath.normpath(target) != posixpath.normpath(path)
    return replace(change, path=path, target=target if is_move else "")


def find_command_patch(command: str | Sequence[str]) -> tuple[str, str] | None:
    """Return the patch that a command would hand to `apply_patch`, and the folder it goes to first.

    Models that know the program by this name write it with a here-document or as an argument,
    alone or as the text of `bash -lc`.
    """
    if isinstance(command, str):
        found = _HERE_DOCUMENT.fullmatch(command.strip())
        if found is not None:
            expands = not found["quote"] and re.search(r"[$`\\]", found["patch"])
            return None if expands else (found["patch"], found["folder"] or "")
        try:
            words = shlex.split(command) if _PROGRAM.match(command) else []
        except ValueError:
            return None
    else:
        words = list(command)
    match words:
        case ["apply_patch" | "applypatch", patch]:
            return patch, ""
        case ["bash" | "sh", "-c" | "-lc", text]:
            return find_command_patch(text)
        case _:
            return None


_PROGRAM = compile_lazily(r"\s*apply_?patch\s")
_HERE_DOCUMENT = compile_lazily(
    r"(?:cd\s+(?P<folder>[\w./-]+)\s*&&\s*)?apply_?patch\s*<<-?\s*(?P<quote>['\"]?)(?P<end>\w+)"
    r"(?P=quote)\n(?P<patch>.*)\n(?P=end)",
    re.DOTALL,
)


def _plan(change: FileChange, context: Context, freed: Set[str]) -> Iterator[Step]:
    """Yield the calls for one file, after looking whether they fit.

    `freed`: paths that the patch deletes or moves away before.
    """
    workspace = context.resource(Workspace)
    if change.action == "add":
        if change.path not in freed and exists(workspace, change.path):
            raise invalid_arguments(
                f"{quote_path(change.path)} exists already; nothing was changed. Use `*** Update "
                f"File: {change.path}`"
            )
        yield _allow("write_file", {"path": change.path, "content": change.content}, context)[0]
        return
    if change.action == "delete":
        yield _allow("delete_path", {"path": change.path}, context)[0]
        return
    if change.target and change.target not in freed and exists(workspace, change.target):
        raise invalid_arguments(
            f"{quote_path(change.target)} exists already; nothing was changed. Leave out `*** Move "
            f"to: {change.target}`, or delete that file first"
        )
    if change.hunks:
        given = {"path": change.path, "old_string": " ", "new_string": ""}
        _, is_allowed = _allow("edit_file", given, context)
        text = lines.decode(workspace.read(change.path))
        try:
            arguments = {
                "path": change.path, **find_edits(text, change, quote_path(change.path))
            }  # fmt: skip
            edits.plan_text_replacement(arguments)(text, quote_path(change.path))
        except ToolFailed as failure:
            if is_allowed:
                raise ToolFailed(failure.error_type, _for_patches(failure.message)) from None
            # What the message would show, nobody has agreed to show.
            raise explain_unfit(change.path) from None
        yield "edit_file", arguments
    if change.target:
        yield _allow("move_path", {"source": change.path, "target": change.target}, context)[0]


def _for_patches(message: str) -> str:
    """Return a refusal of an edit in the words of a patch."""
    message = message.replace("Call `edit_file` again with", "Send the patch again with")
    return message.replace("`old_string`", "the hunk's old text").replace(
        "`new_string`", "its new text"
    )


def _allow(name: str, arguments: dict[str, Any], context: Context) -> tuple[Step, bool]:
    """Return a call, and whether rules allow it without a question.

    Raises:
        ToolFailed: Rules deny it.
    """
    decision = context.resource(UsableTools).decide(STEP_TOOLS[name], _complete(arguments))
    if decision.verdict == "deny":
        path = arguments.get("path") or arguments.get("source")
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, f"`{path}`: {decision.reason}; nothing was changed"
        )
    return (name, arguments), decision.verdict == "allow"


def _complete(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"overwrite": False, "recursive": False, **arguments}
