"""A repository without its configuration, for reading.

Nearly any file below `.git` can make git run a program: `core.fsmonitor`, `core.pager`, external
diffs, text conversions, filters, hooks, signature programs, credential helpers, fetches of a
partial clone, `include`. A list of what to switch off is never complete, so nothing is switched
off. Instead git gets another folder as `GIT_DIR`, made for the call, private and removed after it:

    config      written here; from the repository only a few values that say how its data is stored
    HEAD, packed-refs, shallow      copied
    objects, refs, logs, index      links to the real ones

The global and the system configuration are off by environment, and no variable of ours reaches git.

In a linked worktree or a submodule these lie outside of the workspace, in the repository that
it belongs to (`permissions.repositories`): HEAD, index and the state of operations in the folder
of the work tree, all else in the one that work trees share.

Refused, since they may lead elsewhere: a `.git` that names a repository which does not name the
workspace, any link among what git reads below it (each object, pack, branch and log is checked),
alternates (objects kept elsewhere) outside of the workspace. What is planted after that check meets
`file_access`. Lost on purpose: `filter` drivers, so that files of git-lfs look changed;
`diff` drivers; submodules, which are never entered.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem import open_beneath
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.repositories import find_repository

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
_SHARED_INDEX = re.compile(r"sharedindex\.[0-9a-f]{40,64}")
_MAX_BYTES = 64 * 1024 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_KEPT_SETTINGS = {
    ("core", "repositoryformatversion"): r"[01]",
    ("core", "filemode"): "true|false",
    ("core", "ignorecase"): "true|false",
    ("core", "symlinks"): "true|false",
    ("core", "precomposeunicode"): "true|false",
    ("core", "autocrlf"): "true|false|input",
    ("core", "eol"): "lf|crlf|native",
    ("core", "sparsecheckout"): "true|false",
    ("core", "sparsecheckoutcone"): "true|false",
    ("extensions", "objectformat"): "sha1|sha256",
    ("extensions", "refstorage"): "files|reftable",
}
"""Settings of the repository that are kept, with the values they may have."""

FORCED_SETTINGS = """\
[core]
\tbare = false
\thooksPath = /dev/null
\tfsmonitor = false
\tpager = cat
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tquotePath = false
\tprotectHFS = true
\tprotectNTFS = true
[diff]
\tautoRefreshIndex = false
\tignoreSubmodules = all
[status]
\tsubmoduleSummary = false
[gpg]
\tprogram = false
[protocol]
\tallow = never
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""


@frozen
class ShadowRepository:
    """What git is run with: the folder `directory` (a descriptor of the root) and its `GIT_DIR`.

    `outside` are folders of the repository outside of the workspace, `config` is its configuration.
    """

    directory: int
    folder: Path
    environment: dict[str, str]
    outside: tuple[str, ...]
    config: bytes


@dataclass(slots=True)
class RealRepository:
    """The real folders of a repository, by descriptor.

    `own` has HEAD and the index of the work tree, `common` objects, refs and configuration; mostly
    they are the same. `outside` are their paths where they lie outside of the workspace, `name` is
    that of a linked worktree.
    """

    own: int
    common: int
    outside: tuple[str, ...] = ()
    name: str = ""

    def locate(self, name: str) -> int:
        """Return the descriptor of the folder that contains a file of a repository."""
        first = name.split("/")[0]
        is_own = first in _OWN_NAMES or name in _OWN_PATHS or _SHARED_INDEX.fullmatch(first)
        return self.own if is_own else self.common

    def read(self, name: str) -> bytes:
        """Read a small regular file; empty if there is none."""
        return read_small_file(self.locate(name), name)

    def list_names(self) -> set[str]:
        """Return the names that git finds in it."""
        return {
            name
            for folder in {self.own, self.common}
            for name in os.listdir(folder)  # noqa: PTH208  a descriptor
            if self.locate(name) == folder
        }


