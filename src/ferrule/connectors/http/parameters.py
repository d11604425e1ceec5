"""Arguments as query, header, cookie and path parameters, in the styles of OpenAPI. No I/O.

Source: OpenAPI 3.1, "Style Values" and "Style Examples" (`form`, `spaceDelimited`, `pipeDelimited`,
`deepObject`, `simple`, `label`, `matrix`); `json` is a parameter whose content is
`application/json`. Values are percent-encoded where the place requires it, the separators of a
style are not. Lists and objects within lists and objects have no style: they are refused, except in
`json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from ferrule.core.calls import encode_json
from ferrule.core.value_class import frozen

from .templates import TemplateError, scalar_text
from .url_templates import encode_in_segment, percent_encode

Location = Literal["path", "query", "header", "cookie"]
LOCATIONS: tuple[Location, ...] = ("path", "query", "header", "cookie")
STYLES: dict[Location, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject", "json"),
    "header": ("simple", "json"),
    "cookie": ("form", "json"),
}
"""The styles of each place; the first is the default."""
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_COOKIE_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

Pair = tuple[str, str]


@frozen
class Parameter:
    """One parameter: `name` is the server's, `argument` the argument's.

    With `explode` None the style decides.
    """

    name: str
    location: Location
    argument: str
    style: str = ""
    explode: bool | None = None

    @property
    def effective_style(self) -> str:
        return self.style or STYLES[self.location][0]

    @property
    def is_exploded(self) -> bool:
        """Whether items stand apart: by default only in `form`, and always in `deepObject`."""
        chosen = self.effective_style == "form" if self.explode is None else self.explode
        return chosen or self.effective_style == "deepObject"

    def encode_query(self, value: Any) -> list[str]:
        """Return encoded `name=value` pairs. Raises TemplateError."""
        return [
            f"{percent_encode(name)}={text}" for name, text in self._pairs(value, percent_encode)
        ]

    def encode_cookies(self, value: Any) -> list[Pair]:
        """Return name and encoded value of cookies. Raises TemplateError."""
        pairs = self._pairs(value, percent_encode)
        for name, _ in pairs:
            if not _COOKIE_NAME.fullmatch(name):
                raise TemplateError(f"`{name[:40]}` cannot be the name of a cookie")
        return pairs

    def encode_header(self, value: Any) -> str:
        """Return the value of a header. Raises TemplateError."""
        if self.effective_style == "json":
            return check_header_value(json.dumps(value), self.name)
        return check_header_value(self._simple(value, str, ",", "="), self.name)

    def encode_segment(self, value: Any) -> str:
        """Return the encoded text of a path segment. Raises TemplateError."""
        style = self.effective_style
        if style == "simple":
            return self._simple(value, encode_in_segment, ",", "=")
        if style == "label":
            return "." + self._simple(
                value, encode_in_segment, "." if self.is_exploded else ",", "="
            )
        name = percent_encode(self.name)
        if self.is_exploded and isinstance(value, (list, Mapping)):
            pairs = self._items(value, encode_in_segment)
            return "".join(f";{key or name}={text}" for key, text in pairs)
        return f";{name}={self._simple(value, encode_in_segment, ',', ',')}"

    def _pairs(self, value: Any, escape: Callable[[str], str]) -> list[Pair]:
        """Return one pair or several, as `form` and similar styles write them."""
        style = self.effective_style
        if style == "json":
            return [(self.name, escape(encode_json(value)))]
        if not isinstance(value, (list, Mapping)):
            return [(self.name, escape(scalar_text(value, self.argument)))]
        items = self._items(cast("Any", value), escape)
        if style == "deepObject":
            if not isinstance(value, Mapping):
                raise TemplateError(f"`{self.argument}` must be an object")
            return [(f"{self.name}[{key}]", text) for key, text in items]
        if self.is_exploded:
            return [(key or self.name, text) for key, text in items]
        texts: list[str] = []
        for key, text in items:
            if key:
                texts.append(escape(key))
            texts.append(text)
        if not texts:
            return []
        separator = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(style, ",")
        return [(self.name, separator.join(texts))]

    def _simple(
        self, value: Any, escape: Callable[[str], str], separator: str, assignment: str
    ) -> str:
        if not isinstance(value, (list, Mapping)):
            return escape(scalar_text(value, self.argument))
        items = self._items(cast("Any", value), escape)
        sign = assignment if self.is_exploded else ","
        return separator.join(f"{escape(key)}{sign}{text}" if key else text for key, text in items)

    def _items(self, value: Any, escape: Callable[[str], str]) -> list[Pair]:
        """Return names (empty in a list) and escaped texts of a list or object of scalars."""
        if isinstance(value, Mapping):
            pairs = cast("Mapping[str, Any]", value).items()
            return [
                (key, escape(scalar_text(field, f"{self.argument}.{key}")))
                for key, field in pairs
                if field is not None
            ]
        return [("", escape(scalar_text(item, self.argument))) for item in cast("list[Any]", value)]


def check_header_value(text: str, name: str) -> str:
    """Return a value as it is sent in a header.

    Raises:
        TemplateError: A line break in it would begin another header.
    """
    if not _HEADER_VALUE.fullmatch(text):
        raise TemplateError(
            f"the value for the header `{name}` has line breaks or characters beyond ASCII"
        )
    return text.strip(" ")
