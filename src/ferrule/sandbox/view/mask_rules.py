"""What is laid over one name of the workspace, to hide it or to make it read-only. No I/O.

Rules, the first that applies:

* a reserved or secret folder: an empty one in its place;
* `.git/config`, also of submodules: a configuration without secrets (`git_config`), so that git
  works;
* `.git/hooks`, if git may run hooks in commands: the folder itself, read-only;
* any other reserved or secret file, and every socket: a file that cannot be opened. A link of a
  reserved name as well (the mount covers the link itself); a link of a secret name needs nothing,
  what it points to has a name of its own;
* names that may be read but not written, at the root of the workspace: the thing itself, read-only.
  `.git` is left writable (commands commit), but not where it is a file that leads elsewhere, nor
  the names that `inside.mediator.name_rules` calls leading.

Of secret files and folders and of sockets, those are left alone that commands of the session made
themselves, and of files those that contain only public certificates: the result says which of the
two may be asked. What a person's own rule names is never excused by content.

Decided here: branches named `config` or `hooks` are below `.git/refs` and `.git/logs` and are no
secret.

Not protected: a link with a protected name can be removed by a command (not replaced), as nothing
can be laid over it that still leads on.
"""

from __future__ import annotations

import stat
from enum import StrEnum

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.sandbox.inside.mediator.name_rules import REDIRECTING_NAMES

from .certificates import ENDINGS


class MaskKind(StrEnum):
    """What is laid over a name."""

    EMPTY_FOLDER = "empty_folder"
    UNREADABLE = "unreadable_file"
    """A file that nobody may open, on a read-only mount."""
    TEXT = "text"
    """A read-only file that contains the mask's `text`."""
    READ_ONLY = "read_only"
    """The thing itself, read-only."""


class FileType(StrEnum):
    """The type of what has a name."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"
    SOCKET = "socket"
    OTHER = "other"

    @classmethod
    def of(cls, mode: int) -> FileType:
        return _TYPES.get(stat.S_IFMT(mode), cls.OTHER)


_TYPES = {
    stat.S_IFDIR: FileType.FOLDER,
    stat.S_IFREG: FileType.FILE,
    stat.S_IFLNK: FileType.LINK,
    stat.S_IFSOCK: FileType.SOCKET,
}


@frozen
class MaskRequirement:
    """What a name needs.

    `unless_own`: not if a command of the session made it. `unless_public`: not if it is public.
    """

    kind: MaskKind
    unless_own: bool = False
    unless_public: bool = False


_CONFIG = compile_lazily(
    r"(?:^|/)\.git/(?:modules/(?:[^/]+/)+)?(?:config|(?:worktrees/[^/]+/)?config\.worktree)$"
)
_HOOKS = compile_lazily(r"(?:^|/)\.git/(?:modules/(?:[^/]+/)+)?hooks(?:/|$)")
_LEADING_NAMES = ProtectedNames(reserved=REDIRECTING_NAMES)
_LEADING_BASENAMES = frozenset(pattern.rpartition("/")[2] for pattern in REDIRECTING_NAMES)
_BRANCH = compile_lazily(r"(?:^|/)\.git/(?:modules/(?:[^/]+/)+)?(?:refs|logs)/")


def required_mask(
    name: str,
    what: FileType,
    names: ProtectedNames,
    *,
    below: str = "",
    judged: str = "",
    git_hooks: bool = False,
) -> MaskRequirement | None:
    """Return what is laid over `name`, a path relative to the root; None if nothing.

    `judged` is the name by its real place, where that says more (`protected_names.judge_content`).
    `git_hooks`: git may run the hooks of repositories.
    `below` is a secret folder above it that commands made themselves (`.env/` made as a virtual
    environment): then only what is secret by its name below that folder is secret.
    """
    judged = judged or name
    reason = names.check(name, write=False)
    if reason is None and judged != name:
        reason = names.only_lists().check(judged, write=False)
    hooks = _HOOKS.search(judged) if git_hooks and reason is not None else None
    if hooks is not None and not _has_deny_rule(name, names):
        return _mask_of_hooks(judged[hooks.end() :], what, names)
    if reason is not None and below and _is_secret(reason) and not _has_deny_rule(name, names):
        reason = names.check(name.removeprefix(below + "/"), write=False)
        # Patterns that are tied to the root mean the root, not the folder.
        if reason is not None and not _is_secret(reason):
            reason = None
    if what is FileType.SOCKET:
        own = reason is None or (_is_secret(reason) and not _has_deny_rule(name, names))
        return MaskRequirement(MaskKind.UNREADABLE, unless_own=own)
    if reason is None or _BRANCH.search(judged):
        return _protected_cover(name, judged, what, names)
    is_secret = _is_secret(reason) and not _has_deny_rule(name, names)
    if what is FileType.FOLDER:
        return MaskRequirement(MaskKind.EMPTY_FOLDER, unless_own=is_secret)
    if what is FileType.LINK:
        return None if _is_secret(reason) else MaskRequirement(MaskKind.UNREADABLE)
    if what is FileType.FILE and _CONFIG.search(judged):
        return MaskRequirement(MaskKind.TEXT)
    excused_by_content = (
        is_secret
        and what is FileType.FILE
        and _is_secret_by_ending(name)
        and not _is_listed_secret(name, names)
    )
    return MaskRequirement(
        MaskKind.UNREADABLE, unless_own=is_secret, unless_public=excused_by_content
    )


def is_hooks_folder(path: str) -> bool:
    """Return whether a folder is that of a repository's hooks, or lies in it."""
    return _HOOKS.search(path) is not None


