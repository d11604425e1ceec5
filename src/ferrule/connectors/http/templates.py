"""Texts with placeholders: `{{city}}`, `{{args.city}}`, `{{address.zip}}`, `{{limit?}}`. No I/O.

A template sees the arguments of the call and nothing else: there is no way to write one that reads
a secret, an environment variable or a file. A name that no argument has is found when the template
is read, not when it is used. `?` says that the placeholder may stay empty if the argument is not
given; what that means is up to whoever fills the template (a query parameter is left out, a JSON
value is null). A value is never searched for further placeholders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from ferrule.core.value_class import frozen

MISSING = object()
"""The value of an argument that was not given."""
MAX_PLACEHOLDERS = 64
"""The most placeholders of one template."""

_PLACEHOLDER = re.compile(
    r"\.?(?:args\.)?(?P<path>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*)(?P<optional>\?)?"
)
_FORBIDDEN_NAMES = ("auth", "secret", "secrets", "env")
"""Names that look as if they gave access to what a template may not see."""


class TemplateError(ValueError):
    """A template cannot be parsed, or a value cannot be put where it would have to go.

    The message is for the person or the model.
    """


@frozen
class Placeholder:
    """A placeholder for an argument: its name, and the path within it."""

    path: tuple[str, ...]
    is_optional: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def value(self, arguments: Mapping[str, Any]) -> Any:
        """Return the value that goes here, or `MISSING`.

        Raises:
            TemplateError: A required value is missing.
        """
        found: Any = arguments
        for part in self.path:
            if isinstance(found, Mapping):
                found = cast("Mapping[str, Any]", found).get(part, MISSING)
            else:
                found = MISSING
        if found is None and self.is_optional:
            return MISSING
        if found is MISSING and not self.is_optional:
            raise TemplateError(f"`{self.name}` is required and was not given")
        return found


@frozen
class Template:
    """Literal texts and placeholders, in order."""

    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> Iterator[Placeholder]:
        return (part for part in self.parts if isinstance(part, Placeholder))

    @property
    def literal(self) -> str | None:
        """The text, if there are no placeholders in it."""
        return None if any(self.placeholders) else "".join(cast("tuple[str, ...]", self.parts))

    @property
    def single_placeholder(self) -> Placeholder | None:
        """The placeholder, if there is nothing else."""
        if len(self.parts) != 1:
            return None
        (part,) = self.parts
        return part if isinstance(part, Placeholder) else None

    def fill(self, arguments: Mapping[str, Any], escape: Callable[[str], str]) -> str | None:
        """Return the text with scalars in its placeholders, each through `escape`.

        Returns None if an optional one is missing. Raises TemplateError.
        """
        pieces: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            value = part.value(arguments)
            if value is MISSING:
                return None
            pieces.append(escape(scalar_text(value, part.name)))
        return "".join(pieces)


def parse_template(text: str) -> Template:
    """Parse a text with placeholders. Raises TemplateError."""
    parts: list[str | Placeholder] = []
    position = 0
    while (start := text.find("{{", position)) >= 0:
        end = text.find("}}", start)
        if end < 0:
            raise TemplateError(f"`{text[start : start + 40]}` is not closed; write `{{{{name}}}}`")
        if start > position:
            parts.append(text[position:start])
        parts.append(_parse_placeholder(text[start + 2 : end].strip()))
        position = end + 2
    if position < len(text):
        parts.append(text[position:])
    if sum(isinstance(part, Placeholder) for part in parts) > MAX_PLACEHOLDERS:
        raise TemplateError(f"it has more than {MAX_PLACEHOLDERS} placeholders")
    return Template(tuple(parts))


def _parse_placeholder(inner: str) -> Placeholder:
    match = _PLACEHOLDER.fullmatch(inner)
    if match is None:
        raise TemplateError(
            f"`{{{{{inner[:60]}}}}}` is not a placeholder; write `{{{{name}}}}` or `{{{{name?}}}}`"
        )
    path = tuple(match["path"].split("."))
    if path[0] in _FORBIDDEN_NAMES and not inner.lstrip(".").startswith("args."):
        raise TemplateError(
            f"`{{{{{inner}}}}}`: a template sees the arguments only, nothing of `{path[0]}`"
        )
    return Placeholder(path, match["optional"] is not None)


def placeholder_for(name: str) -> str:
    """Return the placeholder for an argument, as it is written in a template."""
    return f"{{{{args.{name}}}}}" if name in _FORBIDDEN_NAMES else f"{{{{{name}}}}}"


def scalar_text(value: Any, name: str) -> str:
    """Return a value as text for a URL or a header.

    Raises:
        TemplateError: It is a list, an object, null or not a finite number.
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
            raise TemplateError(f"`{name}` is {kind}, and a text or a number is needed here")
