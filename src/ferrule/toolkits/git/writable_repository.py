"""A workbench for git: a repository that may be written, without its configuration.

Like the shadow that reads use (`readable_repository`), it is a private folder that git gets as
`GIT_DIR`: its `config` is written here, so no hook, filter, driver, helper, alias or include of the
repository exists for it. The differences:

    objects, refs, logs, packed-refs     links to the real ones: git locks and replaces them there,
                                         as always
    index, HEAD, ORIG_HEAD, shallow      copies; they are put back at the end, and only if the
                                         operation succeeded

The real `index.lock` is held all the time, so another git waits or reports it. An operation that
fails leaves the index and HEAD as they were. Refused: what `readable_repository` refuses, the
reftable format, and an unfinished operation (a merge, a rebase): continuing it is the person's
decision.

Not protected: another process that replaces a folder of the work tree by a link while git writes
(git checks, but not by descriptor); a crash between git's last step and putting the index back (the
next `git status` shows it as changes).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace

from .readable_repository import (
    RealRepository,
    check_inside,
    descriptor_path,
    fill_shadow,
    make_git_environment,
    open_repository,
    outside_error,
)
from .refs import is_valid_branch

_LINKED = ("objects", "refs", "logs", "packed-refs", "worktrees")
_COPIED = ("HEAD", "ORIG_HEAD", "shallow")
_UNFINISHED = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
)
_INDEX_BEFORE = "index-before"
_MAX_INDEX = 512 * 1024 * 1024
_LOCK_FLAGS = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_WRITING_SETTINGS = """\
[core]
\tlogAllRefUpdates = true
\tsplitIndex = false
\tuntrackedCache = false
\teditor = false
\taskPass = false
\tsshCommand = false
\tgitProxy = false
\tcommentChar = "#"
[credential]
\thelper =
[commit]
\tgpgSign = false
\tcleanup = whitespace
[tag]
\tgpgSign = false
[rerere]
\tenabled = false
[submodule]
\trecurse = false
[fetch]
\trecurseSubmodules = false
\twriteCommitGraph = false
[merge]
\tverifySignatures = false
[rebase]
\tautoStash = false
\tautoSquash = false
\tupdateRefs = false
[user]
\tuseConfigOnly = true
"""


@dataclass(slots=True)
class Workbench:
    """A repository to work on.

    `directory` is the root (a descriptor) and `real` the real repository; git gets `folder` instead
    of the latter.
    """

    directory: int
    real: RealRepository
    folder: Path
    environment: dict[str, str]
    exit_callbacks: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Called when the workbench is left, in any case."""
    _before: dict[str, bytes | None] = field(default_factory=dict[str, "bytes | None"])
    _lock: int = -1

    def read_config(self) -> bytes:
        """Return the real configuration, as data."""
        return self.real.read("config")

    def configure(self, text: str) -> None:
        """Add to the configuration that git sees."""
        with (self.folder / "config").open("a", encoding="utf-8") as file:
            file.write(text)

    def check_full_checkout(self) -> None:
        """Raise ToolFailed if only a part of the files is checked out.

        What a move would write is then not what differs between trees.
        """
        text = (self.folder / "config").read_text(encoding="utf-8")
        if re.search(r"(?m)^\tsparsecheckout = true$", text):
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                "nothing was done: this repository checks out only a part of its files "
                "(sparse checkout); ask the person to do it",
            )

    def restore_index(self) -> None:
        """Discard the changes to the copy of the index."""
        _copy_index(self.real.own, self.folder)

    def install(self) -> None:
        """Put back what git changed: index, HEAD and the like.

        Raises:
            ToolFailed: HEAD was changed by another program meanwhile.
        """
        if self.real.read("HEAD") != self._before["HEAD"]:
            raise ToolFailed(
                ErrorType.IO_ERROR,
                "another program switched the branch meanwhile; look at `git_status`",
            )
        self._install_index()
        for name in _COPIED:
            content = _read_if_present(self.folder / name)
            if content is not None and content != self._before[name]:
                _replace(self.real.locate(name), name, content)

    def _install_index(self) -> None:
        source = self.folder / "index"
        before = self.folder / _INDEX_BEFORE
        if not source.exists() or (before.exists() and before.samefile(source)):
            # git writes an index by putting another file in its place: this is still our copy.
            return
        status = source.stat()
        with source.open("rb") as new, os.fdopen(os.dup(self._lock), "wb") as lock:
            shutil.copyfileobj(new, lock)
        # git concludes from this time which files may have changed since: it must be git's own.
        os.utime(self._lock, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.rename("index.lock", "index", src_dir_fd=self.real.own, dst_dir_fd=self.real.own)


@contextmanager
def open_workbench(workspace: Workspace, *, allow_unfinished: bool = False) -> Generator[Workbench]:
    """Yield the repository of the workspace for writing, inside a `with` block.

    `install` keeps what was done.

    Args:
        workspace: The workspace.
        allow_unfinished: Whether the operation is allowed while a merge is under way.

    Raises:
        ToolFailed: There is no repository, it leads outside, or another git is working in it.
    """
    with ExitStack() as stack:
        root = workspace.open_descriptor("")
        stack.callback(os.close, root)
        real = stack.enter_context(open_repository(workspace, root))
        check_inside(workspace, real)
        _check_writable(real)
        if not allow_unfinished:
            _check_idle(real)
        lock = _take_lock(real.own)
        stack.callback(_drop_lock, real.own, lock)
        for descriptor, place in (
            (real.own, "logs"),
            (real.common, "logs"),
            (real.common, "logs/refs"),
        ):
            with suppress(FileExistsError):
                os.mkdir(place, dir_fd=descriptor)
        folder = Path(tempfile.mkdtemp(prefix="ferrule-git-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        made = Workbench(root, real, folder, _environment(folder))
        made._lock = lock  # pyright: ignore[reportPrivateUsage]  made here and nowhere else
        _fill_bench(made)
        made._before = {name: _read_if_present(folder / name) for name in _COPIED}  # pyright: ignore[reportPrivateUsage]  as above
        stack.callback(lambda: [leave() for leave in made.exit_callbacks])
        yield made


def _fill_bench(made: Workbench) -> None:
    fill_shadow(made.folder, made.real, copied=_COPIED, linked=_LINKED)
    packed = made.folder / "packed-refs"
    if not packed.is_symlink():
        packed.symlink_to(f"{descriptor_path(made.real.common)}/packed-refs")
    # Attributes alone run nothing, and those of this file tell which files need a filter.
    (made.folder / "info/attributes").write_bytes(made.real.read("info/attributes"))
    made.restore_index()
    made.configure(_WRITING_SETTINGS)


def _environment(folder: Path) -> dict[str, str]:
    return {
        **make_git_environment(folder),
        "GIT_OPTIONAL_LOCKS": "1",
        "GIT_MERGE_AUTOEDIT": "no",
        "GIT_SEQUENCE_EDITOR": "false",
    }


def _check_writable(real: RealRepository) -> None:
    names = real.list_names()
    if "reftable" in names:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "nothing was done: this repository keeps its branches in the reftable format, "
            "which is only read here",
        )
    for name in ("HEAD", "index", "packed-refs", "ORIG_HEAD", "shallow"):
        if name not in names:
            continue
        if not stat.S_ISREG(os.stat(name, dir_fd=real.locate(name), follow_symlinks=False).st_mode):
            raise outside_error(f"`.git/{name}` is no file")
    _check_head(real.read("HEAD"))


def _check_head(head: bytes) -> None:
    text = head.decode("utf-8", "replace").strip()
    symbolic = re.fullmatch(r"ref: refs/heads/(.+)", text)
    is_branch = symbolic is not None and is_valid_branch(symbolic[1])
    if not is_branch and not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "nothing was done: `.git/HEAD` names no branch and no commit; ask the person to look",
        )


def _check_idle(real: RealRepository) -> None:
    present = set(os.listdir(real.own))  # noqa: PTH208  a descriptor
    under_way = sorted(present & set(_UNFINISHED))
    if under_way:
        raise ToolFailed(
            ErrorType.IO_ERROR,
            "nothing was done: a merge, rebase or the like is half done "
            f"(`.git/{under_way[0]}` is there); to finish it or give it up is the person's "
            "decision. `git_conflicts` shows what is open",
        )


def _take_lock(real: int) -> int:
    try:
        return os.open("index.lock", os.O_RDWR | _LOCK_FLAGS, 0o666, dir_fd=real)
    except FileExistsError:
        raise ToolFailed(
            ErrorType.IO_ERROR,
            "nothing was done: another git is at work in this repository, or one broke off "
            "(`.git/index.lock` is there); try again, or ask the person to remove the file",
        ) from None


def _drop_lock(real: int, lock: int) -> None:
    """Remove the lock, unless it became the index."""
    try:
        status = os.stat("index.lock", dir_fd=real, follow_symlinks=False)
        if os.path.samestat(status, os.fstat(lock)):
            os.unlink("index.lock", dir_fd=real)
    except FileNotFoundError:
        pass
    finally:
        os.close(lock)


def _copy_index(real: int, folder: Path) -> None:
    """Copy the index, with a second name that stays when git puts another file in its place."""
    # A file that exists is not overwritten: it could be the one whose other name is kept.
    (folder / "index").unlink(missing_ok=True)
    try:
        descriptor = os.open("index", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=real)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "rb") as source, (folder / "index").open("wb") as copy:
        status = os.fstat(descriptor)
        if status.st_size > _MAX_INDEX:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"nothing was done: the index has {status.st_size} bytes, more than {_MAX_INDEX}",
            )
        shutil.copyfileobj(source, copy)
    # The same time as the original, so that git checks again what changed at that moment.
    os.utime(folder / "index", ns=(status.st_atime_ns, status.st_mtime_ns))
    (folder / _INDEX_BEFORE).unlink(missing_ok=True)
    (folder / _INDEX_BEFORE).hardlink_to(folder / "index")


def _read_if_present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _replace(real: int, name: str, content: bytes) -> None:
    """Replace one of git's small files, under git's own lock."""
    lock = f"{name}.lock"
    try:
        descriptor = os.open(lock, os.O_WRONLY | _LOCK_FLAGS, 0o666, dir_fd=real)
    except FileExistsError:
        raise ToolFailed(
            ErrorType.IO_ERROR,
            f"`.git/{lock}` is there: another git is at work; look at `git_status`",
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.rename(lock, name, src_dir_fd=real, dst_dir_fd=real)


def format_section(name: str, values: Mapping[str, str]) -> str:
    """Format a section of a configuration file, with values quoted, see git-config(1), "Syntax"."""
    if any("\n" in value or "\0" in value for value in values.values()):
        raise ToolFailed(ErrorType.VALIDATION_FAILED, "a setting cannot hold a line end")
    rows = [f"[{name}]\n"]
    for key, value in values.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        rows.append(f'\t{key} = "{quoted}"\n')
    return "".join(rows)
