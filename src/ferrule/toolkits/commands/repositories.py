"""What a command that wanted to make or configure a repository of git met: nobody but the person
writes `.git/config` and hooks.

git stops half-way and says "Permission denied" of a folder that is not there, which explains
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace

from .plan import printable

_TOUCHED = re.compile(r"(?P<repository>(?:.*/)?\.git)/(?P<what>hooks|config)(?:\.lock)?$")
_MOST = 3


def repository_hints(refused: Iterable[str], workspace: Workspace) -> list[str]:
    """What to know and to do, by the names that a command was refused to create. Looks at what is
    there by now.
    """
    found: dict[str, str] = {}
    for name in refused:
        if match := _TOUCHED.fullmatch(name):
            found.setdefault(match["repository"], match["what"])
    hints = [_hint(repository, what, workspace) for repository, what in list(found.items())[:_MOST]]
    return [hint for hint in hints if hint]


def _hint(repository: str, what: str, workspace: Workspace) -> str:
    above = repository.removesuffix(".git").rstrip("/") or "."
    shown, place = printable(repository), printable(above)
    if _there(workspace, f"{repository}/HEAD"):
        if what == "hooks":
            return ""  # a repository that lacks the folder: what is refused is said already
        return (
            f"settings in `{shown}/config` are the person's to change: give one command its "
            "own with `git -c name=value`; "
            "`git config --global` holds for the commands of this session"
        )
    left = (
        f"`{shown}` is half made and no repository (`rm -r {shown}` removes it)"
        if _there(workspace, repository)
        else "nothing is left of it"
    )
    return (
        f"a repository was begun in `{place}` and not finished, since no command may create "
        "hooks and settings of one: "
        f"{left}; ask the person to run `git init {place}`, or make it below /tmp"
    )


def _there(workspace: Workspace, name: str) -> bool:
    try:
        workspace.stat(name)
    except ToolFailed:
        return False
    return True
