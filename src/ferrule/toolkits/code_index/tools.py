"""Tools that find definitions and uses of names, and outline the workspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, cast

from ferrule.core.errors import ToolFailed
from ferrule.engine.threads import run_blocking
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.examples import with_examples
from ferrule.toolkits.files.edits import format_count, invalid_arguments
from ferrule.toolkits.files.lines import split_lines
from ferrule.toolkits.search.rows import cut_around, make_printable
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, Tool
from ferrule.tools.number_ranges import require_ranges

from .index import MAX_FILE_SIZE, MAX_FILES, CodeIndex, Progress
from .languages import INSTALL_HINT, list_installed
from .outline import make_outline
from .store import Found, IndexStore

_MEMORY_KEY = "code_index"
_MAX_SECONDS = 20.0
"""Time for comparing the index with the files before a question."""
_MAX_FOUND = 2000
_MAX_SOURCE_LINES = 200
_MAX_SOURCES = 3
MAX_DEFINITIONS = 200
MAX_REFERENCES = 1000
MAX_BUDGET = 8000
_SEPARATORS = ("::", "#", "->", ".")


def find_index(context: Context) -> CodeIndex:
    """Return the index of the run, or one in memory for this session."""
    given = context.resources.get(CodeIndex)
    if isinstance(given, CodeIndex):
        return given
    own = context.memory.get(_MEMORY_KEY)
    if own is None:
        own = context.memory[_MEMORY_KEY] = CodeIndex()

        async def close() -> None:
            await run_blocking(own.close)

        context.on_close(close)
    return cast("CodeIndex", own)


async def _refresh(context: Context) -> tuple[IndexStore, Workspace, list[str]]:
    """Compare the index with the files. The last of what is returned says what is not in it."""
    if not list_installed():
        raise invalid_arguments(
            "the code index has no grammar of any language here; ask the person to install them "
            f"(`{INSTALL_HINT}`), or use `search_files`"
        )
    index = find_index(context)
    workspace = context.resource(Workspace)
    seconds = min(_MAX_SECONDS, 0.5 * (context.deadline or _MAX_SECONDS))

    def compare() -> list[str]:
        progress = index.refresh(workspace, seconds)
        return [*_describe_progress(progress), *_describe_gaps(index.store, workspace)]

    notes = await run_blocking(compare)
    return index.store, workspace, notes


def _describe_progress(progress: Progress) -> list[str]:
    notes: list[str] = []
    if not progress.complete:
        why = f" ({progress.problem})" if progress.problem else ""
        notes.append(
            f"[the index is not complete{why}: {progress.files} files are in it, "
            f"{progress.waiting} wait; ask again, or use `search_files`]"
        )
    if progress.left_out:
        notes.append(
            f"[{progress.left_out} source files beyond the first {MAX_FILES} are not in the index]"
        )
    return notes


def _describe_gaps(store: IndexStore, workspace: Workspace) -> list[str]:
    """Say of which files nothing is known, and why of one of them."""
    gaps = [(path, why) for path, why in store.list_unparsed() if _is_readable(workspace, path)]
    if not gaps:
        return []
    path, why = gaps[0]
    count = format_count(len(gaps), "source file")
    return [f"[not in the index: {count}; {make_printable(path)}: {why}; use `search_files`]"]


def _split_name(name: str) -> tuple[str, str]:
    """Split `Model.save` into what is around it and the name itself."""
    text = name.strip().removesuffix("()")
    for separator in _SEPARATORS[:-1]:
        text = text.replace(separator, ".")
    around, _, last = text.rpartition(".")
    return around, last


def _start_of(workspace: Workspace, path: str) -> str:
    name = workspace.check_name(path, write=False)
    if workspace.stat(path).kind != "dir":
        # Raises and gives the reason for what no tool may read: links, pipes, other hard links.
        workspace.open(path).close()
    return name


def _is_below(path: str, start: str) -> bool:
    return not start or path == start or path.startswith(f"{start}/")


def _is_readable(workspace: Workspace, path: str) -> bool:
    return workspace.names.check(path, write=False) is None


@tool(side_effect="read", risk="low", impossible=require_ranges(max_results=(1, MAX_DEFINITIONS)))
async def find_symbol(
    name: Annotated[
        str, "Name of a class, function, method, type or constant; `Model.save` narrows it."
    ],
    context: Context,
    path: Annotated[str, READS, "Only definitions in this file or folder."] = ".",
    show_source: Annotated[
        bool, "Show the text of the definitions with line numbers, if there are at most three."
    ] = False,
    max_results: Annotated[int, "Most definitions, 1 to 200."] = 30,
) -> str:
    """Find where a name is defined in the source files of the workspace. Returns rows
    `file:first-last: kind: definition`. If no name is the same, names that contain it are found.
    """
    start = _start_of(context.resource(Workspace), path)
    around, last = _split_name(name)
    if not last:
        raise invalid_arguments("`name` is empty")
    store, workspace, notes = await _refresh(context)

    def look() -> tuple[list[Found], bool]:
        for contains in (False, True):
            found = [
                one
                for one in store.find_definitions(last, contains=contains, limit=_MAX_FOUND)
                if _is_below(one.path, start)
                and _is_readable(workspace, one.path)
                and _is_around(around, one)
            ]
            if found:
                return sorted(found, key=lambda one: _order(one, last)), contains
        return [], False

    found, similar = await run_blocking(look)
    shown = make_printable(name)
    if not found:
        return "\n".join([f"no definition of `{shown}` found", *notes])
    rows = [_format_definition(one) for one in found[:max_results]]
    if similar:
        rows.insert(0, f"nothing is called `{shown}`; these names contain it:")
    if len(found) > max_results:
        notes.append(f"[{len(found) - max_results} more; narrow `name` or `path`]")
    if show_source and len(found) <= _MAX_SOURCES:
        rows += [await run_blocking(lambda one=one: _show_source(workspace, one)) for one in found]
    return "\n".join([*rows, *notes])


def _is_around(around: str, one: Found) -> bool:
    """Whether a definition is inside of what was named: `Model` in `a.b.Model`."""
    container = f".{one.definition.container}".lower()
    return not around or container.endswith(f".{around.lower()}")


def _order(one: Found, name: str) -> tuple[bool, bool, int, str, int]:
    definition = one.definition
    return (
        definition.name != name,
        definition.kind in ("declaration", "impl"),
        len(definition.name),
        one.path,
        definition.line,
    )


def _format_definition(one: Found) -> str:
    definition = one.definition
    inside = f" (in {make_printable(definition.container)})" if definition.container else ""
    lines = f"{definition.line}-{definition.end}"
    head = make_printable(definition.head)
    return f"{make_printable(one.path)}:{lines}: {definition.kind}: {head}{inside}"


def _show_source(workspace: Workspace, one: Found) -> str:
    definition = one.definition
    text = _read_lines(workspace, one.path)
    if text is None:
        return f"[{make_printable(one.path)} cannot be read now]"
    last = min(definition.end, definition.line + _MAX_SOURCE_LINES - 1, len(text))
    rows = [f"{number}: {text[number - 1].rstrip()}" for number in range(definition.line, last + 1)]
    if last < definition.end:
        rows.append(f"[lines to {definition.end} are not shown; `read_file` has them]")
    return "\n".join(["", f"{make_printable(one.path)}:", *rows])


def _read_lines(workspace: Workspace, path: str) -> list[str] | None:
    try:
        return split_lines(workspace.read_text(path, limit=MAX_FILE_SIZE))
    except ToolFailed:
        return None


@tool(side_effect="read", risk="low", impossible=require_ranges(max_results=(1, MAX_REFERENCES)))
async def find_references(
    name: Annotated[str, "The name, as it is written in the code."],
    context: Context,
    path: Annotated[str, READS, "Only uses in this file or folder."] = ".",
    max_results: Annotated[int, "Most lines, 1 to 1000."] = 100,
) -> str:
    """Find where a name is used in the source files of the workspace: not in comments, in texts or
    as a part of other names. Returns rows `line (definition around it): text`, by file. The name is
    all that is compared: uses of another thing with the same name are found too.
    """
    start = _start_of(context.resource(Workspace), path)
    _, last = _split_name(name)
    if not last:
        raise invalid_arguments("`name` is empty")
    store, workspace, notes = await _refresh(context)
    answer = await run_blocking(lambda: _collect_uses(store, workspace, last, start, max_results))
    return "\n".join([*answer, *notes])


def _collect_uses(
    store: IndexStore, workspace: Workspace, name: str, start: str, most: int
) -> list[str]:
    uses = [
        (path, lines)
        for path, lines in store.find_uses(name)
        if _is_below(path, start) and _is_readable(workspace, path)
    ]
    total = sum(len(lines) for _, lines in uses)
    rows: list[str] = []
    shown = 0
    changed = 0
    for path, lines in uses:
        part = lines[: max(0, most - shown)]
        if not part:
            break
        text = _read_lines(workspace, path) or []
        kept = [line for line in part if line <= len(text) and name in text[line - 1]]
        changed += len(part) - len(kept)
        shown += len(part)
        if kept:
            rows += _format_uses(store, path, kept, text, name)
    what = f"{format_count(total, 'line')} in {format_count(len(uses), 'file')}"
    head = f"`{make_printable(name)}` is used on {what}"
    if total > shown:
        rows.append(f"[{total - shown} more lines; narrow `path` or raise `max_results`]")
    if changed:
        rows.append(f"[{changed} lines have changed in this moment; ask again]")
    return [head, *rows]


def _format_uses(
    store: IndexStore, path: str, lines: Sequence[int], text: Sequence[str], name: str
) -> Iterator[str]:
    file = store.find(path)
    inside = list(store.definitions_of([file.id])) if file is not None else []
    yield f"\n{make_printable(path)}"
    for line in lines:
        row = text[line - 1].rstrip()
        cut = cut_around(row.strip(), max(0, row.strip().find(name)))
        around = _find_around(inside, line)
        yield f"{line}{around}: {cut}"


def _find_around(inside: Sequence[Found], line: int) -> str:
    """Return the innermost definition around a line, in parentheses."""
    best = ""
    for one in inside:
        definition = one.definition
        if definition.line > line:
            break
        if line <= definition.end and definition.end > definition.line:
            outer = f"{definition.container}." if definition.container else ""
            best = f" ({make_printable(outer + definition.name)})"
    return best


@tool(side_effect="read", risk="low", impossible=require_ranges(tokens=(100, MAX_BUDGET)))
async def code_outline(
    context: Context,
    path: Annotated[str, READS, "Only this file or folder; the whole workspace if left out."] = ".",
    tokens: Annotated[int, "About how long the outline may be, 100 to 8000 tokens."] = 1500,
) -> str:
    """Outline the source files of the workspace: the definitions that the rest of the code uses
    most, by file, with line numbers. Begin here in a repository that you do not know.
    """
    start = _start_of(context.resource(Workspace), path)
    _, workspace, notes = await _refresh(context)
    index = find_index(context)

    def allows(name: str) -> bool:
        return _is_below(name, start) and _is_readable(workspace, name)

    text = await run_blocking(lambda: make_outline(index, allows, tokens))
    return "\n".join([text, *notes])


TOOLS: tuple[Tool, ...] = with_examples(find_symbol, find_references, code_outline)
