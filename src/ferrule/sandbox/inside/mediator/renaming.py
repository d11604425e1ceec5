"""Moves names for a caller: what is moved must neither become reserved nor cease to be.

A mask covers a name where it is. Moved with its folder, `.git/config` would be an ordinary
`old/config` to the next command, so a folder is moved only if every name below it stays as it was
decided: reserved names reserved, secret names secret unless they are the session's own, and no link
comes below a `.git`. Most moves cannot change that, and look at nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from errno import EACCES, EBUSY, EINVAL, EPERM

from . import raw_calls
from .caller_process import CallRefused
from .file_identity import identify
from .name_rules import FREE, REFUSED, SECRET
from .path_resolution import ResolvedName
from .requests import CallRequest, NeedsExclusive, is_folder

_NOREPLACE = 1
_EXCHANGE = 2
_WHITEOUT = 4
_MAX_ENTRIES = 50_000


def rename(
    request: CallRequest, old_base: int, old: int, new_base: int, new: int, flags: int
) -> int:
    """Perform `renameat2`. `old` and `new` are the numbers of the arguments for the names."""
    if flags & ~(_NOREPLACE | _EXCHANGE | _WHITEOUT) or (flags & _EXCHANGE and flags != _EXCHANGE):
        return -EINVAL
    if flags & _WHITEOUT:
        return -EPERM
    source = request.resolve(old_base, request.read_string(old))
    # First: a folder that may not be searched is an error before any of the other name.
    status = _status(source)
    target = request.resolve(new_base, request.read_string(new))
    request.check_still_waiting()
    moves: list[_Move] = []
    if source.plain and target.plain:
        request.context.withheld.check_file(status)
        moves.append(_Move(request, source, target, status))
        if flags & _EXCHANGE:
            moves.append(_Move(request, target, source, _status(target)))
    is_alone = request.context.is_exclusive
    if not is_alone and any(move.status is None or is_folder(move.status) for move in moves):
        raise NeedsExclusive
    secrets: list[tuple[str, str]] = []
    for move in moves:
        secrets += move.check()
    result = raw_calls.renameat2(source.folder, source.name, target.folder, target.name, flags)
    if result == 0:
        for identity, name in secrets:
            request.context.note_created(identity, name)
    return result


class _Move:
    """One name that gets another. `status` is None if there is nothing by that name."""

    def __init__(
        self,
        request: CallRequest,
        source: ResolvedName,
        target: ResolvedName,
        status: os.stat_result | None,
    ) -> None:
        self.request = request
        self.source = source
        for place in (source, target):
            request.context.withheld.check_name(place.path, place.plain)
        self.old = request.name_of(source)
        self.new = request.name_of(target)
        self.status = status

    def check(self) -> list[tuple[str, str]]:
        """Return the identities and names of what gets a secret name by this.

        Refused if a name becomes reserved, or ceases to be reserved or secret.
        """
        if self.status is None:
            return []
        folder = is_folder(self.status)
        if self.old is not None and self.request.verdict(self.old, folder=folder) == REFUSED:
            raise self.request.context.refuse(self.old)
        if self.old in self.request.context.rules.fixed_folders:
            # While it moves, the scan before another command could miss what is in it.
            raise CallRefused(EBUSY)
        secrets = list(
            self._check_name(self.old, self.new, self.status, self.source.folder, self.source.plain)
        )
        if folder and self._content_may_change():
            for below, status, handle, entry in _content(self.source.folder, self.source.plain):
                if self.old is None and self._is_in_repository(below, handle):
                    raise self.request.context.refuse(_join(self.new, below) or below)
                old = _join(self.old, below)
                new = _join(self.new, below)
                secrets += self._check_name(old, new, status, handle, entry)
        return secrets

    def _check_name(
        self, old: str | None, new: str | None, status: os.stat_result, within: int, entry: bytes
    ) -> Iterator[tuple[str, str]]:
        """Check one name that moves. `status` is that of `entry` in the folder `within`."""
        folder = is_folder(status)
        if stat.S_ISLNK(status.st_mode) and not self._is_below_git(old):
            self.request.check_link(new)
        before = self.request.verdict(old, folder=folder)
        after = self.request.verdict(new, folder=folder)
        if before == after:
            return
        if after == REFUSED and new is not None:
            raise self.request.context.refuse(new)
        if old is not None and (
            before == REFUSED or (after == FREE and not self.request.is_own(within, entry))
        ):
            raise self.request.context.refuse(old)
        if after == SECRET and new is not None:
            self.request.context.count_names(1 if folder else status.st_nlink)
            yield identify(within, entry), new

    def _is_below_git(self, name: str | None) -> bool:
        return name is not None and self.request.context.rules.forbids_link(name)

    def _is_in_repository(self, below: str, handle: int) -> bool:
        """Return whether something comes in a repository that is no `.git` into the roots."""
        name = os.fsencode(below.rpartition("/")[2])
        return name == b"HEAD" and self.request.context.rules.is_git_folder(
            os.listdir(handle), _join(self.new, below) or ""
        )

    def _content_may_change(self) -> bool:
        if self.old == self.new:
            return False  # moved to where it is, which is allowed whatever is in it
        if self.old is None or self.new is None:
            return True
        rules = self.request.context.rules
        return (
            rules.may_differ(self.old)
            or rules.may_differ(self.new)
            or rules.decide(self.old, folder=True) != rules.decide(self.new, folder=True)
        )


def _status(place: ResolvedName) -> os.stat_result | None:
    """Return what is by this name.

    None if nothing is, or if the call itself will say why that cannot be told.
    """
    if not place.plain:
        return None
    try:
        return os.stat(place.plain, dir_fd=place.folder, follow_symlinks=False)
    except PermissionError:
        raise CallRefused(EACCES) from None
    except OSError:
        return None


def _join(name: str | None, below: str) -> str | None:
    return None if name is None else f"{name}/{below}"


def _content(parent: int, name: bytes) -> Iterator[tuple[str, os.stat_result, int, bytes]]:
    """Yield everything below a folder, with the folder that each is in.

    Refused if it cannot be seen, or is too much to look at.
    """
    count = 0
    for path, folders, files, handle in os.fwalk(name, dir_fd=parent, onerror=_refuse_unreadable):
        base = path[len(name) + 1 :]
        for entry in (*folders, *files):
            count += 1
            if count > _MAX_ENTRIES:
                raise CallRefused(EACCES)
            status = os.stat(entry, dir_fd=handle, follow_symlinks=False)
            yield os.fsdecode(base + b"/" + entry if base else entry), status, handle, entry


def _refuse_unreadable(error: OSError) -> None:
    raise CallRefused(EACCES) from error
