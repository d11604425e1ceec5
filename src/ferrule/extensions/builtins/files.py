"""`fs.*`: files and folders of the workspace, through the run's own file tools.

Not protected: `append` and `copy` read and then write, so changes that another program makes in
between are lost.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Awaitable, Callable
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.extensions.tool_files.internal_tools import PIECE_SIZE

from .scope import Scope, result_data, tool_error, usage_error

TEXT_LIMIT = 4 << 20
"""Characters of one file that `fs.read` assembles at most."""
DIFF_LIMIT = 20_000
"""Lines of a file that `fs.diff` compares at most: the time grows with their square."""
_MOST_PATHS = 5_000
"""What `file_tree` lists at most."""


async def read(scope: Scope, path: str) -> str:
    pieces: list[str] = []
    offset: int | None = 0
    limit = PIECE_SIZE
    while offset is not None:
        result = await scope.call_shipped_tool(
            "read_text", {"path": path, "offset": offset, "limit": limit}
        )
        if result.success and result.partial and limit > 256:
            limit //= 4  # Its characters take many bytes, or this run limits results.
            continue
        piece = result_data(result, "read_text")
        pieces.append(piece["text"])
        offset = piece["next"]
        if offset is not None and offset > TEXT_LIMIT:
            raise ToolFailed(
                ErrorType.LIMIT, f"`fs.read`: `{path}` has more than {TEXT_LIMIT} characters"
            )
    return "".join(pieces)


async def _lines(scope: Scope, path: str) -> list[str]:
    lines = (await read(scope, path)).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


async def read_lines(scope: Scope, path: str, first: int = 1, last: int | None = None) -> list[str]:
    return (await _lines(scope, path))[max(0, first - 1) : last]


async def line_count(scope: Scope, path: str) -> int:
    return len(await _lines(scope, path))


async def write(scope: Scope, path: str, content: str) -> int:
    await scope.call_for_value("write_file", path=path, content=content)
    return len(content.encode())


async def append(scope: Scope, path: str, content: str) -> int:
    before = await read(scope, path) if await exists(scope, path) else ""
    return await write(scope, path, before + content)


async def copy(scope: Scope, source: str, target: str) -> int:
    return await write(scope, target, await read(scope, source))


async def exists(scope: Scope, path: str) -> bool:
    result = await scope.call_shipped_tool("stat_path", {"path": path})
    if result.success:
        return True
    is_tool_missing = "there is no tool" in (result.error_message or "")
    if result.error_type is ErrorType.NOT_FOUND and not is_tool_missing:
        return False
    raise tool_error(result, "stat_path")


async def stat(scope: Scope, path: str) -> Any:
    return await scope.call_for_value("stat_path", path=path)


async def list_folder(scope: Scope, path: str = ".") -> list[Any]:
    entries: list[Any] = []
    skip: int | None = 0
    while skip is not None:
        page = await scope.call_for_value("stat_path", path=path, entries=True, skip=skip)
        entries += page["entries"]
        skip = page["next"]
    return entries


async def _paths(scope: Scope, path: str) -> list[str]:
    return cast(
        "list[str]", await scope.call_for_value("file_tree", path=path, max_entries=_MOST_PATHS)
    )


async def find(scope: Scope, path: str = ".", pattern: str = "*") -> list[str]:
    paths = await _paths(scope, path)
    return [path for path in paths if fnmatch.fnmatchcase(path.rpartition("/")[2] or path, pattern)]


async def glob(scope: Scope, pattern: str) -> list[str]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise usage_error(f"`fs.glob`: `{pattern}` is not a pattern of paths below the workspace")
    literal = 0
    while literal < len(parts) - 1 and not _has_wildcards(parts[literal]):
        literal += 1
    start = "/".join(parts[:literal])
    if start and not await exists(scope, start):
        return []
    paths = await _paths(scope, start or ".")
    return [path for path in paths if _matches(path.rstrip("/@").split("/"), parts)]


def _has_wildcards(part: str) -> bool:
    return any(sign in part for sign in "*?[")


def _matches(names: list[str], parts: list[str]) -> bool:
    """Return whether a path matches a pattern, name by name; `**` is any number of folders.

    The time grows with the product of both lengths.
    """
    # reached[n]: the parts so far match the first n names.
    reached = [True, *(False for _ in names)]
    for part in parts:
        if part == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [n >= first for n in range(len(reached))]
            continue
        matches = (fnmatch.fnmatchcase(name, part) for name in names)
        reached = [False, *(before and now for before, now in zip(reached, matches, strict=False))]
    return reached[-1]


async def diff(scope: Scope, old: str, new: str) -> str:
    before = await _lines(scope, old)
    after = await _lines(scope, new)
    if max(len(before), len(after)) > DIFF_LIMIT:
        raise ToolFailed(ErrorType.LIMIT, f"`fs.diff`: a file has more than {DIFF_LIMIT} lines")
    return "\n".join(difflib.unified_diff(before, after, old, new, lineterm=""))


async def mkdir(scope: Scope, path: str) -> None:
    await scope.call_for_value("create_dir", path=path)


async def move(scope: Scope, source: str, target: str, overwrite: bool = False) -> None:
    await scope.call_for_value("move_path", source=source, target=target, overwrite=overwrite)


async def remove(scope: Scope, path: str, recursive: bool = False) -> None:
    await scope.call_for_value("delete_path", path=path, recursive=recursive)


async def replace(scope: Scope, path: str, old: str, new: str) -> None:
    await scope.call_for_value("edit_file", path=path, old_string=old, new_string=new)


async def replace_all(scope: Scope, path: str, old: str, new: str) -> None:
    await scope.call_for_value(
        "edit_file", path=path, old_string=old, new_string=new, replace_all=True
    )


async def insert_at(scope: Scope, path: str, line: int, text: str) -> None:
    await scope.call_for_value("insert_lines", path=path, line_start=line, new_content=text)


async def replace_lines(scope: Scope, path: str, first: int, last: int, text: str) -> None:
    await scope.call_for_value(
        "replace_lines", path=path, line_start=first, line_end=last, new_content=text
    )


async def delete_lines(scope: Scope, path: str, first: int, last: int) -> None:
    await replace_lines(scope, path, first, last, "")


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "fs.read": read,
    "fs.read_lines": read_lines,
    "fs.line_count": line_count,
    "fs.write": write,
    "fs.append": append,
    "fs.copy": copy,
    "fs.exists": exists,
    "fs.stat": stat,
    "fs.list": list_folder,
    "fs.find": find,
    "fs.glob": glob,
    "fs.diff": diff,
    "fs.mkdir": mkdir,
    "fs.move": move,
    "fs.remove": remove,
    "fs.replace": replace,
    "fs.replace_all": replace_all,
    "fs.insert_at": insert_at,
    "fs.replace_lines": replace_lines,
    "fs.delete_lines": delete_lines,
}
