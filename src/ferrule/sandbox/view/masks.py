"""What is laid over the workspace so that commands cannot see or change what no tool may touch.

    scanner = Scanner(root, names)
    masks = scanner.scan(own)       # before each command

The rules for one name are in `mask_rules`; this file walks the folders. It opens every folder by
descriptor and follows no link. What it learned of a folder is kept under the folder's inode and
times, so that a repeated scan only asks each folder whether it changed. It is believed only if the
folder had been quiet for `QUIET_NANOSECONDS` before it was read: a change in the same tick of the
clock would not show.

What is known of a folder outlives its scanner: the next one of this process for the same folder and
the same rules begins with it (`_KnownFolders`), such as that of each MCP server that is started.
Those that begin at the same time wait for the first.

What it cannot look at is covered, not skipped: folders that cannot be read and folders beyond the
limit get an empty one laid over them and are named in the result's `unseen`.

Hard links: a file with a name elsewhere may be any file of the person's, so it is covered, and so
is one that shares its inode with a covered file. Package managers and local clones link files from
caches and other repositories: below the folders of `PACKAGES` only those are covered that are known
secrets.

A name is judged by where it really lies (`ProtectedNames.find_above`, `judge_content`): an opened
`repo/.git` is masked as it is when `repo` is opened, and a bare repository as if it were `.git`.

Which files are the session's own is told by identities that no later file has
(`inside.mediator.file_identity`).

Not protected: what appears while a command runs; secrets that a person writes into a file that a
command made; folders whose path is longer than the system can open.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.open_beneath import select_open_folder
from ferrule.permissions.filesystem.opened_files import open_for_reading
from ferrule.permissions.protected_names import (
    GIT_FOLDER_ENTRIES,
    ProtectedNames,
    judge_content,
)
from ferrule.permissions.repositories import find_judged_path
from ferrule.sandbox.inside.mediator.file_identity import identify
from ferrule.tools.forking import make_lock

from . import certificates, git_config
from .linked_files import CONDA, Inode, Link, known_secrets, links_to_cover
from .mask_rules import FileType, MaskKind, MaskRequirement, required_mask
from .ordinary_names import OrdinaryNames

__all__ = ["MAX_ENTRIES", "MAX_MASKS", "Inode", "Mask", "MaskKind", "MaskScanner", "ScanResult"]

MAX_ENTRIES = 1_000_000
"""Entries that a scan looks at; folders beyond are covered whole."""

MAX_MASKS = 20_000
"""Masks that one command can have.

