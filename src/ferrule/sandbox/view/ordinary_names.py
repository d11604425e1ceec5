"""A quick "certainly ordinary" for names met in a walk: the full check costs ten times as much.

The lists of `permissions.protected_names` check components and rows of components. In a folder none
of whose components could begin such a row, only the last component matters, and most of those
(`__init__.py`) were met before. A wrong "ordinary" would show a secret, so whatever is unusual is
not certain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.permissions.protected_names import PROTECTED, RESERVED, SECRET, ProtectedNames

_PLAIN = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_@+. -]*[A-Za-z0-9_@+-]|[A-Za-z0-9_@+-]", re.ASCII)
"""A component that no folding turns into one that begins with a dot or contains a tilde."""


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
        self._last_folder = ("", True)

    def judge_together(self, names: Sequence[str]) -> None:
        """Remember those of many last components that are ordinary: one look at all of them."""
        if not self._is_usable or self._ordinary_components.issuperset(names):
            return
        suspicious = self._names.select_suspicious("", names, write=True)
        if len(self._ordinary_components) < _MAX_KNOWN:
            self._ordinary_components.update(set(names).difference(suspicious))

    def is_ordinary(self, name: str, last: str) -> bool:
        """Return whether `name`, which ends in `last`, is surely neither refused nor protected.

        False: the lists have to be asked.
        """
        if not self._is_usable or not self._is_plain_folder(name[: -len(last) - 1]):
            return False
        if last in self._ordinary_components:
            return True
        if self._names.check(last, write=True) is not None:
            return False
        if len(self._ordinary_components) < _MAX_KNOWN:
            self._ordinary_components.add(last)
        return True

    def _is_plain_folder(self, above: str) -> bool:
        if self._last_folder[0] != above:
            parts = above.split("/") if above else []
            self._last_folder = (
                above,
                above != "site-packages" and all(map(_PLAIN.fullmatch, parts)),
            )
        return self._last_folder[1]


_MAX_KNOWN = 200_000
