"""The stub of a kept result: what a model reads instead, with a preview that follows its structure.

    {"artifact":"art-…","size_bytes":2097152,"mime":"application/json","lines":1,"preview":…,"truncated":true}

The preview of a JSON object keeps small fields and names large ones with their sizes; that of a
list shows its first items; of CSV, the header and the first rows; of a diff, its files; of other
text, its first and last lines. It is made from the beginning (`HEAD` bytes) and the end of the
whole, so its cost does not grow with the size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.value_class import frozen
from ferrule.storage.artifacts.store import Artifact

HEAD_SIZE = 1 << 20
"""Bytes of the beginning that a preview is made from."""
TAIL_SIZE = 4096
MAX_PREVIEW = 16_384
"""Maximum size of a preview in bytes."""
MAX_FIELD = 1024
"""Fields and items of up to this many bytes are kept as they are."""
_MAX_LINE = 400
"""Characters of a line that a preview shows."""
_MAX_NAMES = 12


@frozen
class HeadAndTail:
    """What a preview is made from.

    The beginning and the end of the bytes (they may overlap), and the value if it was JSON.
    """

    head: bytes
    tail: bytes
    value: Any = None


def build_stub(artifact: Artifact, ends: HeadAndTail, room: int) -> dict[str, Any]:
    """Return the stub of an artifact, of at most `room` bytes as compact JSON.

    It can be larger only if the reference and the size leave no room for a preview.
    """
    shape: dict[str, Any] = {
        "artifact": artifact.reference,
        "size_bytes": artifact.size,
        "mime": artifact.mime,
        "lines": artifact.lines,
        "preview": "",
        "truncated": True,
    }
    if not is_text(artifact.mime):
        del shape["lines"]
        shape["preview"] = f"[{artifact.size} bytes that are not text]"
        return shape
    left = min(MAX_PREVIEW, room - json_size(shape))
    shape["preview"] = build_preview(artifact, ends, left) if left > 0 else ""
    return shape


def json_size(value: Any) -> int:
    """Return the size of a value in bytes of compact JSON."""
    return len(encode_json(value).encode("utf-8", "replace"))


def is_text(mime: str) -> bool:
    """Whether bytes of this type are shown as text."""
    kind = mime.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(
        ("json", "xml", "yaml", "javascript", "x-sh", "csv")
    )


def build_preview(artifact: Artifact, ends: HeadAndTail, room: int) -> Any:
    """Return the preview alone: a JSON value or text, at most `room` bytes as JSON."""
    value = ends.value if ends.value is not None else _parse_json(artifact, ends)
    if value is not None and not isinstance(value, str):
        inner = _unwrap(value)
        sizes = _Sizes()
        return _fit(lambda field: _trim(inner, room, field, sizes), room)
    text = ends.head.decode("utf-8", "replace")
    if text.startswith(("diff --git ", "--- ", "Index: ")) and "\n+++ " in text:
        return _fit(lambda most: _preview_diff(text, artifact.size > len(ends.head), most), room)
    last = ends.tail.decode("utf-8", "replace")
    if "csv" in artifact.mime or "tab-separated" in artifact.mime:
        return _fit(lambda most: _preview_table(text, last, artifact, most), room)
    return _fit(lambda most: _preview_text(text, last, artifact, most), room)


def _parse_json(artifact: Artifact, ends: HeadAndTail) -> Any:
    """Parse the bytes, if they are JSON and the beginning holds all of it."""
    if artifact.size > len(ends.head) or ends.head[:64].lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return parse_json(ends.head)
    except ValueError:
        return None


def _fit(make: Callable[[int], Any], room: int) -> Any:
    """Call `make` with ever smaller numbers until its result fits."""
    most = MAX_FIELD
    while json_size(made := make(most)) > room:
        if most < 4:
            return ""
        most //= 2
    return made


# ---- JSON


def _unwrap(value: Any) -> Any:
    """Remove wrapper objects with a single key."""
    for _ in range(3):
        if not isinstance(value, dict) or len(cast("dict[str, Any]", value)) != 1:
            break
        inner = next(iter(cast("dict[str, Any]", value).values()))
        if not isinstance(inner, dict):
            break
        value = cast("dict[str, Any]", inner)
    return cast("Any", value)


class _Sizes:
    """Sizes of the parts of one value, each measured once.

    Fitting a preview asks for them several times.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, part: Any) -> int:
        """Return the size of a part in bytes of JSON.

        Parts are known by their identity, so they must live as long as this object.
        """
        size = self._known.get(id(part))
        if size is None:
            size = self._known[id(part)] = json_size(part)
        return size


