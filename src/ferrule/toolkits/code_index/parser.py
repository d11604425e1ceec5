"""Finds definitions and uses in source texts. A script of its own: `python -I -S parser.py`.

It is a separate process because grammars are C code that reads what strangers wrote: a source may
crash one, or keep it busy for hours. Once its input is read and its grammars are loaded it can open
no file and no connection any more. A file may take `SECONDS_PER_FILE` of processor time, then the
kernel ends the process, and the parent goes on behind that file.

Standard input: a JSON object (length in 4 bytes) with `nice`, the priority, `paths`, where the
packages are, and `languages`, by name a module, its function and a query; then for each file the
length of its language's name (1 byte), the name, the length of the content (4 bytes) and the
content. Numbers are big-endian. Standard output: for each file one line of JSON, an object with

    d   definitions: name, kind, first and last line, the definitions around it, its head
    u   names that are used, each with the lines on which it is, in order
    e   why there is nothing, in place of the others
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from importlib import import_module
from typing import Any, cast

SECONDS_PER_FILE = 5.0
MAX_MEMORY = 2 << 30
MAX_DEFINITIONS = 5000
MAX_NAMES = 20_000
MAX_LINES_PER_NAME = 1000
MAX_NAME = 200
MAX_HEAD = 160
_CUT_HEAD = 2000
"""Bytes of a definition that its head is looked for in."""
_CONTAINERS = frozenset(
    (
        "class",
        "enum",
        "function",
        "impl",
        "interface",
        "method",
        "module",
        "object",
        "protocol",
        "struct",
        "trait",
        "type",
    )
)


def main() -> None:
    """Read everything from standard input, then answer file by file."""
    data = sys.stdin.buffer.read()
    start = 4 + int.from_bytes(data[:4], "big")
    header = json.loads(data[4:start])
    sys.path[:0] = header["paths"]
    loaded = {name: _load(*given) for name, given in header["languages"].items()}
    _lock(header["nice"])
    position = start
    while position < len(data):
        named = position + 1 + data[position]
        language = data[position + 1 : named].decode()
        end = named + 4 + int.from_bytes(data[named : named + 4], "big")
        content = data[named + 4 : end]
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_PER_FILE)
        found = _find(content, *loaded[language])
        # Unbuffered: if a later file ends this process, the answers before it have been sent.
        _write(json.dumps(found, separators=(",", ":")).encode() + b"\n")
        position = end


def _load(module: str, function: str, source: str) -> tuple[Any, Any, Any]:
    import tree_sitter  # from `paths`

    pointer: Any = getattr(import_module(module), function)()
    language: Any = cast(Any, tree_sitter).Language(pointer)
    patterns = [line for line in source.splitlines() if not line.startswith(";")]
    # Two queries: the many uses are found faster without the pairs that definitions need.
    definitions = "\n".join(line for line in patterns if "@use" not in line)
    uses = "\n".join(line for line in patterns if "@use" in line)
    return (
        tree_sitter.Parser(language),
        tree_sitter.Query(language, definitions),
        tree_sitter.Query(language, uses),
    )


def _lock(niceness: int) -> None:
    """Give up what is not needed to parse."""
    os.nice(niceness)
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    for limit, value in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(limit, (most, most))
        except (OSError, ValueError):
            # Some systems have no such limit; the parent's time limit still holds.
            continue


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _find(source: bytes, parser: Any, definitions: Any, uses: Any) -> dict[str, Any]:
    import tree_sitter

    try:
        root = parser.parse(source).root_node
        defined = _collect_definitions(tree_sitter.QueryCursor(definitions).matches(root))
        used = tree_sitter.QueryCursor(uses).captures(root).get("use", [])
        return {"d": _order(source, defined), "u": _collect_uses(source, used, defined)}
    except (MemoryError, RecursionError, ValueError) as error:
        return {"e": type(error).__name__}


def _collect_definitions(
    matches: list[tuple[int, dict[str, list[Any]]]],
) -> dict[int, tuple[int, str, Any, Any]]:
    """Return pattern, kind, name and extent by where the name begins; the last pattern wins."""
    definitions: dict[int, tuple[int, str, Any, Any]] = {}
    for pattern, captures in matches:
        kind = next(kind for kind in captures if kind != "name")
        for name in captures["name"]:
            known = definitions.get(name.start_byte)
            if known is None or known[0] <= pattern:
                definitions[name.start_byte] = (pattern, kind, name, captures[kind][0])
    return definitions


def _collect_uses(
    source: bytes, nodes: list[Any], definitions: dict[int, tuple[int, str, Any, Any]]
) -> dict[str, list[int]]:
    uses: dict[bytes, set[int]] = {}
    for node in nodes:
        start = node.start_byte
        if start in definitions:
            continue
        text = source[start : node.end_byte]
        lines = uses.get(text)
        if lines is None:
            if len(uses) >= MAX_NAMES or len(text) > MAX_NAME:
                continue
            lines = uses[text] = set()
        lines.add(node.start_point[0] + 1)
    return {
        name.decode("utf-8", "replace"): sorted(lines)[:MAX_LINES_PER_NAME]
        for name, lines in uses.items()
    }


def _order(
    source: bytes, definitions: dict[int, tuple[int, str, Any, Any]]
) -> list[tuple[str, str, int, int, str, str]]:
    """Return the definitions in the order of the text, each with the names of those around it."""
    found: list[tuple[str, str, int, int, str, str]] = []
    around: list[tuple[int, str]] = []
    rows = [definitions[place] for place in sorted(definitions)][:MAX_DEFINITIONS]
    for _, kind, name, extent in rows:
        while around and around[-1][0] <= name.start_byte:
            around.pop()
        text = source[name.start_byte : name.end_byte][:MAX_NAME].decode("utf-8", "replace")
        container = ".".join(part for _, part in around)[-MAX_NAME:]
        first = extent.start_point[0] + 1
        last = extent.end_point[0] + 1
        head = _make_head(source, name, extent)
        found.append((text, kind, first, last, container, head))
        if kind in _CONTAINERS:
            around.append((extent.end_byte, text))
    return found


def _make_head(source: bytes, name: Any, extent: Any) -> str:
    """Return a definition up to its body, on one line, without annotations on lines above."""
    start = extent.start_byte
    if source[start : start + 1] in (b"@", b"[") and name.start_point[0] > extent.start_point[0]:
        start = source.rfind(b"\n", start, name.start_byte) + 1
    end = min(extent.end_byte, start + _CUT_HEAD)
    body = extent.child_by_field_name("body")
    if body is not None and start < body.start_byte:
        end = min(end, body.start_byte)
        text = source[start:end].decode("utf-8", "replace")
    else:
        text = source[start:end].decode("utf-8", "replace").partition("\n")[0]
    head = " ".join(text.split()).rstrip(" {:=")
    return head if len(head) <= MAX_HEAD else f"{head[: MAX_HEAD - 1]}…"


if __name__ == "__main__":
    main()
