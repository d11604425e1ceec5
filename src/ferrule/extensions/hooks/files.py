"""A hook as a file: Markdown whose front matter says when it is asked and what is asked, and whose
text says why.

    ---
    events: [tool.pre]
    when: name == "run_command"
    priority: 10
    script: |
      def handle(event, payload):
          if "rm -rf /" in payload["arguments"]["command"]:
              return block("that is everything")
          return allow()
    timeout_ms: 2000
    on_error: block
    ---
    Keeps the disk.

One of `script` (Starlark, `handle(event, payload)`), `command`, `url` and `guard` (one that ships,
with its options under `with`). The name is the file's. Scripts compute and nothing else: no files,
no programs, no network (requirement 003 says so; there it was not true). Keys that mean nothing are
warnings with the nearest that does; anything else that is wrong is an error with its place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import DEFAULT_PRIORITY, EventHook, Occasion, OnError, check_event
from ferrule.extensions.front_matter import (
    Warned,
    begins,
    choice_of,
    parse_document,
    plain,
    text_of,
    texts_of,
    unknown_keys,
)
from ferrule.extensions.front_matter import field as field_of
from ferrule.extensions.starlark.pool import Pool, shared
from ferrule.extensions.starlark.script import Bounds, Script
from ferrule.storage.settings.yaml_tree import Node

from .claude_settings import Reach, hidden_programs, runner
from .conditions import parse_when
from .guards import GUARDS

TIMEOUT_MS = 5000
"""Of a script or guard; commands and servers have 60,000."""
EVENTS_KEYS = ("events", "on", "event")
"""Spellings of one key."""
KEYS = (
    *EVENTS_KEYS,
    "when",
    "priority",
    "timeout_ms",
    "on_error",
    "script",
    "command",
    "args",
    "url",
    "headers",
    "allowedEnvVars",
    "type",
    "guard",
    "with",
    "description",
    "name",
    "handler",
)
_SOURCES = ("script", "command", "url", "guard")


def read_hook(
    data: bytes, file: str, reach: Reach, *, pool: Pool | None = None
) -> tuple[EventHook, list[Warned]]:
    """One hook file. Raises ConfigError that names file, line and column."""
    return read_hook_node(
        parse_document(data, file).fields, PurePosixPath(file).stem, data, reach, pool=pool
    )


def read_hook_node(
    node: Node, name: str, data: bytes, reach: Reach, *, pool: Pool | None = None
) -> tuple[EventHook, list[Warned]]:
    """One hook from a mapping, of a hook file or within another file; `data` is the whole file.
    Raises ConfigError, with the place.
    """
    if node.pairs is None:
        raise node.error(
            "a hook must be a mapping", hint="write `- name: my_hook`, and its keys below"
        )
    warned = [*unknown_keys(node, KEYS, "a hook"), *hidden_programs(node)]
    named = [key for key in _SOURCES if field_of(node, key) is not None]
    if len(named) != 1:
        found = " and ".join(f"`{key}`" for key in named) or "none of them"
        raise node.error(f"a hook has one of `script`, `command`, `url` and `guard`; found {found}")
    timeout = _timeout(node, 60_000 if named[0] in ("command", "url") else TIMEOUT_MS)
    if named[0] == "guard":
        return _guard(node, name, timeout, data), warned
    run = (
        runner(node, reach, timeout) if named[0] != "script" else _script(node, data, timeout, pool)
    )
    return _made(
        node, name, _events(node), run, timeout, _priority(node, DEFAULT_PRIORITY), data
    ), warned


def _made(
    node: Node,
    name: str,
    events: tuple[str, ...],
    run: Callable[[Occasion], Any],
    timeout: float,
    priority: int,
    data: bytes,
) -> EventHook:
    when, place = text_of(node, "when"), field_of(node, "when")
    try:
        return EventHook(
            name=name,
            events=events,
            run=run,
            when=parse_when(when, place.file, *begins(place, data), events)
            if when and place
            else None,
            priority=priority,
            # A little more than what runs: its own bound is the one that says what was going on.
            timeout=timeout + 5,
            on_error=cast(
                "OnError", choice_of(node, "on_error", ("block", "allow", "ask")) or "block"
            ),
            source=node.file,
        )
    except ConfigError as error:
        raise (
            error
            if error.detail.startswith(node.file)
            else node.error(error.detail, hint=error.hint)
        ) from error


def _events(node: Node) -> tuple[str, ...]:
    key = next((key for key in EVENTS_KEYS if field_of(node, key) is not None), "events")
    place, events = field_of(node, key), texts_of(node, key)
    if not events or place is None:
        raise node.error("a hook needs `events`", hint="for example `events: [tool.pre]`")
    for number, event in enumerate(events):
        try:
            check_event(event, "this hook")
        except ConfigError as error:
            where = place.items[number] if place.items else place
            raise where.error(error.detail, hint=error.hint) from error
    return events


def _timeout(node: Node, default: int) -> float:
    """Seconds."""
    found = field_of(node, "timeout_ms")
    value: Any = default if found is None else found.value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 600_000:
        raise (found or node).error(
            f"`timeout_ms` is {value!r}", hint="whole milliseconds, 1 to 600000"
        )
    return value / 1000


def _priority(node: Node, default: int) -> int:
    found = field_of(node, "priority")
    if found is None:
        return default
    if isinstance(found.value, bool) or not isinstance(found.value, int):
        raise found.error("`priority` must be a whole number; lower comes first")
    return found.value


def _script(
    node: Node, data: bytes, timeout: float, pool: Pool | None
) -> Callable[[Occasion], Any]:
    place = field_of(node, "script")
    source = text_of(node, "script")
    assert place is not None
    if not source.strip():
        raise place.error("`script` is empty")
    script = Script(source, place.file, begins(place, data)[0])
    bounds = Bounds(seconds=timeout)

    async def run(occasion: Occasion) -> object:
        given = (occasion.event, occasion.payload.as_dict())
        return await (pool or shared()).run(script, "handle", given, bounds=bounds, pure=True)

    return run


def _guard(node: Node, name: str, timeout: float, data: bytes) -> EventHook:
    place, chosen = field_of(node, "guard"), text_of(node, "guard")
    assert place is not None
    make = GUARDS.get(chosen)
    if make is None:
        raise place.error(f"there is no guard `{chosen}`", hint=f"there are: {', '.join(GUARDS)}")
    options = field_of(node, "with")
    given: Any = plain(options) if options is not None else {}
    if not isinstance(given, dict):
        raise (options or node).error("`with` must be a mapping of the guard's options")
    try:
        guard = make(**given)
    except (TypeError, ValueError, ConfigError) as error:
        raise (options or place).error(
            f"`{chosen}` cannot be made with these options: {error}"
        ) from error
    events = _events(node) if any(field_of(node, key) for key in EVENTS_KEYS) else guard.events
    if not set(events) <= set(guard.events):
        raise node.error(f"`{chosen}` is a guard for {', '.join(guard.events)}")
    return _made(node, name, events, guard.run, timeout, _priority(node, guard.priority), data)
