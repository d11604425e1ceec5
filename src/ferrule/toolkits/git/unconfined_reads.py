"""Reading a repository where no sandbox confines commands: git meets no configuration of it.

Nearly any file below `.git` can make git run a program: `core.fsmonitor`, `core.pager`, external
diffs, text conversions, filters, signature programs, fetches of a partial clone, `include`. A
sandbox shows git a configuration without these. Where there is none, git gets another folder as
`GIT_DIR`, made for the call, private and removed after it:

    config      written here: what commands in a sandbox see of it (`sandbox.view.git_config`)
    HEAD, packed-refs, shallow      copied
    objects, refs, logs, index      links to the real ones

The global and the system configuration are off by environment, and no variable of ours reaches git.

In a linked worktree or a submodule these lie outside of the workspace, in the repository that
it belongs to (`permissions.repositories`): HEAD, index and the state of operations in the folder
of the work tree, all else in the one that work trees share.

Refused, since they may lead elsewhere: any link among what git reads below it (each object, pack,
branch and log is checked), alternates (objects kept elsewhere) outside of the workspace. What is
planted after that check meets a wall: git may use (Landlock) the files of the workspace, its own
and the system's, whatever name or link leads to others. Lost on purpose: `filter` drivers, so that
files of git-lfs look changed; `diff` drivers; submodules, which are never entered; a subfolder of a
repository as workspace.

Not covered by the wall: hard links; repositories in folders of the system that everybody may read.
If the kernel has no Landlock (Linux 5.13), the earlier check is the only protection.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem import open_beneath
from ferrule.permissions.filesystem.opened_files import open_for_reading
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.repositories import Repository
from ferrule.sandbox.command import LandlockAccess
from ferrule.sandbox.inside.kernel.landlock import READ_RIGHTS, PathRule, kernel_abi
from ferrule.sandbox.inside.kernel.landlock_rules import device_rules
from ferrule.sandbox.temporary_folder import TemporaryFolder
from ferrule.sandbox.view.git_config import remove_secrets
from ferrule.sandbox.view.layout import SYSTEM

_COPIED = (
    "HEAD",
    "packed-refs",
    "shallow",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
)
_LINKED = ("objects", "refs", "logs", "index", "reftable")
_READ_BY_GIT = frozenset((*_COPIED, *_LINKED, "info", "worktrees"))
"""What git reads of a repository: nothing in it may be a link."""
_OWN_NAMES = frozenset(
    {
        "AUTO_MERGE",
        "BISECT_LOG",
        "CHERRY_PICK_HEAD",
        "FETCH_HEAD",
        "HEAD",
        "MERGE_HEAD",
        "MERGE_MODE",
        "MERGE_MSG",
        "ORIG_HEAD",
        "REVERT_HEAD",
        "index",
        "index.lock",
        "rebase-apply",
        "rebase-merge",
        "sequencer",
    }
)
_OWN_PATHS = frozenset({"info/sparse-checkout", "logs/HEAD"})
"""What each work tree has for itself: gitrepository-layout(5)."""
_MAX_DEPTH = 5
"""Length of a chain of object stores that name one another, as in git."""
_SHARED_INDEX = compile_lazily(r"sharedindex\.[0-9a-f]{40,64}")
_MAX_BYTES = 64 * 1024 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_READ = ("read", "list")
_PARTS = ("lib", "lib64", "libexec", "share")


@frozen
class UnconfiguredRepository:
    """What git is run with: its variables, and the files that it may use."""

    environment: dict[str, str]
    wall: LandlockAccess | None


@dataclass(slots=True)
class _RealRepository:
    """The real folders of a repository, by descriptor.

    `own` has HEAD and the index of the work tree, `common` objects, refs and configuration; they
    differ in a linked worktree alone.
    """

    own: int
    common: int
    is_linked: bool

    def locate(self, name: str) -> int:
        """Return the descriptor of the folder that contains a file of a repository."""
        first = name.split("/")[0]
        is_own = first in _OWN_NAMES or name in _OWN_PATHS or _SHARED_INDEX.fullmatch(first)
        return self.own if is_own else self.common

    def read(self, name: str) -> bytes:
        """Read a small regular file; empty if there is none."""
        return _read_small_file(self.locate(name), name)

    def list_names(self) -> set[str]:
        """Return the names that git finds in it."""
        return {
            name
            for folder in {self.own, self.common}
            for name in os.listdir(folder)  # noqa: PTH208  a descriptor
            if self.locate(name) == folder
        }


@contextmanager
def open_unconfigured(
    workspace: Workspace, repository: Repository, program: str
) -> Generator[UnconfiguredRepository]:
    """Yield a repository without its configuration, inside a `with` block.

    Args:
        workspace: The workspace.
        repository: Its repository.
        program: Path of git.

    Raises:
        ToolFailed: It leads outside, or the workspace is a subfolder of it.
    """
    if repository.work_tree != str(workspace.root):
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            "without a sandbox the git tools work where the repository begins, and the workspace "
            f"is a subfolder of {quote_path(os.path.basename(repository.work_tree))}; ask the "  # noqa: PTH119  text
            "person to start there, or to have a sandbox",
        )
    folders = tuple(dict.fromkeys((repository.git_dir, repository.common_dir)))
    with ExitStack() as stack:
        own, common = (
            os.open(path, _FOLDER_FLAGS) for path in (repository.git_dir, repository.common_dir)
        )
        stack.callback(os.close, own)
        stack.callback(os.close, common)
        is_linked = len(folders) > 1
        real = _RealRepository(own, common if is_linked else own, is_linked)
        _check_inside(workspace, real)
        made = TemporaryFolder("git")
        stack.callback(made.remove)
        folder = made.path
        _fill(folder, real)
        environment = _make_environment(folder)
        yield UnconfiguredRepository(environment, _make_wall(program, folder, folders))


def _outside_error(what: str) -> ToolFailed:
    """Return the error for a repository that is not completely in its folder."""
    return ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"git was not run: {what}, and nothing outside of the workspace's repository is read; ask "
        "the person to look, or to work in a full clone",
    )


def _check_inside(workspace: Workspace, real: _RealRepository) -> None:
    """Refuse whatever git would read that may lie outside of the repository.

    That is a link, what is neither file nor folder, and an object store outside of the workspace.
    """
    for name in sorted(real.list_names()):
        if name in _READ_BY_GIT or _SHARED_INDEX.fullmatch(name):
            _check_entry(real.locate(name), name, f".git/{name}")
    _check_alternates(workspace, real.common, ".git/objects", _MAX_DEPTH)


def _check_entry(folder: int, name: str, shown: str) -> None:
    kind = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    if kind == stat.S_IFDIR:
        inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
        try:
            _check_below(inner, shown)
        finally:
            os.close(inner)
    elif kind != stat.S_IFREG:
        what = "a link" if kind == stat.S_IFLNK else "no file"
        raise _outside_error(f"`{shown}` is {what}")


def _check_below(folder: int, shown: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            # The folder's own entry is enough: reading the status of each file would take longer
            # than git does.
            if not entry.is_file(follow_symlinks=False):
                _check_entry(folder, entry.name, f"{shown}/{entry.name}")


def _check_alternates(workspace: Workspace, folder: int, shown: str, left: int) -> None:
    """Follow `objects/info/alternates`: each store is in the workspace and contains no link.

    Format: gitrepository-layout(5). `folder` is what contains `objects`.
    """
    if _read_small_file(folder, "objects/info/http-alternates").strip():
        raise _outside_error(f"`{shown}/info/http-alternates` names other object stores")
    data = _read_small_file(folder, "objects/info/alternates")
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if line.startswith('"'):
            raise _outside_error(f"`{shown}/info/alternates` has a quoted name")
        if left == 0:
            raise _outside_error(
                f"`{shown}/info/alternates` names stores that name stores, and so on"
            )
        # As text: git goes the same way, and finds no link on it that was not checked.
        store = os.path.normpath(Path(_descriptor_path(folder), "objects", line))
        with _open_store(workspace, store, f"`{shown}/info/alternates`") as found:
            _check_entry(found, "objects", store)
            _check_alternates(workspace, found, store, left - 1)


@contextmanager
def _open_store(workspace: Workspace, store: str, source: str) -> Generator[int]:
    """Yield the folder that contains another store, which has to be in the workspace."""
    above, name = os.path.split(store)
    if name != "objects":
        raise _outside_error(f"{source} names a store that is not called `objects`")
    try:
        descriptor = workspace.open_descriptor(above)
    except ToolFailed:
        raise _outside_error(f"{source} names an object store outside of the workspace") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _descriptor_path(folder: int) -> str:
    """Return the path of the folder that a descriptor stands for."""
    get_path = getattr(fcntl, "F_GETPATH", None)  # macOS
    if get_path is not None:
        return os.fsdecode(fcntl.fcntl(folder, get_path, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{folder}")  # noqa: PTH115  a link of the kernel's


def _read_small_file(real: int, name: str) -> bytes:
    """Read a small regular file below `.git`; empty if there is none.

    No link is followed, not even by a folder on the way.
    """
    *folders, last = name.split("/")
    try:
        with open_beneath.folder_descriptor(
            open_beneath.select_open_folder(), real, folders
        ) as above:
            file = open_for_reading(last, folder=above)
    except OSError:
        return b""  # Missing, a link, or not readable for us: git does without it.
    with file:
        is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read(_MAX_BYTES) if is_file else b""


def _fill(folder: Path, real: _RealRepository) -> None:
    """Fill an empty folder with what git reads of a repository, copied and linked."""
    for name in _COPIED:
        data = real.read(name)
        if data:
            (folder / name).write_bytes(data)
    present = real.list_names()
    shared = sorted(filter(_SHARED_INDEX.fullmatch, present))
    for name in (*_LINKED, *shared):
        if name in present:
            (folder / name).symlink_to(Path(_descriptor_path(real.locate(name)), name))
    if real.is_linked and (folder / "logs").is_symlink():
        # The log of HEAD is that of the work tree.
        (folder / "logs").unlink()
        (folder / "logs").mkdir()
        (folder / "logs/refs").symlink_to(Path(_descriptor_path(real.common), "logs/refs"))
        (folder / "logs/HEAD").symlink_to(Path(_descriptor_path(real.own), "logs/HEAD"))
    for name in ("objects", "refs"):
        if name not in present:
            (folder / name).mkdir()
    (folder / "info").mkdir()
    for name in ("exclude", "sparse-checkout"):
        (folder / "info" / name).write_bytes(real.read(f"info/{name}"))
    text = real.read("config").decode("utf-8", "replace")
    (folder / "config").write_text(f"{remove_secrets(text)}[core]\n\tbare = false\n")


def _make_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a git that works with this folder, but for those of every git."""
    return {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "GIT_DIR": str(folder),
        "GIT_WORK_TREE": ".",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_ALLOW_PROTOCOL": "none",
    }


def _make_wall(program: str, folder: Path, outside: Iterable[str]) -> LandlockAccess | None:
    """Return the files that git may read; None if the kernel has no Landlock."""
    if kernel_abi() < 1:
        return None
    return LandlockAccess(
        (
            (".", _READ),
            (str(folder), _READ),
            *((place, _READ) for place in outside),
            ("/proc", _READ),
            ("/sys/devices/system/cpu", _READ),
            *device_rules(),
            *((f"/{name}", READ_RIGHTS) for name in SYSTEM),
            *_find_installation(program),
        )
    )


def _find_installation(program: str) -> list[PathRule]:
    """Return a program outside of the system folders: its file, and the folders of its parts."""
    real = Path(os.path.realpath(program))
    if real.parts[1] in SYSTEM:
        return []
    prefix = real.parent.parent
    return [(str(real), READ_RIGHTS), *((str(prefix / part), READ_RIGHTS) for part in _PARTS)]
