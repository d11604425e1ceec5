"""What operations that change something share: their declaration, checks, parts of results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.sandbox.view.git_hooks import list_hooks
from ferrule.toolkits.files.preview import make_preview
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool

from .attempt import GitResult
from .run import MAX_SECONDS, GitRunner

_MAX_MESSAGE = 20_000
_MAX_SHOWN = 50
_UNFINISHED = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
)


def mutation(
    describe: Callable[[Mapping[str, Any], Context], str],
    side_effect: Literal["execute", "external"] = "execute",
) -> Callable[[Callable[..., Any]], Tool]:
    """Declare an operation that changes something: it runs alone, and a person sees what it does.

    Args:
        describe: Returns what a call would do, for a preview.
        side_effect: `external` if it reaches a remote.
    """
    return tool(
        side_effect=side_effect,
        risk="high",
        timeout=MAX_SECONDS + 10,
        parallel=False,
        preview=make_preview(describe),
    )


def describe_files(changed: Sequence[str]) -> dict[str, Any]:
    """Return what a result says of the files that an operation changed."""
    return {"changed_files": list(changed[:_MAX_SHOWN]), "changed_count": len(changed)}


def check_idle(git: GitRunner) -> None:
    """Raise ToolFailed if a merge or the like is half done: to go on is the person's decision."""
    own = Path(git.repository.git_dir)
    under_way = next((name for name in _UNFINISHED if (own / name).exists()), None)
    if under_way:
        raise ToolFailed(
            ErrorType.IO_ERROR,
            "nothing was done: a merge, rebase or the like is half done "
            f"(`.git/{under_way}` is there); to finish it or give it up is the person's "
            "decision. `git_conflicts` shows what is open",
        )


def describe_hooks(git: GitRunner, ran: GitResult, names: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what a result says of hooks: those that ran, and those that should have."""
    present = list_hooks(git.repository)
    started = {name.partition(" ")[0] for name in ran.hooks}
    left_out = [name for name in names if name in present and name not in started]
    value: dict[str, list[str]] = {}
    if ran.hooks:
        value["hooks_run"] = list(ran.hooks)
    if left_out:
        value["hooks_not_run"] = left_out
    return value


def make_author_error(ran: GitResult) -> ToolFailed | None:
    """Return the error of a git that does not know who the person is, None for others."""
    if "user.useConfigOnly" not in ran.complaint and "tell me who you are" not in ran.complaint:
        return None
    return ToolFailed(
        ErrorType.NOT_FOUND,
        "nothing was committed: the person's git settings (~/.gitconfig) do not say who "
        "they are; ask them to set `user.name` and `user.email`",
    )


def check_message(message: str) -> str:
    """Return a message with a line end. Raises RetryCall for one that is empty or too long."""
    text = message.strip()
    if not text or len(text) > _MAX_MESSAGE or re.search(r"[\0-\x08\x0b-\x1f\x7f]", text):
        raise RetryCall(
            f"`message` must be text of 1 to {_MAX_MESSAGE} characters without control characters"
        )
    return text + "\n"
