"""The workspace: the folder that tools work in, and the only access they have to files.

This holds for all methods:

* A path is checked as text (`paths`), its name against the lists (`protected_names`), and then
  opened by descriptor beneath the root (`open_beneath`) without following any link, so that nothing
  can change between check and use.
* Every failure is a `ToolFailed` that names the path as it was given and a next step.
* The methods block. They are fast, except for the reading and writing itself.

Hard links: a file with several names is read only if all its names are in this workspace and may be
read. Otherwise `notes.txt` could be another name of `.env` or of a file outside. This refuses
packages that an installer hard-linked from its cache; `linked=True` allows them. Writing always
creates a new inode, so the other names keep the old content.

Not protected against: content copied under an ordinary name by someone with the right to do so;
another process that writes between the last check of a compare-and-swap and the rename (the two are
consecutive system calls; writers that use this object are serialized).
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.similar_names import find_similar_names
from ferrule.permissions.path_denials import OpenRefusals, PathDenials
from ferrule.permissions.protected_names import (
    DEFAULT_NAMES,
    GIT_FOLDER_ENTRIES,
    ProtectedNames,
    is_git_folder,
)
from ferrule.permissions.provenance import CommandWritable, explain_own_code
from ferrule.permissions.repositories import find_configured_names, find_judged_path
from ferrule.tools.forking import make_lock

from . import atomic_write, open_beneath, paths, regular_files
from .entry import FileEntry
from .folder_trees import FolderListing, FolderTree, HardLinkCheck, ScannedName
from .os_errors import explain_os_errors
from .paths import quote_path
from .regular_files import ABSENT, stat_name

__all__ = ["ABSENT", "READ_LIMIT", "WALK_LIMIT", "FileEntry", "Workspace", "check_text"]

READ_LIMIT = 10 * 1024 * 1024
"""The most bytes that `read` accepts by default."""

WALK_LIMIT = 200_000
"""The most entries that a walk visits."""

VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})


class Workspace:
    """A folder and what is below it. Open until `close`, or until it is garbage collected.

    Args:
        root: The folder.
        names: Names that no tool may touch.
        linked: Allow reading files that have other names (hard links) outside.
        open_folder: One of the implementations in `open_beneath`; the strongest by default.

    Raises:
        ConfigError: `root` is not a folder.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        names: ProtectedNames = DEFAULT_NAMES,
        linked: bool = False,
        open_folder: open_beneath.OpenFolder | None = None,
    ) -> None:
        try:
            self.root = Path(os.path.realpath(root, strict=True))
            descriptor = os.open(self.root, open_beneath.PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(
                f"workspace `{os.fspath(root)}`: {error.strerror}", hint="name a folder that exists"
            ) from error
        self.names = _place_names(names, self.root)
        self._own_code = CommandWritable.from_folders(self.root)
        self._spellings = tuple({str(self.root), os.path.abspath(root)})  # noqa: PTH100 - must not resolve links
        self._open_folder = open_folder or open_beneath.select_open_folder()
        self._tree = FolderTree(descriptor, self._open_folder, str(self.root))
        self._linked = linked
        self._name_count = HardLinkCheck(self._tree, self.names, WALK_LIMIT)
        self._commit = make_lock()
        self._finalizer = weakref.finalize(self, os.close, descriptor)

    def close(self) -> None:
        """Close the root's descriptor. Safe to call twice; all other methods fail afterwards."""
        # The number must not be used again: it may soon belong to another file.
        self._tree.close()
        self._finalizer()

    def restrict(
        self,
        find_refusal: Callable[[str, bool], str],
        denials: PathDenials | None = None,
        *,
        lists: ProtectedNames | None = None,
    ) -> Workspace:
        """Return a workspace that refuses further paths.

        Args:
            find_refusal: Returns why a path may not be read (or written); empty if it may.
            denials: The deny rules for paths, which also bind commands.
            lists: The lists of names that `find_refusal` goes by, if it goes by nothing else: then
                it is not asked about every name of a walk.
        """
        names = self.names.extend(rules=[OpenRefusals(find_refusal, denials, lists)])
        return Workspace(self.root, names=names, linked=self._linked, open_folder=self._open_folder)

    def names_for_commands(self, also: ProtectedNames = DEFAULT_NAMES) -> ProtectedNames:
        """Return the names to hide from commands: the lists, those of `also`, and deny rules.

        Where the workspace lies is not part of them: the sandbox judges each folder that it opens.
        """
        names = self.names.for_commands().extend(
            reserved=also.reserved, secret=also.secret, protected=also.protected, rules=also.rules
        )
        return replace(names, above="")

    # Names

    def name(self, path: str) -> str:
        """Return a path relative to the root, normalised as text; `""` is the root.

        The lists of names are not checked.

        Raises:
            ToolFailed: permission_denied if the path leads outside, validation_failed if it is not
                a path.
        """
        return "/".join(paths.split_below_root(path, self._spellings))

    def check_name(self, path: str, *, write: bool) -> str:
        """Return `name(path)` if tools may use it, in the normal form in which it is on the disk.

        Nothing is read of it; whether a folder above it is a repository is looked at.

        Raises:
            ToolFailed: As in `name`, and permission_denied if the name is on the lists.
        """
        given = self.name(path)
        name = given if given.isascii() else self._find_spelling(given)
        reason = self.names.check(name, write=write) or self._check_repository(name, write)
        if name != given:
            reason = reason or self.names.check(given, write=write)
        if reason:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"{quote_path(path)} is {_with_article(reason)}"
            )
        if write and self._own_code.held:
            self.check_own_code(path, name)
        return name

    def _find_spelling(self, name: str) -> str:
        """Return a name as it is on the disk, where that is another normal form of the same text.

        What has a file of just this spelling, or two of other ones, stays as it is: `é` may be one
        character or two, and people cannot tell.
        """
        parts = _split(name)
        found: tuple[str, ...] = ()
        for part in parts:
            if part.isascii() or self._exists((*found, part)):
                found = (*found, part)
                continue
            wanted = unicodedata.normalize("NFC", part)
            try:
                listed = self._tree.list_folder(found)
            except OSError:
                return name
            alike = [
                below[-1]
                for below, _ in listed
                if unicodedata.normalize("NFC", below[-1]) == wanted
            ]
            found = (*found, alike[0] if len(alike) == 1 else part)
        return "/".join(found)

    def _exists(self, parts: tuple[str, ...]) -> bool:
        try:
            self._status("/".join(parts))
        except OSError:
            return False
        return True

    def check_own_code(self, path: str, name: str, *, moves: bool = False) -> None:
        """Refuse to write what this process runs from, or to move or delete a folder with it."""
        place = _fold(f"{self.root}/{name}".rstrip("/"))
        for held in self._own_code.held:
            is_part = f"{place}/".startswith(f"{_fold(held)}/")
            if is_part or (moves and _fold(held).startswith(f"{place}/")):
                raise ToolFailed(
                    ErrorType.PERMISSION_DENIED,
                    f"{quote_path(path)} cannot be changed: "
                    f"{explain_own_code(held, self._own_code)}",
                )

    def _check_repository(self, name: str, write: bool) -> str | None:
        """Return why a name may not be used in a repository that is not called `.git`."""
        parts = _split(name)
        if ".git" in parts:
            return None  # by its name
        for depth in range(len(parts) - 1, 0, -1):
            inside = ".git/" + "/".join(parts[depth:])
            reason = DEFAULT_NAMES.check(inside, write=write)
            if reason is not None and self._is_git_folder(parts[:depth]):
                return reason
        return None

    def _is_git_folder(self, parts: tuple[str, ...]) -> bool:
        found: list[str] = []
        try:
            with open_beneath.folder_descriptor(
                self._open_folder, self._tree.root, parts
            ) as folder:
                for entry in GIT_FOLDER_ENTRIES:
                    with suppress(FileNotFoundError):
                        stat_name(folder, entry)
                        found.append(entry)
        except OSError:
            return False
        return is_git_folder(found)

    # Looking

    def stat(self, path: str) -> FileEntry:
        """Return what a path is. A link is described, not followed."""
        name = self.check_name(path, write=False)
        with self._explain_errors(path, name, "look at"):
            return FileEntry.from_stat(name, self._status(name))

    def entries(self, path: str = "", *, left_out: list[str] | None = None) -> list[FileEntry]:
        """Return what is in a folder, sorted by name.

        Names on the lists are left out and added to `left_out`.
        """
        name = self.check_name(path, write=False)
        found = self._join_readable(name, self._scan(path, name), left_out)
        return [FileEntry.from_stat(below, status) for below, status in found]

    def list_names(self, path: str = "", *, left_out: list[str] | None = None) -> FolderListing:
        """Return the names of what `entries` returns, with their kinds.

        Much faster in a large folder, because the files themselves are not examined.
        """
        name = self.check_name(path, write=False)
        with self._explain_listing(path, name):
            listing = self._tree.list_names(_split(name))
        if refused := self._find_refused(name, listing.names, left_out):
            listing.leave_out(refused)
        return listing

    def stat_names(self, path: str, names: Sequence[str]) -> list[ScannedName]:
        """Return those of the names in a folder that are there and may be read, with their stats.

        Args:
            path: The folder.
            names: Names in it, as `list_names` returns them.

        Raises:
            ValueError: One is not a single component, so it may lead somewhere else.
        """
        if not all(map(_is_component, names)):
            raise ValueError("`names` must be names in the folder, without a slash or `..`")
        name = self.check_name(path, write=False)
        with self._explain_listing(path, name):
            found = self._tree.stat_names(_split(name), names)
        return self._select_readable(name, found, None)

    def scan(
        self, path: str = "", *, was_listed: bool = False, left_out: list[str] | None = None
    ) -> list[ScannedName]:
        """Return what `entries` returns as names in the folder, each with a stat.

        For walks over many files, which need an entry of few of them.

        Args:
            path: The folder.
            was_listed: Whether the path is that of a folder that was scanned and a name that was
                returned then: what tools may read is not judged again.
            left_out: Gets the names that are left out.
        """
        is_judged = was_listed and _has_one_spelling(path)
        name = path if is_judged else self.check_name(path, write=False)
        return self._select_readable(name, self._scan(path, name), left_out)

    def walk(
        self,
        path: str = "",
        *,
        hidden: bool = False,
        left_out: list[str] | None = None,
        limit: int = WALK_LIMIT,
    ) -> Iterator[FileEntry]:
        """Return everything below a folder, depth first and by name, folders first.

        Links are listed and not followed. Names on the lists and folders of version control are
        left out. A folder that cannot be read is listed without its content.

        Args:
            path: The folder.
            hidden: Include names that begin with a dot.
            left_out: Gets the names on the lists and the folders that could not be read.
            limit: The most entries.

        Raises:
            ToolFailed: `limit` if there are more entries, or any failure to list the folder.
        """
        name = self.check_name(path, write=False)
        first = self._join_readable(name, self._scan(path, name), left_out)
        return self._walk(first, quote_path(path), hidden, left_out, limit)

    def list_status(self, path: str = "") -> list[tuple[str, os.stat_result]]:
        """Return the names in a folder, sorted, with stats that follow no link. For comparisons.

        Unlike `entries` it holds names on the lists too: nothing of it is to be shown. A folder
        that cannot be listed is empty, and so is one whose path is too long to be named.
        """
        if len(path) > paths.MAX_PATH_LENGTH:
            return []
        try:
            found = self._tree.list_folder(_split(self.name(path)))
        except OSError:
            return []
        return [("/".join(parts), status) for parts, status in found]

    # Reading

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading. FIFOs, devices, sockets and folders are refused."""
        name = self.check_name(path, write=False)
        with self._explain_errors(path, name, "read"), self._parent(name) as (folder, last):
            file = os.fdopen(regular_files.open_regular(folder, last, path), "rb")
            try:
                self._check_linked(os.fstat(file.fileno()), path)
            except BaseException:
                file.close()
                raise
            return file

    def read(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        """Return the content of a file. Raises ToolFailed(limit) if it exceeds `limit` bytes."""
        with self.open(path) as file, self._explain_errors(path, "", "read"):
            size = os.fstat(file.fileno()).st_size
            # A read makes room for all that it may return: without this, for `limit` bytes.
            data = file.read(min(size, limit) + 1)
            if size < len(data) <= limit:  # It grew meanwhile, or its size is not known.
                data += file.read(limit + 1 - len(data))
            if len(data) > limit:
                size = os.fstat(file.fileno()).st_size
                raise ToolFailed(
                    ErrorType.LIMIT,
                    f"{quote_path(path)} has {size} bytes, more than {limit}; read a range of "
                    f"lines, "
                    "its tail, or search it",
                )
        return data

    def read_text(self, path: str, *, limit: int = READ_LIMIT) -> str:
        """Return the content of a text file. Bytes that are not UTF-8 become U+FFFD.

        Raises:
            ToolFailed: parse_error if the file is binary, limit if it is too large.
        """
        data = self.read(path, limit=limit)
        check_text(data, path)
        return data.decode(errors="replace")

    # Changing

    def write(
        self, path: str, data: bytes, *, expect: str | None = None, create: bool = True
    ) -> FileEntry:
        """Write a file atomically. Its folder must exist.

        Args:
            path: The file.
            data: Its new content.
            expect: The SHA-256 (hex) of the content that must still be there, or `ABSENT`.
            create: Allow the file to be new.

        Raises:
            ToolFailed: io_error if the file has other content than expected; the file is unchanged.
        """
        name = self.check_name(path, write=True)
        with self._explain_errors(path, name, "write"), self._parent(name) as (folder, last):
            before = regular_files.stat_regular(folder, last, path)
            if before is None and not create:
                raise regular_files.os_error(errno.ENOENT)
            with atomic_write.write_temporary(folder, data, before) as temporary, self._commit:
                if expect is not None:
                    regular_files.check_unchanged(folder, last, path, expect)
                atomic_write.rename(folder, temporary, folder, last, replace=expect != ABSENT)
            if before is not None and before.st_nlink > 1:
                self._link_again(before, folder, last)
            return FileEntry.from_stat(name, stat_name(folder, last))

    def _link_again(self, before: os.stat_result, folder: int, last: str) -> None:
        """Have the other names of a file that was replaced be names of the new one.

        Those outside the workspace, and those that tools may not write, keep the old content, and
        so do all in a workspace that is too large to look for them.
        """
        for below in self._name_count.find_names(before):
            if self.names.check("/".join(below), write=True) is not None:
                continue
            with (
                suppress(OSError),
                open_beneath.folder_descriptor(
                    self._open_folder, self._tree.root, below[:-1]
                ) as other,
            ):
                atomic_write.replace_by_link(folder, last, other, below[-1], before)

    def set_executable(self, path: str, executable: bool) -> None:
        """Let those who may read a file run it too, or nobody."""
        name = self.check_name(path, write=True)
        with self._explain_errors(path, name, "change"), self._parent(name) as (folder, last):
            descriptor = regular_files.open_regular(folder, last, path)
            try:
                mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
                bits = (mode & 0o444) >> 2
                os.fchmod(descriptor, mode | bits if executable else mode & ~0o111)
            finally:
                os.close(descriptor)

    def make_dir(self, path: str, *, parents: bool = True) -> FileEntry:
        """Create a folder unless it exists; with `parents`, those above it too."""
        name = self.check_name(path, write=True)
        parts = _split(name)
        with self._explain_errors(path, name, "create"):
            for depth in range(1 if parents else len(parts), len(parts) + 1):
                with open_beneath.folder_descriptor(
                    self._open_folder, self._tree.root, parts[: depth - 1]
                ) as above:
                    try:
                        regular_files.make_folder(above, parts[depth - 1], last=depth == len(parts))
                    except FileExistsError:
                        raise ToolFailed(
                            ErrorType.VALIDATION_FAILED,
                            f"{quote_path(path)} is a file, so there can be no folder of that name",
                        ) from None
        return self.stat(path)

    def move(self, source: str, target: str, *, overwrite: bool = False) -> FileEntry:
        """Rename a file, link or folder. With `overwrite` a file may replace a file.

        A folder that contains names on the lists is not moved.
        """
        old = self._permit_change(source)
        new = self._permit_change(target)
        if new == old or new.startswith(old + "/"):
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED, f"{quote_path(source)} cannot be moved into itself"
            )
        with (
            self._explain_errors(source, old, "move"),
            self._parent(old) as (from_folder, old_last),
        ):
            status = stat_name(from_folder, old_last)
            if stat.S_ISDIR(status.st_mode):
                self._check_below(source, old, new)
            with (
                self._explain_errors(target, new, "create"),
                self._parent(new) as (to_folder, new_last),
                self._commit,
            ):
                if overwrite:
                    regular_files.check_replaceable(
                        status, regular_files.stat_regular(to_folder, new_last, target), source
                    )
                atomic_write.rename(from_folder, old_last, to_folder, new_last, replace=overwrite)
        return self.stat(target)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file, a link (not what it points to) or an empty folder.

        With `recursive` any folder is deleted, unless it contains names on the lists.
        """
        name = self._permit_change(path)
        with self._explain_errors(path, name, "delete"), self._parent(name) as (folder, last):
            status = stat_name(folder, last)
            if not stat.S_ISDIR(status.st_mode):
                os.unlink(last, dir_fd=folder)
            elif recursive:
                self._check_below(path, name, name)
                self._tree.remove(_split(name))
            else:
                os.rmdir(last, dir_fd=folder)

    def open_descriptor(self, path: str = "") -> int:
        """Open a folder as the working directory of a child. The caller closes the descriptor."""
        name = self.check_name(path, write=False)
        with self._explain_errors(path, name, "enter"):
            return self._open_folder(self._tree.root, _split(name), os.O_RDONLY)

    # Inside

    def _scan(self, path: str, name: str) -> list[ScannedName]:
        try:
            return self._tree.scan_folder(_split(name))
        except OSError:  # walks come here for every folder, and few need the explanation
            with self._explain_listing(path, name):
                raise

    @contextmanager
    def _explain_listing(self, path: str, name: str) -> Generator[None]:
        with self._explain_errors(path, name, "list"):
            try:
                yield
            except NotADirectoryError:
                self._status(name)  # raises another error if it is a file on the way
                raise ToolFailed(
                    ErrorType.VALIDATION_FAILED,
                    f"{quote_path(path)} is a file, not a folder; use `read_file`",
                ) from None

    def _permit_change(self, path: str) -> str:
        name = self.check_name(path, write=True)
        if name:
            self.check_own_code(path, name, moves=True)
            return name
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"{quote_path(path)} is the workspace itself; name something in it",
        )

    def _status(self, name: str) -> os.stat_result:
        if not name:
            return os.fstat(self._tree.root)
        with self._parent(name) as (folder, last):
            return stat_name(folder, last)

    @contextmanager
    def _parent(self, name: str) -> Generator[tuple[int, str]]:
        """Open the folder that contains `name`; yield its descriptor and the last component."""
        *above, last = _split(name) or ("",)
        if not last:
            raise regular_files.os_error(errno.EISDIR)
        with open_beneath.folder_descriptor(
            self._open_folder, self._tree.root, above
        ) as descriptor:
            yield descriptor, last

    def _explain_errors(self, path: str, name: str, verb: str) -> AbstractContextManager[None]:
        return explain_os_errors(path, verb, lambda: self._similar_names(name))

    def _similar_names(self, name: str) -> list[str]:
        """Return names in the same folder that are spelled like a missing one."""
        *above, last = _split(name) or ("",)
        try:
            found = self._tree.list_folder(tuple(above))
        except OSError:
            return []  # the folder is missing, too
        readable = {below[-1]: below for below, _ in found[:2000] if self._is_readable(below)}
        similar = find_similar_names(last, readable, count=2)
        return ["/".join(readable[name]) for name in similar]

    def _is_readable(self, below: tuple[str, ...]) -> bool:
        return self.names.check("/".join(below), write=False) is None

    def _find_refused(
        self, folder: str, names: list[str], left_out: list[str] | None
    ) -> frozenset[str]:
        """Return those of the names in a folder that tools may not read."""
        above = f"{folder}/" if folder else ""
        refused = [
            last
            for last in self.names.select_suspicious(folder, names)
            if self.names.check(above + last, write=False) is not None
        ]
        if is_git_folder(names) and ".git" not in folder.split("/"):
            refused += [
                last
                for last in names
                if DEFAULT_NAMES.check(f".git/{last}", write=False) is not None
            ]
        if left_out is not None:
            left_out += [above + last for last in refused]
        return frozenset(refused)

    def _select_readable(
        self, folder: str, found: list[ScannedName], left_out: list[str] | None
    ) -> list[ScannedName]:
        """Return what tools may read of the names in a folder."""
        refused = self._find_refused(folder, [last for last, _ in found], left_out)
        return [one for one in found if one[0] not in refused] if refused else found

    def _join_readable(
        self, folder: str, found: list[ScannedName], left_out: list[str] | None
    ) -> list[ScannedName]:
        """Return what tools may read of the names in a folder, each from the root on."""
        readable = self._select_readable(folder, found, left_out)
        return [(f"{folder}/{last}", status) for last, status in readable] if folder else readable

    def _walk(
        self,
        first: list[ScannedName],
        what: str,
        hidden: bool,
        left_out: list[str] | None,
        limit: int,
    ) -> Iterator[FileEntry]:
        waiting = first[::-1]  # a stack, the next one last
        count = 0
        while waiting:
            name, status = waiting.pop()
            last = name.rpartition("/")[2]
            if last in VERSION_CONTROL or (last.startswith(".") and not hidden):
                continue
            count += 1
            if count > limit:
                raise ToolFailed(
                    ErrorType.LIMIT,
                    f"more than {limit} entries below {what}; name a smaller folder",
                )
            yield FileEntry.from_stat(name, status)
            if not stat.S_ISDIR(status.st_mode):
                continue
            try:
                below = self._tree.scan_folder(_split(name))
            except OSError:
                if left_out is not None:
                    left_out.append(name)
                continue
            waiting += self._join_readable(name, below, left_out)[::-1]

    def _check_linked(self, status: os.stat_result, path: str) -> None:
        if self._linked or self._name_count.are_all_names_readable(status):
            return
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"{quote_path(path)} has {status.st_nlink} names (hard links), and some of them lie "
            "outside of the workspace or may not be read; ask the person to copy the file",
        )

    def _check_below(self, path: str, old: str, new: str) -> None:
        """Raise ToolFailed if a folder contains names that tools may not change, old or new."""
        for number, (below, _) in enumerate(self._tree.walk(_split(old))):
            if number > WALK_LIMIT:
                raise ToolFailed(
                    ErrorType.LIMIT, f"{quote_path(path)} holds more than {WALK_LIMIT} entries"
                )
            name = "/".join(below)
            for spelling in dict.fromkeys((name, new + name.removeprefix(old))):
                if reason := self.names.check(spelling, write=True):
                    raise ToolFailed(
                        ErrorType.PERMISSION_DENIED,
                        f"{quote_path(path)} cannot be moved or deleted: {quote_path(spelling)} is "
                        f"{_with_article(reason)}",
                    )


