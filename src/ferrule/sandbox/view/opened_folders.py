"""What is laid over everything that a policy opens: the workspace, and the further folders a person
named.

    scanner = OpenedFolders(policy, home=home)
    masks = scanner.scan(own)       # as of one `Scanner`

The same names are covered in all of them, each seen from its own folder. Where one lies in another,
the inner one decides for what is in it. What differs for further folders:

* files with names elsewhere are covered only if they are known secrets: caches and folders of
  packages are what people open, and all of these are linked;
* in a folder of packages that is only read, lists that speak of a root mean none: a package called
  `agents` is no settings;
* what may be read but not written needs no mask where nothing can be written;
* a person's deny rules speak of the workspace and are not asked.

A single file that a person opened by its name is what they wanted to be seen.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import PurePath

from ferrule.core.errors import ConfigError
from ferrule.permissions.protected_names import Names
from ferrule.sandbox.policy import Policy

from .linked_files import PACKAGES
from .mask_rules import Kind
from .masks import ENTRIES, MOST, Mask, Masks, Scanner


class OpenedFolders:
    """Scans all folders of a policy again and again. Not thread-safe; its calls block."""

    def __init__(self, policy: Policy, *, home: str | None = None) -> None:
        self._root = str(policy.root)
        self._workspace = Scanner(policy.root, policy.names, home=home)
        self._further = [
            (_scanner(path, policy, home), path in policy.writable and not policy.preview)
            for path in dict.fromkeys((*policy.readable, *policy.writable))
            if path != self._root and os.path.isdir(path)  # noqa: PTH112  text, as the policy has it
        ]

    def scan(self, own: Collection[str] = (), *, limit: int = ENTRIES) -> Masks:
        """The masks of all folders as they are now, what is above before what is below. `limit` is
        for each.

        Raises ConfigError if a folder cannot be read, if there are more than `MOST` masks, or if
        one would cover the workspace.
        """
        found = self._workspace.scan(own, limit=limit)
        if not self._further:
            return found
        all_found = [
            found,
            *(self._scan(scanner, written, own, limit) for scanner, written in self._further),
        ]
        items = {mask.path: mask for masks in all_found[::-1] for mask in masks.items}
        if len(items) > MOST:
            raise ConfigError(
                (
                    f"{len(items)} names in the folders that were opened must be hidden from "
                    f"commands, at most {MOST} can be"
                ),
                code="sandbox_masks",
                hint="open smaller folders",
            )
        return Masks(
            tuple(sorted(items.values(), key=lambda mask: mask.path.split("/"))),
            tuple(path for masks in all_found for path in masks.added),
            tuple(path for masks in all_found for path in masks.removed),
            frozenset[str]().union(*(masks.own_met for masks in all_found)),
            tuple(path for masks in all_found for path in masks.unseen),
        )

    def _scan(self, scanner: Scanner, written: bool, own: Collection[str], limit: int) -> Masks:
        found = scanner.scan(own, limit=limit)
        items = tuple(mask for mask in found.items if written or mask.kind is not Kind.READ_ONLY)
        for mask in items:
            self._check(mask, scanner)
        return Masks(items, found.added, found.removed, found.own_met, found.unseen)

    def _check(self, mask: Mask, scanner: Scanner) -> None:
        if PurePath(self._root).is_relative_to(mask.path):
            raise ConfigError(
                f"`{scanner.root}` was opened for commands, and the workspace lies in it "
                f"below `{mask.path}`, which no "
                "command may see",
                code="sandbox_masks",
                hint="open a smaller folder, or work in another one",
            )


def _scanner(path: str, policy: Policy, home: str | None) -> Scanner:
    packages = path not in policy.writable and not PACKAGES.isdisjoint(PurePath(path).parts)
    return Scanner(
        path,
        Names(policy.names.reserved, policy.names.secret, policy.names.protected),
        home=home,
        packages=True,
        above="site-packages" if packages else "",
        apart=tuple(_inside(path, (str(policy.root), *policy.readable, *policy.writable))),
    )


def _inside(path: str, others: Collection[str]) -> Iterator[str]:
    return (other for other in others if other != path and PurePath(other).is_relative_to(path))
