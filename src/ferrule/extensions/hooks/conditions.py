"""`when`: a small language that says whether a hook is asked. Pure by construction: it can look at
the payload and nothing else.

    name == "run_command" and glob(arguments["command"], "git push*")

    expression = or ;           or = and {"or" and} ;           and = not {"and" not} ;       not = ["not"] comparison ;
    comparison = value {("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in") value} ;
    value = text | number | "True" | "False" | "None" | list | name | value "[" value "]" | value "." key | call | "(" or ")" ;
    list = "[" [value {"," value}] "]" ;                        call = function "(" value {"," value} ")" ;

Names are `event`, `payload`, and the payload's own keys (`name`, `arguments`, `text`, …);
`payload.arguments.path` is `payload["arguments"]["path"]`. The spelling is Python's and Starlark's.
Functions:

    glob(text, pattern)        the whole text; `*` any run of characters, `?` one
    regex(text, pattern)       anywhere in the text; Rust's syntax, in time linear in the text, no look-around or back-references
    starts(text, start)   ends(text, end)   lower(text)   length(value)   has(object, key)   get(object, key, default)

An expression has at most 2,000 characters and 200 parts, and every part costs at most what its
operands hold. A key that is not there, an order of different kinds, a text where an object was
meant: an error, and an error is a broken hook, which blocks. (`get` and `has` are for keys that may
be missing.) So a guard with a misspelt key is loud instead of silent.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import PAYLOADS, Custom, Occasion
from ferrule.tools.safe_patterns import compile_regex, matches_glob

MOST_CHARACTERS = 2000
MOST_PARTS = 200
LONGEST_TEXT = 1 << 20
"""Characters of a text that `glob` and `regex` look through; a longer one is an error."""


class WhenError(ValueError):
    """A condition that cannot be decided. The hook counts as broken."""


@dataclass(frozen=True, slots=True)
class When:
    """A parsed condition. Calling it decides it; raises WhenError."""

    text: str
    tree: ast.expr

    def __call__(self, occasion: Occasion) -> bool:
        return decide(self, occasion.event, occasion.payload.as_dict())


def parse_when(
    text: str, where: str = "when", line: int = 1, column: int = 1, events: tuple[str, ...] = ()
) -> When:
    """Parse a condition. Raises ConfigError with the place: `where:line:column`, counted from where
    the text begins.

    With `events`, a name that none of them has is refused, so that it cannot hide behind an `and`.
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"{where}:{line}:{column}: a condition of {len(text)} characters, the bound is "
            f"{MOST_CHARACTERS}"
        )
    try:
        # In brackets a condition may go over several lines. One that closes ours begins in the
        # first line, where ours stands.
        tree = ast.parse(f"(\n{text}\n)", mode="eval").body
        if tree.lineno == 1:
            raise _Refused(tree, "not one condition")
        if len(list(ast.walk(tree))) > 2 * MOST_PARTS:
            raise _Refused(tree, f"more than {MOST_PARTS} parts")
        _check(tree)
        _check_names(tree, events)
    except SyntaxError as error:
        said = _at(where, line, column, error.lineno, error.offset, f"not a condition: {error.msg}")
        raise ConfigError(said) from error
    except _Refused as error:
        node = error.node
        said = _at(where, line, column, node.lineno, node.col_offset + 1, error.why)
        raise ConfigError(
            said, hint="`ferrule.extensions.hooks.conditions` lists what there is"
        ) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise ConfigError(
            f"{where}:{line}:{column}: not a condition: {error or 'nested too deeply'}"
        ) from error
    return When(text, tree)


def decide(when: When, event: str, payload: Mapping[str, Any]) -> bool:
    """Whether a condition holds for a payload. Raises WhenError; the answer must be true or false,
    nothing that resembles it.
    """
    try:
        value = _value(when.tree, {**payload, "event": event, "payload": payload})
    except (KeyError, TypeError, IndexError, RecursionError) as error:
        raise WhenError(f"`when` could not be decided: {type(error).__name__}: {error}") from error
    if not isinstance(value, bool):
        raise WhenError(f"`when` gave {type(value).__name__}, not true or false")
    return value


def _at(where: str, line: int, column: int, row: int | None, offset: int | None, why: str) -> str:
    # The first line that was parsed is our bracket; the text's own first line begins at `column`.
    row = max((row or 2) - 2, 0)
    offset = max(offset or 1, 1)
    return f"{where}:{line + row}:{offset + column - 1 if row == 0 else offset}: {why}"


# ---- what an expression may hold


class _Refused(Exception):
    def __init__(self, node: ast.expr, why: str) -> None:
        super().__init__(why)
        self.node = node
        self.why = why


def _check(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return
        case ast.Name(id=name):
            if name in _FUNCTIONS:
                raise _Refused(node, f"`{name}` is a function: `{name}(…)`")
            if name.startswith("_"):
                raise _Refused(node, f"the name `{name}`")
        case ast.Attribute(value=value, attr=key):
            if key.startswith("_"):
                raise _Refused(node, f"the key `{key}`")
            _check(value)
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]):
            _check_call(node, name, given)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=value):
            _check(value)
        case ast.Subscript(value=value, slice=key):
            _check(value)
            _check(key)
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            for part in parts:
                _check(part)
        case ast.Compare(left=left, ops=operators, comparators=others):
            for operator in operators:
                if type(operator) not in _COMPARE:
                    raise _Refused(
                        node, f"`{type(operator).__name__.lower()}` is not an operator here"
                    )
            for part in (left, *others):
                _check(part)
        case _:
            raise _Refused(node, f"a condition cannot hold a {type(node).__name__}")