@contextmanager
def open_shadow(workspace: Workspace) -> Generator[ShadowRepository]:
    """Yield a shadow of the repository of the workspace, inside a `with` block.

    Raises:
        ToolFailed: `not_found` if there is no repository, `permission_denied` if it leads outside.
    """
    with ExitStack() as stack:
        root = workspace.open_descriptor("")
        stack.callback(os.close, root)
        real = stack.enter_context(open_repository(workspace, root))
        check_inside(workspace, real)
        folder = Path(tempfile.mkdtemp(prefix="ferrule-git-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        fill_shadow(folder, real)
        yield ShadowRepository(
            root, folder, make_git_environment(folder), real.outside, real.read("config")
        )


@contextmanager
def open_bare_shadow(workspace: Workspace) -> Generator[Path]:
    """Yield a shadow as a folder, for another git to fetch from.

    It is of the repository that the workspace contains, or that its root is.
    """
    with ExitStack() as stack:
        root = workspace.open_descriptor("")
        stack.callback(os.close, root)
        if _is_bare(root):
            real = RealRepository(root, root)
        else:
            real = stack.enter_context(open_repository(workspace, root))
        check_inside(workspace, real)
        folder = Path(tempfile.mkdtemp(prefix="ferrule-git-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        fill_shadow(folder, real)
        yield folder


def _is_bare(root: int) -> bool:
    """Return whether a folder is a repository itself; one that also has `.git` is not."""
    names = os.listdir(root)
    return {"HEAD", "objects", "refs"} <= set(names) and ".git" not in names


@contextmanager
def open_repository(workspace: Workspace, root: int) -> Generator[RealRepository]:
    """Yield the repository of a workspace, whose root is a descriptor, inside a `with` block.

    Raises:
        ToolFailed: There is none, or one that does not belong to the workspace.
    """
    with ExitStack() as stack:
        try:
            status = os.stat(".git", dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            raise _missing_error(workspace) from None
        if stat.S_ISDIR(status.st_mode):
            folder = os.open(".git", _FOLDER_FLAGS, dir_fd=root)
            stack.callback(os.close, folder)
            if "commondir" in os.listdir(folder):  # noqa: PTH208  a descriptor
                raise outside_error("`.git/commondir` names another folder")
            yield RealRepository(folder, folder)
            return
        found = find_repository(workspace.root)
        if found.repository is None or found.repository.work_tree != str(workspace.root):
            raise outside_error(found.problem or "`.git` is not a folder and names none")
        repository = found.repository
        folders = tuple(dict.fromkeys((repository.git_dir, repository.common_dir)))
        own, common = (
            os.open(path, _FOLDER_FLAGS) for path in (repository.git_dir, repository.common_dir)
        )
        stack.callback(os.close, own)
        stack.callback(os.close, common)
        is_linked = len(folders) > 1
        name = os.path.basename(repository.git_dir) if is_linked else ""  # noqa: PTH119  text
        yield RealRepository(own, common if is_linked else own, folders, name)


def _missing_error(workspace: Workspace) -> ToolFailed:
    found = find_repository(workspace.root).repository
    if found is None:
        return ToolFailed(
            ErrorType.NOT_FOUND,
            "the workspace is not a git repository: there is no `.git` at its root",
        )
    return ToolFailed(
        ErrorType.NOT_FOUND,
        "the git tools work where the repository begins, and the workspace is a subfolder of "
        f"{quote_path(os.path.basename(found.work_tree))}; run git with `run_command`",  # noqa: PTH119  text
    )


def outside_error(what: str) -> ToolFailed:
    """Return the error for a repository that is not completely in its folder."""
    return ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"git was not run: {what}, and nothing outside of the workspace's repository is read; ask "
        "the person to look, or to work in a full clone",
    )


def check_inside(workspace: Workspace, real: RealRepository) -> None:
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
        raise outside_error(f"`{shown}` is {what}")


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
    if read_small_file(folder, "objects/info/http-alternates").strip():
        raise outside_error(f"`{shown}/info/http-alternates` names other object stores")
    data = read_small_file(folder, "objects/info/alternates")
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if line.startswith('"'):
            raise outside_error(f"`{shown}/info/alternates` has a quoted name")
        if left == 0:
            raise outside_error(
                f"`{shown}/info/alternates` names stores that name stores, and so on"
            )
        # As text: git goes the same way, and finds no link on it that was not checked.
        store = os.path.normpath(Path(descriptor_path(folder), "objects", line))
        with _open_store(workspace, store, f"`{shown}/info/alternates`") as found:
            _check_entry(found, "objects", store)
            _check_alternates(workspace, found, store, left - 1)


@contextmanager
def _open_store(workspace: Workspace, store: str, source: str) -> Generator[int]:
    """Yield the folder that contains another store, which has to be in the workspace."""
    above, name = os.path.split(store)
    if name != "objects":
        raise outside_error(f"{source} names a store that is not called `objects`")
    try:
        descriptor = workspace.open_descriptor(above)
    except ToolFailed:
        raise outside_error(f"{source} names an object store outside of the workspace") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def descriptor_path(folder: int) -> str:
    """Return the path of the folder that a descriptor stands for."""
    get_path = getattr(fcntl, "F_GETPATH", None)  # macOS
    if get_path is not None:
        return os.fsdecode(fcntl.fcntl(folder, get_path, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{folder}")  # noqa: PTH115  a link of the kernel's


def read_small_file(real: int, name: str) -> bytes:
    """Read a small regular file below `.git`; empty if there is none.

    No link is followed, not even by a folder on the way.
    """
    *folders, last = name.split("/")
    try:
        with open_beneath.folder_descriptor(
            open_beneath.select_open_folder(), real, folders
        ) as above:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(last, flags, dir_fd=above)
    except OSError:
        return b""  # Missing, a link, or not readable for us: git does without it.
    with os.fdopen(descriptor, "rb") as file:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return file.read(_MAX_BYTES) if is_file else b""


def fill_shadow(
    folder: Path,
    real: RealRepository,
    *,
    copied: Sequence[str] = _COPIED,
    linked: Sequence[str] = _LINKED,
) -> None:
    """Make a shadow of a repository in an empty folder, from copied and linked files."""
    for name in copied:
        data = real.read(name)
        if data:
            (folder / name).write_bytes(data)
    present = real.list_names()
    shared = sorted(filter(_SHARED_INDEX.fullmatch, present))
    for name in (*linked, *shared):
        if name in present:
            (folder / name).symlink_to(Path(descriptor_path(real.locate(name)), name))
    if real.name:
        _separate_work_trees(folder, real)
    for name in ("objects", "refs"):
        if name not in present:
            (folder / name).mkdir()
    (folder / "info").mkdir()
    for name in ("exclude", "sparse-checkout"):
        (folder / "info" / name).write_bytes(real.read(f"info/{name}"))
    text = real.read("config").decode("utf-8", "replace")
    (folder / "config").write_text(format_kept_settings(text) + FORCED_SETTINGS)


def _separate_work_trees(folder: Path, real: RealRepository) -> None:
    """Give the shadow of a linked worktree its own log of HEAD, and the other work trees alone.

    The main one is among them: git moves no branch that is checked out elsewhere.
    """
    common = Path(descriptor_path(real.common))
    own = Path(descriptor_path(real.own))
    if (folder / "logs").is_symlink():
        (folder / "logs").unlink()
        (folder / "logs").mkdir()
        (folder / "logs/refs").symlink_to(common / "logs/refs")
        (folder / "logs/HEAD").symlink_to(own / "logs/HEAD")
    if not (folder / "worktrees").is_symlink():
        return
    (folder / "worktrees").unlink()
    (folder / "worktrees").mkdir()
    for entry in (common / "worktrees").iterdir():
        if entry.name != real.name:
            (folder / "worktrees" / entry.name).symlink_to(entry)
    main = folder / "worktrees/ferrule-main"
    main.mkdir()
    (main / "HEAD").write_bytes(read_small_file(real.common, "HEAD"))
    (main / "commondir").write_text("../..\n")
    (main / "gitdir").write_text(f"{common}\n")


def format_kept_settings(text: str) -> str:
    """Return the kept settings of a configuration file.

    Format: git-config(1), of it only plain `key = value`.
    """
    found: dict[tuple[str, str], str] = {}
    section = ""
    for line in text.splitlines():
        line = line.strip()
        heading = _HEADING.fullmatch(line)
        if heading:
            section = heading[1].lower()
            continue
        if line.startswith("["):
            section = ""
            continue
        setting = _SETTING.fullmatch(line)
        if not setting:
            continue
        key = (section, setting[1].lower())
        value = "true" if setting[2] is None else setting[2].lower()
        if key in _KEPT_SETTINGS and re.fullmatch(_KEPT_SETTINGS[key], value):
            found[key] = value
    return "".join(f"[{section}]\n\t{key} = {value}\n" for (section, key), value in found.items())


_HEADING = re.compile(r"\[\s*([A-Za-z0-9.-]+)\s*\]\s*(?:[#;].*)?")
_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*([A-Za-z0-9]*)\s*(?:[#;].*)?)?")


def make_git_environment(folder: Path) -> dict[str, str]:
    """Return the whole environment of a git that works with a shadow."""
    return {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_DIR": str(folder),
        "GIT_WORK_TREE": ".",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": "0",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_ALLOW_PROTOCOL": "none",
    }
