"""`when`: a small language that decides whether a hook applies to an event.

It is pure by construction: it can look at the payload and at nothing else.

    name == "run_command" and glob(arguments["command"], "git push*")

    expression = or ;
    or = and {"or" and} ;
    and = not {"and" not} ;
    not = ["not"] comparison ;
    comparison = value {("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in") value} ;
    value = text | number | "True" | "False" | "None" | list | name | value "[" value "]"
          | value "." key | call | "(" or ")" ;
    list = "[" [value {"," value}] "]" ;
    call = function "(" value {"," value} ")" ;

Names are `event`, `payload`, and the payload's own keys (`name`, `arguments`, `text`, …);
`payload.arguments.path` is `payload["arguments"]["path"]`. The syntax is that of Python and
Starlark. Functions:

    glob(text, pattern)        matches the whole text; `*` any characters, `?` one
    regex(text, pattern)       searches the text; RE2's syntax, in time linear in the text, no
                               look-around or back-references
    starts(text, start)   ends(text, end)   lower(text)
    length(value)   has(object, key)   get(object, key, default)

An expression has at most 2,000 characters and 200 parts, and the cost of every part is limited by
the size of its operands. A missing key, an order between different types, or a text where an object
was expected is an error, and an error is a broken hook, which blocks. (`get` and `has` are for keys
that may be missing.) So a guard with a misspelt key is noticed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import PAYLOADS, Custom, Occasion
from ferrule.tools.safe_patterns import compile_regex, matches_glob

MAX_CHARACTERS = 2000
MAX_PARTS = 200
LONGEST_TEXT = 1 << 20
"""Characters of a text that `glob` and `regex` search; a longer one is an error."""


class ConditionError(ValueError):
    """A condition that cannot be evaluated. The hook counts as broken."""


@frozen
class ParsedCondition:
    """A parsed condition. Calling it evaluates it; raises WhenError."""

    text: str
    tree: ast.expr

    def __call__(self, occasion: Occasion) -> bool:
        return evaluate(self, occasion.event, occasion.payload.as_dict())


def parse_condition(
    text: str, where: str = "when", line: int = 1, column: int = 1, events: tuple[str, ...] = ()
) -> ParsedCondition:
    """Parse a condition.

    Args:
        text: The condition.
        where: The name of its file, for error messages.
        line: The line where the text begins.
        column: The column where the text begins.
        events: The events it is for. With them, a name that none of them has is refused, so that it
            cannot hide behind an `and`.

    Raises:
        ConfigError: The condition is invalid. The message begins with `where:line:column`.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            f"{where}:{line}:{column}: a condition of {len(text)} characters, the bound is "
            f"{MAX_CHARACTERS}"
        )
    try:
        tree = _parse_expression(text)
        _check_names(tree, events)
    except SyntaxError as error:
        problem = f"not a condition: {error.msg}"
        message = _add_place(where, line, column, error.lineno, error.offset, problem)
        raise ConfigError(message) from error
    except _Refused as error:
        node = error.node
        message = _add_place(where, line, column, node.lineno, node.col_offset + 1, error.reason)
        raise ConfigError(message, hint="docs/permissions.md describes the language") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise ConfigError(
            f"{where}:{line}:{column}: not a condition: {error or 'nested too deeply'}"
        ) from error
    return ParsedCondition(text, tree)


def _parse_expression(text: str) -> ast.expr:
    # Inside brackets a condition may span several lines. A condition that closes our bracket gives
    # an expression that begins in the first line, where the bracket stands.
    tree = ast.parse(f"(\n{text}\n)", mode="eval").body
    if tree.lineno == 1:
        raise _Refused(tree, "not one condition")
    if len(list(ast.walk(tree))) > 2 * MAX_PARTS:
        raise _Refused(tree, f"more than {MAX_PARTS} parts")
    _check(tree)
    return tree


