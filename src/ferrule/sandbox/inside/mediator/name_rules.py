"""Which names a command may create, and how moving a folder affects the names in it. No I/O.

On top of the lists of `permissions/protected_names.py`:

* RESERVED names are refused at any depth, and so are those of `REDIRECTING_NAMES`: they lead to
  another folder's configuration or are lists of programs to run.
* PROTECTED names are refused where they begin at the workspace's root: `site-packages/x.pth` at the
  root is run by whoever starts Python here, the one in a virtual environment is what pip is for.
  `.git` is exempt: git commands write it, apart from RESERVED names inside.
* `.git` is a folder or nothing: a file or link of that name leads git to a configuration elsewhere.
* SECRET names may be created: a test key is the command's own. They are reported, so that the
  session can still read them, and counted.

The lists fold spelling, so `.GIT` and `.git ` are `.git` here as everywhere.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FREE, SECRET, REFUSED = 0, 1, 2

MAX_HIDDEN_NAMES = 10_000
"""Names hidden from others that commands may make at most.

It is half of what one command's view can hide.
"""
_MAX_CACHED = 16_384
REDIRECTING_NAMES = (
    ".git/**/commondir",
    ".git/**/rebase-merge/git-rebase-todo",
    ".git/**/rebase-merge/strategy",
    ".git/**/rebase-apply/apply-opt",
    ".git/**/sequencer/opts",
    ".hg/sharedpath",
    ".hg/hgrc-not-shared",
)
"""Beyond the lists: what leads version control to other configurations, or is obeyed by it.

When a person goes on with a rebase, a pick or a mail that git applies, it runs what the list of
steps names and the program of the strategy (`/x` is `./git-merge-/x`), and hands the options to
`git apply`, one of which writes a file anywhere.
"""


def _load_protected_names() -> ModuleType:
    """Load `permissions/protected_names.py` by its path.

    It needs the standard library only, and this process knows no package.
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


class NameRules:
    """The rules about names for one command. `roots` are absolute folders, the workspace first.

    `own_files` are files (`identify`) that the session's own commands created and that are hidden
    from others, `name_quota` is how many more of these there may be. `fixed` are absolute names
    below the roots that nothing else may take; the folders above them stay where they are.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        reserved: tuple[str, ...] = (),
        secret: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
        own_files: frozenset[str] = frozenset(),
        name_quota: int = MAX_HIDDEN_NAMES,
        fixed: Iterable[str] = (),
    ) -> None:
        lists = _load_protected_names()
        self.own_files = own_files
        self.name_quota = name_quota
        self.fixed_folders: frozenset[str] = frozenset()
        """Folders that contain a masked name, relative to a root: they stay where they are."""
        self._roots = tuple(os.fsencode(root).rstrip(b"/") for root in roots)
        # Names below these cannot be on /proc.
        self.roots_off_proc = tuple(root for root in self._roots if not b"/proc".startswith(root))
        self._names = lists.ProtectedNames((*REDIRECTING_NAMES, *reserved), secret, protected)
        # Names that mean version control, in any spelling that the lists fold.
        self._git = lists.ProtectedNames(reserved=(".git", "git~1"))
        deep = [*lists.RESERVED, *REDIRECTING_NAMES, *reserved, *lists.SECRET, *secret]
        at_root = [*lists.PROTECTED, *protected]
        self._leads = lists.ProtectedNames(reserved=tuple(sorted(_leading_components(deep))))
        self._leads_at_root = lists.ProtectedNames(
            reserved=tuple(sorted(_leading_components(at_root)))
        )
        self._decisions: dict[tuple[str, bool], int] = {}
        self._folders: dict[bytes, str | None] = {}
        self._fixed = frozenset(self._relative_names(fixed))
        # Compiles the patterns: once, before anything is forked.
        self.decide("warm/.git", folder=False)
        self.may_differ("warm")

    def relative(self, folder: bytes, name: bytes) -> str | None:
        """Return the name below a root of `name` in `folder`; None if it is below none.

        `folder` is absolute, as the kernel gives it.
        """
        path = self._folders.get(folder, "")
        if path == "":
            if len(self._folders) >= _MAX_CACHED:
                self._folders.clear()
            path = self._folders[folder] = self._path_within(folder)
        return None if path is None else path[1:] + os.fsdecode(name)

    def _path_within(self, folder: bytes) -> str | None:
        """Return `/` and the folder's name below a root, with a slash at the end."""
        for root in self._roots:
            if folder == root or folder.startswith(root + b"/"):
                rest = os.fsdecode(folder[len(root) :])
                return rest + "/" if rest else "/"
        return None

    def fix_folders(self, folders: Iterable[str]) -> None:
        """Have these folders (absolute) stay where they are."""
        above = (name[:end] for name in self._fixed for end in _find_slashes(name))
        self.fixed_folders = frozenset((*self._relative_names(folders), *above))

    def _relative_names(self, paths: Iterable[str]) -> Iterator[str]:
        for path in paths:
            name = self.relative(*map(os.fsencode, os.path.split(path)))
            if name:
                yield name

    def decide(self, name: str, *, folder: bool) -> int:
        """Decide about creating `name`, relative to a root: FREE, SECRET or REFUSED."""
        key = (name, folder)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _MAX_CACHED:
                self._decisions.clear()
            decision = self._decisions[key] = self._decide(name, folder)
        return decision

    def _decide(self, name: str, folder: bool) -> int:
        if name in self._fixed:
            return REFUSED
        verdict = self._names.check(name, write=True)
        if verdict is None:
            return FREE
        if verdict.startswith("reserved"):
            return REFUSED
        parts = name.split("/")
        if not folder and _matches_component(self._git, parts[-1]):
            return REFUSED
        if self._is_protected(parts) and not _matches_component(self._git, parts[0]):
            return REFUSED
        return SECRET if verdict.startswith("may hold secrets") else FREE

    def _is_protected(self, parts: list[str]) -> bool:
        """Return whether a pattern of the protected names matches from the first component on."""
        for count in range(1, len(parts) + 1):
            if self._matches_protected(parts[:count]) and (
                count == 1 or not self._matches_protected(parts[1:count])
            ):
                return True
        return False

    def _matches_protected(self, parts: list[str]) -> bool:
        verdict = self._names.check("/".join(parts), write=True)
        return verdict is not None and verdict.startswith("protected")

    def may_differ(self, folder: str) -> bool:
        """Return whether names below such a folder may be decided differently than elsewhere.

        True if a pattern of several components may begin in `folder` and end below it.
        """
        parts = folder.split("/")
        return any(_matches_component(self._leads, part) for part in parts) or _matches_component(
            self._leads_at_root, parts[0]
        )


def _find_slashes(name: str) -> Iterator[int]:
    """Yield where the folders above a name end."""
    return (end for end, character in enumerate(name) if character == "/")


def _matches_component(names: object, part: str) -> bool:
    """Return whether one of these lists' own patterns matches one component.

    The standard lists may match too, which is harmless.
    """
    verdict: str | None = names.check(part, write=False)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    return verdict is not None and verdict.startswith("reserved")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _leading_components(patterns: list[str]) -> set[str]:
    """Return the components that patterns of several components have before their last one."""
    components: set[str] = set()
    for pattern in patterns:
        components.update(pattern.strip("/").split("/")[:-1])
    # `**` is never first in the lists, so that what comes before it leads as well.
    components.discard("**")
    return components
