"""Find words that mean the same, from the groups of `synonyms.txt`.

The file is for people to edit: a group a line, members divided by commas, a member of several words
stands for all of them together. A word may be in several groups. Groups are of English words from
software and everyday business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

from ferrule.tools.word_stems import content_stems, stems

Words = tuple[str, ...]
"""Stems that stand for one thing together."""

_LONGEST = 3
"""Words of the longest member that is found in a request."""


def find_synonyms(request: Sequence[str]) -> Iterator[tuple[Words, tuple[Words, ...]]]:
    """Iterate over the parts of a request that are members of groups, with the other members.

    `request` are the stems of all words in order. Of members that begin at the same word the
    longest counts; parts do not overlap.
    """
    groups = read_groups()
    start = 0
    while start < len(request):
        for length in range(_LONGEST, 0, -1):
            part = tuple(request[start : start + length])
            if part in groups:
                yield part, groups[part]
                start += len(part)
                break
        else:
            start += 1


@cache
def read_groups() -> Mapping[Words, tuple[Words, ...]]:
    """Return the content stems of the other members of its groups, by the stems of a member."""
    text = (files("ferrule.tools.search") / "synonyms.txt").read_text(encoding="utf-8")
    found: defaultdict[Words, dict[Words, None]] = defaultdict(dict)
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        members = [tuple(stems(member)) for member in line.split(",")]
        contents = [tuple(content_stems(member) or stems(member)) for member in line.split(",")]
        for member in members:
            found[member].update(dict.fromkeys(contents))
    return {
        member: tuple(other for other in others if other != member)
        for member, others in found.items()
    }
