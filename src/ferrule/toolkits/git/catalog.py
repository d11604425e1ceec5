"""The operations of git: one table of names, groups and search words for tools, finder and docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from ferrule.core.value_class import frozen
from ferrule.tools.definition import Tool

from .branch_operations import (
    git_fetch,
    git_pull_ff_only,
    git_push,
    git_rebase,
    git_stash,
    git_switch,
)
from .read_operations import (
    git_branch_list,
    git_conflicts,
    git_current_branch,
    git_diff,
    git_discover,
    git_log,
    git_merge_base,
    git_remote_list,
    git_show,
    git_status,
)
from .staging import git_add, git_commit

Group = Literal["read", "mutation"]


@frozen
class Operation:
    """An operation of git.

    `name` is the tool's name without `git_`. `words` are further words that people use for it, as a
    search would see them.
    """

    name: str
    group: Group
    tool: Tool
    words: str

    @property
    def key(self) -> str:
        """The logical key of the tool."""
        return f"git_{self.name}"


_TABLE: tuple[tuple[str, Group, Tool, str], ...] = (
    (
        "status",
        "read",
        git_status,
        "uncommitted modified modify untracked clean dirty pending unsaved left working tree state",
    ),
    (
        "current_branch",
        "read",
        git_current_branch,
        "current on am i checked out now name detached head which",
    ),
    (
        "log",
        "read",
        git_log,
        "history commits recent last week messages author who when since past previous",
    ),
    (
        "diff",
        "read",
        git_diff,
        "difference compare between patch lines changed edit added removed staged versus against",
    ),
    (
        "branch_list",
        "read",
        git_branch_list,
        "branches list all other local remote exist available which",
    ),
    (
        "remote_list",
        "read",
        git_remote_list,
        "remotes url address hosted origin upstream where configured",
    ),
    (
        "show",
        "read",
        git_show,
        "details detail single one commit contents contains revision display print old version "
        "was view object",
    ),
    (
        "discover",
        "read",
        git_discover,
        "repository repo root top level folder directory inside is find",
    ),
    (
        "conflicts",
        "read",
        git_conflicts,
        "unresolved resolve resolving merge conflict conflicted both markers unmerged",
    ),
    (
        "merge_base",
        "read",
        git_merge_base,
        "common ancestor shared fork forked diverge diverged point parted base split",
    ),
    (
        "fetch",
        "mutation",
        git_fetch,
        "download new refs remote tracking update server without merging sync get latest origin",
    ),
    (
        "switch",
        "mutation",
        git_switch,
        "change checkout go move to another branch create new start called back",
    ),
    (
        "pull_ff_only",
        "mutation",
        git_pull_ff_only,
        "pull fast forward up to date upstream latest changes bring merge remote",
    ),
    (
        "rebase",
        "mutation",
        git_rebase,
        "replay onto top of linear linearize move work newest rewrite history",
    ),
    (
        "stash",
        "mutation",
        git_stash,
        "shelve put away aside bring back restore pop unfinished work later temporarily",
    ),
    (
        "push",
        "mutation",
        git_push,
        "upload send publish share remote server origin commits",
    ),
    ("add", "mutation", git_add, "stage file index track new everything put include all changes"),
    ("commit", "mutation", git_commit, "record save staged message make checkpoint changes work"),
)

OPERATIONS: Mapping[str, Operation] = {
    name: Operation(name, group, made, words) for name, group, made, words in _TABLE
}
"""By name, in the order in which they are offered."""

DEFAULT_OPERATIONS = ("status", "current_branch", "log", "diff", "branch_list", "remote_list")
"""Operations of `git_tools` unless the caller chooses."""


_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "current_branch": ("branch", "--show-current"),
    "branch_list": ("branch",),
    "remote_list": ("remote",),
    "discover": ("rev-parse",),
    "conflicts": ("status",),
    "merge_base": ("merge-base",),
    "pull_ff_only": ("pull", "--ff-only"),
}
"""The subcommands of operations that are called otherwise."""


def format_command(operation: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the git command that an operation amounts to, for rules about commands.

    Its arguments are the texts among the values, in the order of the parameters; flags and numbers
    have no place in it.
    """
    words = ["git", *_COMMANDS.get(operation, (operation,))]
    for value in values.values():
        texts = cast("list[object]", value) if isinstance(value, list) else [value]
        words += [text for text in texts if isinstance(text, str) and text]
    return tuple(words)
