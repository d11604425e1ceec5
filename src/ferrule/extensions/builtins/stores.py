"""`cache`, `ctx` and `metrics`: what scripts keep between calls. All of it ends with the session.

cache    of one file, as long as the session
ctx      of all files, until the next message of the person
metrics  of all files, as long as the session: named numbers that only scripts see
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from ferrule.core.calls import ErrorType, encode_json
from ferrule.core.errors import ToolFailed

from .scope import Scope, usage_error

STORE_BYTES = 1 << 20
STORE_KEYS = 1_000
"""Of one file's cache, of a turn, and names of counters."""
LONGEST_NAME = 200
_CACHE = "extend.cache"
_TURN = "extend.turn"
_METRICS = "extend.metrics"

_Find = Callable[[Scope], dict[str, Any]]


def _cache(scope: Scope) -> dict[str, Any]:
    return scope.context.memory.setdefault(_CACHE, {}).setdefault(scope.file, {})


def _turn(scope: Scope) -> dict[str, Any]:
    run = scope.context.identity.run
    memory = scope.context.memory
    if memory.get(_TURN, (None,))[0] != run:
        memory[_TURN] = (run, {})
    return memory[_TURN][1]


async def _get(find: _Find, scope: Scope, key: str, default: Any = None) -> Any:
    return find(scope).get(key, default)


async def _set(name: str, find: _Find, scope: Scope, key: str, value: Any) -> None:
    store = find(scope)
    updated: Mapping[str, Any] = {**store, key: value}
    if len(updated) > STORE_KEYS or len(encode_json(updated)) > STORE_BYTES:
        raise ToolFailed(
            ErrorType.LIMIT,
            f"`{name}.set`: `{name}` would hold more than {STORE_KEYS} keys or {STORE_BYTES} "
            "bytes; delete something first",
        )
    store[key] = value


async def _has(find: _Find, scope: Scope, key: str) -> bool:
    return key in find(scope)


async def _delete(find: _Find, scope: Scope, key: str) -> None:
    find(scope).pop(key, None)


async def _clear(find: _Find, scope: Scope) -> None:
    find(scope).clear()


async def _snapshot(find: _Find, scope: Scope) -> dict[str, Any]:
    return dict(find(scope))


def _store(name: str, find: _Find) -> dict[str, Callable[..., Awaitable[Any]]]:
    return {
        f"{name}.get": partial(_get, find),
        f"{name}.set": partial(_set, name, find),
        f"{name}.has": partial(_has, find),
        f"{name}.delete": partial(_delete, find),
        f"{name}.clear": partial(_clear, find),
    }


# ---- counters


def _counters(scope: Scope) -> dict[str, Any]:
    return scope.context.memory.setdefault(_METRICS, {})


async def increment(scope: Scope, name: str, delta: float = 1) -> float:
    is_number = isinstance(delta, (int, float))  # pyright: ignore[reportUnnecessaryIsInstance] - scripts are not typed
    is_name = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME  # pyright: ignore[reportUnnecessaryIsInstance] - scripts are not typed
    if not is_number or not is_name:
        raise usage_error(
            f"`metrics.incr` takes a name of 1 to {LONGEST_NAME} characters and a number"
        )
    counters = _counters(scope)
    if name not in counters and len(counters) >= STORE_KEYS:
        raise ToolFailed(
            ErrorType.LIMIT, f"`metrics.incr`: there are {STORE_KEYS} counters already"
        )
    counters[name] = counters.get(name, 0) + delta
    return counters[name]


async def reset(scope: Scope, name: str | None = None) -> None:
    counters = _counters(scope)
    if name is None:
        counters.clear()
    else:
        counters.pop(name, None)


async def counter(scope: Scope, name: str) -> float:
    return _counters(scope).get(name, 0)


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    **_store("cache", _cache),
    **_store("ctx", _turn),
    "ctx.snapshot": partial(_snapshot, _turn),
    "metrics.incr": increment,
    "metrics.get": counter,
    "metrics.reset": reset,
    "metrics.snapshot": partial(_snapshot, _counters),
}
