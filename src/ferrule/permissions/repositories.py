"""The git repository that a folder belongs to, and the places that its settings name. Runs no git.

    found = find_repository("/home/p/work/app")
    found.repository        # its folders, or None
    found.problem           # why one that seems to be there is not used

A `.git` in the workspace is text that anybody may have written: `gitdir: /home/p/other/.git`. So a
repository outside the workspace is believed to be its own only if it says so itself, in files that
came from nobody but the person:

* linked worktree: `commondir` of the folder that is named is the repository around it, and its file
  `gitdir` names this very `.git`;
* submodule: `core.worktree` in the configuration of the folder that is named is this folder;
* subfolder of a repository: `.git` is a folder in one of the folders above, and the same person's.

A repository that was moved away by `git init --separate-git-dir` names nobody: it counts as soon as
the person sets `core.worktree` in it. The home folder as a whole is never taken for one.

Not protected: a linked worktree that was removed without `git worktree remove`, in whose place
somebody puts another folder.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.opened_files import open_for_reading

from .linked_places import find_linked_places
from .protected_names import GIT_FOLDER_ENTRIES, is_git_folder
from .provenance import CommandWritable, Origin, TrustedPath, UntrustedPath, trust_path

_MAX_BYTES = 1024 * 1024
_MAX_INCLUDES = 20
_HOOKS = (
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "post-index-change",
)
"""Names of hooks: githooks(5)."""


@frozen
class Repository:
    """The folders of a repository: absolute real paths.

    Attributes:
        work_tree: The folder with `.git`.
        git_dir: Where HEAD and the index of this work tree are.
        common_dir: Where objects, refs, configuration and hooks are; often the same.
    """

    work_tree: str
    git_dir: str
    common_dir: str


@frozen
class FoundRepository:
    """A repository, or None; and why one that is named is not used, empty if none is."""

    repository: Repository | None = None
    problem: str = ""


def find_repository(root: str | os.PathLike[str], home: str | None = None) -> FoundRepository:
    """Return the repository that a folder belongs to, as git would find it from there.

    Args:
        root: The folder, its path free of links.
        home: The person's home folder.
    """
    start = os.fspath(root)
    kept = {"/", home or os.path.realpath(Path.home())} - {start}
    for folder in _folders_up(start):
        if folder in kept:
            break
        kind = _kind(f"{folder}/.git")
        if kind == stat.S_IFDIR and is_git_folder(_list_names(f"{folder}/.git")):
            return _check_folder(folder, is_above=folder != start)
        if kind == stat.S_IFREG:
            return _check_pointer(folder)
        if kind == stat.S_IFLNK:
            return _check_named(folder, os.path.realpath(f"{folder}/.git"))
    return FoundRepository()


def find_judged_path(folder: str) -> str:
    """Return the path by which an opened folder is judged: a repository in it is called `.git`.

    `hooks` of a bare repository is judged like `.git/hooks`. A work tree in one is judged by its
    own path.

    Args:
        folder: Its absolute path, free of links.
    """
    judged = folder
    for place in (*map(str, reversed(Path(folder).parents)), folder):
        names = {name for name in _ENTRIES if os.path.lexists(f"{place}/{name}")}
        if ".git" in names:
            judged = folder
        elif is_git_folder(names) and ".git" not in judged.split("/"):
            judged = f"{os.path.dirname(place).rstrip('/')}/.git{folder.removeprefix(place)}"  # noqa: PTH120  text
    return judged


_ENTRIES = (*GIT_FOLDER_ENTRIES, ".git")


def trust_repository(
    repository: Repository, root: str, writable: CommandWritable
) -> TrustedPath | None:
    """Return what has to be opened for commands of a workspace to use its repository.

    None if it is in the workspace or opened already.

    Raises:
        UntrustedPath: Commands could put something else in its place.
    """
    place = repository.common_dir
    if any(place == folder or place.startswith(f"{folder}/") for folder in writable.folders):
        return None
    return trust_path(
        place, Origin.PERSON, writable, reason=f"the git repository that `{root}` belongs to"
    )


def add_repository(root: str, writable: CommandWritable) -> CommandWritable:
    """Return what commands of a workspace can write, with its repository if that lies outside.

    Args:
        root: The workspace, its path free of links.
        writable: What is opened for writing by name.
    """
    repository = find_repository(root).repository
    if repository is None:
        return writable
    try:
        place = trust_repository(repository, root, writable)
    except UntrustedPath:
        return writable  # It is not opened then.
    return writable if place is None else CommandWritable.from_folders(*writable.folders, place)


def _folders_up(start: str) -> Iterator[str]:
    """Yield a folder and those above it, on the same file system."""
    try:
        device = Path(start).stat().st_dev
        for folder in (start, *map(str, Path(start).parents)):
            if Path(folder).stat().st_dev != device:
                return
            yield folder
    except OSError:
        return


def _check_folder(folder: str, *, is_above: bool) -> FoundRepository:
    place = f"{folder}/.git"
    if "commondir" in _list_names(place):
        return _refuse(folder, place, "its file `commondir` names another repository")
    if is_above and not (_is_ours(folder) and _is_ours(place)):
        return _refuse(folder, place, "it belongs to another user")
    return FoundRepository(Repository(folder, place, place))


def _check_pointer(folder: str) -> FoundRepository:
    text = read_text(f"{folder}/.git").rstrip("\r\n")
    if not text.startswith("gitdir: ") or "\n" in text or "\0" in text:
        return FoundRepository(problem=f"`{folder}/.git` is a file that names no repository")
    named = os.path.realpath(Path(folder, text.removeprefix("gitdir: ")))
    return _check_named(folder, named)


def _check_named(folder: str, named: str) -> FoundRepository:
    """Check that the repository which `.git` of a folder names also names this folder."""
    if not is_git_folder(_list_names(named)):
        return _refuse(folder, named, "there is none")
    common = read_text(f"{named}/commondir").strip()
    if common:
        return _check_worktree(folder, named, os.path.realpath(Path(named, common)))
    if named.startswith(f"{folder}/"):
        return FoundRepository(Repository(folder, named, named))
    if not _is_ours(named):
        return _refuse(folder, named, "it belongs to another user")
    if folder not in _find_work_trees(named):
        return _refuse(
            folder,
            named,
            "it does not name this folder; if it is its repository, a person says so by "
            f"`git config core.worktree {folder}` there",
        )
    return FoundRepository(Repository(folder, named, named))


def _check_worktree(folder: str, named: str, common: str) -> FoundRepository:
    if os.path.split(named)[0] != f"{common}/worktrees":
        return _refuse(folder, named, "its file `commondir` names another repository")
    names = _list_names(common)
    if not is_git_folder(names) or "commondir" in names or not _is_ours(common):
        return _refuse(folder, named, "its file `commondir` names no repository of yours")
    back = Path(named, read_text(f"{named}/gitdir").strip())
    if back.name != ".git" or os.path.realpath(back.parent) != folder:
        return _refuse(folder, named, "its file `gitdir` names another folder")
    return FoundRepository(Repository(folder, named, common))


def _find_work_trees(git_dir: str) -> set[str]:
    text = read_text(f"{git_dir}/config")
    values = [value for key, value in parse_git_config(text) if key == "core.worktree"]
    return {os.path.realpath(Path(git_dir, value)) for value in values[-1:]}


def _refuse(folder: str, named: str, why: str) -> FoundRepository:
    return FoundRepository(
        problem=f"`{folder}/.git` leads to the repository `{named}`, which is not used: {why}"
    )


# ---- places that settings name


def find_configured_places(
    root: str | os.PathLike[str],
    repository: Repository | None,
    home: str,
    opened: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the places from which settings have git take programs, attributes and settings.

    That is `core.hooksPath`, `core.attributesFile`, `include.path`,
    `includeIf.*.path`, `init.templateDir` and programs named by a path, from the repository's
    settings and the person's, and what the person's home leads to in the workspace and in folders
    that were opened (`linked_places`). They are real paths, whether or not anything is there.
    Whoever plants a setting only has more protected by that.

    Args:
        root: The workspace.
        repository: Its repository.
        home: The person's home folder.
        opened: Further folders that commands can write.
    """
    top = repository.work_tree if repository else os.fspath(root)
    waiting = [os.path.realpath(file) for file in _list_own_configurations(home)]
    if repository is not None:
        waiting += [f"{repository.common_dir}/config", f"{repository.git_dir}/config.worktree"]
    folders = dict.fromkeys(os.path.realpath(folder) for folder in (os.fspath(root), *opened))
    found = dict.fromkeys(find_linked_places(folders, home, os.environ))
    read: set[str] = set()
    while waiting and len(read) < _MAX_INCLUDES:
        path = waiting.pop()
        if path in read:
            continue
        read.add(path)
        for key, value in parse_git_config(read_text(path)):
            if key == "include.path" or re.fullmatch(r"includeif\..*\.path", key, re.DOTALL):
                included = _resolve(value, os.path.dirname(path), home)  # noqa: PTH120  text
                found[included] = None
                waiting.append(included)
            elif key in _NAMED_PLACES:
                found[_resolve(value, top, home)] = None
            elif key in _NAMED_PROGRAMS and "/" in value.split(" ")[0]:
                found[_resolve(value.split(" ")[0], top, home)] = None
    return tuple(dict.fromkeys(_spread_hooks(found, (os.fspath(root), top))))