def _trim(value: Any, room: int, field: int, sizes: _Sizes) -> Any:
    if isinstance(value, dict):
        return _preview_object(cast("dict[str, Any]", value), room, field, sizes)
    if isinstance(value, list):
        return _preview_list(cast("list[Any]", value), room, field, sizes)
    return value if sizes.of(value) <= field else describe_omission(value, sizes.of(value))


def _preview_object(value: dict[str, Any], room: int, field: int, sizes: _Sizes) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    used = 64
    for index, (key, item) in enumerate(value.items()):
        shown = item if sizes.of(item) <= field else _preview_field(item, field, sizes)
        used += json_size(shown) + json_size(key) + 2
        if used > room or len(key) > field:
            kept["…"] = f"[{len(value) - index} more keys]"
            break
        kept[key] = shown
    return kept


def _preview_field(item: Any, field: int, sizes: _Sizes) -> Any:
    """Shorten a large field; the first item of a list says more than its size, if it is small."""
    if isinstance(item, list) and item:
        items = cast("list[Any]", item)
        if len(items) > 1 and sizes.of(items[0]) <= field // 2:
            return [items[0], f"[{len(items) - 1} more items, {sizes.of(item)} bytes]"]
    return describe_omission(item, sizes.of(cast("Any", item)))


def _preview_list(value: list[Any], room: int, field: int, sizes: _Sizes) -> list[Any]:
    kept: list[Any] = []
    used = 64
    for index, item in enumerate(value):
        shown = item if sizes.of(item) <= field else _preview_field(item, field, sizes)
        used += json_size(shown) + 1
        if used > room:
            kept.append(f"[{len(value) - index} more items]")
            break
        kept.append(shown)
    return kept


def describe_omission(value: Any, size: int) -> str:
    """Describe an omitted value: its kind and size, and the first keys of an object."""
    if isinstance(value, dict):
        keys = list(cast("dict[str, Any]", value))
        names = ", ".join(key[:40] for key in keys[:_MAX_NAMES]) + (
            ", …" if len(keys) > _MAX_NAMES else ""
        )
        return f"[omitted: object of {len(keys)} keys, {size} bytes: {names}]"
    if isinstance(value, list):
        return f"[omitted: list of {len(cast('list[Any]', value))} items, {size} bytes]"
    if isinstance(value, str):
        return f"[omitted: text of {len(value)} characters]"
    return f"[omitted: {size} bytes]"


# ---- text


def _preview_diff(text: str, more: bool, most: int) -> str:
    files: list[list[Any]] = []
    for line in text.splitlines():
        if line.startswith(("+++ ", "--- ")):
            name = line[4:].partition("\t")[0].removeprefix("a/" if line[0] == "-" else "b/")
            if line[0] == "-":
                files.append([name, 0, 0])
            elif files and name != "/dev/null":
                files[-1][0] = name
        elif files and line[:1] in ("+", "-"):
            files[-1][1 if line[0] == "+" else 2] += 1
    shown = [f"{name[:most]}  +{plus} -{minus}" for name, plus, minus in files[: max(1, most // 4)]]
    left = len(files) - len(shown)
    if left:
        shown.append(f"[{left} more files]")
    if more:
        shown.append("[and what comes after the first MiB]")
    return "\n".join([f"diff of {len(files)} files", *shown])


def _preview_table(text: str, last: str, artifact: Artifact, most: int) -> str:
    lines = text.splitlines()
    whole = lines if artifact.size <= len(text) or text.endswith("\n") else lines[:-1]
    shown = [_shorten_line(line, most) for line in (whole or lines)[: max(2, most // 64)]]
    left = artifact.lines - len(shown) - 1
    if left > 0:
        shown += [f"[{left} rows left out]", _shorten_line(last.splitlines()[-1], most)]
    return "\n".join(shown)


def _preview_text(text: str, last: str, artifact: Artifact, most: int) -> str:
    """Show the first lines and the last lines, and how many are left out.

    A text that is one long line is shown by its beginning.
    """
    lines = text.splitlines()
    count = max(1, most // 24)
    shown = [_shorten_line(line, most) for line in lines[:count]]
    last_lines: list[str] = []
    if len(lines) > count and artifact.size > len(last):
        last_lines = last.splitlines()[1:][-max(1, count // 3) :]
    left = artifact.lines - len(shown) - len(last_lines)
    if left > 0:
        shown.append(f"[{left} lines left out]")
    shown += [_shorten_line(line, most) for line in last_lines]
    return "\n".join(shown)


def _shorten_line(line: str, most: int) -> str:
    most = min(most, _MAX_LINE)
    return line if len(line) <= most else f"{line[:most]}… [{len(line)} characters]"