def _check_names(tree: ast.expr, events: tuple[str, ...]) -> None:
    if not events:
        return
    known = {"event", "payload"}
    for event in events:
        known.update(PAYLOADS.get(event, Custom)().as_dict())
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in known and id(node) not in called:
            near = get_close_matches(node.id, known, 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise _Refused(node, f"{', '.join(events)} has no `{node.id}`{hint}")


def _check_call(node: ast.expr, name: str, given: list[ast.expr]) -> None:
    known = _FUNCTIONS.get(name)
    if known is None:
        raise _Refused(node, f"there is no function `{name}`; there are: {', '.join(_FUNCTIONS)}")
    if len(given) != known[0]:
        raise _Refused(node, f"`{name}` takes {known[0]} values, found {len(given)}")
    for one in given:
        _check(one)
    if name == "regex" and isinstance(given[1], ast.Constant) and isinstance(given[1].value, str):
        try:
            compile_regex(given[1].value)
        except ValueError as error:
            raise _Refused(given[1], str(error)) from error


# ---- what it means


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.Attribute(value=inner, attr=key):
            return _item(_value(inner, names), key)
        case ast.Subscript(value=inner, slice=key):
            return _item(_value(inner, names), _value(key, names))
        case ast.BoolOp(op=operator, values=parts):
            return _either(operator, parts, names)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not _truth(_value(inner, names))
        case ast.UnaryOp(operand=inner):
            return -_number(_value(inner, names))
        case ast.Compare(left=left, ops=operators, comparators=others):
            return _compared(left, operators, others, names)
        case ast.Call(func=ast.Name(id=name), args=given):
            return _FUNCTIONS[name][1](*[_value(one, names) for one in given])
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            items: list[Any] = [_value(part, names) for part in parts]
            return items
        case _:
            raise WhenError(f"`when` holds a {type(node).__name__}")


def _either(operator: ast.boolop, parts: list[ast.expr], names: Mapping[str, Any]) -> bool:
    stops_at = isinstance(operator, ast.Or)
    for part in parts:
        if _truth(_value(part, names)) is stops_at:
            return stops_at
    return not stops_at


def _compared(
    left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr], names: Mapping[str, Any]
) -> bool:
    before = _value(left, names)
    for operator, other in zip(operators, others, strict=True):
        after = _value(other, names)
        if not _COMPARE[type(operator)](before, after):
            return False
        before = after
    return True


def _truth(value: Any) -> bool:
    # A text is not "true": `name or "x"` in a guard is a mistake, and it would let everything
    # match.
    if not isinstance(value, bool):
        raise WhenError(f"`and`, `or` and `not` take true or false, found {type(value).__name__}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WhenError(f"`-` takes a number, found {type(value).__name__}")
    return value


def _item(value: Any, key: Any) -> Any:
    if isinstance(value, Mapping):
        found = cast("Mapping[Any, Any]", value)
        if key not in found:
            raise WhenError(
                f"there is no key {key!r}; there are: {', '.join(map(repr, list(found)[:20]))}"
            )
        return found[key]
    if isinstance(value, (list, tuple)) and isinstance(key, int) and not isinstance(key, bool):
        return cast("list[Any]", value)[key]
    raise WhenError(f"there is no item {key!r} in what is neither an object nor a list")


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def checked(a: Any, b: Any) -> bool:
        if isinstance(a, str) is not isinstance(b, str):
            raise WhenError(f"{type(a).__name__} and {type(b).__name__} have no order")
        return bool(compare(a, b))

    return checked


def _inside(a: Any, b: Any) -> bool:
    if isinstance(b, str):
        return _text(a) in b
    if not isinstance(b, (list, tuple, Mapping)):
        raise WhenError(f"`in` takes a text, a list or an object, found {type(b).__name__}")
    return a in cast("list[Any]", b)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WhenError(f"found {type(value).__name__} where a text was meant")
    if len(value) > LONGEST_TEXT:
        raise WhenError(f"a text of {len(value)} characters, the bound is {LONGEST_TEXT}")
    return value


def _has(value: Any, key: Any) -> bool:
    if not isinstance(value, Mapping):
        raise WhenError(f"`has` takes an object, found {type(value).__name__}")
    return key in value


def _get(value: Any, key: Any, default: Any) -> Any:
    return value[key] if _has(value, key) else default


def _length(value: Any) -> int:
    if not isinstance(value, (str, list, tuple, Mapping)):
        raise WhenError(f"`length` takes a text, a list or an object, found {type(value).__name__}")
    return len(cast("list[Any]", value))


def _regex(text: Any, pattern: Any) -> bool:
    return compile_regex(_text(pattern))(_text(text))


def _glob(text: Any, pattern: Any) -> bool:
    return matches_glob(_text(text), _text(pattern))


def _starts(text: Any, start: Any) -> bool:
    return _text(text).startswith(_text(start))


def _ends(text: Any, end: Any) -> bool:
    return _text(text).endswith(_text(end))


def _lower(text: Any) -> str:
    return _text(text).lower()


_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "glob": (2, _glob),
    "regex": (2, _regex),
    "starts": (2, _starts),
    "ends": (2, _ends),
    "lower": (1, _lower),
    "length": (1, _length),
    "has": (2, _has),
    "get": (3, _get),
}

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: _ordered(lambda a, b: a < b),
    ast.LtE: _ordered(lambda a, b: a <= b),
    ast.Gt: _ordered(lambda a, b: a > b),
    ast.GtE: _ordered(lambda a, b: a >= b),
    ast.In: _inside,
    ast.NotIn: lambda a, b: not _inside(a, b),
}
