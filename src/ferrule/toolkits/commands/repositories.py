"""Hints for a command that could not create or configure a git repository, or rebase in one.

Only the person writes `.git/config`, hooks, and what git obeys when it goes on with an operation.
git stops half-way and says "Permission denied" of a file that does not exist, which explains
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.core.errors import ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.filesystem.workspace import Workspace

from .plan import make_printable

_TOUCHED = compile_lazily(r"(?P<repository>(?:.*/)?\.git)/(?P<what>hooks|config)(?:\.lock)?$")
_UNFINISHED = compile_lazily(
    r"(?:.*/)?\.git/(?:.*/)?(?P<what>rebase-merge|rebase-apply|sequencer)/[^/ ]+"
)
_OPERATIONS = {
    "rebase-merge": (
        "no command may write a strategy that `git rebase` obeys when a person goes on with it, "
        "nor its steps outside the repository of the workspace: `git rebase --abort` takes back "
        "what was begun; use the tool `git_rebase`, or ask the person"
    ),
    "rebase-apply": (
        "no command may write the options that `git am` and `git rebase --apply` obey when a "
        "person goes on with them: `git am --abort` or `git rebase --abort` takes back what was "
        "begun; `git apply` applies a patch"
    ),
    "sequencer": (
        "no command may write the options that `git cherry-pick` and `git revert` obey when a "
        "person goes on with several commits: `git cherry-pick --quit` takes back what was begun; "
        "give one commit at a time, or no options"
    ),
}
_MAX_HINTS = 3


def repository_hints(refused: Iterable[str], workspace: Workspace) -> list[str]:
    """Explain refused creations inside of repositories, and what to do about them.

    Looks at what exists by now.

    Args:
        refused: Names that a command was not allowed to create.
        workspace: Where the command ran.
    """
    found: dict[str, str] = {}
    unfinished: dict[str, str] = {}
    for name in refused:
        match = _TOUCHED.fullmatch(name)
        if match:
            found.setdefault(match["repository"], match["what"])
        operation = _UNFINISHED.fullmatch(name)
        if operation:
            unfinished.setdefault(operation["what"], _OPERATIONS[operation["what"]])
    first = list(found.items())[:_MAX_HINTS]
    hints = [_hint(repository, what, workspace) for repository, what in first]
    return [hint for hint in (*hints, *unfinished.values()) if hint]


def _hint(repository: str, what: str, workspace: Workspace) -> str:
    above = repository.removesuffix(".git").rstrip("/") or "."
    shown = make_printable(repository)
    place = make_printable(above)
    if _exists(workspace, f"{repository}/HEAD"):
        if what == "hooks":
            return ""  # A repository without the folder: the refusal has already been reported.
        return (
            f"settings in `{shown}/config` are the person's to change: give one command its "
            "own with `git -c name=value`; "
            "`git config --global` holds for the commands of this session"
        )
    if _exists(workspace, repository):
        left = f"`{shown}` is half made and no repository (`rm -r {shown}` removes it)"
    else:
        left = "nothing is left of it"
    return (
        f"a repository was begun in `{place}` and not finished, since no command may create "
        "hooks and settings of one: "
        f"{left}; ask the person to run `git init {place}`, or make it below /tmp"
    )


def _exists(workspace: Workspace, name: str) -> bool:
    try:
        workspace.stat(name)
    except ToolFailed:
        return False
    return True