def _list_own_configurations(home: str) -> Iterator[str]:
    """Yield where git looks for the person's and the machine's settings. Links may lead there."""
    yield from (f"{home}/.gitconfig", f"{home}/.config/git/config", "/etc/gitconfig")
    if os.environ.get("XDG_CONFIG_HOME", "").startswith("/"):
        yield f"{os.environ['XDG_CONFIG_HOME']}/git/config"
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        if os.environ.get(name):
            yield os.environ[name]


def find_hooks_folder(repository: Repository) -> str:
    """Return the folder of the hooks of a repository, by its own settings."""
    settings = parse_git_config(read_text(f"{repository.common_dir}/config"))
    named = [value for key, value in settings if key == "core.hookspath"]
    if named:
        return _resolve(named[-1], repository.work_tree, os.path.realpath(Path.home()))
    return f"{repository.common_dir}/hooks"


def find_configured_names(root: str | os.PathLike[str], home: str) -> tuple[str, ...]:
    """Return the places of `find_configured_places` in a folder, as patterns of its names."""
    start = os.fspath(root)
    places = find_configured_places(start, find_repository(start, home).repository, home)
    return tuple(
        f"/{os.path.relpath(place, start)}" for place in places if place.startswith(f"{start}/")
    )


def _spread_hooks(places: Iterable[str], tops: tuple[str, ...]) -> Iterator[str]:
    """Yield places; in place of a whole work tree, or what is around it, the hooks in it."""
    for place in places:
        if any(f"{top}/".startswith(f"{place.rstrip('/')}/") for top in tops):
            yield from (f"{place.rstrip('/')}/{hook}" for hook in _HOOKS)
        else:
            yield place