def _place_names(names: ProtectedNames, root: Path) -> ProtectedNames:
    """Return the names that are protected in a folder, by where it lies and what git is told."""
    configured = find_configured_names(root, os.path.realpath(Path.home()))
    new = tuple(pattern for pattern in configured if pattern not in names.protected)
    placed = names.extend(protected=new) if new else names
    above = placed.find_above(find_judged_path(str(root)))
    return placed if above == placed.above else replace(placed, above=above)


def check_text(data: bytes, path: str) -> None:
    """Raise ToolFailed(parse_error) if bytes are UTF-16 or contain an early NUL."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolFailed(
            ErrorType.PARSE_ERROR, f"{quote_path(path)} is UTF-16 text; convert it to UTF-8 first"
        )
    if b"\0" in data[:8192]:
        raise ToolFailed(
            ErrorType.PARSE_ERROR,
            f"{quote_path(path)} is a binary file (there is a NUL in its first bytes), not text",
        )


def _fold(path: str) -> str:
    """Return a path as file systems compare it that ignore case."""
    return unicodedata.normalize("NFC", path).casefold()


def _split(name: str) -> tuple[str, ...]:
    return tuple(name.split("/")) if name else ()


def _has_one_spelling(name: str) -> bool:
    """Return whether a name below a folder is what it is as a path, too, and can be shown."""
    return "/" in name and name.isascii() and name.isprintable() and "\\" not in name


def _is_component(name: str) -> bool:
    return "/" not in name and name not in ("", ".", "..")


def _with_article(reason: str) -> str:
    return reason if reason.startswith(("reserved", "protected")) else f"a name that {reason}"
