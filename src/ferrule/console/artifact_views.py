"""Views of an artifact: a page of its lines, of matching lines, of a JSON value or of a table.

Also tells whether it is a picture. Everything here blocks; call it in threads.

Nothing here holds more of an artifact than one page, except for JSON
(`storage.artifacts.parts.LARGEST_JSON`) and pictures (`LARGEST_IMAGE`). To reach a line, the bytes
before it are counted and not kept: the millionth line of 200 MB takes some tenths of a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.storage.artifacts.parts import (
    LARGEST_JSON,
    Lines,
    Unreadable,
    at_pointer,
    delimiter_of,
    lines,
    matching,
    rows,
)
from ferrule.storage.artifacts.store import Artifact, ArtifactStore, Scope

PAGE = 200
"""Lines, rows or members per page."""
ROOM = 400_000
"""Characters of text per page."""
COLUMNS = 60
CELL = 2_000
"""Characters of a cell or of a line that are shown."""
SECONDS = 3.0
LARGEST_IMAGE = 20 << 20
HEAD = 4096
IMAGES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}
"""Types that are shown as pictures, with the bytes their files begin with. None of them can carry a
script; SVG can, and is shown as text.
"""
VIEWS = ("text", "json", "table", "diff", "image")


@dataclass(frozen=True, slots=True)
class Look:
    """An artifact of someone, and the store that holds it."""

    store: ArtifactStore
    scope: Scope
    artifact: Artifact

    @staticmethod
    def at(store: ArtifactStore, scope: Scope, reference: str) -> Look:
        """Find an artifact.

        Raises:
            ArtifactMissing: the store has none of this reference in this scope.
        """
        return Look(store, scope, store.find(scope, reference))

    def head(self) -> bytes:
        """Return its first bytes."""
        return self.store.read(self.scope, self.artifact.reference, 0, HEAD)

    def pieces(self) -> Any:
        """Yield all its bytes in pieces."""
        return self.store.pieces(self.scope, self.artifact.reference)

    def image(self) -> str:
        """Return the media type to show it as a picture, or "" if it is none.

        The first bytes decide, not the declared type.
        """
        if self.artifact.size > LARGEST_IMAGE:
            return ""
        head = self.head()
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return "image/webp"
        return next((mime for mime, starts in IMAGES.items() if head.startswith(starts)), "")

    def views(self) -> list[str]:
        """Return the available views, the best one first."""
        if self.image():
            return ["image", "text"]
        head = self.head().decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
        mime = self.artifact.mime
        found: list[str] = []
        if self.artifact.size <= LARGEST_JSON and ("json" in mime or head[:1] in ("{", "[")):
            found.append("json")
        if "csv" in mime or "tab-separated" in mime:
            found.insert(0, "table")
        elif found and head[:1] == "[":
            found.append("table")
        if head.startswith(("diff --git ", "--- ", "Index: ")) and "\n+++ " in head:
            found.insert(0, "diff")
        return [*found, "text"] if found or not _tabular(head) else ["text", "table"]


def _tabular(head: str) -> bool:
    """Return whether a text begins with rows of the same number of cells."""
    first = head.splitlines()[:4]
    counts = (
        {line.count(delimiter_of(first[0])) for line in first[:-1]}
        if len(first) > 2
        else set[int]()
    )
    return len(counts) == 1 and counts != {0}


class Room:
    """Decides whether another text fits on the page. The first one always does."""

    def __init__(self, most: int = PAGE) -> None:
        self._left, self._most = ROOM, most

    def __call__(self, text: str) -> bool:
        self._most -= 1
        first = self._left == ROOM
        self._left -= len(text)
        return self._most >= 0 and (first or self._left >= 0)

    def row(self, cells: list[str]) -> bool:
        """Return whether another row of a table fits."""
        return self("".join(cells))


@dataclass(slots=True)
class Page:
    """Part of an artifact.

    `entries` are numbered lines, or for a tree (name, pointer, shown text, kind). `next` is where
    the next page begins, 0 if there is none. `note` says what was left out.
    """

    entries: list[Any] = field(default_factory=list[Any])
    next: int = 0
    previous: int = 0
    note: str = ""
    columns: Sequence[str] = ()


def line_page(look: Look, first: int) -> Page:
    """Return the lines from number `first` on."""
    return _numbered(lines(look.pieces(), first, Room()), first)


def match_page(look: Look, pattern: str, first: int) -> Page:
    """Return the lines that match, from number `first` on.

    Raises:
        Unreadable: the pattern is no regular expression.
    """
    found = matching(look.pieces(), pattern, first, Room(), seconds=SECONDS)
    page = _numbered(found, 0)
    if found.out_of_time:
        page.note = f"searched for {SECONDS:g} s, up to line {found.next}"
    return page


def _numbered(found: Lines, first: int) -> Page:
    shown = [(number, cut(text), len(text) > CELL) for number, text in found.found]
    return Page(shown, found.next, max(1, first - PAGE) if first > 1 else 0)


def cut(text: str, most: int = CELL) -> str:
    """Shorten a long text and say how much is left out."""
    return text if len(text) <= most else f"{text[:most]} […{len(text) - most} more characters]"


def table_page(look: Look, pointer: str, first: int) -> Page:
    """Return the rows from number `first` on, of CSV or of a JSON list of objects.

    Raises:
        Unreadable: the artifact has no table at the pointer.
    """
    if "json" in look.artifact.mime or look.head().lstrip()[:1] in (b"[", b"{"):
        return _json_rows(at_pointer(look.pieces(), look.artifact.size, pointer), first)
    found = rows(look.pieces(), first, Room().row, seconds=SECONDS)
    entries = [
        (number, [cut(cell) for cell in row[:COLUMNS]])
        for number, row in enumerate(found.rows, first)
    ]
    page = Page(
        entries,
        found.next,
        max(1, first - PAGE) if first > 1 else 0,
        columns=found.columns[:COLUMNS],
    )
    page.note = _columns_note(len(found.columns))
    return page


def _columns_note(number: int) -> str:
    return f"{number - COLUMNS} more columns are not shown" if number > COLUMNS else ""


def _json_rows(value: Any, first: int) -> Page:
    if not isinstance(value, list):
        raise Unreadable("there is no list here to show as a table; open it as JSON")
    items = cast("list[Any]", value)
    part = items[first - 1 : first - 1 + PAGE]
    names: dict[str, None] = {}
    for item in part:
        names.update(
            dict.fromkeys(
                cast("dict[str, Any]", item) if isinstance(item, dict) else {"value": None}
            )
        )
    columns = list(names)[:COLUMNS]
    entries = [
        (number, [_cell(item, name) for name in columns]) for number, item in enumerate(part, first)
    ]
    page = _paged(Page(entries, columns=columns), first, len(items))
    page.note = _columns_note(len(names))
    return page


def _cell(item: Any, name: str) -> str:
    if not isinstance(item, dict):
        return cut(_spelled(item)) if name == "value" else ""
    return cut(_spelled(cast("dict[str, Any]", item)[name])) if name in item else ""


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _paged(page: Page, first: int, number: int) -> Page:
    page.next = first + PAGE if first + PAGE <= number else 0
    page.previous = max(1, first - PAGE) if first > 1 else 0
    return page


def tree_page(look: Look, pointer: str, first: int) -> Page:
    """Return the members of the JSON value at a pointer, from number `first` on.

    A value without members is returned itself.

    Raises:
        Unreadable: the artifact is not JSON, or has no value at the pointer.
    """
    value = at_pointer(look.pieces(), look.artifact.size, pointer)
    members: list[tuple[str, Any]]
    if isinstance(value, dict):
        members = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        members = [(str(at), one) for at, one in enumerate(cast("list[Any]", value))]
    else:
        return Page([("", "", cut(_spelled(value), ROOM), _kind(value))])
    part = members[first - 1 : first - 1 + PAGE]
    entries = [
        (name, f"{pointer}/{escaped(name)}", _summary(one), _kind(one)) for name, one in part
    ]
    return _paged(Page(entries), first, len(members))


def escaped(name: str) -> str:
    """Escape a name as a step of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _kind(value: Any) -> str:
    match value:
        case dict():
            return "object"
        case list():
            return "list"
        case None | bool():
            return "constant"
        case str():
            return "text"
        case _:
            return "number"


