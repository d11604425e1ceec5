"""Where a shell runs values as code without saying so.

Arithmetic evaluates what a variable holds, and a subscript in it may hold a substitution: with
`x='a[$(rm y)]'` all of `$((x))`, `[[ x -eq 1 ]]`, `[[ -v $x ]]`, `${a[x]}`, `${!x}` and `${x@P}`
run `rm`. The value may come from a loop over a file, so what is written here does not matter: where
names are evaluated, a person is asked.
"""

from __future__ import annotations

import re

_NAME = r"(?:[A-Za-z_]\w*|[0-9@*#?$!_-])(?:\[(?:[0-9]+|[@*])\])?"
_PLAIN_EXPANSION = re.compile(
    rf"\$\{{#?{_NAME}(?:(?::?[-=+?]|##?|%%?|//?|\^\^?|,,?).*|:\s?\d+(?::\d+)?)?\}}", re.DOTALL
)
_NUMBERS = re.compile(r"[\s\d()+\-*/%<>=!&|^~?:,;]*")


def runs_values(kind: str, text: str) -> bool:
    """True if an `expansion` (`${...}`) or `arithmetic` (`((...))`) evaluates a value that is not
    written in it.
    """
    if kind == "expansion":
        return _PLAIN_EXPANSION.fullmatch(text) is None
    return _NUMBERS.fullmatch(text.removeprefix("$")) is None
