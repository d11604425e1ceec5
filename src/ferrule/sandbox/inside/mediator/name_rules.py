"""Which names a command may create, and how moving a folder affects the names in it. No I/O.

On top of the lists of `permissions/protected_names.py`:

* RESERVED names are refused at any depth, and so are those of `REDIRECTING_NAMES`: they lead to
  another folder's configuration or are lists of programs to run.
* PROTECTED names are refused where they begin at the workspace's root: `site-packages/x.pth` at the
  root is run by whoever starts Python here, the one in a virtual environment is what pip is for.
  `.git` is exempt: git commands write it, apart from RESERVED names inside.
* `.git` is a folder or nothing: a file or link of that name leads git to a configuration elsewhere.
  Nor is a link made below it: git writes what it has to say (`COMMIT_EDITMSG`, `logs`) through one.
* Where a name lies decides, not which folder was opened: `relative` gives the name by which it is
  judged (`ProtectedNames.find_above`, `judge_content`), which for `hooks/x` in an opened
  `repo/.git` is `.git/hooks/x`, and for one in a bare repository as well.
* No folder becomes a repository under another name than `.git`: git would obey what is in it.
* SECRET names may be created: a test key is the command's own. They are reported, so that the
  session can still read them, and counted. Those of `STARTING_NAMES` may not, as programs outside
  would do what they say.

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
STARTING_NAMES = ("/ferrule.yaml", "/ferrule.yml", "/.npmrc", "/.yarnrc.yml", "/.envrc*")
"""Secret names at the root that say what a program starts: hooks, a script's shell, yarn itself,
and what direnv has the person's shell run (an `.envrc` that is allowed reads `.envrc.local`).
"""

REDIRECTING_NAMES = (
    ".git/**/commondir",
    ".git/branches",
    ".git/remotes",
    ".git/modules/*/branches",
    ".git/modules/*/remotes",
    ".git/**/rebase-merge/git-rebase-todo",
    ".git/**/rebase-merge/strategy",
    ".git/**/rebase-apply/apply-opt",
    ".git/**/sequencer/opts",
    ".git/**/worktrees/*/gitdir",
    ".git/**/info/attributes",
    ".git/**/info/exclude",
    ".git/**/info/grafts",
    ".git/**/info/sparse-checkout",
    ".git/**/objects/info/alternates",
    ".git/**/objects/info/http-alternates",
    ".hg/sharedpath",
    ".hg/hgrc-not-shared",
)
"""Beyond the lists: what leads version control to other configurations, or is obeyed by it.

