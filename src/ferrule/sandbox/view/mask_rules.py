"""What is laid over one name of the workspace, so that commands cannot see or change what is under
it. No I/O.

Rules, the first that applies:

* a reserved or secret folder: an empty one in its place;
* `.git/config`, also of submodules: a configuration without secrets (`git_config`), so that git
  works;
* any other reserved or secret file, and every socket: a file that cannot be opened. A link of a
  reserved name as well (the mount covers the link itself); a link of a secret name needs nothing,
  what it points to has a name of its own;
* names that may be read but not written, at the root of the workspace: the thing itself, read-only.
  `.git` is left writable (commands commit), but not where it is a file that leads elsewhere, nor
  the names that `inside.naming` calls leading.

Of secret files and folders and of sockets, those are left alone that commands of the session made
themselves, and of files those that hold only public certificates: `excused_by` says which of the
two may be asked. What a person's own rule names is never excused by content.

Decided here: branches named `config` or `hooks` lie below `.git/refs` and `.git/logs` and are no
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
    """A read-only file that holds the mask's `text`."""
    READ_ONLY = "read_only"
    """The thing itself, read-only."""


class What(StrEnum):
    """What bears a name."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"
    SOCKET = "socket"
    OTHER = "other"

    @classmethod
    def of(cls, mode: int) -> What:
        return _WHAT.get(stat.S_IFMT(mode), cls.OTHER)


_WHAT = {
    stat.S_IFDIR: What.FOLDER,
    stat.S_IFREG: What.FILE,
    stat.S_IFLNK: What.LINK,
    stat.S_IFSOCK: What.SOCKET,
}


@frozen
class Covered:
    """What a name needs. `own`: not if a command of the session made it. `content`: not if it is
    public.
    """

    kind: Kind
    own: bool = False
    content: bool = False


_CONFIG = re.compile(r"(?:^|/)\.git/(?:modules/(?:[^/]+/)+)?config$")
_LEADS = Names(reserved=LEADING)
_LEADING_LAST = frozenset(pattern.rpartition("/")[2] for pattern in LEADING)
_BRANCH = re.compile(r"(?:^|/)\.git/(?:modules/(?:[^/]+/)+)?(?:refs|logs)/")


def cover(name: str, what: What, names: Names, *, below: str = "") -> Covered | None:
    """What is laid over `name`, a path relative to the root; None if nothing.

    `below` is a secret folder above it that commands made themselves (`.env/` made as a virtual
    environment): secret is then only what is secret by its name below that folder.
    """
    refused = names.check(name, write=False)
    if refused is not None and below and _secret(refused) and not _ruled(name, names):
        refused = names.check(name.removeprefix(below + "/"), write=False)
        # Patterns that are tied to the root mean the root, not the folder.
        refused = refused if refused is not None and _secret(refused) else None
    if what is What.SOCKET:
        own = refused is None or (_secret(refused) and not _ruled(name, names))
        return Covered(Kind.UNREADABLE, own=own)
    if refused is None or _BRANCH.search(name):
        return _protected(name, what, names)
    secret = _secret(refused) and not _ruled(name, names)
    if what is What.FOLDER:
        return Covered(Kind.EMPTY_FOLDER, own=secret)
    if what is What.LINK:
        return None if _secret(refused) else Covered(Kind.UNREADABLE)
    if what is What.FILE and _CONFIG.search(name):
        return Covered(Kind.TEXT)
    public = secret and what is What.FILE and _by_ending(name) and not _asked_for(name, names)
    return Covered(Kind.UNREADABLE, own=secret, content=public)


def _by_ending(name: str) -> bool:
    """Whether it is secret only for an ending that public certificates have too: `.env.pem` is
    not.
    """
    stem, dot, ending = name.rpartition(".")
    return (dot + ending).lower() in ENDINGS and DEFAULT.check(f"{stem}.txt", write=False) is None


def _secret(refused: str) -> bool:
    """By the reasons of `Names.check`, which begin with the list that matched."""
    return refused.startswith("may hold secrets")


def _ruled(name: str, names: Names) -> bool:
    """Whether a deny rule of the person's names it too."""
    return isinstance(names, RuledNames) and bool(names.refuses(name, False))


def _asked_for(name: str, names: Names) -> bool:
    """Whether the person's own list of secrets names it: then its content is no excuse."""
    own = Names(reserved=names.secret).check(name, write=False) if names.secret else None
    return own is not None and own.startswith("reserved")


def _protected(name: str, what: What, names: Names) -> Covered | None:
    if what not in (What.FILE, What.FOLDER):
        return None
    *above, last = name.split("/")
    if last == ".git":
        return None if what is What.FOLDER else Covered(Kind.READ_ONLY)
    if last in _LEADING_LAST and _protects(_LEADS, name, "reserved", write=False):
        return Covered(Kind.READ_ONLY)
    if isinstance(names, RuledNames) and names.refuses(name, True):
        return Covered(Kind.READ_ONLY)
    if names.protected and _protects(
        Names(reserved=names.protected), name, "reserved", write=False
    ):
        return Covered(Kind.READ_ONLY)
    if len(above) > 1 or above == [".git"] or (above and _protects(DEFAULT, above[0], "protected")):
        return None
    # `.github/workflows` is at the root, `tools/jenkinsfile` is not.
    if not _protects(DEFAULT, name, "protected") or (
        above and _protects(DEFAULT, last, "protected")
    ):
        return None
    return Covered(Kind.READ_ONLY)


def _protects(names: Names, name: str, reason: str, *, write: bool = True) -> bool:
    found = names.check(name, write=write)
    return found is not None and found.startswith(reason)