def _summary(value: Any) -> str:
    if isinstance(value, dict):
        names = ", ".join(list(cast("dict[str, Any]", value))[:8])
        return f"{{{len(value)}: {cut(names, 200)}}}"  # pyright: ignore[reportUnknownArgumentType]  of whatever
    if isinstance(value, list):
        return f"[{len(value)}]"  # pyright: ignore[reportUnknownArgumentType]  of whatever
    return cut(_spelled(value), 300)


def crumbs(pointer: str) -> list[tuple[str, str]]:
    """Return the steps of a JSON pointer, each with the pointer up to it."""
    steps = pointer.split("/")[1:]
    return [
        (step.replace("~1", "/").replace("~0", "~"), "/" + "/".join(steps[: at + 1]))
        for at, step in enumerate(steps)
    ]


def diff_class(line: str) -> str:
    """Return the style class of a line of a unified diff."""
    if line.startswith(("diff --git ", "--- ", "+++ ", "Index: ")):
        return "file"
    return {"+": "add", "-": "cut", "@": "at"}.get(line[:1], "")


VIEWERS: dict[str, Callable[[Look, str, int], Page]] = {
    "text": lambda look, _, first: line_page(look, first),
    "diff": lambda look, _, first: line_page(look, first),
    "json": tree_page,
    "table": table_page,
}
"""The function that makes the page of each view: takes the artifact, a JSON pointer and the first
entry.
"""
