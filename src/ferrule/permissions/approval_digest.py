"""What an approval is bound to: a digest of the very arguments that a person saw."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, cast

_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


def digest(tool_name: str, values: Mapping[str, Any]) -> str:
    """SHA-256 (hex) over the tool's name and its values as canonical JSON: keys sorted, no blanks.

    An approval holds for this digest only. A value that is no JSON is replaced by its type and
    plain form.
    """
    try:
        text = _canonical([tool_name, values])
    except (TypeError, ValueError):
        text = _canonical([tool_name, _plain(values)])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _plain(value: Any) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        return {
            f"{key}" if isinstance(key, str) else f"{type(key).__name__}:{key}": _plain(v)
            for key, v in pairs.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(_plain(item), sort_keys=True) for item in cast("set[Any]", value))
    name = type(value).__name__
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(asdict(value))}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return {name: _plain(dump())}
    if isinstance(value, bytes):
        return {name: value.hex()}
    return {name: str(value)}
