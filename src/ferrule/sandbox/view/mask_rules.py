"""What is laid over one name of the workspace, to hide it or to make it read-only. No I/O.

Rules, the first that applies:

* a reserved or secret folder: an empty one in its place;
* `.git/config`, also of submodules: a configuration without secrets (`git_config`), so that git
  works;
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

import re
import stat
from enum import StrEnum

from ferrule.core.frozen import frozen
from ferrule.permissions.denied_names import RuledNames
from ferrule.permissions.protected_names import DEFAULT, Names
from ferrule.sandbox.inside.mediator.name_rules import LEADING

from .certificates import ENDINGS


class Kind(StrEnum):
    """What is laid over a name."""

    EMPTY_FOLDER = "empty_folder"
    UNREADABLE = "unreadable_file"
    """A file that nobody may open, on a read-only mount."""
    TEXT = "text"
    """A read-only file that contains the mask's `text`."""
    READ_ONLY = "read_only"
    """The thing itself, read-only."""


class What(StrEnum):
    """The type of what has a name."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"
    SOCKET = "socket"
    OTHER = "other"

    @classmethod
    def of(cls, mode: int) -> What:
        return _TYPES.get(stat.S_IFMT(mode), cls.OTHER)


_TYPES = {
    stat.S_IFDIR: What.FOLDER,
    stat.S_IFREG: What.FILE,
    stat.S_IFLNK: What.LINK,
    stat.S_IFSOCK: What.SOCKET,
}


@frozen
class Covered:
    """What a name needs.

    `own`: not if a command of the session made it. `content`: not if it is public.
    """

    kind: Kind
    own: bool = False
    content: bool = False


_CONFIG = re.compile(r"(?:^|/)\.git/(?:modules/(?:[^/]+/)+)?config$")
_LEADING_NAMES = Names(reserved=LEADING)
_LEADING_BASENAMES = frozenset(pattern.rpartition("/")[2] for pattern in LEADING)
_BRANCH = re.compile(r"(?:^|/)\.git/(?:modules/(?:[^/]+/)+)?(?:refs|logs)/")


def cover(name: str, what: What, names: Names, *, below: str = "") -> Covered | None:
    """Return what is laid over `name`, a path relative to the root; None if nothing.

    `below` is a secret folder above it that commands made themselves (`.env/` made as a virtual
    environment): then only what is secret by its name below that folder is secret.
    """
    reason = names.check(name, write=False)
    if reason is not None and below and _is_secret(reason) and not _has_deny_rule(name, names):
        reason = names.check(name.removeprefix(below + "/"), write=False)
        # Patterns that are tied to the root mean the root, not the folder.
        if reason is not None and not _is_secret(reason):
            reason = None
    if what is What.SOCKET:
        own = reason is None or (_is_secret(reason) and not _has_deny_rule(name, names))
        return Covered(Kind.UNREADABLE, own=own)
    if reason is None or _BRANCH.search(name):
        return _protected_cover(name, what, names)
    is_secret = _is_secret(reason) and not _has_deny_rule(name, names)
    if what is What.FOLDER:
        return Covered(Kind.EMPTY_FOLDER, own=is_secret)
    if what is What.LINK:
        return None if _is_secret(reason) else Covered(Kind.UNREADABLE)
    if what is What.FILE and _CONFIG.search(name):
        return Covered(Kind.TEXT)
    excused_by_content = (
        is_secret
        and what is What.FILE
        and _is_secret_by_ending(name)
        and not _is_listed_secret(name, names)
    )
    return Covered(Kind.UNREADABLE, own=is_secret, content=excused_by_content)


def _is_secret_by_ending(name: str) -> bool:
    """Return whether a name is secret only for an ending that public certificates have too.

    `.env.pem` is not.
    """
    stem, dot, ending = name.rpartition(".")
    return (dot + ending).lower() in ENDINGS and DEFAULT.check(f"{stem}.txt", write=False) is None


def _is_secret(reason: str) -> bool:
    """Return whether a reason of `Names.check` is about secrets: it begins with the list's name."""
    return reason.startswith("may hold secrets")


def _has_deny_rule(name: str, names: Names) -> bool:
    """Return whether a deny rule of the person's names it too."""
    return isinstance(names, RuledNames) and bool(names.refuses(name, False))


def _is_listed_secret(name: str, names: Names) -> bool:
    """Return whether the person's own list of secrets names it: then its content is no excuse."""
    own = Names(reserved=names.secret).check(name, write=False) if names.secret else None
    return own is not None and own.startswith("reserved")


def _protected_cover(name: str, what: What, names: Names) -> Covered | None:
    if what not in (What.FILE, What.FOLDER):
        return None
    *above, last = name.split("/")
    if last == ".git":
        return None if what is What.FOLDER else Covered(Kind.READ_ONLY)
    if last in _LEADING_BASENAMES and _has_reason(_LEADING_NAMES, name, "reserved", write=False):
        return Covered(Kind.READ_ONLY)
    if isinstance(names, RuledNames) and names.refuses(name, True):
        return Covered(Kind.READ_ONLY)
    if names.protected and _has_reason(
        Names(reserved=names.protected), name, "reserved", write=False
    ):
        return Covered(Kind.READ_ONLY)
    if (
        len(above) > 1
        or above == [".git"]
        or (above and _has_reason(DEFAULT, above[0], "protected"))
    ):
        return None
    # `.github/workflows` is at the root, `tools/jenkinsfile` is not.
    if not _has_reason(DEFAULT, name, "protected") or (
        above and _has_reason(DEFAULT, last, "protected")
    ):
        return None
    return Covered(Kind.READ_ONLY)


def _has_reason(names: Names, name: str, reason: str, *, write: bool = True) -> bool:
    found = names.check(name, write=write)
    return found is not None and found.startswith(reason)
