"""Places in a folder that a person's own programs read because their home leads there.

    find_linked_places(["/home/p/dotfiles"], "/home/p", os.environ)  # /home/p/dotfiles/git

People keep their settings in a folder and link them: `~/.config/git -> ~/dotfiles/git`. Whoever
writes `dotfiles/git/config` writes `~/.config/git/config`, though no name there says so. So a place
is judged by each name by which the home leads to it as well: through links, `XDG_CONFIG_HOME` and
the like, or a variable that names a start-up file (`BASH_ENV`). Only the person can set these.

Links are looked at in the home, at each name of the lists, and one step into the folders among
these. Not covered: a folder that is itself, or lies below, what such a link leads to; links that
lie deeper; and programs in `~/.local/bin`, which are linked to be worked on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from .protected_names import DEFAULT_NAMES, PROTECTED, RESERVED, SECRET

_OWN = (
    *(".config/ferrule", ".config/ferrule/hooks", ".config/ferrule/tools", ".local/state/ferrule"),
    *(".claude/hooks", ".claude/agents", ".config/systemd/user"),
)
"""What Ferrule itself reads, and folders below those of the lists in which people link files."""
_BASES = {".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME"}
_NAMED_BY_VARIABLES = (
    *("BASH_ENV", "ENV", "PYTHONSTARTUP", "INPUTRC", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"),
    *("GIT_TEMPLATE_DIR", "CLAUDE_CONFIG_DIR", "FERRULE_CONFIG", "FERRULE_STATE", "MYVIMRC"),
    *("RIPGREP_CONFIG_PATH", "PIP_CONFIG_FILE", "NPM_CONFIG_USERCONFIG", "IPYTHONDIR", "PSQLRC"),
)
_PROGRAMS = ".local/bin"
_MOST_ENTRIES = 1000


def find_linked_places(
    roots: Iterable[str], home: str, variables: Mapping[str, str]
) -> Iterator[str]:
    """Yield the real paths below some folders that start-up files of the person lead to.

    Args:
        roots: The folders, free of links.
        home: The person's home folder.
        variables: The person's environment.
    """
    folders = tuple(f"{root}/" for root in roots)
    for place in _list_places(home, variables):
        real = os.path.realpath(place)
        for folder in folders:
            if not real.startswith(folder):
                continue
            if DEFAULT_NAMES.check(real.removeprefix(folder), write=True) is None:
                yield real


def _list_places(home: str, variables: Mapping[str, str]) -> Iterator[str]:
    yield from (variables[name] for name in _NAMED_BY_VARIABLES if _is_path(variables, name))
    there = frozenset(_list_names(home))
    for name in _list_known_names():
        if name.split("/")[0] in there:
            yield from _list_steps(f"{home}/{name}", name)
        for start, variable in _BASES.items():
            if name.startswith(start) and _is_path(variables, variable):
                yield from _list_steps(f"{variables[variable]}/{name.removeprefix(start)}", name)


def _list_steps(place: str, name: str) -> Iterator[str]:
    """Yield a place and, if it is a folder, the links in it."""
    yield place
    if name == _PROGRAMS:
        return
    try:
        with os.scandir(place) as entries:
            for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False):
                if entry.is_symlink():
                    yield entry.path
    except OSError:
        return


@cache
def _list_known_names() -> tuple[str, ...]:
    """Return the names of the lists that name one place: no wildcards, nothing of a repository."""
    patterns = (*_OWN, *PROTECTED, *RESERVED, *SECRET)
    return tuple(
        name for name in patterns if "*" not in name and not name.startswith(("/", ".git/"))
    )


def _is_path(variables: Mapping[str, str], name: str) -> bool:
    return variables.get(name, "").startswith("/") and "\0" not in variables[name]


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  names alone
    except OSError:
        return []
