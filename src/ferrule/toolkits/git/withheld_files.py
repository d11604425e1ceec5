"""What git must not show: files that no tool may read, by `permissions.protected_names`.

There are three barriers, one behind the other, since git reads files by itself:

* names in the arguments are checked before anything runs (`command.py`);
* git is told to leave out what the lists name, as pathspecs. Their language is weaker than that of
  the lists (no backup endings, no Unicode forms), so for `diff` and `show` the names are listed
  first, judged one by one, and left out exactly;
* the output is read again, and the section of a file that may not be read is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.protected_names import RESERVED, SECRET, ProtectedNames

_SECTION = compile_lazily(r"diff --(git|cc|combined) (.*)")
_NEXT = compile_lazily(r"(?:commit|tag|tree) [0-9a-f]{7,64}\b")


def make_exclusions(names: ProtectedNames) -> list[str]:
    """Return pathspecs that leave out what the lists name, see gitglossary(7), "pathspec"."""
    found: list[str] = []
    for pattern in (*RESERVED, *names.reserved, *SECRET, *names.secret):
        body = pattern.strip("/").replace("[", r"\[")
        if body.startswith(".git/"):
            continue  # Never tracked.
        anywhere = "" if pattern.startswith("/") else "**/"
        found += [f":(exclude,icase,glob){anywhere}{body}{below}" for below in ("", "/**")]
    return found


def exclude_name(name: str) -> str:
    """Return a pathspec that leaves out one name."""
    return f":(exclude,literal){name}"


def drop_sections(text: str, names: ProtectedNames) -> tuple[str, list[str]]:
    """Drop the sections of files that may not be read from a patch, and name these files.

    If a name is in doubt (a header with several readings), the section is dropped.
    """
    kept: list[str] = []
    dropped: list[str] = []
    dropping = False
    for line in text.split("\n"):
        section = _SECTION.match(line)
        if section:
            found = list(_names(section[1], section[2].rstrip("\r")))
            hidden = [name for name in found if names.check(name, write=False)]
            dropping = bool(hidden) or not found
            dropped += hidden[:1]
        elif dropping and _NEXT.match(line):
            dropping = False
        if not dropping:
            kept.append(line)
    return "\n".join(kept), list(dict.fromkeys(dropped))


def _names(kind: str, rest: str) -> Iterator[str]:
    """Yield all names that a header could mean."""
    if kind != "git":
        yield _unquote(rest)
        return
    for match in re.finditer(r' (?="?[ab]/)', rest):
        for side in (rest[: match.start()], rest[match.end() :]):
            yield _unquote(side)[2:]


_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


def _unquote(name: str) -> str:
    """Read a name as git writes it: quoted like in C if it contains unusual characters."""
    if not (len(name) > 1 and name[0] == name[-1] == '"'):
        return name
    data = bytearray()
    for octal, escape, plain in re.findall(r"\\([0-7]{3})|\\(.)|([^\\]+)", name[1:-1]):
        if octal:
            data.append(int(octal, 8) & 255)
        elif escape:
            data.append(_ESCAPES.get(escape, ord(escape) & 255))
        else:
            data += plain.encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "replace")
