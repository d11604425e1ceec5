"""Reading the fields of a server's answer that carry its text and its calls.

What is absent is empty: also null, false and empty values, which servers send in place of every
type. Anything else of a wrong type is an error, because a piece that is left out in silence changes
what was said, or the arguments of a call that is then carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.calls import encode_json
from ferrule.core.errors import ProviderError

_SHOWN_CHARACTERS = 200


def read_text(fields: Mapping[str, Any], name: str) -> str:
    """Return a text; "" if it is absent.

    Raises:
        ProviderError: `not_understood`, it is something else.
    """
    value = fields.get(name)
    if type(value) is str:
        return value
    if not _is_absent(value):
        raise build_field_error(name, "text", value)
    return ""


def read_object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object; an empty one if it is absent.

    Raises:
        ProviderError: `not_understood`, it is something else.
    """
    value = fields.get(name)
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if not _is_absent(value):
        raise build_field_error(name, "an object", value)
    return {}


def read_objects(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a list; none if it is absent.

    Raises:
        ProviderError: `not_understood`, it is something else, or has something else in it.
    """
    if _is_absent(fields.get(name)):
        return []
    items: Any = fields[name]
    if type(items) is not list or not all(isinstance(item, dict) for item in cast("Any", items)):
        raise build_field_error(name, "a list of objects", fields[name])
    return cast("Any", items)


def read_place(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a place among the parts of an answer; None if it is absent.

    Raises:
        ProviderError: `not_understood`, it is something else.
    """
    value = fields.get(name)
    if value is not None and type(value) is not int:
        raise build_field_error(name, "a whole number", value)
    return value


def build_field_error(name: str, wanted: str, value: object) -> ProviderError:
    """Build the error for a field that is not what it should be; it shows the value's beginning."""
    shown = encode_json(value)[:_SHOWN_CHARACTERS].encode("utf-8", "replace").decode()
    return ProviderError(
        f"the server's answer has {shown} as `{name}`, where {wanted} should be",
        code="not_understood",
        retryable=False,
    )


def _is_absent(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})