Each is a mount, and the kernel limits those of a namespace (100,000).
"""

QUIET_NANOSECONDS = 2_000_000_000
"""Nanoseconds: the coarsest clock of a file system in use (FAT, some network file systems)."""


@dataclass(frozen=True, slots=True, order=True)
class Mask:
    """Something laid over `path` (absolute). `text` is what a file of kind `TEXT` contains.

    The path may be a link: it is to be opened with O_PATH | O_NOFOLLOW and the link itself covered.
    """

    path: str
    kind: MaskKind
    text: str = ""


@frozen
class ScanResult:
    """All masks of a workspace: what is above comes before what is below.

    `added` and `removed` are paths, compared with the scan before. `own_seen` are those files of
    the session's own that were met with a secret's name: others of its own are gone and may be
    forgotten. `unreadable` are folders that were covered because they could not be looked at.
    """

    masks: tuple[Mask, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    own_seen: frozenset[str] = frozenset()
    unreadable: tuple[str, ...] = ()


_Stamp = tuple[int, ...]
"""Inode, and times or size: the same stamp, the same thing."""


@dataclass(slots=True)
class _Candidate:
    """A name that needs a mask, unless an excuse applies."""

    name: str
    what: FileType
    covered: MaskRequirement
    inode: Inode
    identity: str = ""
    stamp: _Stamp = ()
    public: bool = False
    text: str = ""


@dataclass(slots=True)
class _Folder:
    """What is known of one folder: which folders are below, which names need something."""

    stamp: _Stamp
    quiet: bool
    below: str = ""
    judged: str = ""
    judged_content: str = ""
    """The name that its content is judged by."""
    unreadable: bool = False
    environment: bool = False
    entries: int = 0
    folders: tuple[str, ...] = ()
    found: tuple[_Candidate, ...] = ()
    links: tuple[Link, ...] = ()


class _Known:
    """What is known of one folder. Its lock is held by the scanner that learns it."""

    def __init__(self) -> None:
        self.lock = make_lock()
        self.folders: dict[str, _Folder] = {}


class _KnownFolders:
    """What the first scans of this process learned, by the folder and the rules of each.

    The folders are copied on both ways: scanners change what they know.
    """

    def __init__(self) -> None:
        self._lock = make_lock()
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()

    def find(self, key: Hashable) -> _Known:
        with self._lock:
            known = self._known.setdefault(key, _Known())
            self._known.move_to_end(key)
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
            return known


def _copy_folders(folders: Mapping[str, _Folder]) -> dict[str, _Folder]:
    """Copy what changes: the findings of a folder. Its stamp and its lists of names do not."""
    return {
        name: replace(folder, found=tuple(replace(one) for one in folder.found))
        if folder.found
        else folder
        for name, folder in folders.items()
    }


_MAX_KNOWN = 16
"""Folders whose last scan is kept."""
_known_folders = _KnownFolders()


class MaskScanner:
    """Scans one folder again and again.

    Not thread-safe; its calls block (a second for 100,000 new files).

    Args:
        home: Where well-known secrets are looked for that might be hard-linked into a package
            folder.
        is_package_folder: All of it is such a folder.
        name_prefix: Put before each name when it is judged: the folder is no root for lists that
            speak of one.
        excluded: Folders below it (absolute) that are not looked into: another scanner's.
        is_workspace: Whether it is the workspace, whose root is where names begin.
        git_hooks: Whether git may run the hooks of repositories.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        names: ProtectedNames,
        *,
        home: str | None = None,
        is_package_folder: bool = False,
        name_prefix: str = "",
        excluded: Collection[str] = (),
        is_workspace: bool = True,
        git_hooks: bool = False,
    ) -> None:
        self.root = os.fspath(root)
        self.names = names
        self.home = Path(home) if home else Path.home()
        self.packages = is_package_folder
        self.apart = frozenset(os.path.relpath(path, self.root) for path in excluded)
        self.is_workspace = is_workspace
        self.git_hooks = git_hooks
        self.above = names.find_above(find_judged_path(self.root)) or name_prefix
        self._prefix = name_prefix
        self._key = (
            self.root,
            names,
            str(self.home),
            is_package_folder,
            name_prefix,
            self.apart,
            is_workspace,
            git_hooks,
        )
        self._folders: dict[str, _Folder] = {}
        self._has_scanned = False
        self._previous_paths: frozenset[str] = frozenset()
        self._linked_elsewhere: frozenset[Link] = frozenset()
        self._ordinary = OrdinaryNames(names)

    def scan(self, own: Collection[str] = (), *, limit: int = MAX_ENTRIES) -> ScanResult:
        """Return the masks for the workspace as it is now.

        Args:
            own: The identities of files that commands of the session created.
            limit: Entries to look at; folders beyond are covered whole.

        Raises:
            ConfigError: The folder cannot be read, or needs more than `MOST` masks.
        """
        if self._has_scanned:
            return self._scan(own, limit)
        known = _known_folders.find(self._key)
        with known.lock:
            self._folders = _copy_folders(known.folders)
            result = self._scan(own, limit)
            known.folders = _copy_folders(self._folders)
        self._has_scanned = True
        return result

    def _scan(self, own: Collection[str], limit: int) -> ScanResult:
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(f"workspace `{self.root}`: {error.strerror}") from error
        try:
            self._forget_changed(root)
            walked = self._walk(root, frozenset(own), limit)
            if not self._linked_elsewhere.issuperset(walked.away()):
                # Another name of these files may stand in a folder that did not change when it was
                # linked.
                self._folders = {}
                walked = self._walk(root, frozenset(own), limit)
                self._linked_elsewhere = frozenset(walked.away())
            items = walked.masks()
        finally:
            os.close(root)
        return self._result(items, walked)

    def _forget_changed(self, root: int) -> None:
        """Forget every folder that is not as it was.

        Most of what a repeated scan costs, so a plain loop.
        """
        stat_file = os.stat
        changed: list[str] = []
        for name, folder in self._folders.items():
            try:
                now = stat_file(name or ".", dir_fd=root, follow_symlinks=False)
            except OSError:
                changed.append(name)
                continue
            stamp = folder.stamp
            if (
                now.st_ctime_ns != stamp[3]
                or now.st_mtime_ns != stamp[2]
                or now.st_ino != stamp[1]
                or not folder.quiet
            ):
                changed.append(name)
        for name in changed:
            del self._folders[name]

    def _walk(self, root: int, own: frozenset[str], limit: int) -> _Walk:
        walked = _Walk(self, root, own, limit)
        walked.run()
        self._folders = walked.folders
        return walked

    def _result(self, items: list[Mask], walked: _Walk) -> ScanResult:
        if len(items) > MAX_MASKS:
            raise ConfigError(
                (
                    f"workspace `{self.root}`: {len(items)} names must be hidden from commands, "
                    f"at most {MAX_MASKS} can be"
                ),
                code="sandbox_masks",
                hint=(
                    f"the first are {', '.join(f'`{one.path}`' for one in items[:3])}; work in a "
                    "smaller folder"
                ),
            )
        paths = frozenset(item.path for item in items)
        added = sorted(paths - self._previous_paths)
        removed = sorted(self._previous_paths - paths)
        self._previous_paths = paths
        unseen = tuple(sorted(self._absolute(name) for name in walked.unseen))
        return ScanResult(
            tuple(items), tuple(added), tuple(removed), frozenset(walked.own_met), unseen
        )

    def _absolute(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def get_folder(self, name: str) -> _Folder | None:
        return self._folders.get(name)

    def select_ordinary(self, folder: str, judged: str, names: Sequence[str]) -> AbstractSet[str]:
        """Return a set that has those of the names in a folder that surely need no mask.

        Args:
            folder: The folder.
            judged: The name that its content is judged by.
            names: Names in it.
        """
        if not self._ordinary.is_plain_folder(judged):
            return frozenset()
        return self._ordinary.select(self._with_prefix(folder), names)

    def needs(self, name: str, judged: str, what: FileType, below: str) -> MaskRequirement | None:
        """Return what is laid over a name, which is judged by `judged` as well."""
        return required_mask(
            self._with_prefix(name),
            what,
            self.names,
            below=below and self._with_prefix(below),
            judged=judged,
            git_hooks=self.git_hooks,
        )

    def _with_prefix(self, name: str) -> str:
        return f"{self._prefix}/{name}".rstrip("/") if self._prefix else name


@dataclass(slots=True)
class _Walk:
    """One scan. `below` of a folder is the session's own secret folder that it is in, if any."""

    scanner: MaskScanner
    root: int
    own: frozenset[str]
    limit: int
    folders: dict[str, _Folder] = field(default_factory=dict[str, _Folder])
    unseen: list[str] = field(default_factory=list[str])
    own_met: set[str] = field(default_factory=set[str])
    _own_inodes: set[Inode] = field(default_factory=set[Inode])
    _candidates: list[_Candidate] = field(default_factory=list[_Candidate])
    _links: list[Link] = field(default_factory=list[Link])
    _covered_links: tuple[list[Link], list[Link]] | None = None
    _count: int = 0

    def run(self) -> None:
        waiting = [("", "", self.scanner.above)]
        while waiting:
            name, below, judged = waiting.pop()
            known = self._load_folder(name, below, judged)
            if known is None:
                continue
            if known.unreadable and not name:
                raise ConfigError(f"workspace `{self.scanner.root}` cannot be read")
            if known.unreadable:
                self._hide(name)
                continue
            self.folders[name] = known
            waiting += [
                (subfolder, below, _join_judged(known, subfolder)) for subfolder in known.folders
            ]
            if known.found:
                waiting += self._collect(known, below)
            if known.links:
                self._links += known.links

    def _hide(self, name: str) -> None:
        self.unseen.append(name)
        self._candidates.append(
            _Candidate(name, FileType.FOLDER, MaskRequirement(MaskKind.EMPTY_FOLDER), (0, 0))
        )

    def _load_folder(self, name: str, below: str, judged: str) -> _Folder | None:
        """Return what is in a folder, from before if it did not change.

        None if it is gone or no folder any more.
        """
        before = self.scanner.get_folder(name)
        if before and before.below == below and before.judged == judged:
            self._count += before.entries
            return before
        if self._count >= self.limit:
            return _Folder((), False, unreadable=True)
        return self._read(name, below, judged)

    def _read(self, name: str, below: str, judged: str) -> _Folder | None:
        now = time.time_ns()
        try:
            folder = select_open_folder()(
                self.root, tuple(name.split("/")) if name else (), os.O_RDONLY
            )
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
                return None
            return _Folder((), False, unreadable=True)
        try:
            status = os.fstat(folder)
            quiet = max(status.st_mtime_ns, status.st_ctime_ns) + QUIET_NANOSECONDS < now
            found = _Folder(_folder_stamp(status), quiet, below, judged)
            names = os.listdir(folder)  # noqa: PTH208  by descriptor
            found.entries = len(names)
            found.environment = CONDA in names
            found.judged_content = judge_content(
                judged,
                _MEANINGFUL_ENTRIES.intersection(names),
                in_workspace=self.scanner.is_workspace,
            )
            self._add_entries(found, folder, name, names)
        except OSError:
            return _Folder((), False, unreadable=True)
        finally:
            os.close(folder)
        self._count += found.entries
        return found

    def _add_entries(self, into: _Folder, folder: int, name: str, names: list[str]) -> None:
        """Keep what is to be known of the entries of a folder."""
        folders: list[str] = []
        found: list[_Candidate] = []
        links: list[Link] = []
        above = f"{name}/" if name else ""
        for last, status, is_ordinary in self._select_entries(into, folder, name, names):
            whole = f"{above}{last}"
            if whole in self.scanner.apart:
                continue
            what = FileType.of(status.st_mode)
            candidate = None
            if not is_ordinary or what is FileType.SOCKET:
                candidate = self._judge(into, folder, whole, what, status)
            if candidate is not None:
                found.append(candidate)
            if what is FileType.FOLDER and (
                candidate is None or candidate.covered.kind is MaskKind.READ_ONLY
            ):
                folders.append(whole)
            if what is FileType.FILE and status.st_nlink > 1:
                links.append(Link(whole, (status.st_dev, status.st_ino), status.st_nlink))
        if _is_object_store(into.judged_content):
            folders = [f"{above}info"] if f"{above}info" in folders else []
        # Tuples: what is empty takes no memory, and there are folders by the ten thousand.
        into.folders = tuple(folders)
        into.found = tuple(found)
        into.links = tuple(links)

    def _select_entries(
        self, into: _Folder, folder: int, name: str, names: list[str]
    ) -> Iterator[tuple[str, os.stat_result, bool]]:
        """Yield all entries but files with one, ordinary name, and whether each name is ordinary.

        Most of what a first scan costs, so a plain loop: nearly all entries are such files.
        """
        ordinary: AbstractSet[str] = frozenset()
        if not into.below:
            ordinary = self.scanner.select_ordinary(name, into.judged_content, names)
        stat_file = os.stat
        is_regular = stat.S_ISREG
        for last in names:
            try:
                status = stat_file(last, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            is_ordinary = last in ordinary
            if is_ordinary and status.st_nlink == 1 and is_regular(status.st_mode):
                continue
            yield last, status, is_ordinary

    def _judge(
        self, into: _Folder, folder: int, name: str, what: FileType, status: os.stat_result
    ) -> _Candidate | None:
        """Return what an entry of a folder needs, or None if it needs no mask."""
        judged = _join_judged(into, name)
        needed = self.scanner.needs(name, judged, what, into.below)
        if needed is None:
            return None
        last = name.rpartition("/")[2]
        found = _Candidate(name, what, needed, (status.st_dev, status.st_ino))
        if needed.unless_own:
            found.identity = identify(folder, os.fsencode(last))
        self._check_content(found, folder, last, status)
        return found

    def _check_content(
        self, found: _Candidate, folder: int, last: str, status: os.stat_result
    ) -> None:
        if found.covered.unless_public:
            found.stamp = _content_stamp(status)
            found.public = certificates.is_only_public(
                _read_beginning(folder, last, certificates.LIMIT + 1)
            )
        elif found.covered.kind is MaskKind.TEXT:
            found.stamp = _content_stamp(status)
            data = _read_beginning(folder, last, git_config.LIMIT)
            found.text = git_config.remove_secrets(
                data.decode("utf-8", "replace"), git_hooks=self.scanner.git_hooks
            )

    def _collect(self, folder: _Folder, below: str) -> Iterator[tuple[str, str, str]]:
        """Keep what needs a mask.

        Yields the folders that are the session's own and are walked after all.
        """
        for found in folder.found:
            if found.covered.unless_own and found.identity in self.own:
                self.own_met.add(found.identity)
                self._own_inodes.add(found.inode)
                if found.what is FileType.FOLDER:
                    yield found.name, below or found.name, _join_judged(folder, found.name)
                continue
            if found.stamp:
                self._refresh(found)
            if not found.public:
                self._candidates.append(found)

    def _refresh(self, found: _Candidate) -> None:
        """Look again at content that changed: that need not change the folder."""
        with suppress(OSError):
            status = os.stat(found.name, dir_fd=self.root, follow_symlinks=False)
            if _content_stamp(status) != found.stamp or _is_racy(status):
                above, _, last = found.name.rpartition("/")
                folder = select_open_folder()(
                    self.root, tuple(above.split("/")) if above else (), os.O_RDONLY
                )
                try:
                    self._check_content(found, folder, last, status)
                finally:
                    os.close(folder)
            return
        found.public = False

    def away(self) -> list[Link]:
        """Return files that are to be covered since they have names elsewhere."""
        return self._links_to_cover()[1]

    def masks(self) -> list[Mask]:
        masks = {f.name: Mask(self._path(f.name), f.covered.kind, f.text) for f in self._candidates}
        for link in itertools.chain(*self._links_to_cover()):
            known = masks.get(link.name)
            if known is None or known.kind is MaskKind.READ_ONLY:
                masks[link.name] = Mask(self._path(link.name), MaskKind.UNREADABLE)
        held = {name for name, mask in masks.items() if mask.kind is MaskKind.READ_ONLY}
        for name in held:
            # What is in a read-only folder is read-only with it.
            if any(above in held for above in _folders_above(name)):
                del masks[name]
        return sorted(masks.values(), key=lambda mask: mask.path.split("/"))

    def _links_to_cover(self) -> tuple[list[Link], list[Link]]:
        if self._covered_links is None:
            self._covered_links = self._find_links_to_cover()
        return self._covered_links

    def _find_links_to_cover(self) -> tuple[list[Link], list[Link]]:
        secret = frozenset(
            f.inode
            for f in self._candidates
            if f.covered.kind in (MaskKind.UNREADABLE, MaskKind.TEXT)
        )
        hidden = [
            Path(self._path(f.name))
            for f in self._candidates
            if f.covered.kind is MaskKind.EMPTY_FOLDER
        ]
        links = [link for link in self._links if link.inode not in self._own_inodes]
        environments = frozenset(
            name for name, folder in self.folders.items() if name and folder.environment
        )
        if self.scanner.packages:
            environments |= {""}
        certain, away = links_to_cover(
            links, secret, environments, lambda: known_secrets(self.scanner.home, hidden)
        )
        return certain, [link for link in away if self._current_link_count(link.name) >= link.count]

    def _current_link_count(self, name: str) -> int:
        """Return how many names a file has now: what is known of its folder may be older."""
        try:
            return os.stat(name, dir_fd=self.root, follow_symlinks=False).st_nlink
        except OSError:
            return 0

    def _path(self, name: str) -> str:
        return f"{self.scanner.root.rstrip('/')}/{name}"


_MEANINGFUL_ENTRIES = GIT_FOLDER_ENTRIES | {".git"}
"""Names of which `judge_content` asks whether a folder has them."""


def _join_judged(folder: _Folder, name: str) -> str:
    """Return the name by which something in a folder is judged."""
    last = name.rpartition("/")[2]
    return f"{folder.judged_content}/{last}" if folder.judged_content else last


def _folders_above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


_OBJECTS = compile_lazily(r"(?:^|/)\.git/(?:modules/(?:[^/]+/)+)?objects$")


def _is_object_store(judged: str) -> bool:
    """Return whether git keeps contents under their hashes there: nobody chose these names."""
    return judged.endswith("/objects") and _OBJECTS.search(judged) is not None


def _folder_stamp(status: os.stat_result) -> _Stamp:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)


def _content_stamp(status: os.stat_result) -> _Stamp:
    return (*_folder_stamp(status), status.st_size)


def _is_racy(status: os.stat_result) -> bool:
    return max(status.st_mtime_ns, status.st_ctime_ns) + QUIET_NANOSECONDS > time.time_ns()


def _read_beginning(folder: int, last: str, limit: int) -> bytes:
    """Return a regular file's beginning, or nothing if it cannot be read."""
    try:
        with open_for_reading(last, folder=folder) as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""
