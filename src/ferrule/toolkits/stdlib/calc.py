"""`math::calc` and `math::evaluate`: exact arithmetic on rational numbers, bounded.

    expression = term (("+" | "-") term)*        term = power (("*" | "/" | "//" | "%") power)*
    power = sign ("^" | "**") power | sign       sign = ("+" | "-") sign | atom
    atom = number | name "(" expression ("," expression)* ")" | name | "(" expression ")"

A sign before a power binds last, as in mathematics: `-2^2` is -4, and `2^-1` is 0.5. Python
evaluates nothing: an expression is read character by character, and every step is bounded before it
is made. Roots and the constants `pi` and `e` are rounded to `numerals.DIGITS` digits, and so is
every result that has no finite decimal; the result says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from math import ceil, floor, isqrt
from typing import Annotated, Literal, TypedDict

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed

from .numerals import (
    DIGITS,
    MAX_DIGITS,
    check_size,
    read_number,
    round_number,
    too_large_error,
    write_number,
)
from .typed import typed_tool

MAX_EXPRESSION = 2_000
MAX_DEPTH = 50
"""Most nested brackets and signs."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|//|[-+*/%^(),]))",
    re.ASCII,
)
_CONSTANTS = {
    # Both to 60 digits: OEIS A000796 and A001113.
    "pi": Fraction(Decimal("3.14159265358979323846264338327950288419716939937510582097494")),
    "e": Fraction(Decimal("2.71828182845904523536028747135266249775724709369995957496697")),
}


class Calculated(TypedDict):
    """`value` in decimal; `exact` is false if it was rounded to 50 significant digits."""

    value: str
    exact: bool


@dataclass(slots=True)
class _Reader:
    """Reads an expression. `exact` becomes false with the first rounded value."""

    text: str
    position: int = 0
    depth: int = 0
    exact: bool = True

    def peek(self) -> tuple[str, str]:
        """Return kind and text of the next token, without taking it; kind is empty at the end."""
        found = _TOKEN.match(self.text, self.position)
        if found is None:
            rest = self.text[self.position :].strip()
            if rest:
                raise self.error(f"`{rest[0]}` is not part of an expression")
            return "", ""
        return found.lastgroup or "", found[found.lastgroup or 0]

    def take(self, *wanted: str) -> str:
        """Take the next token if it is one of these signs, else return an empty text."""
        kind, text = self.peek()
        if kind != "sign" or text not in wanted:
            return ""
        self.skip()
        return text

    def skip(self) -> None:
        found = _TOKEN.match(self.text, self.position)
        assert found is not None
        self.position = found.end()

    def error(self, what: str) -> RetryCall:
        return RetryCall(
            f"`expression` at character {self.position + 1}: {what}; it may hold numbers, + - * / "
            f"// % ^, brackets, {', '.join(sorted(_FUNCTIONS))}, pi and e"
        )

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise self.error(f"`{sign}` is missing")


def _sum(reader: _Reader) -> Fraction:
    value = _product(reader)
    while sign := reader.take("+", "-"):
        value = check_size(_apply(sign, value, _product(reader)), "the result")
    return value


def _product(reader: _Reader) -> Fraction:
    value = _parse_signed(reader)
    while sign := reader.take("*", "/", "//", "%"):
        value = check_size(_apply(sign, value, _parse_signed(reader)), "the result")
    return value


def _parse_signed(reader: _Reader) -> Fraction:
    reader.depth += 1
    if reader.depth > MAX_DEPTH:
        raise reader.error(f"more than {MAX_DEPTH} brackets or signs within each other")
    sign = reader.take("+", "-")
    value = _parse_signed(reader) if sign else _power(reader)
    reader.depth -= 1
    return -value if sign == "-" else value


def _power(reader: _Reader) -> Fraction:
    base = _atom(reader)
    if not reader.take("^", "**"):
        return base
    return _raise_to_power(base, _parse_signed(reader))


def _raise_to_power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise RetryCall(
            f"the exponent {_short(exponent)} is not a whole number; there is `sqrt` for roots"
        )
    if base == 0 and exponent < 0:
        raise _division_by_zero()
    if base in (0, 1, -1):
        odd = exponent.numerator % 2 == 1
        return base if odd or (base == 0 and exponent) else Fraction(1)
    # Checked first: a power is the only step whose result can be far larger than its input.
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent.numerator) > 8 * MAX_DIGITS:
        raise too_large_error("the power")
    return check_size(Fraction(base**exponent.numerator), "the power")


def _atom(reader: _Reader) -> Fraction:
    kind, text = reader.peek()
    if kind == "number":
        reader.skip()
        return read_number(text, "a number of `expression`")
    if kind == "name":
        reader.skip()
        return _constant_or_function(reader, text)
    if kind == "sign" and text == "(":
        reader.skip()
        value = _sum(reader)
        reader.expect(")")
        return value
    if not text:
        raise reader.error("it ends where a number should be")
    raise reader.error(f"a number is missing before `{text}`")


