"""What units measure, and so which number with a unit can be which parameter.

Pure; English words and the common abbreviations. Nothing is converted: a value in another unit than
the parameter's is handed on as it was written.
"""

from __future__ import annotations

from ferrule.tools.word_stems import stem

_ABBREVIATED = """
% percent | $ dollar | € euro | £ pound
kg kilogram | g gram | mg milligram | lb pound | lbs pound
km kilometer | m meter | cm centimeter | mm millimeter | mi mile | ft foot | feet foot
s second | sec second | h hour | hr hour | hrs hour | min minute | mins minute | ms millisecond
°c celsius | °f fahrenheit | c celsius | f fahrenheit | k kelvin
mph mile | hz hertz | n newton | v volt | a ampere | w watt | j joule
l liter | pa pascal | atm atmosphere
"""
_MEASURED = {
    "mass weight": "kilogram gram milligram pound ton ounce",
    "temperature": "celsius fahrenheit kelvin degree",
    "time duration period age interval term": "millisecond second minute hour day week month year",
    "distance length height width radius depth displacement altitude side diameter size": (
        "millimeter centimeter meter kilometer mile foot inch yard"
    ),
    "voltage potential": "volt",
    "current": "ampere",
    "resistance": "ohm",
    "pressure": "pascal atmosphere bar",
    "frequency": "hertz",
    "energy calorie": "joule calorie",
    "force": "newton",
    "power": "watt",
    "volume capacity": "liter gallon",
    "price cost budget money principal investment fee salary payment amount": "dollar euro pound",
    "percentage rate ratio probability share yield interest": "percent",
}


def _pairs() -> dict[str, str]:
    pairs: dict[str, str] = {}
    for line in _ABBREVIATED.strip().splitlines():
        for pair in line.split(" | "):
            abbreviation, word = pair.split()
            pairs[abbreviation] = word
    return pairs


def _quantities() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for names, units in _MEASURED.items():
        quantities = frozenset(map(stem, names.split()))
        for unit in map(stem, units.split()):
            found[unit] = found.get(unit, frozenset[str]()) | quantities
    return found


UNITS = _pairs()
"""Abbreviations of units as words."""

_QUANTITIES = _quantities()
_ALL = frozenset(name for names in _QUANTITIES.values() for name in names)


def is_unit(word: str) -> bool:
    """Return whether a stem is that of a unit."""
    return word in _QUANTITIES


def is_unit_for(unit: str, words: frozenset[str]) -> bool | None:
    """Return whether a parameter with these words is measured in a unit; None if nobody knows."""
    if not unit or unit not in _QUANTITIES:
        return True if unit and unit in words else None
    if unit in words or not words.isdisjoint(_QUANTITIES[unit]):
        return True
    return None if words.isdisjoint(_ALL) else False
