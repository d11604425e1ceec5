"""`units::convert` and its table."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.toolkits.stdlib.units import find_unit, list_units


@pytest.mark.parametrize(
    ("value", "from_unit", "to_unit", "result", "exact"),
    [
        # By definition, as the sources of the table state them.
        (1, "mi", "km", "1.609344", True),
        (1, "in", "mm", "25.4", True),
        (1, "lb", "kg", "0.45359237", True),
        (1, "us_gallon", "L", "3.785411784", True),
        (1, "imperial_gallon", "L", "4.54609", True),
        (1, "acre", "m2", "4046.8564224", True),
        (1, "hp", "W", "745.69987158227022", True),
        (1, "atm", "Pa", "101325", True),
        (1, "kWh", "J", "3600000", True),
        (1, "nautical mile", "m", "1852", True),
        (36, "km/h", "m/s", "10", True),
        (100, "degC", "degF", "212", True),
        (-40, "°F", "°C", "-40", True),
        (0, "K", "celsius", "-273.15", True),
        (1, "GiB", "MB", "1073.741824", True),
        (1, "KiB", "bit", "8192", True),
        (1, "µm", "nm", "1000", True),
        (0.1, "m", "cm", "10", True),
        (
            "0.1000000000000000000000000000000001",
            "m",
            "cm",
            "10.00000000000000000000000000000001",
            True,
        ),
        (5, "Miles", "kilometres", "8.04672", True),
        (1, "min", "s", "60", True),
        (180, "deg", "rad", "3.1415926535897932384626433832795028841971693993751", False),
        (1, "s", "min", "0.016666666666666666666666666666666666666666666666667", False),
    ],
)
def test_values_are_converted_by_the_defined_factors(
    ask: Any, value: float | str, from_unit: str, to_unit: str, result: str, exact: bool
) -> None:
    found = ask("units::convert", value=value, from_unit=from_unit, to_unit=to_unit).data
    assert (found["value"], found["exact"]) == (result, exact)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("1", "kg", "mi"), "validation_failed", "mass (kg)"),
        (("1", "meterz", "km"), "validation_failed", "`meters`"),
        (("1", "MM", "km"), "validation_failed", "not a unit"),
        (("many", "m", "km"), "validation_failed", "must be a number"),
        (("1e999", "m", "in"), "limit", "digits"),
        (("1e9999", "m", "in"), "limit", "digits"),
        (("9" * 2000, "m", "in"), "validation_failed", "1000"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_what_was_found(
    ask: Any, arguments: tuple[str, str, str], error: str, said: str
) -> None:
    value, from_unit, to_unit = arguments
    answer = ask("units::convert", value=value, from_unit=from_unit, to_unit=to_unit)
    assert (answer.success, answer.error_type) == (False, error)
    assert said in answer.error_message


def test_a_prefix_never_takes_the_name_of_a_unit() -> None:
    for name, dimension in {
        "min": "time (s)",
        "ft": "length (m)",
        "Pa": "pressure (Pa)",
        "cd": None,
        "PS": "power (W)",
        "pt": "volume (m3)",
    }.items():
        found = find_unit(name)
        assert (found.dimension if found else None) == dimension


@given(st.sampled_from(sorted(list_units())), st.fractions(max_denominator=1000))
def test_there_and_back_is_where_it_began(name: str, value: Fraction) -> None:
    unit = list_units()[name]
    assert unit.factor > 0
    base = (value + unit.offset) * unit.factor
    assert base / unit.factor - unit.offset == value
