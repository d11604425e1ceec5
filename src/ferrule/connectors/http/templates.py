"""Texts with places for arguments: `{{city}}`, `{{args.city}}`, `{{address.zip}}`, `{{limit?}}`. No
I/O.

A template sees the arguments of the call and nothing else: there is no way to write one that reads
a secret, a variable of the environment or a file. A name that no argument has is found when the
template is read, not when it is used. `?` says that the place may stay empty where the argument is
not given; what that means is up to whoever fills the template in (a query parameter is left out, a
JSON value is null). A value is never looked at for further places.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

MISSING = object()
"""What an argument that was not given has as its value."""
MOST = 64
"""Places of one template at the most."""

_INNER = re.compile(
    r"\.?(?:args\.)?(?P<path>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*)(?P<optional>\?)?"
)
_CLOSED = ("auth", "secret", "secrets", "env")
"""Names that look as if they gave access to what a template may not see."""


class Unfit(ValueError):
    """A template cannot be read, or a value cannot go where it would have to. The text is for the
    person or the model.
    """


@dataclass(frozen=True, slots=True)
class Hole:
    """A place for an argument: the name, and where in it."""

    path: tuple[str, ...]
    optional: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def value(self, arguments: Mapping[str, Any]) -> Any:
        """What goes here, or `MISSING`. Raises Unfit if it is missing and may not be."""
        found: Any = arguments
        for part in self.path:
            found = (
                cast("Mapping[str, Any]", found).get(part, MISSING)
                if isinstance(found, Mapping)
                else MISSING
            )
        if found is None and self.optional:
            return MISSING
        if found is MISSING and not self.optional:
            raise Unfit(f"`{self.name}` is needed and was not given")
        return found


@dataclass(frozen=True, slots=True)
class Template:
    """Literal texts and places, in order."""

    parts: tuple[str | Hole, ...]

    @property
    def holes(self) -> Iterator[Hole]:
        return (part for part in self.parts if isinstance(part, Hole))

    @property
    def literal(self) -> str | None:
        """The text, if there are no places in it."""
        return None if any(self.holes) else "".join(cast("tuple[str, ...]", self.parts))

    @property
    def only(self) -> Hole | None:
        """The place, if there is nothing else."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], Hole) else None

    def fill(self, arguments: Mapping[str, Any], escape: Callable[[str], str]) -> str | None:
        """The text with scalars in its places, each through `escape`; None if an optional one is
        missing. Raises Unfit.
        """
        pieces: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            value = part.value(arguments)
            if value is MISSING:
                return None
            pieces.append(escape(scalar(value, part.name)))
        return "".join(pieces)


def parse_template(text: str) -> Template:
    """Raises Unfit."""
    parts: list[str | Hole] = []
    at = 0
    while (start := text.find("{{", at)) >= 0:
        end = text.find("}}", start)
        if end < 0:
            raise Unfit(f"`{text[start : start + 40]}` is not closed; write `{{{{name}}}}`")
        if start > at:
            parts.append(text[at:start])
        parts.append(_hole(text[start + 2 : end].strip()))
        at = end + 2
    if at < len(text):
        parts.append(text[at:])
    if sum(isinstance(part, Hole) for part in parts) > MOST:
        raise Unfit(f"it has more than {MOST} places")
    return Template(tuple(parts))


def _hole(inner: str) -> Hole:
    found = _INNER.fullmatch(inner)
    if found is None:
        raise Unfit(
            f"`{{{{{inner[:60]}}}}}` is no place for an argument; write `{{{{name}}}}` or "
            f"`{{{{name?}}}}`"
        )
    path = tuple(found["path"].split("."))
    if path[0] in _CLOSED and not inner.lstrip(".").startswith("args."):
        raise Unfit(
            f"`{{{{{inner}}}}}`: a template sees the arguments only, nothing of `{path[0]}`"
        )
    return Hole(path, found["optional"] is not None)


def place_for(name: str) -> str:
    """The place for an argument, as it is written in a template."""
    return f"{{{{args.{name}}}}}" if name in _CLOSED else f"{{{{{name}}}}}"


def scalar(value: Any, name: str) -> str:
    """A value as the text that goes into an address or a header. Raises Unfit for lists, objects,
    null and what is no number.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case _:
            kind = {"NoneType": "null", "dict": "an object", "list": "a list"}.get(
                type(value).__name__, "not a number"
            )
            raise Unfit(f"`{name}` is {kind}, and a text or a number is needed here")
