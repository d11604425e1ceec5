"""`units::convert`: from one unit of measure to another, by exact factors.

Every factor of the table is exact unless it says so. Sources: the SI Brochure (9th edition,
2019/2022) for SI units, prefixes and the units accepted beside them; NIST Special Publication 811
(2008), appendix B, for factors of customary units, and NIST Handbook 44, appendix C, for capacity
and weight in the United States; the Weights and Measures Act 1985 for the imperial gallon; IEC
80000-13 for binary prefixes of bytes.

A factor is decimal text or a quotient of two; `offset` is added to the value before the factor is
applied (temperatures). Not included: currencies, units of a logarithm (dB, pH), cups and spoons
that differ between kitchens, except those of the United States.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Annotated, TypedDict

from ferrule.core.errors import RetryCall
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen

from .numerals import check_size, read_number, round_number, write_number
from .typed import typed_tool


@frozen
class Unit:
    """A unit: `(value + offset) * factor` is the value in the unit of its dimension.

    `exact`: the factor is not rounded.
    """

    symbol: str
    dimension: str
    factor: Fraction
    offset: Fraction = Fraction(0)
    exact: bool = True


_POUND = Fraction("0.45359237")
_GRAVITY = Fraction("9.80665")
_INCH = Fraction("0.0254")
_FOOT = 12 * _INCH
_GALLON = 231 * _INCH**3
_IMPERIAL = Fraction("0.00454609")
_BTU = Fraction("1055.05585262")
_DEGREE = Fraction(1, 360)

_TABLE: Mapping[str, tuple[tuple[str, Fraction | int | str], ...]] = {
    "length (m)": (
        ("in inch inches", _INCH),
        ("ft foot feet", _FOOT),
        ("yd yard yards", 3 * _FOOT),
        ("mi mile miles", 5280 * _FOOT),
        ("nmi nautical_mile nautical_miles", 1852),
        ("au astronomical_unit", 149_597_870_700),
        ("ly light_year light_years", 9_460_730_472_580_800),
        ("angstrom angstroms", "1e-10"),
    ),
    "mass (kg)": (
        ("t tonne tonnes", 1000),
        ("lb lbs pound pounds", _POUND),
        ("oz ounce ounces", _POUND / 16),
        ("gr grain grains", _POUND / 7000),
        ("st stone stones", 14 * _POUND),
        ("short_ton us_ton", 2000 * _POUND),
        ("long_ton imperial_ton", 2240 * _POUND),
        ("ozt troy_ounce troy_ounces", "0.0311034768"),
        ("ct carat carats", "0.0002"),
    ),
    "time (s)": (
        ("min minute minutes", 60),
        ("h hr hour hours", 3600),
        ("d day days", 86_400),
        ("wk week weeks", 604_800),
        ("julian_year", 31_557_600),
    ),
    "area (m2)": (
        ("m2 m^2 square_meter square_meters", 1),
        ("cm2 cm^2", "1e-4"),
        ("mm2 mm^2", "1e-6"),
        ("km2 km^2", 1_000_000),
        ("are a", 100),
        ("ha hectare hectares", 10_000),
        ("in2 in^2 square_inch", _INCH**2),
        ("ft2 ft^2 square_foot square_feet", _FOOT**2),
        ("yd2 yd^2 square_yard", (3 * _FOOT) ** 2),
        ("mi2 mi^2 square_mile square_miles", (5280 * _FOOT) ** 2),
        ("ac acre acres", 43_560 * _FOOT**2),
    ),
    "volume (m3)": (
        ("m3 m^3 cubic_meter cubic_meters", 1),
        ("cm3 cm^3 cc", "1e-6"),
        ("mm3 mm^3", "1e-9"),
        ("in3 in^3 cubic_inch", _INCH**3),
        ("ft3 ft^3 cubic_foot cubic_feet", _FOOT**3),
        ("yd3 yd^3 cubic_yard", (3 * _FOOT) ** 3),
        ("gal us_gallon us_gallons", _GALLON),
        ("qt us_quart", _GALLON / 4),
        ("pt us_pint us_pints", _GALLON / 8),
        ("cup us_cup us_cups", _GALLON / 16),
        ("fl_oz us_fluid_ounce", _GALLON / 128),
        ("tbsp us_tablespoon", _GALLON / 256),
        ("tsp us_teaspoon", _GALLON / 768),
        ("bbl oil_barrel", 42 * _GALLON),
        ("imp_gal imperial_gallon imperial_gallons", _IMPERIAL),
        ("imp_qt imperial_quart", _IMPERIAL / 4),
        ("imp_pt imperial_pint imperial_pints", _IMPERIAL / 8),
        ("imp_fl_oz imperial_fluid_ounce", _IMPERIAL / 160),
    ),
    "speed (m/s)": (
        ("m/s mps", 1),
        ("km/h kmh kph", Fraction(1000, 3600)),
        ("mph mi/h", 5280 * _FOOT / 3600),
        ("kn knot knots", Fraction(1852, 3600)),
        ("ft/s fps", _FOOT),
    ),
    "pressure (Pa)": (
        ("bar", 100_000),
        ("mbar millibar", 100),
        ("atm atmosphere atmospheres", 101_325),
        ("torr", Fraction(101_325, 760)),
        ("mmHg", "133.322387415"),
        ("psi", _POUND * _GRAVITY / _INCH**2),
    ),
    "force (N)": (
        ("lbf pound_force", _POUND * _GRAVITY),
        ("kgf kilogram_force", _GRAVITY),
        ("dyn dyne", "1e-5"),
    ),
    "energy (J)": (
        ("cal calorie calories", "4.184"),
        ("kcal kilocalorie kilocalories", 4184),
        ("Wh watt_hour watt_hours", 3600),
        ("kWh kilowatt_hour kilowatt_hours", 3_600_000),
        ("MWh", 3_600_000_000),
        ("eV electronvolt", "1.602176634e-19"),
        ("BTU btu Btu", _BTU),
        ("therm", 100_000 * _BTU),
    ),
    "power (W)": (
        ("hp horsepower", 550 * _FOOT * _POUND * _GRAVITY),
        ("PS metric_horsepower", 75 * _GRAVITY),
        ("BTU/h btu/h", _BTU / 3600),
    ),
    "angle (turn)": (
        ("turn turns revolution revolutions", 1),
        ("deg degree degrees", _DEGREE),
        ("arcmin arcminute arcminutes", _DEGREE / 60),
        ("arcsec arcsecond arcseconds", _DEGREE / 3600),
        ("gon grad gradian gradians", Fraction(1, 400)),
    ),
    "data (bit)": (
        ("nibble", 4),
        *(
            (f"{p}B {word}byte {word}bytes", 8 * 1000**n)
            for n, p, word in (
                (0, "", ""),
                (1, "k", "kilo"),
                (2, "M", "mega"),
                (3, "G", "giga"),
                (4, "T", "tera"),
                (5, "P", "peta"),
            )
        ),
        *(
            (f"{p}iB {word}byte {word}bytes", 8 * 1024**n)
            for n, p, word in (
                (1, "K", "kibi"),
                (2, "M", "mebi"),
                (3, "G", "gibi"),
                (4, "T", "tebi"),
                (5, "P", "pebi"),
            )
        ),
    ),
}
"""Dimension (with its unit) -> names of a unit, the first of them its symbol, and its factor."""

_PREFIXES: Mapping[str, tuple[str, int]] = {
    "Q": ("quetta", 30),
    "R": ("ronna", 27),
    "Y": ("yotta", 24),
    "Z": ("zetta", 21),
    "E": ("exa", 18),
    "P": ("peta", 15),
    "T": ("tera", 12),
    "G": ("giga", 9),
    "M": ("mega", 6),
    "k": ("kilo", 3),
    "h": ("hecto", 2),
    "da": ("deca", 1),
    "": ("", 0),
    "d": ("deci", -1),
    "c": ("centi", -2),
    "m": ("milli", -3),
    "u": ("micro", -6),
    "n": ("nano", -9),
    "p": ("pico", -12),
    "f": ("femto", -15),
    "a": ("atto", -18),
    "z": ("zepto", -21),
    "y": ("yocto", -24),
    "r": ("ronto", -27),
    "q": ("quecto", -30),
}

_PREFIXED: tuple[tuple[str, str, Fraction | int], ...] = (
    ("m meter meters metre metres", "length (m)", 1),
    ("g gram grams", "mass (kg)", Fraction(1, 1000)),
    ("s second seconds", "time (s)", 1),
    ("L l liter liters litre litres", "volume (m3)", Fraction(1, 1000)),
    ("Pa pascal pascals", "pressure (Pa)", 1),
    ("N newton newtons", "force (N)", 1),
    ("J joule joules", "energy (J)", 1),
    ("W watt watts", "power (W)", 1),
    ("Hz hertz", "frequency (Hz)", 1),
    ("A ampere amperes", "current (A)", 1),
    ("V volt volts", "voltage (V)", 1),
    ("bit bits", "data (bit)", 1),
)
"""Units that take prefixes: names, dimension, factor.