When a person goes on with a rebase, a pick or a mail that git applies, it runs what the list of
steps names and the program of the strategy (`/x` is `./git-merge-/x`), and hands the options to
`git apply`, one of which writes a file anywhere. Files in `branches` and `remotes` are addresses of
remotes that the configuration does not have. Attributes start filters and drivers; `gitdir` of a
linked worktree says which folder may use the repository; the other lists in `info` hide files from
the person, or have them removed; alternates read another repository.
"""

_GIT_ENTRIES = (b"HEAD", b"objects", b"refs", b"commondir")
_CONFIGURED = ".git/hooks"
"""The name by which a place is judged that settings of git name (`core.hooksPath`)."""
_STEPS = "/steps"
"""The name by which the steps of a rebase in the workspace's repository are judged: commands may
make a list of their own (`view.rebase_steps`), and no other name begins with a slash.
"""
_BECOMES_REPOSITORY = ".git/config"
"""The name by which one is judged that would make a folder a repository."""


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
    from others, `name_quota` is how many more of these there may be. `judged_roots` are the paths
    that the roots are judged by, which nobody can find out from inside of a view. `fixed` are
    absolute names below the roots that nothing else may take; the folders above them stay where
    they are.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        reserved: tuple[str, ...] = (),
        secret: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
        configured_places: tuple[str, ...] = (),
        steps_file: str = "",
        judged_roots: tuple[str, ...] = (),
        fixed: Iterable[str] = (),
    ) -> None:
        lists = _load_protected_names()
        self.own_files: frozenset[str] = frozenset()
        self.name_quota = MAX_HIDDEN_NAMES
        self.fixed_folders: frozenset[str] = frozenset()
        """Folders that contain a masked name, relative to a root: they stay where they are."""
        self._roots = tuple(os.fsencode(root).rstrip(b"/") for root in roots)
        self._configured_places = frozenset(map(os.fsencode, configured_places))
        self._steps_file = os.fsencode(steps_file)
        self._judge_content = lists.judge_content
        self._is_git_folder = lists.is_git_folder
        # Names below these cannot be on /proc.
        self.roots_off_proc = tuple(root for root in self._roots if not b"/proc".startswith(root))
        refused = (*REDIRECTING_NAMES, *STARTING_NAMES, *reserved)
        self._names = lists.ProtectedNames(refused, secret, protected)
        # Names that mean version control, in any spelling that the lists fold.
        self._git = lists.ProtectedNames(reserved=(".git", "git~1"))
        deep = [*lists.RESERVED, *REDIRECTING_NAMES, *reserved, *lists.SECRET, *secret]
        at_root = [*lists.PROTECTED, *protected]
        self._leads = lists.ProtectedNames(reserved=tuple(sorted(_leading_components(deep))))
        self._leads_at_root = lists.ProtectedNames(
            reserved=tuple(sorted(_leading_components(at_root)))
        )
        self._decisions: dict[tuple[str, bool], int] = {}
        self._folders: dict[bytes, tuple[str, str] | None] = {}
        places = lists.ProtectedNames(reserved, secret, protected)
        self._above = tuple(places.find_above(root) for root in judged_roots or roots)
        self._shown: dict[str, str] = {}
        self._fixed = frozenset(self._relative_names(fixed))
        self._folders.clear()  # commands come later: folders may be repositories by then
        # Compiles the patterns: once, before anything is forked.
        self.decide("warm/.git", folder=False)
        self.may_differ("warm")

    def relative(self, folder: bytes, name: bytes) -> str | None:
        """Return the name by which `name` in `folder` is judged; None if it is below no root.

        That is the name below its root, or one that says more (`judge_content`). `folder` is
        absolute, as the kernel gives it.
        """
        if folder in self._folders:
            found = self._folders[folder]
        else:
            if len(self._folders) >= _MAX_CACHED:
                self._folders.clear()
            found = self._folders[folder] = self._find_place(folder)
        if found is None:
            return None
        inside, judged = found
        last = os.fsdecode(name)
        if self._is_configured(folder, name):
            self._shown[_CONFIGURED] = inside + last
            return _CONFIGURED
        if self._steps_file and folder + b"/" + name == self._steps_file:
            self._shown[_STEPS] = inside + last
            return _STEPS
        if name in _GIT_ENTRIES and self._becomes_repository(folder, name, judged):
            self._shown[_BECOMES_REPOSITORY] = inside + last
            return _BECOMES_REPOSITORY
        if inside != judged and len(self._shown) < _MAX_CACHED:
            self._shown[judged + last] = inside + last
        return judged + last

    def _is_configured(self, folder: bytes, name: bytes) -> bool:
        """Return whether a name is, or lies in, a place that settings of git name."""
        path = folder + b"/" + name
        return any(
            path == place or path.startswith(place + b"/") for place in self._configured_places
        )

    def show(self, name: str) -> str:
        """Return the name for people of one that `relative` returned.

        It is below the workspace, or absolute.
        """
        return self._shown.get(name, name)

    def _find_place(self, folder: bytes) -> tuple[str, str] | None:
        """Return the folder's name and the one that its content is judged by.

        The first is below the workspace, or absolute. Both end with a slash, or are empty. None if
        it is below no root.
        """
        for number, root in enumerate(self._roots):
            if folder == root or folder.startswith(root + b"/"):
                inside = os.fsdecode(folder[len(root) + 1 :])
                judged = self._judge_folder(number, inside)
                shown = os.fsdecode(folder) if number else inside
                return shown + "/" if shown else "", judged + "/" if judged else ""
        return None

    def _judge_folder(self, number: int, inside: str) -> str:
        """Return the name that the content of a folder below a root is judged by."""
        judged = self._above[number]
        path = self._roots[number]
        is_workspace = number == 0
        judged = self._judge_content(judged, _find_entries(path), in_workspace=is_workspace)
        for part in inside.split("/") if inside else ():
            path += b"/" + os.fsencode(part)
            judged = f"{judged}/{part}" if judged else part
            judged = self._judge_content(judged, _find_entries(path), in_workspace=is_workspace)
        return judged

    def may_become(self, folder: bytes, name: bytes) -> bool:
        """Return whether a name below a root may make its folder a repository."""
        return (
            name in _GIT_ENTRIES
            and b".git" not in folder.split(b"/")
            and self.relative(folder, b"x") is not None
        )

    def _becomes_repository(self, folder: bytes, name: bytes, judged: str) -> bool:
        """Return whether a folder is a repository once it has this name too, and was none.

        `judged` is what its content is judged by. A repository that was one before is left alone,
        and `.git` is protected by its name.
        """
        if ".git" in judged.split("/"):
            return False
        # What is known of the folder, and of all below it, may be older than its content.
        self._folders.clear()
        entries = _find_entries(folder)
        before = self._judge_content("x", entries, in_workspace=True)
        after = self._judge_content("x", {*entries, os.fsdecode(name)}, in_workspace=True)
        return before != after

    def is_git_folder(self, entries: list[str], name: str) -> bool:
        """Return whether entries make a folder a repository, but not one that is called `.git`.

        `name` is the name of one of them.
        """
        return ".git" not in name.split("/") and self._is_git_folder(entries)

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
        if name == _STEPS:
            return SECRET
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

    def forbids_link(self, name: str) -> bool:
        """Return whether a name is below `.git`, where git writes through links."""
        return any(_matches_component(self._git, part) for part in name.split("/")[:-1])

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


def _find_entries(folder: bytes) -> set[str]:
    """Return which of the entries a folder has that `judge_content` asks about."""
    return {
        os.fsdecode(name)
        for name in (*_GIT_ENTRIES, b".git")
        if os.path.lexists(folder + b"/" + name)
    }


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