def _resolve(value: str, folder: str, home: str) -> str:
    if value.startswith("~/"):
        value = f"{home}/{value[2:]}"
    elif value.startswith("~"):
        value = os.path.expanduser(value)  # noqa: PTH111  text
    return os.path.realpath(Path(folder, value.replace("\0", "")))


_NAMED_PLACES = frozenset({"core.hookspath", "core.attributesfile", "init.templatedir"})
_NAMED_PROGRAMS = frozenset(
    {"core.fsmonitor", "core.pager", "core.editor", "core.sshcommand", "sequence.editor"}
)


# ---- files


def parse_git_config(text: str) -> list[tuple[str, str]]:
    """Return the settings of a configuration file, in order. Nothing is included.

    Names are as git spells them, `section.subsection.name`, with section and name in lower case.
    Lines that git would not accept are left out. Format: git-config(1), "Syntax".
    """
    found: list[tuple[str, str]] = []
    section = ""
    for line in _list_logical_lines(text.removeprefix("\ufeff")):
        while heading := _HEADING.match(line):
            name, quoted = heading[1].lower(), heading[2]
            section = name if quoted is None else f"{name}.{_unescape(quoted)}"
            line = line[heading.end() :].strip()
        setting = _SETTING.match(line)
        if setting and section:
            value = "true" if setting[2] is None else _read_value(setting[2])
            found.append((f"{section}.{setting[1].lower()}", value))
    return found


def _list_logical_lines(text: str) -> Iterator[str]:
    """Yield lines without blanks around them. A backslash at the end of a value continues it.

    In a comment it does not: git ends a comment with its line, whatever is before the line's end.
    """
    begun: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if line.endswith("\\") and not _ends_in_comment("".join((*begun[-1:], line))):
            begun.append(line[:-1])
            continue
        yield "".join((*begun, line)).strip()
        begun.clear()
    yield "".join(begun).strip()


def _ends_in_comment(line: str) -> bool:
    """Return whether a line ends in a comment, or in a backslash that another one escapes."""
    is_quoted = escaped = False
    for character in line[:-1]:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            is_quoted = not is_quoted
        elif character in "#;" and not is_quoted:
            return True
    return escaped


_HEADING = compile_lazily(r'\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]')
_SETTING = compile_lazily(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _read_value(text: str) -> str:
    """Return a value without its quotes and without a comment behind it."""
    found: list[str] = []
    is_quoted = False
    escaped = False
    for character in text:
        if escaped:
            found.append({"n": "\n", "t": "\t", "b": "\b"}.get(character, character))
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            is_quoted = not is_quoted
        elif character in "#;" and not is_quoted:
            break
        else:
            found.append(character)
    value = "".join(found)
    return value if text.rstrip().endswith('"') else value.rstrip()


def read_text(path: str) -> str:
    """Return the beginning of a small regular file; empty if there is none. No link is followed."""
    try:
        file = open_for_reading(path)
    except (OSError, ValueError):
        return ""
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return ""
        return file.read(_MAX_BYTES).decode("utf-8", "surrogateescape")


def _kind(path: str) -> int:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  names alone
    except OSError:
        return []


def _is_ours(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False