Symbols of at most two letters take the symbols of prefixes, words their names.
"""

_PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494")
_OTHERS = (
    (("rad", "radian", "radians"), Unit("rad", "angle (turn)", 1 / (2 * _PI), exact=False)),
    (("K", "kelvin"), Unit("K", "temperature (K)", Fraction(1))),
    (("degC", "C", "celsius"), Unit("degC", "temperature (K)", Fraction(1), Fraction("273.15"))),
    (
        ("degF", "F", "fahrenheit"),
        Unit("degF", "temperature (K)", Fraction(5, 9), Fraction("459.67")),
    ),
    (("degR", "rankine"), Unit("degR", "temperature (K)", Fraction(5, 9))),
)
_SPELLINGS = {
    "°C": "degC",
    "°F": "degF",
    "°": "deg",
    "µ": "u",
    "μ": "u",
    "Å": "angstrom",
    "²": "2",
    "³": "3",
}


def find_unit(name: str) -> Unit | None:
    """Return the unit of this name, also with a prefix, or None.

    Symbols are read as they are written: `Mm` is not `mm`.
    """
    name = name.strip().replace(" ", "_")
    for written, read in _SPELLINGS.items():
        name = name.replace(written, read)
    known = list_units()
    return known.get(name) or known.get(name.lower() if len(name) > 3 else name)


@cache
def list_units() -> Mapping[str, Unit]:
    """Return all units by name, in the order of the tables."""
    found: dict[str, Unit] = {}
    for name, unit in _rows():
        # A prefix must not replace the name of a unit: `min` is a minute, `ft` a foot, `Pa` a
        # pascal.
        found.setdefault(name, unit)
    return found


def _rows() -> Iterator[tuple[str, Unit]]:
    for dimension, rows in _TABLE.items():
        for names, factor in rows:
            symbol = names.split()[0]
            yield from ((name, Unit(symbol, dimension, Fraction(factor))) for name in names.split())
    for names, unit in _OTHERS:
        yield from ((name, unit) for name in names)
    for plain in (True, False):
        for names, dimension, factor in _PREFIXED:
            yield from _add_prefixes(names.split(), dimension, Fraction(factor), plain=plain)


def _add_prefixes(
    names: list[str], dimension: str, factor: Fraction, *, plain: bool
) -> Iterator[tuple[str, Unit]]:
    for sign, (word, power) in _PREFIXES.items():
        if (power == 0) is plain:
            unit = Unit(sign + names[0], dimension, factor * Fraction(10) ** power)
            for name in names:
                yield (sign if len(name) <= 2 or name == "bit" else word) + name, unit


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
