"""What is laid over everything that a policy opens: the workspace and the further folders.

    scanner = OpenedFolders(policy, home=home)
    masks = scanner.scan(own)       # like that of a single folder's scanner

The same names are covered in all of them, each seen from its own folder. Where one folder is inside
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
from ferrule.sandbox.policy import SandboxPolicy

from .linked_files import PACKAGES
from .mask_rules import MaskKind
from .masks import MAX_ENTRIES, MAX_MASKS, Mask, MaskScanner, ScanResult


class OpenedFolderScanner:
    """Scans all folders of a policy again and again. Not thread-safe; its calls block."""

    def __init__(self, policy: SandboxPolicy, *, home: str | None = None) -> None:
        self._root = str(policy.root)
        self._workspace = MaskScanner(policy.root, policy.names, home=home)
        self._further = [
            (_make_scanner(path, policy, home), path in policy.writable and not policy.preview)
            for path in dict.fromkeys((*policy.readable, *policy.writable))
            if path != self._root and os.path.isdir(path)  # noqa: PTH112  text, as the policy has it
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
        workspace = self._workspace.scan(own, limit=limit)
        if not self._further:
            return replace(workspace, masks=_add_read_only(workspace.masks, read_only))
        results = [
            workspace,
            *(
                self._scan_further(scanner, own, limit, is_writable=is_writable)
                for scanner, is_writable in self._further
            ),
        ]
        items = {mask.path: mask for masks in results[::-1] for mask in masks.masks}
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

    def _scan_further(
        self, scanner: MaskScanner, own: Collection[str], limit: int, *, is_writable: bool
    ) -> ScanResult:
        if not os.path.isdir(scanner.root):  # noqa: PTH112  text, as the policy has it
            return ScanResult()  # it is gone, and nobody sees it
        result = scanner.scan(own, limit=limit)
        scanner.keep()
        items = tuple(
            mask for mask in result.masks if is_writable or mask.kind is not MaskKind.READ_ONLY
        )
        for mask in items:
            self._check(mask, scanner)
        return ScanResult(items, result.added, result.removed, result.own_seen, result.unreadable)

    def _check(self, mask: Mask, scanner: MaskScanner) -> None:
        if PurePath(self._root).is_relative_to(mask.path):
            raise ConfigError(
                f"`{scanner.root}` was opened for commands, and the workspace lies in it "
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


def _make_scanner(path: str, policy: SandboxPolicy, home: str | None) -> MaskScanner:
    packages = path not in policy.writable and not PACKAGES.isdisjoint(PurePath(path).parts)
    return MaskScanner(
        path,
        _names_in(path, policy.names),
        home=home,
        is_package_folder=True,
        name_prefix="site-packages" if packages else "",
        excluded=tuple(
            _folders_inside(path, (str(policy.root), *policy.readable, *policy.writable))
        ),
    )


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
