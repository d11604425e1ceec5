"""Turns a path that a model wrote into a name relative to the workspace. Text only, no I/O.

Paths use forward slashes; `.` and empty components are dropped; `..` removes the component before
it *as text* (so `link/../x` is `x`, whatever `link` points to) and may not lead above the root; an
absolute path must start with the root, component by component. Nothing is expanded: not `~`, not
`$HOME`, no percent signs.

A path that passes is only inside the workspace as text. `open_beneath`, which follows no link,
makes sure that the file is, too.
"""

from __future__ import annotations

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.lazy_patterns import compile_lazily

MAX_PATH_LENGTH = 4096
"""The most characters of a path (requirement 000 as shipped; PATH_MAX on Linux)."""

_DRIVE = compile_lazily(r"[A-Za-z]:(?:[/\\]|$)")
_HOME = compile_lazily(r"~[A-Za-z0-9_.+-]*(?:/|$)")
_CONTROL = compile_lazily(r"[\x00-\x1f\x7f]")
_USE_RELATIVE = "use a path relative to the workspace"


def split_below_root(path: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return the components of a path below the root; none for the root itself.

    Args:
        path: What the model wrote.
        roots: The spellings of the root that an absolute path may start with.

    Raises:
        ToolFailed: permission_denied if the path leads out of the workspace, validation_failed if
            it is not a path.
    """
    _check_text(path)
    if path.startswith("\\"):
        raise _build_denial(path, f"names a drive or a server; {_USE_RELATIVE}")
    _check_start(path, path)
    if "\\" in path:
        raise _invalid(path, "contains a backslash; write `/` between folders")
    found = _below_root(path, roots) if path.startswith("/") else _resolve(path)
    if found is None:
        raise _build_denial(path, f"leads out of the workspace; {_USE_RELATIVE}")
    # Again, for `./~/x`: the name must mean the same to whoever reads it next.
    _check_start("/".join(found), path)
    return found


def quote_path(path: str) -> str:
    """Return a path in backticks for a message, escaped and with at most 200 characters."""
    printable = escape_for_approval(path, keep="")
    if len(printable) > 200:
        printable = printable[:100] + "…" + printable[-99:]
    return f"`{printable or '.'}`"


def _check_text(path: str) -> None:
    if len(path) > MAX_PATH_LENGTH:
        raise _invalid(path, f"is {len(path)} characters long; the most is {MAX_PATH_LENGTH}")
    if _CONTROL.search(path):
        raise _invalid(path, "contains a control character")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise _invalid(path, "is not valid Unicode text") from None


def _check_start(text: str, path: str) -> None:
    if _DRIVE.match(text):
        raise _build_denial(path, f"names a drive or a server; {_USE_RELATIVE}")
    if _HOME.match(text):
        raise _build_denial(path, f"starts with `~`, which is not expanded; {_USE_RELATIVE}")


def _below_root(path: str, roots: tuple[str, ...]) -> tuple[str, ...] | None:
    absolute = _resolve(path) or ()
    for root in roots:
        start = tuple(part for part in root.split("/") if part)
        if absolute[: len(start)] == start:
            return absolute[len(start) :]
    return None


def _resolve(path: str) -> tuple[str, ...] | None:
    """Resolve `.` and `..` as text; None if a relative path leads above its start.

    An absolute path cannot: `/..` is `/`.
    """
    found: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if found:
                found.pop()
            elif not path.startswith("/"):
                return None
        elif part not in ("", "."):
            found.append(part)
    return tuple(found)


def _build_denial(path: str, reason: str) -> ToolFailed:
    return ToolFailed(ErrorType.PERMISSION_DENIED, f"{quote_path(path)} {reason}")


def _invalid(path: str, reason: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, f"{quote_path(path)} {reason}")
