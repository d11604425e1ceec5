"""Calls written as Python: `[f(a=1), g(b="x")]`, `f(a=1)`, `result = f(a=1)`, `print(f(a=1))`.

They are read with `ast`, literals only: nothing is evaluated. JSON's `true`, `false` and `null` are
understood.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, cast

from ferrule.core.calls import ToolCall

from . import lenient_json
from .brackets import find_closing_bracket
from .dialect import BodyEnding, FoundCall, ParsedBody
from .offered_tools import OfferedTools

LOOKS_LIKE_CALL = re.compile(r"\[?\s*[A-Za-z_][\w.]*\s*\(")
_LARGEST = 200_000
_KEYWORDS = frozenset(keyword.kwlist)
_JSON_NAMES: dict[str, Any] = {"true": True, "false": False, "null": None}
_HEAD = re.compile(r"\[?\s*([A-Za-z_][\w.]*)\s*\(")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_PREFIX = ("default_api.", "functions.", "tools.")


class _NotLiteral(ValueError):
    """Raised for an expression that would have to be evaluated."""


def read_python(text: str, tools: OfferedTools) -> list[FoundCall] | None:
    """Return the calls that a text of Python consists of, or None if anything else is in it."""
    tree = _parse(text)
    if tree is None or not tree.body:
        return None
    found: list[FoundCall] = []
    for statement in tree.body:
        value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        if value is None:
            return None
        calls = list(_calls(value))
        if not calls:
            return None
        found += [_read_call(call, text, tools) for call in calls]
    return None if any(not call.tool for call in found) else found


def _parse(text: str) -> ast.Module | None:
    if len(text) > _LARGEST:
        return None
    try:
        with warnings.catch_warnings():
            # A pattern such as "\d" draws a SyntaxWarning; it is the model's text, not our code.
            warnings.simplefilter("ignore")
            return ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _calls(node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of an expression; a call without a name for an element that is none."""
    if isinstance(node, (ast.List, ast.Tuple)):
        for element in node.elts:
            inner = list(_calls(element))
            if not inner:
                yield ast.Call(ast.Constant(None), [], [])
            yield from inner
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "print" and len(node.args) == 1:
            yield from _calls(node.args[0])
        else:
            yield node


def _read_call(call: ast.Call, text: str, tools: OfferedTools) -> FoundCall:
    name = _read_name(call.func)
    try:
        values, repairs = _read_arguments(call, name, tools)
    except _NotLiteral:
        source = ast.get_source_segment(text.strip(), call) or text
        return FoundCall(name, source[source.find("(") :])
    return FoundCall(name, lenient_json.encode(values), repairs)


