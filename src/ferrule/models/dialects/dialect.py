"""What a way of writing calls is: what opens one, what closes it, how its body is read, how it is
written.

A `Form` reads, a `Dialect` names what one family of models writes. Several dialects share forms
(`<tool_call>` holds JSON, XML or key-value pairs), and every reader may read all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from ferrule.core.calls import Call
from ferrule.core.frozen import frozen


@frozen
class Found:
    """A call as the text has it. `arguments` is JSON text, or the broken text as it stood.

    `repairs` says in words what was read leniently; `cut` that the text ended inside the call.
    `unmarked` is what to hand on instead of `arguments` if the reply was cut, for a call whose text
    has no end of its own. `source` is the whole call as it stood, where its values are raw text:
    what follows it may show that one of them was misread.
    `alone`: it is believed only if the reply has no other call. `escaped`: no mark can be taken for
    a part of its values, though it stands among calls whose values are raw text.
    """

    tool: str
    arguments: str
    repairs: tuple[str, ...] = ()
    cut: bool = False
    unmarked: str | None = None
    source: str = ""
    alone: bool = False
    escaped: bool = False


def unreadable(text: str) -> str:
    """Text to hand on as the arguments of a call that cannot be read: never text that could be
    taken for arguments.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        if text.strip():
            return text
    return f"({text})"


@dataclass(slots=True)
class Parsed:
    """A body that was understood: calls and prose in their order, what is odd about it, and where
    it ended.

    `rest` is the offset in the body where something else begins (None: the body was used up).
    `doubtful`: where a value ends cannot be known, so that no call of the reply can be.
    """

    items: list[Found | str] = field(default_factory=list["Found | str"])
    problems: list[str] = field(default_factory=list[str])
    rest: int | None = None
    doubtful: bool = False

    @property
    def calls(self) -> list[Found]:
        return [item for item in self.items if isinstance(item, Found)]


class Ending(Enum):
    """How the body that is to be read ended.

    `CLOSED`: at a closing mark, which may be part of an argument: read it only if it is whole.
    `FORCED`: at the first closing mark, because reading on found no whole call.
    `OPEN`: with the reply: nothing closed it.
    """

    CLOSED = "closed"
    FORCED = "forced"
    OPEN = "open"


class Tools:
    """The tools on offer, as far as reading needs them: names, and schemas where they are known."""

    def __init__(self, tools: Collection[str] = ()) -> None:
        self.given = tools
        self.names = frozenset(tools)
        self._schemas: Mapping[str, Any] = (
            cast("Mapping[str, Any]", tools) if isinstance(tools, Mapping) else {}
        )
        self._plain = {_plain(name): name for name in sorted(self.names)}

    def __bool__(self) -> bool:
        return bool(self.names)

    def near(self, name: str) -> bool:
        """Whether `name` is a tool or a slip of the pen away from one (case, `-` for `_`, one
        letter).
        """
        plain = _plain(name)
        if plain in self._plain:
            return True
        return any(_one_edit(plain, known) for known in self._plain)

    def parameters(self, tool: str) -> dict[str, Any]:
        """Schemas of a tool's parameters in their order; empty if unknown."""
        schema = self._schemas.get(tool)
        if not isinstance(schema, Mapping):
            return {}
        properties = cast("Mapping[str, Any]", schema).get("properties")
        return (
            dict(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else {}
        )

    def fits(self, tool: str, names: Sequence[str]) -> bool:
        """Whether parameters of these names are all that a tool needs, and each one of them its
        own, as far as is known.
        """
        if tool not in self._schemas:
            return True
        schema = cast("Mapping[str, Any]", self._schemas[tool])
        required = cast("Sequence[str]", schema.get("required") or ())
        is_open = bool(schema.get("additionalProperties") or schema.get("patternProperties"))
        return set(required) <= set(names) and (
            is_open or set(names) <= self.parameters(tool).keys()
        )

    def admit(self, tool: str, values: Mapping[str, Any]) -> bool:
        """Whether values can be arguments of a tool, by their names and types, as far as is
        known.
        """
        if not self.fits(tool, list(values)):
            return False
        for name, value in values.items():
            kinds = self.kinds(tool, name)
            if kinds is not None and kind_of(value) not in kinds:
                return False
        return True

    def kinds(self, tool: str, parameter: str) -> frozenset[str] | None:
        """The types that a parameter's schema admits; every type if it does not say; None if the
        tool is not known.
        """
        if tool not in self._schemas:
            return None
        return kinds_of(self.parameters(tool).get(parameter))


_EVERY_KIND = ("string", "integer", "number", "boolean", "null", "array", "object")


def kinds_of(schema: Any) -> frozenset[str]:
    """The types that a schema admits; every type if it does not say."""
    return frozenset(_kinds(schema))


def _kinds(schema: Any, depth: int = 0) -> set[str]:
    """The types that a schema admits. What it says by other means than types, values and
    alternatives counts as any.
    """
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return {*_EVERY_KIND}
    known = cast("Mapping[str, Any]", schema)
    named = known.get("type")
    if isinstance(named, str):
        return {named, "integer"} if named == "number" else {named}
    if isinstance(named, list):
        return set[str]().union(*(_kinds({"type": one}) for one in cast("list[Any]", named)))
    for key in ("anyOf", "oneOf"):
        if isinstance(known.get(key), list):
            return set[str]().union(*(_kinds(one, depth + 1) for one in known[key]))
    values = known.get("enum", [known["const"]] if "const" in known else None)
    if isinstance(values, list):
        return {kind_of(value) for value in cast("list[Any]", values)}
    return {*_EVERY_KIND}


_DEEPEST = 8


def kind_of(value: Any) -> str:
    """The type of a value as JSON Schema names it; whole numbers are integers."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _one_edit(a: str, b: str) -> bool:
    """Whether one letter was added, lost, changed or swapped with its neighbour. Short names must
    be exact.
    """
    if min(len(a), len(b)) < 5 or abs(len(a) - len(b)) > 1:
        return False
    at = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    if len(a) == len(b):
        return a[at + 1 :] == b[at + 1 :] or (
            a[at : at + 2] == b[at : at + 2][::-1] and a[at + 2 :] == b[at + 2 :]
        )
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return longer[at + 1 :] == shorter[at:]


ReadBody = Callable[[str, str, Ending, Tools], Parsed | None]
"""`(opener, body, ending, tools)`: None means that this is no call (or, while CLOSED, not a whole
one yet).
"""


@frozen
class Form:
    """One way of marking calls in text.

    `opens` and `closes` are regular expressions; `closes` may be made from the opener. Both look at
    most one character beyond what they match, and match at most `LONGEST` characters, so that a
    reader knows how much of a stream to hold back.
    """

    name: str
    opens: str
    closes: Callable[[str], str]
    read: ReadBody


LONGEST = 96
"""Characters a mark may have."""


@frozen
class Dialect:
    """What one family of models writes.

    `render` writes calls as that family does (reading them gives the calls back); `example` is the
    shape shown to a model that was never taught one.
    """

    name: str
    families: tuple[str, ...]
    forms: tuple[Form, ...]
    render: Callable[[Sequence[Call]], str]
    example: str