def evaluate(condition: ParsedCondition, event: str, payload: Mapping[str, Any]) -> bool:
    """Evaluate a condition for a payload.

    Raises ConditionError, also if the value is not a boolean.
    """
    try:
        value = _evaluate(condition.tree, {**payload, "event": event, "payload": payload})
    except (KeyError, TypeError, IndexError, RecursionError) as error:
        raise ConditionError(
            f"`when` could not be evaluated: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(value, bool):
        raise ConditionError(f"`when` gave {type(value).__name__}, not true or false")
    return value


def _add_place(
    where: str, line: int, column: int, row: int | None, offset: int | None, message: str
) -> str:
    """Put the place of a problem before its message; `row` and `offset` are Python's."""
    # The first parsed line is our bracket; the first line of the text begins at `column`.
    row = max((row or 2) - 2, 0)
    offset = max(offset or 1, 1)
    if row == 0:
        offset += column - 1
    return f"{where}:{line + row}:{offset}: {message}"


# ---- checking an expression


class _Refused(Exception):
    def __init__(self, node: ast.expr, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


def _check(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return
        case ast.Name(id=name):
            _check_name(node, name)
        case ast.Attribute(value=value, attr=key):
            if key.startswith("_"):
                raise _Refused(node, f"the key `{key}` is not allowed")
            _check(value)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            _check_call(node, name, arguments)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=value):
            _check(value)
        case ast.Subscript(value=value, slice=key):
            _check_all((value, key))
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            _check_all(parts)
        case ast.Compare(left=left, ops=operators, comparators=others):
            _check_operators(node, operators)
            _check_all((left, *others))
        case _:
            raise _Refused(node, f"a condition cannot contain a {type(node).__name__}")


def _check_all(nodes: Iterable[ast.expr]) -> None:
    for node in nodes:
        _check(node)


def _check_name(node: ast.expr, name: str) -> None:
    if name in _FUNCTIONS:
        raise _Refused(node, f"`{name}` is a function: `{name}(…)`")
    if name.startswith("_"):
        raise _Refused(node, f"the name `{name}` is not allowed")


def _check_operators(node: ast.expr, operators: Iterable[ast.cmpop]) -> None:
    for operator in operators:
        if type(operator) not in _COMPARE:
            raise _Refused(node, f"`{type(operator).__name__.lower()}` is not an operator here")


def _check_names(tree: ast.expr, events: tuple[str, ...]) -> None:
    if not events:
        return
    known = {"event", "payload"}
    for event in events:
        known.update(PAYLOADS.get(event, Custom)().as_dict())
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in known and id(node) not in called:
            hint = suggest_names(node.id, known, f"there are: {', '.join(sorted(known))}")
            raise _Refused(node, f"{', '.join(events)} has no `{node.id}`; {hint}")


def _check_call(node: ast.expr, name: str, arguments: list[ast.expr]) -> None:
    function = _FUNCTIONS.get(name)
    if function is None:
        raise _Refused(node, f"there is no function `{name}`; there are: {', '.join(_FUNCTIONS)}")
    count, _ = function
    if len(arguments) != count:
        raise _Refused(node, f"`{name}` takes {count} values, found {len(arguments)}")
    _check_all(arguments)
    if name != "regex":
        return
    pattern = arguments[1]
    if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
        try:
            compile_regex(pattern.value)
        except ValueError as error:
            raise _Refused(pattern, str(error)) from error


# ---- evaluating it


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.Attribute(value=inner, attr=key):
            return _get_item(_evaluate(inner, names), key)
        case ast.Subscript(value=inner, slice=key):
            return _get_item(_evaluate(inner, names), _evaluate(key, names))
        case ast.BoolOp(op=operator, values=parts):
            return _evaluate_boolean(operator, parts, names)
        case ast.UnaryOp(op=operator, operand=inner):
            return _evaluate_unary(operator, inner, names)
        case ast.Compare(left=left, ops=operators, comparators=others):
            return _evaluate_comparison(left, operators, others, names)
        case ast.Call(func=ast.Name(id=name), args=parts):
            _, function = _FUNCTIONS[name]
            return function(*_evaluate_all(parts, names))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return _evaluate_all(parts, names)
        case _:
            raise ConditionError(f"`when` contains a {type(node).__name__}")


def _evaluate_all(nodes: Iterable[ast.expr], names: Mapping[str, Any]) -> list[Any]:
    return [_evaluate(node, names) for node in nodes]


def _evaluate_unary(operator: ast.unaryop, inner: ast.expr, names: Mapping[str, Any]) -> Any:
    value = _evaluate(inner, names)
    if isinstance(operator, ast.Not):
        return not _expect_boolean(value)
    return -_expect_number(value)


def _evaluate_boolean(
    operator: ast.boolop, parts: list[ast.expr], names: Mapping[str, Any]
) -> bool:
    stops_at = isinstance(operator, ast.Or)
    for part in parts:
        if _expect_boolean(_evaluate(part, names)) is stops_at:
            return stops_at
    return not stops_at


def _evaluate_comparison(
    left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr], names: Mapping[str, Any]
) -> bool:
    left_value = _evaluate(left, names)
    for operator, other in zip(operators, others, strict=True):
        right_value = _evaluate(other, names)
        if not _COMPARE[type(operator)](left_value, right_value):
            return False
        left_value = right_value
    return True


def _expect_boolean(value: Any) -> bool:
    # A text is never true: `name or "x"` in a guard is a mistake that would match everything.
    if not isinstance(value, bool):
        raise ConditionError(
            f"`and`, `or` and `not` take true or false, found {type(value).__name__}"
        )
    return value


def _expect_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConditionError(f"`-` takes a number, found {type(value).__name__}")
    return value


def _get_item(value: Any, key: Any) -> Any:
    if isinstance(value, Mapping):
        found = cast("Mapping[Any, Any]", value)
        if key not in found:
            raise ConditionError(
                f"there is no key {key!r}; there are: {', '.join(map(repr, list(found)[:20]))}"
            )
        return found[key]
    if isinstance(value, (list, tuple)) and isinstance(key, int) and not isinstance(key, bool):
        return cast("list[Any]", value)[key]
    raise ConditionError(f"there is no item {key!r} in what is neither an object nor a list")


def _require_order(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare_ordered(a: Any, b: Any) -> bool:
        if isinstance(a, str) is not isinstance(b, str):
            raise ConditionError(f"{type(a).__name__} and {type(b).__name__} have no order")
        return bool(compare(a, b))

    return compare_ordered


def _contains(a: Any, b: Any) -> bool:
    if isinstance(b, str):
        return _expect_text(a) in b
    if not isinstance(b, (list, tuple, Mapping)):
        raise ConditionError(f"`in` takes a text, a list or an object, found {type(b).__name__}")
    return a in cast("list[Any]", b)


def _expect_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConditionError(f"found {type(value).__name__} where a text was expected")
    if len(value) > LONGEST_TEXT:
        raise ConditionError(f"a text of {len(value)} characters, the bound is {LONGEST_TEXT}")
    return value


def _has(value: Any, key: Any) -> bool:
    if not isinstance(value, Mapping):
        raise ConditionError(f"`has` takes an object, found {type(value).__name__}")
    return key in value


def _get(value: Any, key: Any, default: Any) -> Any:
    return value[key] if _has(value, key) else default


def _length(value: Any) -> int:
    if not isinstance(value, (str, list, tuple, Mapping)):
        raise ConditionError(
            f"`length` takes a text, a list or an object, found {type(value).__name__}"
        )
    return len(cast("list[Any]", value))


def _regex(text: Any, pattern: Any) -> bool:
    return compile_regex(_expect_text(pattern))(_expect_text(text))


def _glob(text: Any, pattern: Any) -> bool:
    return matches_glob(_expect_text(text), _expect_text(pattern))


def _starts(text: Any, start: Any) -> bool:
    return _expect_text(text).startswith(_expect_text(start))


def _ends(text: Any, end: Any) -> bool:
    return _expect_text(text).endswith(_expect_text(end))


def _lower(text: Any) -> str:
    return _expect_text(text).lower()


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
    ast.Lt: _require_order(lambda a, b: a < b),
    ast.LtE: _require_order(lambda a, b: a <= b),
    ast.Gt: _require_order(lambda a, b: a > b),
    ast.GtE: _require_order(lambda a, b: a >= b),
    ast.In: _contains,
    ast.NotIn: lambda a, b: not _contains(a, b),
}
