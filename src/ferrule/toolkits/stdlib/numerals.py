"""Numbers as models write them, exactly: text or JSON numbers to fractions and back, within bounds.

A JSON number with a decimal point arrives as a binary float; what its sender wrote is its shortest
decimal spelling, so that is what is read: 0.1 is one tenth here. Results are exact where a decimal
of at most `DIGITS` digits says them, and rounded to that many significant digits, half to even,
where none does.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed

DIGITS = 50
"""Significant digits of a result that is not exact."""
LONGEST = 1_000
"""Digits that a number may have, before and after the point together, in and out."""
_BITS = int(LONGEST * 3.33)
_NUMERAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_ROUNDED = Context(prec=DIGITS, rounding=ROUND_HALF_EVEN, Emax=10**6, Emin=-(10**6))


def read_number(value: object, where: str) -> Fraction:
    """The exact value of a number or of its spelling. Raises RetryCall naming `where`."""
    if isinstance(value, int) and value.bit_length() > _BITS:
        raise too_large(where)
    text = repr(value) if isinstance(value, float) else str(value).strip()
    if isinstance(value, bool) or len(text) > LONGEST or not _NUMERAL.fullmatch(text):
        raise RetryCall(
            f"{where} must be a number of at most {LONGEST} characters such as `12`, `-0.5` "
            f"or `1e6`, found `{text[:60]}`"
        )
    number = Decimal(text)
    if number and abs(number.adjusted()) > LONGEST:
        raise too_large(where)
    return Fraction(number)


def bounded(number: Fraction, where: str) -> Fraction:
    """The same number, if it is not too large to go on with. Raises ToolFailed(limit)."""
    if number.numerator.bit_length() > _BITS or number.denominator.bit_length() > _BITS:
        raise too_large(where)
    return number


def too_large(where: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.LIMIT,
        f"{where} has more than {LONGEST} digits; work with smaller numbers or with fewer decimals",
    )


def rounded(number: Fraction) -> Fraction:
    """The same number to `DIGITS` significant digits."""
    return Fraction(_ROUNDED.divide(Decimal(number.numerator), Decimal(number.denominator)))


def write_number(number: Fraction) -> tuple[str, bool]:
    """The number in decimal, without an exponent where that is short, and whether it is exact."""
    rest = number.denominator
    twos = (rest & -rest).bit_length() - 1
    rest >>= twos
    fives = 0
    while rest % 5 == 0:
        rest //= 5
        fives += 1
    if rest == 1:
        return _spelled(
            Decimal(number.numerator * 10 ** max(twos, fives) // number.denominator).scaleb(
                -max(twos, fives), Context(prec=10 * LONGEST)
            )
        ), True
    rounded = _ROUNDED.divide(Decimal(number.numerator), Decimal(number.denominator))
    return _spelled(rounded), False


def _spelled(number: Decimal) -> str:
    digits = number.adjusted()
    if -20 < digits < LONGEST:
        text = format(number, "f")
        return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"
    return str(number.normalize(Context(prec=10 * LONGEST)))
