"""`re.*` of scripts beside Python's `re`: the same answers for what both engines know."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ferrule.extensions.starlark.inside import computed as pure

ATOMS = st.sampled_from(
    ["a", "b", "ä", ".", "[ab]", "[^b]", "(a)", "(?:ab)", "(b|ä)", "(?P<n>a)", "^", "$", r"\b"]
)
REPEATS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "*?"])
PIECES = st.tuples(ATOMS, REPEATS).map(lambda pair: pair[0] if pair[0] in "^$" else "".join(pair))
TEXTS = st.text(alphabet="abä ", max_size=12)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    found = "".join(draw(st.lists(PIECES, min_size=1, max_size=4)))
    # Python takes one name once, and repeats no boundary.
    return found if found.count("<n>") < 2 and r"\b" not in found else "ab"


def shown(found: re.Match[str] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "match": found.group(),
        "groups": list(found.groups()),
        "named": found.groupdict(),
        "start": found.start(),
        "end": found.end(),
    }


@given(patterns(), TEXTS)
def test_scripts_find_what_python_finds(pattern: str, text: str) -> None:
    compiled = re.compile(pattern)
    assert pure.match(pattern, text) == shown(compiled.match(text))
    assert pure.search(pattern, text) == shown(compiled.search(text))
    if any(not one.group() for one in compiled.finditer(text)):
        # After a match Python takes an empty one at its end; RE2 does as well, but groups of it may
        # differ.
        return
    assert pure.replace(pattern, "<\\g<0>>", text) == compiled.sub("<\\g<0>>", text)
    assert pure.split(pattern, text) == compiled.split(text)