def _mask_of_hooks(inside: str, what: FileType, names: ProtectedNames) -> MaskRequirement | None:
    """Return what is laid over hooks that git may run: they are read-only, and secrets covered."""
    if not inside:
        is_folder = what is FileType.FOLDER
        return MaskRequirement(MaskKind.READ_ONLY if is_folder else MaskKind.UNREADABLE)
    return required_mask(inside, what, names.only_lists())


def _is_secret_by_ending(name: str) -> bool:
    """Return whether a name is secret only for an ending that public certificates have too.

    `.env.pem` is not.
    """
    stem, dot, ending = name.rpartition(".")
    return (dot + ending).lower() in ENDINGS and DEFAULT_NAMES.check(
        f"{stem}.txt", write=False
    ) is None


def _is_secret(reason: str) -> bool:
    """Return whether a reason of `Names.check` is about secrets: it begins with the list's name."""
    return reason.startswith("may hold secrets")


def _has_deny_rule(name: str, names: ProtectedNames) -> bool:
    """Return whether a deny rule of the person's names it too."""
    return bool(names.check_rules(name, write=False))


def _is_listed_secret(name: str, names: ProtectedNames) -> bool:
    """Return whether the person's own list of secrets names it: then its content is no excuse."""
    own = ProtectedNames(reserved=names.secret).check(name, write=False) if names.secret else None
    return own is not None and own.startswith("reserved")


def _protected_cover(
    name: str, judged: str, what: FileType, names: ProtectedNames
) -> MaskRequirement | None:
    if what not in (FileType.FILE, FileType.FOLDER):
        return None
    *above, last = judged.split("/")
    if last == ".git":
        return None if what is FileType.FOLDER else MaskRequirement(MaskKind.READ_ONLY)
    if last in _LEADING_BASENAMES and _has_reason(_LEADING_NAMES, judged, "reserved", write=False):
        # Steps of a rebase that commands began are theirs to change (`rebase_steps`).
        return MaskRequirement(MaskKind.READ_ONLY, unless_own=last == "git-rebase-todo")
    if names.check_rules(name, write=True):
        return MaskRequirement(MaskKind.READ_ONLY)
    if names.protected and _has_reason(
        ProtectedNames(reserved=names.protected), name, "reserved", write=False
    ):
        return MaskRequirement(MaskKind.READ_ONLY)
    if (
        len(above) > 1
        or above == [".git"]
        or (above and _has_reason(DEFAULT_NAMES, above[0], "protected"))
    ):
        return None
    # `.github/workflows` is at the root, `tools/jenkinsfile` is not.
    if not _has_reason(DEFAULT_NAMES, judged, "protected") or (
        above and _has_reason(DEFAULT_NAMES, last, "protected")
    ):
        return None
    return MaskRequirement(MaskKind.READ_ONLY)


def _has_reason(names: ProtectedNames, name: str, reason: str, *, write: bool = True) -> bool:
    found = names.check(name, write=write)
    return found is not None and found.startswith(reason)
