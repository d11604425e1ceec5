"""What is laid over everything that a policy opens: the workspace and the further folders.

    scanner = OpenedFolders(policy, home=home)
    masks = scanner.scan(own)       # like that of a single folder's scanner

The same names are covered in all of them, each judged by where it really lies: whether `~/.cargo`
is opened or the home around it, its `credentials.toml` is covered. A folder that has itself such a
name (`~/.ssh`) stays as empty as if the folder around it were opened. Where one folder is inside
another, the inner one decides for what is in it. What differs for further folders:

* files with names elsewhere are covered only if they are known secrets: caches and folders of
  packages are what people open, and all of these are linked;
* in a folder of packages that is only read, lists that speak of a root mean none: a package called
  `agents` is no settings;
* what may be read but not written needs no mask where nothing can be written;
* of a person's deny rules only those hold that name something in the folder.

A single file that a person opened by its name is one that they want to be seen.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import PurePath

from ferrule.core.errors import ConfigError
from ferrule.permissions.path_denials import PathDenials, names_something_in
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.repositories import Repository, find_judged_path
from ferrule.sandbox.policy import SandboxPolicy

from .linked_files import PACKAGES
from .mask_rules import MaskKind, is_hooks_folder
from .masks import MAX_ENTRIES, MAX_MASKS, Mask, MaskScanner, ScanResult
from .repository_masks import find_foreign_folders, mask_places, mask_repository


class OpenedFolderScanner:
    """Scans all folders of a policy again and again. Not thread-safe; its calls block."""

    def __init__(
        self,
        policy: SandboxPolicy,
        *,
        home: str | None = None,
        repository: Repository | None = None,
        configured: tuple[str, ...] = (),
    ) -> None:
        self._root = str(policy.root)
        self._repository = repository
        self._configured = configured
        self._opened = (self._root, *policy.writable)
        self._workspace = MaskScanner(
            policy.root, policy.names, home=home, git_hooks=policy.git_hooks
        )
        further = [
            path
            for path in dict.fromkeys((*policy.readable, *policy.writable))
            if path != self._root and os.path.isdir(path)  # noqa: PTH112  text, as the policy has it
        ]
        judged = {path: find_judged_path(path) for path in further}
        covered = [path for path in further if policy.names.hides_folder(judged[path])]
        shown = [
            path
            for path in covered
            if _may_run_hooks_in(path, policy) and is_hooks_folder(judged[path])
        ]
        self._hidden = tuple(
            Mask(path, MaskKind.READ_ONLY if path in shown else MaskKind.EMPTY_FOLDER)
            for path in covered
        )
        foreign = tuple(find_foreign_folders(repository, self._root)) if repository else ()
        self._further = [
            (
                _make_scanner(path, policy, home, foreign),
                path in policy.writable and not policy.preview,
            )
            for path in further
            if path not in covered
        ]

    def scan(
        self,
        own: Collection[str] = (),
        *,
        limit: int = MAX_ENTRIES,
        read_only: Collection[str] = (),
    ) -> ScanResult:
        """Return the masks of all folders as they are now, what is above before what is below.

        Args:
            own: The identities of files that commands of the session created.
            limit: Entries to look at, for each folder.
            read_only: Places in what commands can write that they are to find read-only.

        Raises:
            ConfigError: A folder cannot be read, there are more than `MOST` masks, or one would
                cover the workspace.
        """
        for mask in self._hidden:
            self._check(mask, mask.path)
        workspace = self._workspace.scan(own, limit=limit)
        repository_masks = self._list_repository_masks()
        if not self._further and not self._hidden and not repository_masks:
            return replace(workspace, masks=_add_read_only(workspace.masks, read_only))
        results = [
            workspace,
            *(
                self._scan_further(scanner, own, limit, is_writable=is_writable)
                for scanner, is_writable in self._further
            ),
        ]
        items = {mask.path: mask for masks in results[::-1] for mask in masks.masks}
        items |= {mask.path: mask for mask in self._hidden}
        _add_weaker(items, repository_masks)
        if len(items) > MAX_MASKS:
            raise ConfigError(
                (
                    f"{len(items)} names in the folders that were opened must be hidden from "
                    f"commands, at most {MAX_MASKS} can be"
                ),
                code="sandbox_masks",
                hint="open smaller folders",
            )
        return ScanResult(
            _add_read_only(items.values(), read_only),
            tuple(chain.from_iterable(masks.added for masks in results)),
            tuple(chain.from_iterable(masks.removed for masks in results)),
            frozenset[str]().union(*(masks.own_seen for masks in results)),
            tuple(chain.from_iterable(masks.unreadable for masks in results)),
        )

    def _list_repository_masks(self) -> list[Mask]:
        masks = list(mask_places(self._configured, self._opened))
        if self._repository is not None:
            masks += mask_repository(self._repository, self._root)
        return masks

    def _scan_further(
        self, scanner: MaskScanner, own: Collection[str], limit: int, *, is_writable: bool
    ) -> ScanResult:
        if not os.path.isdir(scanner.root):  # noqa: PTH112  text, as the policy has it
            return ScanResult()  # it is gone, and nobody sees it
        result = scanner.scan(own, limit=limit)
        items = tuple(
            mask for mask in result.masks if is_writable or mask.kind is not MaskKind.READ_ONLY
        )
        for mask in items:
            self._check(mask, scanner.root)
        return ScanResult(items, result.added, result.removed, result.own_seen, result.unreadable)

    def _check(self, mask: Mask, opened: str) -> None:
        if PurePath(self._root).is_relative_to(mask.path):
            raise ConfigError(
                f"`{opened}` was opened for commands, and the workspace lies in it "
                f"below `{mask.path}`, which no "
                "command may see",
                code="sandbox_masks",
                hint="open a smaller folder, or work in another one",
            )


def _add_read_only(masks: Iterable[Mask], places: Collection[str]) -> tuple[Mask, ...]:
    """Return the masks and those that make places read-only, what is above before what is below.

    A place that a link leads to is none of these: what is there is the link.
    """
    found = {mask.path: mask for mask in masks}
    for place in places:
        if os.path.realpath(place) == place and os.path.exists(place):  # noqa: PTH110  text, as the policy has it
            found.setdefault(place, Mask(place, MaskKind.READ_ONLY))
    kept: list[Mask] = []
    closed = ""
    read_only = ""
    for mask in sorted(found.values(), key=lambda one: one.path.split("/")):
        if closed and mask.path.startswith(closed):
            continue  # nobody sees it
        if mask.kind is MaskKind.READ_ONLY and read_only and mask.path.startswith(read_only):
            continue  # what is in a read-only folder is read-only with it
        kept.append(mask)
        if mask.kind is MaskKind.READ_ONLY:
            read_only = f"{mask.path}/"
        elif mask.kind is MaskKind.EMPTY_FOLDER:
            closed = f"{mask.path}/"
    return tuple(kept)


def _add_weaker(items: dict[str, Mask], masks: Iterable[Mask]) -> None:
    """Add masks, but not over or below what is covered already, nor twice what is read-only."""
    for mask in masks:
        above = [items[path] for path in _paths_up(mask.path) if path in items]
        if any(one.path == mask.path or one.kind is MaskKind.EMPTY_FOLDER for one in above):
            continue
        if mask.kind is MaskKind.READ_ONLY and above:
            continue
        for path in [path for path in items if path.startswith(f"{mask.path}/")]:
            if mask.kind is MaskKind.EMPTY_FOLDER or items[path].kind is MaskKind.READ_ONLY:
                del items[path]
        items[mask.path] = mask


def _paths_up(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def _make_scanner(
    path: str, policy: SandboxPolicy, home: str | None, foreign: tuple[str, ...]
) -> MaskScanner:
    packages = path not in policy.writable and not PACKAGES.isdisjoint(PurePath(path).parts)
    return MaskScanner(
        path,
        _names_in(path, policy.names),
        home=home,
        is_package_folder=True,
        is_workspace=False,
        git_hooks=_may_run_hooks_in(path, policy),
        name_prefix="site-packages" if packages else "",
        excluded=tuple(
            _folders_inside(path, (str(policy.root), *policy.readable, *policy.writable, *foreign))
        ),
    )


def _may_run_hooks_in(path: str, policy: SandboxPolicy) -> bool:
    """Return whether git may run hooks of repositories in a folder: those it can write, alone."""
    return policy.git_hooks and path in policy.writable


def _names_in(path: str, names: ProtectedNames) -> ProtectedNames:
    """Return the lists, and the deny rules for paths of a folder outside the workspace."""
    lists = names.only_lists()
    for rule in names.rules:
        if not isinstance(rule, PathDenials):
            continue
        about_it = [
            one for one in rule.rules if names_something_in(one, path, rule.root, rule.home)
        ]
        if about_it:
            lists = lists.extend(rules=[replace(rule, rules=tuple(about_it), folder=path)])
    return lists


def _folders_inside(path: str, others: Collection[str]) -> Iterator[str]:
    return (other for other in others if other != path and PurePath(other).is_relative_to(path))
