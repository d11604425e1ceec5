"""Parse a hook file: Markdown with front matter that says when the hook applies and what it runs.

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

A hook has one of `script` (Starlark, `handle(event, payload)`), `command`, `url` and `guard` (one
that ships with Ferrule, its options under `with`). Its name is the file's. Scripts only compute: no
files, no programs, no network (requirement 003). Unknown keys are warnings with the nearest known
one; anything else that is wrong is an error with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import DEFAULT_PRIORITY, EventHook, Occasion, OnError, check_event
from ferrule.extensions.front_matter import (
    FileWarning,
    find_unknown_keys,
    get_choice,
    get_field,
    get_text,
    get_texts,
    locate_text,
    parse_document,
)
from ferrule.extensions.starlark.pool import WorkerPool, shared_pool
from ferrule.extensions.starlark.script import Script, ScriptLimits
from ferrule.storage.settings.yaml_tree import Node, to_plain

from .claude_settings import HookAccess, find_hidden_programs, make_runner
from .conditions import parse_condition
from .guards import GUARDS

TIMEOUT_MS = 5000
"""For scripts and guards. Commands and servers have 60,000."""
MAX_LOG_LINES = 20
"""Lines that a script may print and log in one run; the rest is dropped, which a line says."""
MAX_LOG_CHARACTERS = 500
EVENT_KEYS = ("events", "on", "event")
"""Alternative spellings of one key."""
KEYS = (
    *EVENT_KEYS,
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


def parse_hook(
    data: bytes, file: str, access: HookAccess, *, pool: WorkerPool | None = None
) -> tuple[EventHook, list[FileWarning]]:
    """Parse a hook file and return the hook with warnings.

    Raises:
        ConfigError: The file is invalid. The message has file, line and column.
    """
    return parse_hook_node(
        parse_document(data, file).fields, PurePosixPath(file).stem, data, access, pool=pool
    )


def parse_hook_node(
    node: Node, name: str, data: bytes, access: HookAccess, *, pool: WorkerPool | None = None
) -> tuple[EventHook, list[FileWarning]]:
    """Parse one hook from a mapping, in a hook file or within another file.

    Args:
        node: The mapping.
        name: The name of the hook.
        data: The bytes of the whole file.
        access: What the hook may use.
        pool: The worker pool for scripts.

    Raises:
        ConfigError: The hook is invalid. The message has the place.
    """
    if node.pairs is None:
        raise node.error(
            "a hook must be a mapping", hint="write `- name: my_hook`, and its keys below"
        )
    warnings = [*find_unknown_keys(node, KEYS, "a hook"), *find_hidden_programs(node)]
    sources = [key for key in _SOURCES if get_field(node, key) is not None]
    if len(sources) != 1:
        found = " and ".join(f"`{key}`" for key in sources) or "none of them"
        raise node.error(f"a hook has one of `script`, `command`, `url` and `guard`; found {found}")
    source = sources[0]
    timeout = _timeout(node, 60_000 if source in ("command", "url") else TIMEOUT_MS)
    if source == "guard":
        return _make_guard(node, name, timeout, data), warnings
    if source == "script":
        run = _script_runner(node, name, data, timeout, pool)
    else:
        run = make_runner(node, access, timeout)
    priority = _priority(node, DEFAULT_PRIORITY)
    return _make_hook(node, name, _events(node), run, timeout, priority, data), warnings


def _make_hook(
    node: Node,
    name: str,
    events: tuple[str, ...],
    run: Callable[[Occasion], Any],
    timeout: float,
    priority: int,
    data: bytes,
) -> EventHook:
    when = get_text(node, "when")
    place = get_field(node, "when")
    condition = None
    if when and place:
        condition = parse_condition(when, place.file, *locate_text(place, data), events)
    on_error = get_choice(node, "on_error", ("block", "allow", "ask")) or "block"
    try:
        return EventHook(
            name=name,
            events=events,
            run=run,
            when=condition,
            priority=priority,
            # Longer than the timeout of what runs, so that its own error is reported.
            timeout=timeout + 5,
            on_error=cast("OnError", on_error),
            source=node.file,
        )
    except ConfigError as error:
        if error.detail.startswith(node.file):
            raise
        raise node.error(error.detail, hint=error.hint) from error


def _events(node: Node) -> tuple[str, ...]:
    key = next((key for key in EVENT_KEYS if get_field(node, key) is not None), "events")
    place = get_field(node, key)
    events = get_texts(node, key)
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
    """Return the timeout in seconds."""
    found = get_field(node, "timeout_ms")
    value: Any = default if found is None else found.value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 600_000:
        raise (found or node).error(
            f"`timeout_ms` is {value!r}", hint="whole milliseconds, 1 to 600000"
        )
    return value / 1000


def _priority(node: Node, default: int) -> int:
    found = get_field(node, "priority")
    if found is None:
        return default
    if isinstance(found.value, bool) or not isinstance(found.value, int):
        raise found.error("`priority` must be a whole number; lower comes first")
    return found.value


def _script_runner(
    node: Node, name: str, data: bytes, timeout: float, pool: WorkerPool | None
) -> Callable[[Occasion], Any]:
    place = get_field(node, "script")
    source = get_text(node, "script")
    assert place is not None
    if not source.strip():
        raise place.error("`script` is empty")
    script = Script(source, place.file, locate_text(place, data)[0])
    bounds = ScriptLimits(seconds=timeout)

    async def run(occasion: Occasion) -> object:
        arguments = (occasion.event, occasion.payload.as_dict())
        return await (pool or shared_pool()).run(
            script,
            "handle",
            arguments,
            listener=_ScriptLog(name, occasion.log).write,
            limits=bounds,
            pure=True,
        )

    return run


class _ScriptLog:
    """Receives the printed and logged lines of one run of a hook's script."""

    def __init__(self, name: str, log: Callable[[str], None]) -> None:
        self._name = name
        self._log = log
        self._lines = 0

    def write(self, level: str, text: str, fields: Mapping[str, Any]) -> None:
        """Pass one line on, bounded. `level` is `print`, `info`, `warn`, `error` or `debug`."""
        self._lines += 1
        if self._lines > MAX_LOG_LINES:
            if self._lines == MAX_LOG_LINES + 1:
                self._log(f"`{self._name}`: [more than {MAX_LOG_LINES} lines; the rest is dropped]")
            return
        prefix = "" if level in ("print", "info") else f"{level}: "
        suffix = "".join(f" {key}={value}" for key, value in fields.items())
        self._log(f"`{self._name}`: {prefix}{text}{suffix}"[:MAX_LOG_CHARACTERS])


def _make_guard(node: Node, name: str, timeout: float, data: bytes) -> EventHook:
    place = get_field(node, "guard")
    guard_name = get_text(node, "guard")
    assert place is not None
    make = GUARDS.get(guard_name)
    if make is None:
        raise place.error(
            f"there is no guard `{guard_name}`", hint=f"there are: {', '.join(GUARDS)}"
        )
    options_node = get_field(node, "with")
    options: Any = to_plain(options_node) if options_node is not None else {}
    if not isinstance(options, dict):
        raise (options_node or node).error("`with` must be a mapping of the guard's options")
    try:
        guard = make(**options)
    except (TypeError, ValueError, ConfigError) as error:
        raise (options_node or place).error(
            f"`{guard_name}` cannot be made with these options: {error}"
        ) from error
    has_events = any(get_field(node, key) for key in EVENT_KEYS)
    events = _events(node) if has_events else guard.events
    if not set(events) <= set(guard.events):
        raise node.error(f"`{guard_name}` is a guard for {', '.join(guard.events)}")
    priority = _priority(node, guard.priority)
    return _make_hook(node, name, events, guard.run, timeout, priority, data)
