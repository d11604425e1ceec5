"""A quick "certainly ordinary" for names met in a walk: the full check costs ten times as much.

The lists of `permissions.protected_names` check components and rows of components. In a folder none
of whose components could begin such a row, only the last component matters, and most of those
(`__init__.py`) were met before. A wrong "ordinary" would show a secret, so whatever is unusual is
not certain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.protected_names import PROTECTED, RESERVED, SECRET, ProtectedNames

_PLAIN = r"[A-Za-z0-9_@+-](?:[A-Za-z0-9_@+. -]*[A-Za-z0-9_@+-])?"
"""A component that no folding turns into one that begins with a dot or contains a tilde."""

_PLAIN_FOLDER = compile_lazily(rf"{_PLAIN}(?:/{_PLAIN})*", re.ASCII)


class OrdinaryNames:
    """Remembers the last components that no list names.

    `names` decide; a person's own rules switch this off.
    """

    def __init__(self, names: ProtectedNames) -> None:
        self._names = names
        patterns = (
            *RESERVED,
            *SECRET,
            *PROTECTED,
            *names.reserved,
            *names.secret,
            *names.protected,
        )
        rows = [p.lstrip("/") for p in patterns if "/" in p.strip("/")]
        first = {row.split("/")[0] for row in rows} - {"site-packages"}
        # A list of the person's may hold a row that begins with any word: then nothing is certain.
        self._is_usable = (
            not names.rules and not names.protected and all(p[0] == "." for p in first)
        )
        self._ordinary_components: set[str] = set()

    def select(self, folder: str, names: Sequence[str]) -> AbstractSet[str]:
        """Return a set that has those of the names in a folder that are surely ordinary.

        These are neither refused nor protected; about the others the lists have to be asked. The
        set may have names of other folders, too.

        Args:
            folder: A path relative to the root; empty for the root itself.
            names: Names in it, each a single component.
        """
        if not self._is_usable or not self.is_plain_folder(folder):
            return frozenset()
        known = self._ordinary_components
        if known.issuperset(names):
            return known
        suspicious = self._names.select_suspicious("", names, write=True)
        found = set(names).difference(suspicious)
        found.update(last for last in suspicious if self._names.check(last, write=True) is None)
        if len(known) >= _MAX_KNOWN:
            return found
        known |= found
        return known

    def is_plain_folder(self, folder: str) -> bool:
        """Return whether in a folder only the last component of a name matters, for certain."""
        if not folder or _PLAIN_FOLDER.fullmatch(folder):
            return folder != "site-packages"
        unusual = [part for part in folder.split("/") if not _PLAIN_FOLDER.fullmatch(part)]
        return not self._names.select_suspicious("", unusual, write=True)


_MAX_KNOWN = 200_000
