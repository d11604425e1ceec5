"""Views of an artifact: a page of its lines, of matching lines, of a JSON value or of a table.

Also tells whether it is a picture. Everything here blocks; call it in threads.

Nothing here holds more of an artifact than one page, except for JSON
(`storage.artifacts.readers.MAX_JSON_BYTES`) and pictures (`MAX_IMAGE_BYTES`). To reach a line, the
bytes before it are counted and not kept: the millionth line of 200 MB takes some tenths of a
second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.core.value_class import frozen
from ferrule.storage.artifacts.readers import (
    MAX_JSON_BYTES,
    LinePage,
    UnreadableArtifact,
    guess_delimiter,
    read_csv_rows,
    read_json_pointer,
    read_lines,
    search_lines,
)
from ferrule.storage.artifacts.store import Artifact, ArtifactStore, Scope

PAGE_ENTRIES = 200
"""Lines, rows or members per page."""
MAX_PAGE_CHARACTERS = 400_000
"""Characters of text per page."""
MAX_COLUMNS = 60
MAX_CELL = 2_000
"""Characters of a cell or of a line that are shown."""
MAX_SEARCH_SECONDS = 3.0
MAX_IMAGE_BYTES = 20 << 20
HEAD_BYTES = 4096
IMAGE_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}
"""Types that are shown as pictures, with the bytes their files begin with. None of them can carry a
script; SVG can, and is shown as text.
"""
VIEWS = ("text", "json", "table", "diff", "image")


@frozen
class ArtifactView:
    """An artifact of someone, and the store that holds it."""

    store: ArtifactStore
    scope: Scope
    artifact: Artifact

    @staticmethod
    def find(store: ArtifactStore, scope: Scope, reference: str) -> ArtifactView:
        """Find an artifact.

        Raises:
            ArtifactMissing: the store has none of this reference in this scope.
        """
        return ArtifactView(store, scope, store.find(scope, reference))

    def read_head(self) -> bytes:
        """Return its first bytes."""
        return self.store.read(self.scope, self.artifact.reference, 0, HEAD_BYTES)

    def read_pieces(self) -> Any:
        """Yield all its bytes in pieces."""
        return self.store.read_chunks(self.scope, self.artifact.reference)

    def image_type(self) -> str:
        """Return the media type to show it as a picture, or "" if it is none.

        The first bytes decide, not the declared type.
        """
        if self.artifact.size > MAX_IMAGE_BYTES:
            return ""
        head = self.read_head()
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return "image/webp"
        return next(
            (mime for mime, starts in IMAGE_SIGNATURES.items() if head.startswith(starts)), ""
        )

    def list_views(self) -> list[str]:
        """Return the available views, the best one first."""
        if self.image_type():
            return ["image", "text"]
        head = self.read_head().decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
        mime = self.artifact.mime
        found: list[str] = []
        if self.artifact.size <= MAX_JSON_BYTES and ("json" in mime or head[:1] in ("{", "[")):
            found.append("json")
        if "csv" in mime or "tab-separated" in mime:
            found.insert(0, "table")
        elif found and head[:1] == "[":
            found.append("table")
        if head.startswith(("diff --git ", "--- ", "Index: ")) and "\n+++ " in head:
            found.insert(0, "diff")
        return [*found, "text"] if found or not _looks_tabular(head) else ["text", "table"]


def _looks_tabular(head: str) -> bool:
    """Return whether a text begins with rows of the same number of cells."""
    first = head.splitlines()[:4]
    counts = (
        {line.count(guess_delimiter(first[0])) for line in first[:-1]}
        if len(first) > 2
        else set[int]()
    )
    return len(counts) == 1 and counts != {0}


class PageBudget:
    """Decides whether another text fits on the page. The first one always does."""

    def __init__(self, most: int = PAGE_ENTRIES) -> None:
        self._left, self._most = MAX_PAGE_CHARACTERS, most

    def __call__(self, text: str) -> bool:
        self._most -= 1
        first = self._left == MAX_PAGE_CHARACTERS
        self._left -= len(text)
        return self._most >= 0 and (first or self._left >= 0)

    def fits_row(self, cells: list[str]) -> bool:
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


def line_page(look: ArtifactView, first: int) -> Page:
    """Return the lines from number `first` on."""
    return _number_lines(read_lines(look.read_pieces(), first, PageBudget()), first)


def match_page(look: ArtifactView, pattern: str, first: int) -> Page:
    """Return the lines that match, from number `first` on.

    Raises:
        UnreadableArtifact: the pattern is no regular expression.
    """
    found = search_lines(
        look.read_pieces(), pattern, first, PageBudget(), seconds=MAX_SEARCH_SECONDS
    )
    page = _number_lines(found, 0)
    if found.out_of_time:
        page.note = f"searched for {MAX_SEARCH_SECONDS:g} s, up to line {found.next}"
    return page


def _number_lines(found: LinePage, first: int) -> Page:
    shown = [(number, shorten(text), len(text) > MAX_CELL) for number, text in found.found]
    return Page(shown, found.next, max(1, first - PAGE_ENTRIES) if first > 1 else 0)


def shorten(text: str, most: int = MAX_CELL) -> str:
    """Shorten a long text and say how much is left out."""
    return text if len(text) <= most else f"{text[:most]} […{len(text) - most} more characters]"


def table_page(look: ArtifactView, pointer: str, first: int) -> Page:
    """Return the rows from number `first` on, of CSV or of a JSON list of objects.

    Raises:
        UnreadableArtifact: the artifact has no table at the pointer.
    """
    if "json" in look.artifact.mime or look.read_head().lstrip()[:1] in (b"[", b"{"):
        return _json_rows(read_json_pointer(look.read_pieces(), look.artifact.size, pointer), first)
    found = read_csv_rows(
        look.read_pieces(), first, PageBudget().fits_row, seconds=MAX_SEARCH_SECONDS
    )
    entries = [
        (number, [shorten(cell) for cell in row[:MAX_COLUMNS]])
        for number, row in enumerate(found.rows, first)
    ]
    page = Page(
        entries,
        found.next,
        max(1, first - PAGE_ENTRIES) if first > 1 else 0,
        columns=found.columns[:MAX_COLUMNS],
    )
    page.note = _columns_note(len(found.columns))
    return page


def _columns_note(number: int) -> str:
    return f"{number - MAX_COLUMNS} more columns are not shown" if number > MAX_COLUMNS else ""


def _json_rows(value: Any, first: int) -> Page:
    if not isinstance(value, list):
        raise UnreadableArtifact("there is no list here to show as a table; open it as JSON")
    items = cast("list[Any]", value)
    part = items[first - 1 : first - 1 + PAGE_ENTRIES]
    names: dict[str, None] = {}
    for item in part:
        names.update(
            dict.fromkeys(
                cast("dict[str, Any]", item) if isinstance(item, dict) else {"value": None}
            )
        )
    columns = list(names)[:MAX_COLUMNS]
    entries = [
        (number, [_cell(item, name) for name in columns]) for number, item in enumerate(part, first)
    ]
    page = _add_paging(Page(entries, columns=columns), first, len(items))
    page.note = _columns_note(len(names))
    return page


def _cell(item: Any, name: str) -> str:
    if not isinstance(item, dict):
        return shorten(_to_text(item)) if name == "value" else ""
    return shorten(_to_text(cast("dict[str, Any]", item)[name])) if name in item else ""


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _add_paging(page: Page, first: int, number: int) -> Page:
    page.next = first + PAGE_ENTRIES if first + PAGE_ENTRIES <= number else 0
    page.previous = max(1, first - PAGE_ENTRIES) if first > 1 else 0
    return page


def tree_page(look: ArtifactView, pointer: str, first: int) -> Page:
    """Return the members of the JSON value at a pointer, from number `first` on.

    A value without members is returned itself.

    Raises:
        UnreadableArtifact: the artifact is not JSON, or has no value at the pointer.
    """
    value = read_json_pointer(look.read_pieces(), look.artifact.size, pointer)
    members: list[tuple[str, Any]]
    if isinstance(value, dict):
        members = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        members = [(str(at), one) for at, one in enumerate(cast("list[Any]", value))]
    else:
        return Page([("", "", shorten(_to_text(value), MAX_PAGE_CHARACTERS), _kind(value))])
    part = members[first - 1 : first - 1 + PAGE_ENTRIES]
    entries = [
        (name, f"{pointer}/{escape_pointer(name)}", _summarize(one), _kind(one))
        for name, one in part
    ]
    return _add_paging(Page(entries), first, len(members))


def escape_pointer(name: str) -> str:
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


def _summarize(value: Any) -> str:
    if isinstance(value, dict):
        names = ", ".join(list(cast("dict[str, Any]", value))[:8])
        return f"{{{len(value)}: {shorten(names, 200)}}}"  # pyright: ignore[reportUnknownArgumentType]  of whatever
    if isinstance(value, list):
        return f"[{len(value)}]"  # pyright: ignore[reportUnknownArgumentType]  of whatever
    return shorten(_to_text(value), 300)


def pointer_steps(pointer: str) -> list[tuple[str, str]]:
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


PAGE_BUILDERS: dict[str, Callable[[ArtifactView, str, int], Page]] = {
    "text": lambda look, _, first: line_page(look, first),
    "diff": lambda look, _, first: line_page(look, first),
    "json": tree_page,
    "table": table_page,
}
"""The function that makes the page of each view: takes the artifact, a JSON pointer and the first
entry.
"""