def _constant_or_function(reader: _Reader, name: str) -> Fraction:
    if name in _CONSTANTS:
        reader.exact = False
        return _CONSTANTS[name]
    if name not in _FUNCTIONS:
        raise reader.error(f"`{name[:40]}` is not known")
    reader.expect("(")
    values = [_sum(reader)]
    while reader.take(","):
        values.append(_sum(reader))
    reader.expect(")")
    least, most, function = _FUNCTIONS[name]
    if not least <= len(values) <= most:
        raise reader.error(f"`{name}` takes {least} to {most} values, found {len(values)}")
    return check_size(function(reader, values), f"`{name}`")


def _absolute(reader: _Reader, values: list[Fraction]) -> Fraction:
    return abs(values[0])


def _ceil(reader: _Reader, values: list[Fraction]) -> Fraction:
    return Fraction(ceil(values[0]))


def _floor(reader: _Reader, values: list[Fraction]) -> Fraction:
    return Fraction(floor(values[0]))


def _largest(reader: _Reader, values: list[Fraction]) -> Fraction:
    return max(values)


def _smallest(reader: _Reader, values: list[Fraction]) -> Fraction:
    return min(values)


def _round(reader: _Reader, values: list[Fraction]) -> Fraction:
    places = values[1] if len(values) > 1 else Fraction(0)
    if places.denominator != 1 or abs(places) > MAX_DIGITS:
        raise RetryCall(
            f"`round` takes a whole number of places up to {MAX_DIGITS}, found {_short(places)}"
        )
    return Fraction(round(values[0], int(places)))


def _square_root(reader: _Reader, values: list[Fraction]) -> Fraction:
    value = values[0]
    if value < 0:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            "the square root of a negative number is not a real number; check its sign",
        )
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    if root * root == value:
        return root
    reader.exact = False
    context = Context(prec=DIGITS + 5)
    quotient = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return Fraction(context.sqrt(quotient))


_Function = Callable[[_Reader, list[Fraction]], Fraction]
_FUNCTIONS: dict[str, tuple[int, int, _Function]] = {
    "abs": (1, 1, _absolute),
    "ceil": (1, 1, _ceil),
    "floor": (1, 1, _floor),
    "max": (1, 100, _largest),
    "min": (1, 100, _smallest),
    "round": (1, 2, _round),
    "sqrt": (1, 1, _square_root),
}
"""Name -> least and most number of values, and the function."""


def _apply(sign: str, left: Fraction, right: Fraction) -> Fraction:
    if sign in ("/", "//", "%") and right == 0:
        raise _division_by_zero()
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "//":
            return Fraction(left // right)
        case _:
            return left % right


def _division_by_zero() -> ToolFailed:
    return ToolFailed(
        ErrorType.VALIDATION_FAILED, "division by zero has no result; check the divisor"
    )


def _short(number: Fraction) -> str:
    return write_number(number)[0][:40]


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


@typed_tool(
    "math",
    examples=[
        {"request": "What is 17.5 times 4?", "arguments": {"lhs": 17.5, "rhs": 4, "op": "mul"}}
    ],
)
async def calc(
    lhs: Annotated[float, "The left number."],
    rhs: Annotated[float, "The right number."],
    op: Annotated[Literal["add", "sub", "mul", "div"], "What to do with them."],
) -> float:
    """Add, subtract, multiply or divide two numbers. Decimals are taken as they are written: 0.1 +
    0.2 is 0.3.

    A whole result is exact; any other is the nearest double-precision number to the exact one.
    """
    left = read_number(lhs, "`lhs`")
    right = read_number(rhs, "`rhs`")
    result = check_size(_apply(_SIGNS[op], left, right), "the result")
    if result.denominator == 1:
        return int(result)
    try:
        return float(result)
    except OverflowError:
        raise too_large_error("the result") from None


@typed_tool(
    "math",
    examples=[{"request": "Work out (3 + 4) * 2.5", "arguments": {"expression": "(3 + 4) * 2.5"}}],
)
async def evaluate(
    expression: Annotated[str, "Such as `(3 + 4) * 2.5`, `2^10 / 3` or `round(sqrt(2), 4)`."],
) -> Calculated:
    """Work out an expression exactly. `value` is decimal text; `exact` is false where it was
    rounded to 50 digits.
    """
    if len(expression) > MAX_EXPRESSION:
        raise RetryCall(
            f"`expression` has {len(expression)} characters; the most is {MAX_EXPRESSION}"
        )
    reader = _Reader(expression)
    value = _sum(reader)
    kind, text = reader.peek()
    if kind:
        raise reader.error(f"`{text[:40]}` does not belong here")
    if not reader.exact:
        # A value that was rounded on the way has no more digits to show.
        value = round_number(value)
    written, finite = write_number(value)
    return Calculated(value=written, exact=finite and reader.exact)
