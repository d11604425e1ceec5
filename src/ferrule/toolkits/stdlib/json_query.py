"""`json::query`: parts of a JSON document, by pointer (RFC 6901) or by path (`json_path`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, NoReturn, TypedDict, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed

from .json_path import Node, select_nodes
from .text import check_text
from .typed import typed_tool

MAX_DEPTH = 500
"""Most levels of nested values."""
MAX_MATCHES = 1_000
_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


class Found(TypedDict):
    """A value and its place: a JSON Pointer, which can be queried again."""

    pointer: str
    value: Any


class Selected(TypedDict):
    """The matches. `partial`: there are more than `limit`."""

    matches: list[Found]
    count: int
    partial: bool


@typed_tool(
    "json",
    examples=[
        {
            "request": 'Take the name of the first user from {"users": [{"name": "Ada"}]}',
            "arguments": {"document": {"users": [{"name": "Ada"}]}, "path": "/users/0/name"},
        }
    ],
)
def query(
    document: Annotated[Any, "A JSON value, or JSON as text."],
    path: Annotated[
        str,
        "A JSON Pointer such as `/users/0/name`, or a JSONPath such as `$.users[*].name`, `$..id`, "
        '`$.users[?@.age >= 18 && @.state == "open"]`.',
    ],
    limit: Annotated[int, "Stop after this many matches, 1 to 1000."] = 100,
) -> Selected:
    """Take values out of a JSON document. A pointer names one value and fails where there is none;
    a path selects any number.
    """
    if not 1 <= limit <= MAX_MATCHES:
        raise RetryCall(f"`limit` must be from 1 to {MAX_MATCHES}, found {limit}")
    value = _read_document(document)
    nodes = (
        select_nodes(value, path) if path.startswith("$") else iter([_follow_pointer(value, path)])
    )
    return _collect(nodes, limit)


def _collect(nodes: Iterator[Node], limit: int) -> Selected:
    found = [Found(pointer=place, value=value) for place, value in islice(nodes, limit + 1)]
    return Selected(matches=found[:limit], count=min(len(found), limit), partial=len(found) > limit)


def _read_document(document: Any) -> Any:
    if not isinstance(document, str):
        return document
    check_text(document, "document")
    if _depth(document) > MAX_DEPTH:
        raise ToolFailed(
            ErrorType.LIMIT,
            f"`document` has more than {MAX_DEPTH} values within each other; pass a part of it",
        )
    try:
        return json.loads(document, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0][:200]
        raise ToolFailed(
            ErrorType.PARSE_ERROR,
            f"`document` is not JSON: {reason}; pass it as a value or correct it",
        ) from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is no JSON number")


def _depth(text: str) -> int:
    """Return an upper bound of the depth: brackets within texts are counted as well."""
    depth = 0
    most = 0
    for sign in re.findall(r"[\[{\]}]", text):
        depth += 1 if sign in "[{" else -1
        most = max(most, depth)
    return most


def _follow_pointer(document: Any, pointer: str) -> Node:
    if pointer and not pointer.startswith("/"):
        raise RetryCall(
            f"`path` = `{pointer[:60]}` is neither a pointer, which begins with `/`, nor a "
            "path, which begins with `$`"
        )
    value = document
    place = ""
    for written in pointer.split("/")[1:]:
        if re.search(r"~(?![01])", written):
            raise RetryCall(
                "`path`: in a pointer `~` is written `~0` and `/` within a name `~1`, found "
                f"`{written[:60]}`"
            )
        value = _step(value, written.replace("~1", "/").replace("~0", "~"), place)
        place += f"/{written}"
    return place, value


def _step(value: Any, token: str, place: str) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if token in members:
            return members[token]
        names = ", ".join(f"`{name[:40]}`" for name in islice(members, 20))
        raise _build_not_found(token, place, f"an object with {names or 'no members'}")
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if _INDEX.fullmatch(token) and len(token) < 10 and int(token) < len(items):
            return items[int(token)]
        raise _build_not_found(token, place, f"an array of {len(items)} (its first is `0`)")
    raise _build_not_found(token, place, "a single value")


def _build_not_found(token: str, place: str, what: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.NOT_FOUND,
        f"there is no `{token[:60]}` at {place[:200] or 'the top'}, which is {what}; name "
        "one that is there",
    )
