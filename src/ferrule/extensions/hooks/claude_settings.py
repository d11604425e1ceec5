"""Parse hooks from settings in the format of Claude Code.

    {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{…}]}]}}

A matcher of letters, digits, `_`, `-`, `,`, blanks and `|` is a list of exact names. Anything else
is a regular expression that is searched for (in Rust's syntax, `tools.safe_patterns`). Absent,
empty and `*` match everything. For tool calls it is compared with the tool's name here and in the
contract (`run_command` and `Bash`), otherwise with the event's `source` or `reason`.

Keys of a hook: `type` (`command` or `http`), `command` (a line for the shell, or with `args` a
program and its arguments), `url`, `headers`, `allowedEnvVars`, `timeout` (seconds), and ours:
`name`, `priority`, `on_error`, `when`. What cannot be understood is an error with its place, so
that no guard is silently lost. An event that is never fired here is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
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
    FileWarning,
    find_unknown_keys,
    get_choice,
    get_field,
    get_text,
    get_texts,
    to_plain,
)
from ferrule.storage.settings.yaml_tree import Node
from ferrule.tools.safe_patterns import compile_regex

from .commands import HookCommandRunner
from .conditions import parse_condition
from .json_contract import EVENTS, NOT_FIRED, contract_tool_name
from .web_hooks import WebHook

COMMAND_TIMEOUT = 60.0
"""Seconds, unless a hook sets its own."""
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


@frozen
class HookAccess:
    """What hooks may use: a runner for commands, and allowed hosts for URLs."""

    commands: HookCommandRunner
    hosts: tuple[str, ...] = ()


@dataclass(slots=True)
class ParsedHooks:
    """The parsed hooks, and warnings about what has no effect."""

    hooks: list[EventHook] = field(default_factory=list[EventHook])
    warnings: list[FileWarning] = field(default_factory=list[FileWarning])


def parse_hook_settings(tree: Node, access: HookAccess) -> ParsedHooks:
    """Parse the hooks of a settings file; keys other than `hooks` are ignored.

    Raises:
        ConfigError: The hooks are invalid. The message has the place.
    """
    parsed = ParsedHooks()
    events = get_field(tree, "hooks")
    if events is None:
        return parsed
    if events.pairs is None:
        raise events.error("`hooks` must be a mapping of events to lists")
    for event, (key, groups) in events.pairs.items():
        if event in NOT_FIRED:
            message = f"`{event}` is never fired here: its hooks have no effect"
            parsed.warnings.append(FileWarning(key.where, message))
            continue
        _check_event(key, event)
        for group in groups.items or [groups]:
            _parse_group(group, event, access, parsed)
    return parsed


def _parse_group(group: Node, event: str, access: HookAccess, parsed: ParsedHooks) -> None:
    if group.pairs is None:
        raise group.error(f"`{event}` must be a list of mappings with `matcher` and `hooks`")
    parsed.warnings += find_unknown_keys(group, ("matcher", "hooks"), "a group of hooks")
    matches = _parse_matcher(group)
    listed = get_field(group, "hooks")
    if listed is None or listed.items is None:
        raise group.error("`hooks` must be a list")
    for node in listed.items:
        parsed.warnings += find_unknown_keys(node, _KEYS, "a hook")
        parsed.warnings += find_hidden_programs(node)
        parsed.hooks.append(_make_hook(node, event, matches, access))


def find_hidden_programs(node: Node) -> list[FileWarning]:
    """Warn of a command that names a file which the sandbox hides: it would block everything."""
    command = " ".join((get_text(node, "command"), *(get_texts(node, "args") or ())))
    if not any(f"{root}/" in command for root in (".ferrule", ".harness")):
        return []
    place = get_field(node, "command") or node
    message = (
        "the command cannot see the repository's own configuration; copies of the hook files are "
        "in `$FERRULE_HOOKS`"
    )
    return [FileWarning(place.where, message)]


def _check_event(key: Node, event: str) -> None:
    if event in EVENTS:
        return
    try:
        check_event(event, "a hook")
    except ConfigError as error:
        raise key.error(error.detail, hint=f"{error.hint}; also {', '.join(EVENTS)}") from error


def _make_hook(
    node: Node, event: str, matches: Callable[[Occasion], bool], access: HookAccess
) -> EventHook:
    events = (EVENTS.get(event, event),)
    when = get_text(node, "when")
    place = get_field(node, "when")
    condition = None
    if when and place:
        condition = parse_condition(when, place.file, place.line, place.column, events)
    timeout = _number(node, "timeout", COMMAND_TIMEOUT)
    has_outcome = _outcome_filter(event)
    on_error = get_choice(node, "on_error", ("block", "allow", "ask")) or "block"

    def applies(occasion: Occasion) -> bool:
        if not has_outcome(occasion) or not matches(occasion):
            return False
        return condition is None or condition(occasion)

    try:
        return EventHook(
            name=get_text(node, "name") or f"{event} {node.file.rpartition('/')[2]}:{node.line}",
            events=events,
            run=make_runner(node, access, timeout),
            when=applies,
            priority=int(_number(node, "priority", DEFAULT_PRIORITY)),
            # Longer than the command's own timeout, so that the command's own error is reported.
            timeout=timeout + 5,
            on_error=cast("OnError", on_error),
            source=node.where,
        )
    except ConfigError as error:
        if error.detail.startswith(node.file):
            raise
        raise node.error(error.detail, hint=error.hint) from error


def make_runner(node: Node, access: HookAccess, timeout: float) -> Callable[[Occasion], Any]:
    """Return what a hook runs: `command` (with `args`) or `url`.

    Raises ConfigError with the place.
    """
    command = get_text(node, "command")
    url = get_text(node, "url")
    default_kind = "http" if url else "command"
    kind = get_text(node, "type") or default_kind
    if kind == "command" and command:
        arguments = get_texts(node, "args")
        line = command if arguments is None else (command, *arguments)
        return lambda occasion: access.commands.ask(line, occasion, timeout)
    if kind == "http" and url:
        server = _make_server(node, url, access)
        return lambda occasion: server.ask(occasion, timeout)
    raise node.error(
        f"a hook of the type `{kind}`",
        hint="`type: command` with `command`, or `type: http` with `url`",
    )


def _make_server(node: Node, url: str, access: HookAccess) -> WebHook:
    headers_node = get_field(node, "headers")
    headers: Any = to_plain(headers_node) if headers_node is not None else {}
    if not isinstance(headers, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, Any]", headers).values()
    ):
        raise node.error("`headers` must be a mapping of names to texts")
    try:
        return WebHook(
            url,
            access.hosts,
            headers=cast("dict[str, str]", headers),
            allowed_variables=get_texts(node, "allowedEnvVars") or (),
        )
    except ConfigError as error:
        raise node.error(error.detail, hint=error.hint) from error


def _number(node: Node, name: str, default: float) -> float:
    found = get_field(node, name)
    if found is None:
        return default
    if isinstance(found.value, bool) or not isinstance(found.value, (int, float)):
        raise found.error(f"`{name}` must be a number")
    return float(found.value)


def _outcome_filter(event: str) -> Callable[[Occasion], bool]:
    """Tell Claude Code's two events after a call apart, which are one event here."""
    if event not in ("PostToolUse", "PostToolUseFailure"):
        return lambda occasion: True
    return lambda occasion: (
        isinstance(occasion.payload, ToolPost)
        and occasion.payload.success is (event == "PostToolUse")
    )


def _parse_matcher(group: Node) -> Callable[[Occasion], bool]:
    text = get_text(group, "matcher")
    if text in ("", "*"):
        return lambda occasion: True
    if _LIST.fullmatch(text):
        names = frozenset(name.strip() for name in re.split(r"[|,]", text))
        return lambda occasion: not names.isdisjoint(_matcher_subjects(occasion))
    try:
        matches = compile_regex(text)
    except ValueError as error:
        place = get_field(group, "matcher") or group
        raise place.error(f"`matcher`: {error}") from error
    return lambda occasion: any(map(matches, _matcher_subjects(occasion)))


def _matcher_subjects(occasion: Occasion) -> Iterable[str]:
    match occasion.payload:
        case ToolPre(name=name, tool=tool) | ToolPost(name=name, tool=tool):
            return (name, contract_tool_name(name, tool.source if tool is not None else ""))
        case SessionStart(source=source):
            return (source,)
        case SessionEnd(reason=reason):
            return (reason,)
        case _:
            return (occasion.event,)
