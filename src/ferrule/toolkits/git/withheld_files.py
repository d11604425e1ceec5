"""What git must not show: files that no tool may read, by the same lists as everywhere
(`permissions.protected_names`).

Three nets, one behind the other, since git reads files by itself:

* names in the arguments are checked before anything runs (`command.py`);
* git is told to leave out what the lists name, as pathspecs. Their language is weaker than the
  lists' (no backup endings, no Unicode forms), so for `diff` and `show` the names are asked for
  first, judged one by one, and left out exactly;
* what comes back is read again, and the section of a file that may not be read is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ferrule.permissions.protected_names import RESERVED, SECRET, Names

_SECTION = re.compile(r"diff --(git|cc|combined) (.*)")
_NEXT = re.compile(r"(?:commit|tag|tree) [0-9a-f]{7,64}\b")


def pathspecs(names: Names) -> list[str]:
    """Pathspecs that leave out what the lists name. Language: gitglossary(7), "pathspec"."""
    found: list[str] = []
    for pattern in (*RESERVED, *names.reserved, *SECRET, *names.secret):
        body = pattern.strip("/").replace("[", r"\[")
        if body.startswith(".git/"):
            continue  # never tracked
        anywhere = "" if pattern.startswith("/") else "**/"
        found += [f":(exclude,icase,glob){anywhere}{body}{below}" for below in ("", "/**")]
    return found


def literally(name: str) -> str:
    """A pathspec that leaves out one name."""
    return f":(exclude,literal){name}"


def drop_sections(text: str, names: Names) -> tuple[str, list[str]]:
    """A patch without the sections of files that may not be read, and the names of these.

    When in doubt about a name (a header with several readings), the section is dropped.
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
    """All names that a header could mean."""
    if kind != "git":
        yield _unquoted(rest)
        return
    for match in re.finditer(r' (?="?[ab]/)', rest):
        for side in (rest[: match.start()], rest[match.end() :]):
            yield _unquoted(side)[2:]


_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


def _unquoted(name: str) -> str:
    """A name as git writes it: quoted like in C where it holds unusual characters."""
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