def _read_name(func: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(func, ast.Attribute):
        parts.append(func.attr)
        func = func.value
    if not isinstance(func, ast.Name):
        return ""
    name = ".".join([func.id, *reversed(parts)])
    for prefix in _PREFIX:
        name = name.removeprefix(prefix)
    return name.removesuffix(".call")


def _read_arguments(
    call: ast.Call, name: str, tools: OfferedTools
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments of a call, and the repairs. Raises _NotLiteral."""
    values: dict[str, Any] = {}
    for named in call.keywords:
        value = _literal(named.value)
        if named.arg is not None:
            values[named.arg] = value
        elif isinstance(value, dict):
            values.update(cast("dict[str, Any]", value))  # `_literal` made the keys text
        else:
            raise _NotLiteral
    if not call.args:
        return values, ()
    free = [parameter for parameter in tools.parameters(name) if parameter not in values]
    if len(call.args) > len(free):
        raise _NotLiteral
    placed = dict(zip(free, map(_literal, call.args), strict=False))
    said = ", ".join(f"`{parameter}`" for parameter in placed)
    return placed | values, (f"values without names were taken as {said}",)


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None) if node.value not in (
            float("inf"),
            -float("inf"),
        ):
            return node.value
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)) if (
            not isinstance(number, bool)
        ):
            return -number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
        case _:
            raise _NotLiteral


def _key(node: ast.expr | None) -> str:
    value = _literal(node) if node is not None else None
    if not isinstance(value, str):
        raise _NotLiteral
    return value


def read_pythonic(body: str, ending: BodyEnding, tools: OfferedTools) -> ParsedBody | None:
    """Read a pythonic list between marks, or a call after a mark."""
    text = body.strip()
    if not LOOKS_LIKE_CALL.match(text):
        return None
    found = read_python(text, tools)
    if found is not None:
        return ParsedBody(list[FoundCall | str](found))
    if ending is BodyEnding.CLOSED:
        return None
    parsed = ParsedBody()
    at = len(body) - len(body.lstrip())
    while ending is BodyEnding.OPEN and LOOKS_LIKE_CALL.match(body, at):
        end = find_closing_bracket(body, at if body[at] == "[" else body.find("(", at))
        found = read_python(body[at:end], tools) if end is not None else None
        if end is None or not found:
            broken = _read_broken(body[at:].strip(), ending)
            return ParsedBody([*parsed.items, *broken.items]) if broken else None
        parsed.items += found
        at = end + len(body[end:]) - len(body[end:].lstrip())
    if parsed.items:
        parsed.rest = at
        return parsed
    return _read_broken(text, ending)


def _read_broken(text: str, ending: BodyEnding) -> ParsedBody | None:
    head = _HEAD.match(text)
    if head is None:
        return None
    name = head.group(1).removesuffix(".call")
    return ParsedBody([FoundCall(name, text[head.end() - 1 :], cut=ending is BodyEnding.OPEN)])


def read_cut_python(text: str, tools: OfferedTools) -> list[FoundCall] | None:
    """Return the call in which a pythonic reply ended; None if it calls no tool on offer."""
    head = _HEAD.match(text.strip())
    if head is None or not tools.has_similar(head.group(1)):
        return None
    parsed = _read_broken(text.strip(), BodyEnding.OPEN)
    return parsed.calls if parsed else None


def render_python(call: ToolCall) -> str | None:
    """Write a call as Python; None if its name or its arguments cannot be written so."""
    decoded = lenient_json.decode_strictly(call.arguments)
    values = lenient_json.as_object(decoded[0]) if decoded else None
    if values is None or not _IDENTIFIER.fullmatch(call.tool) or call.tool == "print":
        return None
    if any(part in _KEYWORDS for part in call.tool.split(".")) or call.tool.endswith(".call"):
        return None
    if call.tool.startswith(_PREFIX):
        return None
    named = {
        k: v for k, v in values.items() if k.isidentifier() and k.isascii() and k not in _KEYWORDS
    }
    parts = [f"{key}={value!r}" for key, value in named.items()]
    others = {k: v for k, v in values.items() if k not in named}
    if others:
        parts.append(f"**{others!r}")
    return f"{call.tool}({', '.join(parts)})"


def render_pythonic(calls: Sequence[ToolCall]) -> str:
    """Write calls as `[f(a=1), g()]`, or as a JSON list where Python cannot write them."""
    written = [render_python(call) for call in calls]
    if any(part is None for part in written):
        return render_json_list(calls)
    return f"[{', '.join(part for part in written if part)}]"


def render_json_list(calls: Sequence[ToolCall]) -> str:
    """Write calls as `[{"name": …, "arguments": {…}}]`."""
    return f"[{', '.join(render_json(call) for call in calls)}]"


def render_json(call: ToolCall, *, key: str = "arguments") -> str:
    """Write a call as `{"name": …, "arguments": {…}}`.

    Arguments that are no JSON object are written as a string. `key` is the name of their member.
    """
    arguments = call.arguments
    decoded = lenient_json.decode_strictly(arguments)
    is_object = (
        decoded is not None and isinstance(decoded[0], dict) and not arguments[decoded[1] :].strip()
    )
    if not is_object:
        arguments = lenient_json.encode(arguments)
    return f'{{"name": {lenient_json.encode(call.tool)}, "{key}": {arguments}}}'
