"""From what a model wrote to a name relative to the workspace: text only, no I/O.

The rules: forward slashes; `.` and empty components vanish; `..` takes back the component before it
*as text* (so `link/../x` is `x`, whatever `link` points to) and may not lead above the root; an
absolute path counts only if the root is its beginning, component by component. Nothing is expanded:
not `~`, not `$HOME`, no percent signs.

Passing here says only that the text lies in the workspace. That the file does too is the work of
`permissions.filesystem.open_beneath`, which follows no link.
"""

from __future__ import annotations

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.invisible_characters import exact
from ferrule.core.lazy_patterns import expression

LONGEST = 4096
"""Characters of a path (requirement 000 as shipped; PATH_MAX on Linux)."""

_DRIVE = expression(r"[A-Za-z]:(?:[/\\]|$)")
_HOME = expression(r"~[A-Za-z0-9_.+-]*(?:/|$)")
_CONTROL = expression(r"[\x00-\x1f\x7f]")
_RELATIVE = "use a path relative to the workspace"


def parts(path: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """The components below the root; empty for the root itself.

    `roots` are the spellings of the root that an absolute path may start with. Raises ToolFailed:
    permission_denied for what leads out, validation_failed for what is no path.
    """
    _check_text(path)
    if path.startswith("\\"):
        raise _denied(path, f"names a drive or a server; {_RELATIVE}")
    _check_start(path, path)
    if "\\" in path:
        raise _invalid(path, "contains a backslash; write `/` between folders")
    found = _below_root(path, roots) if path.startswith("/") else _resolved(path)
    if found is None:
        raise _denied(path, f"leads out of the workspace; {_RELATIVE}")
    # Again, for `./~/x`: a name that we hand on must mean the same to whoever reads it next.
    _check_start("/".join(found), path)
    return found


def shown(path: str) -> str:
    """A path in back-ticks for a message: control characters escaped, at most 200 characters."""
    printable = exact(path, keep="")
    if len(printable) > 200:
        printable = printable[:100] + "…" + printable[-99:]
    return f"`{printable or '.'}`"


def _check_text(path: str) -> None:
    if len(path) > LONGEST:
        raise _invalid(path, f"is {len(path)} characters long; the most is {LONGEST}")
    if _CONTROL.search(path):
        raise _invalid(path, "contains a control character")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise _invalid(path, "is not valid Unicode text") from None


def _check_start(text: str, path: str) -> None:
    if _DRIVE.match(text):
        raise _denied(path, f"names a drive or a server; {_RELATIVE}")
    if _HOME.match(text):
        raise _denied(path, f"starts with `~`, which is not expanded; {_RELATIVE}")


def _below_root(path: str, roots: tuple[str, ...]) -> tuple[str, ...] | None:
    absolute = _resolved(path) or ()
    for root in roots:
        start = tuple(part for part in root.split("/") if part)
        if absolute[: len(start)] == start:
            return absolute[len(start) :]
    return None


def _resolved(path: str) -> tuple[str, ...] | None:
    """The components after `.` and `..` are worked out as text; None if they lead above where they
    began.

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


def _denied(path: str, what: str) -> ToolFailed:
    return ToolFailed(ErrorType.PERMISSION_DENIED, f"{shown(path)} {what}")


def _invalid(path: str, what: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, f"{shown(path)} {what}")
