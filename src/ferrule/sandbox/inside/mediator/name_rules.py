"""Which names a command may create, and what moving a folder does to the names in it. Text only, no
I/O.

On top of the lists of `permissions/protected_names.py`:

* RESERVED names are refused at any depth, and so are those of `LEADING`: they lead to another
  folder's configuration or are lists of programs to run.
* PROTECTED names are refused where they begin at the workspace's root: `site-packages/x.pth` at the
  root is run by whoever starts Python here, the one in a virtual environment is what pip is for.
  `.git` is exempt: git commands write it, apart from RESERVED names inside.
* `.git` is a folder or nothing: a file or link of that name leads git to a configuration elsewhere.
* SECRET names may be created: a test key is the command's own. They are reported, so that it stays
  readable to it, and counted.

The lists fold spelling, so `.GIT` and `.git ` are `.git` here as everywhere.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

FREE, SECRET, REFUSED = 0, 1, 2

MOST_ROOM = 10_000
"""Names that commands may make of those that are hidden from others: half of what one command's
view can hide.
"""
_MOST_KEPT = 16_384
LEADING = (
    ".git/**/commondir",
    ".git/**/rebase-merge/git-rebase-todo",
    ".hg/sharedpath",
    ".hg/hgrc-not-shared",
)
"""Beyond the lists: what version control follows to other configurations, or runs when a person
goes on with a rebase.
"""


def _reserved() -> ModuleType:
    """`permissions/protected_names.py`, loaded by its place: it needs the standard library only,
    and this process has no package.
    """
    known = sys.modules.get("ferrule.permissions.protected_names") or sys.modules.get(
        "_ferrule_reserved"
    )
    if known is not None:
        return known
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  pathlib is not loaded here
    place = os.path.join(here, "../../../permissions/protected_names.py")  # noqa: PTH118  pathlib is not loaded here
    spec = importlib.util.spec_from_file_location("_ferrule_reserved", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"the lists of reserved names cannot be loaded from {place}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["_ferrule_reserved"] = module
    spec.loader.exec_module(module)
    return module


class Rules:
    """The names of one command. `roots` are absolute folders; the first is the workspace.

    `own` are files (`file_identity`) that the session's own commands created and that are hidden
    from others, `room` how many more of these there may be.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        reserved: tuple[str, ...] = (),
        secret: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
        own: frozenset[str] = frozenset(),
        room: int = MOST_ROOM,
    ) -> None:
        lists = _reserved()
        self.own = own
        self.room = room
        self.anchored: frozenset[str] = frozenset()
        """Folders above something that a mask covers, relative to a root: they stay where they are."""
        self._roots = tuple(os.fsencode(root).rstrip(b"/") for root in roots)
        # Names below these cannot be on /proc.
        self.usual = tuple(root for root in self._roots if not b"/proc".startswith(root))
        self._names = lists.Names((*LEADING, *reserved), secret, protected)
        # Names that mean version control, in any spelling that the lists fold.
        self._git = lists.Names(reserved=(".git", "git~1"))
        deep = [*lists.RESERVED, *LEADING, *reserved, *lists.SECRET, *secret]
        at_root = [*lists.PROTECTED, *protected]
        self._leads = lists.Names(reserved=tuple(sorted(_leading(deep))))
        self._leads_at_root = lists.Names(reserved=tuple(sorted(_leading(at_root))))
        self._kept: dict[tuple[str, bool], int] = {}
        self._kept_folders: dict[bytes, str | None] = {}
        self.decide(
            "warm/.git", folder=False
        )  # compiles the patterns: once, before anything is forked
        self.may_differ("warm")

    def relative(self, folder: bytes, name: bytes) -> str | None:
        """The name below a root of `name` in `folder` (absolute, as the kernel gives it); None if
        it is below none.
        """
        within = self._kept_folders.get(folder, "")
        if within == "":
            if len(self._kept_folders) >= _MOST_KEPT:
                self._kept_folders.clear()
            within = self._kept_folders[folder] = self._within(folder)
        return None if within is None else within[1:] + os.fsdecode(name)

    def _within(self, folder: bytes) -> str | None:
        """`/` and the folder's name below a root, with a slash at the end."""
        for root in self._roots:
            if folder == root or folder.startswith(root + b"/"):
                rest = os.fsdecode(folder[len(root) :])
                return (rest or "") + "/" if rest else "/"
        return None

    def anchor(self, folders: Iterable[str]) -> None:
        """Have these folders (absolute) stay where they are."""
        found = (self.relative(*map(os.fsencode, os.path.split(folder))) for folder in folders)
        self.anchored = frozenset(name for name in found if name)

    def decide(self, name: str, *, folder: bool) -> int:
        """What becomes of creating `name`, relative to a root: FREE, SECRET or REFUSED."""
        key = (name, folder)
        known = self._kept.get(key)
        if known is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            known = self._kept[key] = self._decide(name, folder)
        return known

    def _decide(self, name: str, folder: bool) -> int:
        verdict = self._names.check(name, write=True)
        if verdict is None:
            return FREE
        if verdict.startswith("reserved"):
            return REFUSED
        parts = name.split("/")
        if not folder and _reserved_by(self._git, parts[-1]):
            return REFUSED
        if self._protected(parts) and not _reserved_by(self._git, parts[0]):
            return REFUSED
        return SECRET if verdict.startswith("may hold secrets") else FREE

    def _protected(self, parts: list[str]) -> bool:
        """Whether a pattern of the protected names matches from the first component on."""
        for count in range(1, len(parts) + 1):
            if self._protects(parts[:count]) and (count == 1 or not self._protects(parts[1:count])):
                return True
        return False

    def _protects(self, parts: list[str]) -> bool:
        verdict = self._names.check("/".join(parts), write=True)
        return verdict is not None and verdict.startswith("protected")

    def may_differ(self, folder: str) -> bool:
        """Whether names below a folder of this name may be decided otherwise than below an ordinary
        folder.

        True if a pattern of several components may begin in `folder` and end below it.
        """
        parts = folder.split("/")
        return any(_reserved_by(self._leads, part) for part in parts) or _reserved_by(
            self._leads_at_root, parts[0]
        )


def _reserved_by(names: object, part: str) -> bool:
    """Whether one of these lists' own patterns matches one component. The standing lists may match
    too: harmless.
    """
    verdict: str | None = names.check(part, write=False)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    return verdict is not None and verdict.startswith("reserved")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _leading(patterns: list[str]) -> set[str]:
    """The components that patterns of several components have before their last one."""
    return {
        part
        for pattern in patterns
        for part in pattern.strip("/").split("/")[:-1]
        # `**` never stands first in the lists, so that what stands before it leads as well.
        if part != "**"
    }


_kept_rules: dict[tuple[object, ...], Rules] = {}


def rules(
    roots: tuple[str, ...],
    reserved: tuple[str, ...] = (),
    secret: tuple[str, ...] = (),
    protected: tuple[str, ...] = (),
    own: frozenset[str] = frozenset(),
) -> Rules:
    """`Rules`, kept for the next command: made in the fork server, every fork finds them ready."""
    key = (roots, reserved, secret, protected)
    if key not in _kept_rules:
        if len(_kept_rules) >= 8:
            _kept_rules.clear()
        _kept_rules[key] = Rules(roots, reserved, secret, protected)
    found = _kept_rules[key]
    found.own = own
    return found
