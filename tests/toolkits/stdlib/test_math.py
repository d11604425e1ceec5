"""`math::calc` and `math::evaluate`: exact, bounded, and never Python's own evaluation."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.toolkits.stdlib.calc import _Reader, _sum  # pyright: ignore[reportPrivateUsage]  the reader itself
from ferrule.toolkits.stdlib.numerals import read_number, write_number

DIGITS = 50


@pytest.mark.parametrize(
    ("lhs", "op", "rhs", "result"),
    [
        (0.1, "add", 0.2, 0.3),
        (6, "div", 3, 2),
        (1, "div", 4, 0.25),
        (1, "div", 3, 1 / 3),
        (2.5, "mul", 4, 10),
        (10**30, "sub", 1, 10**30 - 1),
    ],
)
def test_decimals_are_what_was_written_and_whole_results_are_whole(
    ask: Any, lhs: float, op: str, rhs: float, result: float
) -> None:
    answer = ask("math::calc", lhs=lhs, op=op, rhs=rhs)
    assert answer.success, answer.error_message
    assert answer.data == result
    assert isinstance(answer.data, int) == isinstance(result, int)


def test_division_by_zero_and_an_operation_that_does_not_exist_are_refused(ask: Any) -> None:
    divided = ask("math::calc", lhs=1, op="div", rhs=0)
    assert (divided.success, divided.error_type) == (False, "validation_failed")
    assert "division by zero" in divided.error_message
    assert ask("math::calc", lhs=1, op="pow", rhs=2).error_type == "validation_failed"


@pytest.mark.parametrize(
    ("expression", "value", "exact"),
    [
        ("1 + 2 * 3", "7", True),
        ("(1 + 2) * 3", "9", True),
        ("-2^2", "-4", True),
        ("2^3^2", "512", True),
        ("2 ** -1", "0.5", True),
        ("-7 % 3", "2", True),
        ("7 // 2", "3", True),
        ("0.1 + 0.2", "0.3", True),
        ("(1/3) * 3", "1", True),
        ("2/3", "0." + "6" * 49 + "7", False),
        ("sqrt(16)", "4", True),
        ("round(sqrt(2), 4)", "1.4142", False),
        ("round(2.675, 2)", "2.68", True),
        ("max(1, 2.5, -3)", "2.5", True),
        ("1e3 - .5", "999.5", True),
        ("(-1)^1000000", "1", True),
    ],
)
def test_an_expression_is_worked_out_and_says_whether_it_is_exact(
    ask: Any, expression: str, value: str, exact: bool
) -> None:
    assert ask("math::evaluate", expression=expression).data == {"value": value, "exact": exact}


@pytest.mark.parametrize(
    "expression",
    [
        "9^9^9",
        "10^(10^6)",
        "9^9999",
        "2^-99999",
        "1e999 * 1e999",
        "(" * 60 + "1" + ")" * 60,
        "-" * 100 + "1",
        "1" * 1001,
    ],
)
def test_an_expression_that_would_grow_without_bound_is_refused_before_it_does(
    ask: Any, expression: str
) -> None:
    answer = ask("math::evaluate", expression=expression)
    assert answer.error_type in ("limit", "validation_failed")
    assert len(answer.error_message) < 500


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "(1",
        "1)",
        "1 2",
        "foo(1)",
        "abs(1, 2)",
        "max()",
        '__import__("os")',
        "a.b",
        "1; 2",
        "[1]",
        "0^-1",
        "sqrt(-1)",
    ],
)
def test_what_is_no_expression_is_refused_with_the_place_or_the_reason(
    ask: Any, expression: str
) -> None:
    answer = ask("math::evaluate", expression=expression)
    assert (answer.success, answer.error_type) == (False, "validation_failed")


@given(
    st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6), st.sampled_from("+-*")
)
def test_sums_and_products_are_those_of_rational_numbers(
    left: Fraction, right: Fraction, sign: str
) -> None:
    text = (
        f"(({left.numerator})/{left.denominator}) {sign} (({right.numerator})/{right.denominator})"
    )
    expected = {"+": left + right, "-": left - right, "*": left * right}[sign]
    assert _sum(_Reader(text)) == expected


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30))
def test_a_decimal_survives_reading_and_writing(number: Decimal) -> None:
    written, exact = write_number(read_number(str(number), "it"))
    assert exact
    assert Decimal(written) == number


@given(st.fractions())
def test_a_rounded_number_is_as_close_as_it_says(number: Fraction) -> None:
    written, exact = write_number(number)
    read = Fraction(Decimal(written))
    assert (
        read == number
        if exact
        else abs(read - number) <= abs(number) * Fraction(1, 10 ** (DIGITS - 1))
    )


@given(st.text(alphabet="0123456789.+-*/%^() ,sqrtabe", max_size=40))
def test_whatever_is_written_gives_a_number_or_a_refusal(text: str) -> None:
    try:
        assert isinstance(_sum(_Reader(text)), Fraction)
    except ToolFailed as refused:
        assert refused.message
