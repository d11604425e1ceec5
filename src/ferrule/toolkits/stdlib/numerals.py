"""Numbers as models write them, exactly: text or JSON numbers to fractions and back, within bounds.

A JSON number with a decimal point arrives as a binary float; its sender wrote its shortest decimal
spelling, so that is what is read: 0.1 is one tenth here. Results are exact if a decimal of at most
`DIGITS` digits can express them, otherwise rounded to that many significant digits, half to even.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed

DIGITS = 50
"""Significant digits of a result that is not exact."""
MAX_DIGITS = 1_000
"""Digits that a number may have, before and after the point together, in and out."""
_BITS = int(MAX_DIGITS * 3.33)
_NUMERAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_ROUNDED = Context(prec=DIGITS, rounding=ROUND_HALF_EVEN, Emax=10**6, Emin=-(10**6))


def read_number(value: object, where: str) -> Fraction:
    """Return the exact value of a number or of its spelling. Raises RetryCall naming `where`."""
    if isinstance(value, int) and value.bit_length() > _BITS:
        raise too_large_error(where)
    text = repr(value) if isinstance(value, float) else str(value).strip()
    if isinstance(value, bool) or len(text) > MAX_DIGITS or not _NUMERAL.fullmatch(text):
        raise RetryCall(
            f"{where} must be a number of at most {MAX_DIGITS} characters such as `12`, `-0.5` "
            f"or `1e6`, found `{text[:60]}`"
        )
    number = Decimal(text)
    if number and abs(number.adjusted()) > MAX_DIGITS:
        raise too_large_error(where)
    return Fraction(number)


def check_size(number: Fraction, where: str) -> Fraction:
    """Return the number if it is not too large to work with. Raises ToolFailed(limit)."""
    if number.numerator.bit_length() > _BITS or number.denominator.bit_length() > _BITS:
        raise too_large_error(where)
    return number


def too_large_error(where: str) -> ToolFailed:
    """Return the error for a number with too many digits."""
    return ToolFailed(
        ErrorType.LIMIT,
        f"{where} has more than {MAX_DIGITS} digits; work with smaller numbers or with fewer "
        f"decimals",
    )


def round_number(number: Fraction) -> Fraction:
    """Round a number to `DIGITS` significant digits."""
    return Fraction(_ROUNDED.divide(Decimal(number.numerator), Decimal(number.denominator)))


def write_number(number: Fraction) -> tuple[str, bool]:
    """Write a number in decimal, and return whether that is exact. No exponent if that is short."""
    rest = number.denominator
    twos = (rest & -rest).bit_length() - 1
    rest >>= twos
    fives = 0
    while rest % 5 == 0:
        rest //= 5
        fives += 1
    if rest == 1:
        places = max(twos, fives)
        digits = Decimal(number.numerator * 10**places // number.denominator)
        return _spell(digits.scaleb(-places, Context(prec=10 * MAX_DIGITS))), True
    rounded = _ROUNDED.divide(Decimal(number.numerator), Decimal(number.denominator))
    return _spell(rounded), False


def _spell(number: Decimal) -> str:
    digits = number.adjusted()
    if not -20 < digits < MAX_DIGITS:
        return str(number.normalize(Context(prec=10 * MAX_DIGITS)))
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text or "0"
