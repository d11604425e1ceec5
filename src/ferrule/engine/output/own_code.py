"""Which types run a person's code when a value is made: validators, serializers, constructors.

Such code may count, look something up or refuse half a value. So it runs once, for the whole
answer, and never for values that are still arriving.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

_FUNCTIONAL = ("pydantic.functional_validators", "pydantic.functional_serializers")
_DECORATORS = (
    "validators",
    "field_validators",
    "root_validators",
    "model_validators",
    "field_serializers",
    "model_serializers",
)
_HOOKS = ("__post_init__", "__pydantic_post_init__", "__pydantic_custom_init__")
_known: dict[Any, bool] = {}


def runs_own_code(hint: Any) -> bool:
    """Return whether making or encoding a value of a type runs code that somebody wrote for it."""
    try:
        known = _known.get(hint)
    except TypeError:
        return any(map(_has_own_code, _walk(hint)))  # not hashable: `Annotated` with a list in it
    if known is None:
        known = _known[hint] = any(map(_has_own_code, _walk(hint)))
    return known


def _walk(hint: Any) -> Iterator[Any]:
    """Yield a type and all that it is made of, each once, with what `Annotated` adds."""
    waiting = [hint]
    seen: list[Any] = []
    while waiting:
        part = waiting.pop()
        if any(part is one for one in seen):
            continue
        seen.append(part)
        yield part
        is_class = isinstance(part, type) and get_origin(part) is None
        waiting += _list_fields(part) if is_class else get_args(part)


def _has_own_code(part: Any) -> bool:
    if type(part).__module__ in _FUNCTIONAL:
        return True
    if not isinstance(part, type):
        return False
    decorators = getattr(part, "__pydantic_decorators__", None)
    if any(getattr(decorators, kind, None) for kind in _DECORATORS):
        return True
    if any(getattr(part, name, None) for name in _HOOKS):
        return True
    is_theirs = not part.__module__.startswith("pydantic")
    return is_theirs and "__get_pydantic_core_schema__" in vars(part)


def _list_fields(cls: Any) -> list[Any]:
    fields = getattr(cls, "__pydantic_fields__", None)
    if fields:
        return [part for one in fields.values() for part in (one.annotation, *one.metadata)]
    if dataclasses.is_dataclass(cls) or hasattr(cls, "__required_keys__"):
        try:
            return list(get_type_hints(cls, include_extras=True).values())
        except (NameError, TypeError):
            return []
    return []
