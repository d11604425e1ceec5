"""What docstrings and comments name in backticks is a name of the code."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator
from functools import cache

from source import LOCAL, PACKAGE, ROOT

OUTSIDE = {
    "concurrent.futures",
    "calendar.day_name",
    "seccomp_data.arch",
    "Default_Ignorable_Code_Point",
    "TokenStorage",
    "EventStore",
    "ServerRequestContext",
    "Via",
    "PIP_PROXY",
    "Carbohydrates",
    "HTTPServer",
    "Mm",
}
"""Names of other libraries, of the kernel and of examples, which no code here contains."""

NAME = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Z]\w*)(?:\(\))?`(?!`)")
"""A dotted name, or one that begins as classes and constants do. Words of a line are left alone."""


REMARK = re.compile(r'"""[\s\S]*?"""|#.*')
"""A text in triple quotes, or from a `#` to the end of its line, also where that is within a text."""


@cache
def known() -> frozenset[str]:
    """Every word of the code without its remarks, modules, and Python's own names."""
    found = set(dir(builtins)) | set(sys.stdlib_module_names)
    for folder in ("src", "packages", "tests", "benchmarks", "docs", "evals", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(path.relative_to(ROOT).with_suffix("").parts)
            # Not by the tree: two thousand files are read in a tenth of its time.
            found |= set(re.findall(r"\w+", REMARK.sub("", path.read_text())))
    return frozenset(found)


def remarks() -> Iterator[tuple[str, str]]:
    """Every comment and every text in triple quotes, and where it begins."""
    for path in sorted((*PACKAGE.rglob("*.py"), *LOCAL.rglob("*.py"))):
        text = path.read_text()
        for match in REMARK.finditer(text):
            if "`" in match[0]:
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(ROOT)}:{line}", match[0]


def test_a_name_in_backticks_is_a_name_of_the_code() -> None:
    wrong = [
        f"{where}: {name}"
        for where, text in remarks()
        for name in NAME.findall(text)
        if name not in OUTSIDE and not set(name.split(".")) <= known()
    ]
    assert wrong == []
