"""`units::convert`: from one unit of measure to another, by exact factors (`unit_table`)."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ferrule.core.errors import RetryCall
from ferrule.core.similar_names import suggest_names

from .numerals import check_size, read_number, round_number, write_number
from .typed import typed_tool
from .unit_table import Unit, find_unit, list_units


class Converted(TypedDict):
    """`value` in `unit`, as decimal; `exact` is false if it was rounded to 50 digits."""

    value: str
    unit: str
    exact: bool
    dimension: str


@typed_tool(
    "units",
    examples=[
        {
            "request": "How many kilometres are 26.2 miles?",
            "arguments": {"value": 26.2, "from_unit": "mi", "to_unit": "km"},
        }
    ],
)
async def convert(
    value: Annotated[
        float | str, "The number; as text where it has more digits than a double holds."
    ],
    from_unit: Annotated[
        str, "A symbol or name, with or without SI prefix: `mi`, `km`, `degF`, `us_gallon`."
    ],
    to_unit: Annotated[str, "The unit to convert to, of the same dimension."],
) -> Converted:
    """Convert a value between units of length, mass, time, area, volume, speed, temperature,
    pressure, force, energy, power, angle, data, frequency, current and voltage. Exact factors;
    `value` of the result is decimal text.
    """
    number = read_number(value, "`value`")
    source = _look_up(from_unit, "from_unit")
    target = _look_up(to_unit, "to_unit")
    if source.dimension != target.dimension:
        raise RetryCall(
            f"`{from_unit}` is a unit of {source.dimension} and `{to_unit}` one of "
            f"{target.dimension}; they cannot be converted into each other"
        )
    base = (number + source.offset) * source.factor
    result = check_size(base / target.factor - target.offset, "the result")
    exact = source.symbol == target.symbol or (source.exact and target.exact)
    if not exact:
        result = round_number(result)
    written, finite = write_number(result)
    return Converted(
        value=written,
        unit=target.symbol,
        exact=finite and exact,
        dimension=source.dimension.partition(" ")[0],
    )


def _look_up(name: str, where: str) -> Unit:
    found = find_unit(name[:60])
    if found is None:
        example = "use a symbol such as `km` or `lb`"
        step = suggest_names(name[:60], list_units(), example, count=3)
        raise RetryCall(f"`{where}` = `{name[:60]}` is not a unit known here; {step}")
    return found
