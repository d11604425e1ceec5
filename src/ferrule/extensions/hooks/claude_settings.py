"""Hooks from settings in the shape of Claude Code: `{"hooks": {"PreToolUse": [{"matcher": "Bash",
"hooks": [{…}]}]}}`.

A matcher of letters, digits, `_`, `-`, `,`, blanks and `|` is a list of names, each meant exactly;
anything else is a regular expression, searched for (in Rust's syntax, `matching`). Absent, empty
and `*` match everything. For calls it is compared with the tool's name here and in the contract
(`run_command` and `Bash`), elsewhere with the event's `source` or `reason`.

What a hook may have: `type` (`command` or `http`), `command` (a line for the shell, or with `args`
a program and its words), `url`, `headers`, `allowedEnvVars`, `timeout` (seconds), and ours: `name`,
`priority`, `on_error`, `when`. What cannot be understood is an error with its place, so that no
guard is lost in silence; an event that is never fired here is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import (
    DEFAULT_PRIORITY,
    EventHook,
    Occasion,
    OnError,
    SessionEnd,
    SessionStart,
    ToolPost,
    ToolPre,
    check_event,
)
from ferrule.extensions.front_matter import (
    Warned,
    choice_of,
    plain,
    text_of,
    texts_of,
    unknown_keys,
)
from ferrule.extensions.front_matter import field as field_of
from ferrule.storage.settings.yaml_tree import Node
from ferrule.tools.safe_patterns import compile_regex

from .commands import HookCommands
from .conditions import parse_when
from .contract import EVENTS, NOT_FIRED, contract_name
from .web import HookServer

COMMAND_TIMEOUT = 60.0
"""Seconds, where a command says nothing."""
_KEYS = (
    "type",
    "command",
    "args",
    "url",
    "headers",
    "allowedEnvVars",
    "timeout",
    "name",
    "priority",
    "on_error",
    "when",
    "statusMessage",
    "shell",
)
_LIST = re.compile(r"[\w |,-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reach:
    """What hooks may use: a runner for commands, and hosts for addresses."""

    commands: HookCommands
    hosts: tuple[str, ...] = ()


@dataclass(slots=True)
class Read:
    """What was found. `warnings` say what has no effect."""

    hooks: list[EventHook] = field(default_factory=list[EventHook])
    warnings: list[Warned] = field(default_factory=list[Warned])


def read_configured(tree: Node, reach: Reach) -> Read:
    """The hooks of a settings file's mapping; other keys than `hooks` are not looked at. Raises
    ConfigError with the place.
    """
    found = Read()
    events = field_of(tree, "hooks")
    if events is None:
        return found
    if events.pairs is None:
        raise events.error("`hooks` must be a mapping of events to lists")
    for event, (key, groups) in events.pairs.items():
        if event in NOT_FIRED:
            found.warnings.append(
                Warned(key.where, f"`{event}` is never fired here: its hooks have no effect")
            )
            continue
        _check_event(key, event)
        for group in groups.items or [groups]:
            if group.pairs is None:
                raise group.error(
                    f"`{event}` must be a list of mappings with `matcher` and `hooks`"
                )
            found.warnings += unknown_keys(group, ("matcher", "hooks"), "a group of hooks")
            matches = _matcher(group)
            listed = field_of(group, "hooks")
            if listed is None or listed.items is None:
                raise group.error("`hooks` must be a list")
            for node in listed.items:
                found.warnings += unknown_keys(node, _KEYS, "a hook")
                found.warnings += hidden_programs(node)
                found.hooks.append(_hook(node, event, matches, reach))
    return found


def hidden_programs(node: Node) -> list[Warned]:
    """A warning for a command that names a file which the sandbox hides: it would block
    everything.
    """
    command = " ".join((text_of(node, "command"), *(texts_of(node, "args") or ())))
    if not any(f"{root}/" in command for root in (".ferrule", ".harness")):
        return []
    said = (
        "the command cannot see the repository's own configuration; its files are copies in "
        "`$FERRULE_HOOKS`"
    )
    return [Warned((field_of(node, "command") or node).where, said)]


def _check_event(key: Node, event: str) -> None:
    if event in EVENTS:
        return
    try:
        check_event(event, "a hook")
    except ConfigError as error:
        raise key.error(error.detail, hint=f"{error.hint}; also {', '.join(EVENTS)}") from error


def _hook(node: Node, event: str, matches: Callable[[Occasion], bool], reach: Reach) -> EventHook:
    when = text_of(node, "when")
    place = field_of(node, "when")
    events = (EVENTS.get(event, event),)
    condition = (
        parse_when(when, place.file, place.line, place.column, events) if when and place else None
    )
    timeout = _number(node, "timeout", COMMAND_TIMEOUT)
    fits = _fits(event)

    def applies(occasion: Occasion) -> bool:
        return fits(occasion) and matches(occasion) and (condition is None or condition(occasion))

    try:
        return EventHook(
            name=text_of(node, "name") or f"{event} {node.file.rpartition('/')[2]}:{node.line}",
            events=events,
            run=runner(node, reach, timeout),
            when=applies,
            priority=int(_number(node, "priority", DEFAULT_PRIORITY)),
            # A second more: the command's own bound is the one that is told.
            timeout=timeout + 5,
            on_error=cast(
                "OnError", choice_of(node, "on_error", ("block", "allow", "ask")) or "block"
            ),
            source=node.where,
        )
    except ConfigError as error:
        raise (
            error
            if error.detail.startswith(node.file)
            else node.error(error.detail, hint=error.hint)
        ) from error


def runner(node: Node, reach: Reach, timeout: float) -> Callable[[Occasion], Any]:
    """What a hook runs: `command` (with `args`) or `url`. Raises ConfigError with the place."""
    command, url = text_of(node, "command"), text_of(node, "url")
    kind = text_of(node, "type") or ("http" if url else "command")
    if kind == "command" and command:
        words = texts_of(node, "args")
        line = command if words is None else (command, *words)
        return lambda occasion: reach.commands.ask(line, occasion, timeout)
    if kind == "http" and url:
        headers = field_of(node, "headers")
        given: Any = plain(headers) if headers is not None else {}
        if not isinstance(given, dict) or not all(
            isinstance(v, str) for v in cast("dict[str, Any]", given).values()
        ):
            raise node.error("`headers` must be a mapping of names to texts")
        try:
            server = HookServer(
                url,
                reach.hosts,
                headers=cast("dict[str, str]", given),
                allowed_variables=texts_of(node, "allowedEnvVars") or (),
            )
        except ConfigError as error:
            raise node.error(error.detail, hint=error.hint) from error
        return lambda occasion: server.ask(occasion, timeout)
    raise node.error(
        f"a hook of the type `{kind}`",
        hint="`type: command` with `command`, or `type: http` with `url`",
    )


def _number(node: Node, name: str, default: float) -> float:
    found = field_of(node, name)
    if found is None:
        return default
    if isinstance(found.value, bool) or not isinstance(found.value, (int, float)):
        raise found.error(f"`{name}` must be a number")
    return float(found.value)


def _fits(event: str) -> Callable[[Occasion], bool]:
    """Their two events after a call are one of ours."""
    if event not in ("PostToolUse", "PostToolUseFailure"):
        return lambda occasion: True
    return lambda occasion: (
        isinstance(occasion.payload, ToolPost)
        and occasion.payload.success is (event == "PostToolUse")
    )


def _matcher(group: Node) -> Callable[[Occasion], bool]:
    text = text_of(group, "matcher")
    if text in ("", "*"):
        return lambda occasion: True
    if _LIST.fullmatch(text):
        names = frozenset(name.strip() for name in re.split(r"[|,]", text))
        return lambda occasion: not names.isdisjoint(_compared(occasion))
    try:
        matches = compile_regex(text)
    except ValueError as error:
        place = field_of(group, "matcher") or group
        raise place.error(f"`matcher`: {error}") from error
    return lambda occasion: any(map(matches, _compared(occasion)))


def _compared(occasion: Occasion) -> Iterable[str]:
    match occasion.payload:
        case ToolPre(name=name, tool=tool) | ToolPost(name=name, tool=tool):
            return (name, contract_name(name, tool.source if tool is not None else ""))
        case SessionStart(source=source):
            return (source,)
        case SessionEnd(reason=reason):
            return (reason,)
        case _:
            return (occasion.event,)
