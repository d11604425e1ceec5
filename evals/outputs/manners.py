"""How a model gives its answer: the steps of a script, and how the run must end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from .types_asked import Asked


class Said(NamedTuple):
    """One answer. `is_plain` marks JSON alone, which the `tool` mode gives by the output tool."""

    text: str
    stop: str = "end"
    is_plain: bool = False


class Manner(NamedTuple):
    """A manner: what is said for a type, and the end: `value`, `invalid` or `refused`."""

    name: str
    say: Callable[[Asked], list[Said]]
    end: str = "value"


def _plain(text: str, stop: str = "end") -> Said:
    return Said(text, stop, is_plain=True)


def _good(asked: Asked) -> Said:
    return _plain(asked.good)


def _unwrapped(asked: Asked) -> str:
    """The value without the object around it, as a model writes that ignores the schema."""
    value = json.loads(asked.good, parse_float=str) if "." in asked.good else json.loads(asked.good)
    if asked.name in ("exact decimal",):
        return str(asked.value)
    if isinstance(value, dict) and set(value) == {"value"}:
        return asked.good[asked.good.index(":") + 1 : -1].strip()
    return asked.good


def _twice(asked: Asked) -> str:
    """The first name twice, with a different value: one parser takes this and another that."""
    name = next(iter(json.loads(asked.good)))
    return "{" + f"{json.dumps(name)}: null, " + asked.good.strip()[1:]


def _extra(asked: Asked) -> str:
    """A member that no type has: ignored by records, refused by strict ones and by maps."""
    return asked.good.rstrip()[:-1] + ', "zzz": {}}'


MANNERS: list[Manner] = [
    Manner("as asked", lambda asked: [_good(asked)]),
    Manner("in fences", lambda asked: [Said(f"```json\n{asked.good}\n```")]),
    Manner(
        "prose around it", lambda asked: [Said(f"Sure! Here it is:\n{asked.good}\nAnything else?")]
    ),
    Manner(
        "reasoning before it", lambda asked: [Said(f"<think>{asked.other}?</think>{asked.good}")]
    ),
    Manner("said twice", lambda asked: [Said(f"{asked.good}\nTo repeat: {asked.good}")]),
    Manner("without the object", lambda asked: [Said(_unwrapped(asked))]),
    Manner("one member too many", lambda asked: [_plain(_extra(asked)), _good(asked)]),
    Manner("wrong, then right", lambda asked: [_plain(asked.bad), _good(asked)]),
    Manner(
        "cut, then right",
        lambda asked: [_plain(asked.good[: len(asked.good) // 2], "length"), _good(asked)],
    ),
    Manner("cut after the end", lambda asked: [_plain(asked.good, "length"), _good(asked)]),
    Manner("broken, then right", lambda asked: [_plain(asked.good[:-1] + ",}"), _good(asked)]),
    Manner(
        "two values, then one", lambda asked: [Said(f"{asked.good} or {asked.other}"), _good(asked)]
    ),
    Manner("a name twice, then right", lambda asked: [_plain(_twice(asked)), _good(asked)]),
    Manner(
        "an example that fits",
        lambda asked: [Said(f"Like {asked.other}, so: {asked.bad}"), _good(asked)],
    ),
    Manner("no JSON, then right", lambda asked: [Said("I would rather not say."), _good(asked)]),
    Manner("empty, then right", lambda asked: [Said(""), Said(""), _good(asked)]),
    Manner("always wrong", lambda asked: [_plain(asked.bad)] * 3, "invalid"),
    Manner("always cut", lambda asked: [_plain(asked.good, "length")] * 3, "invalid"),
    Manner("never JSON", lambda asked: [Said("I would rather not say.")] * 3, "invalid"),
    Manner("refused", lambda asked: [Said("I cannot help.", "filter")], "refused"),
]
