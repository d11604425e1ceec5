"""Parse hooks from settings in the format of Claude Code.

    {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{…}]}]}}

A matcher of letters, digits, `_`, `-`, `,`, blanks and `|` is a list of exact names. Anything else
is a regular expression that is searched for (in RE2's syntax, `tools.safe_patterns`). Absent,
empty and `*` match everything. For tool calls it is compared with all names of the tool
(`claude_tool_names`), and the first that matches is the one that the hook is told; elsewhere with
the event's `source`, `reason`, agent or error, and where the contract has nothing to compare with
it is ignored.

Keys of a hook: `type` (`command` or `http`), `command` (a line for the shell, or with `args` a
program and its arguments), `url`, `headers`, `allowedEnvVars`, `timeout` (seconds), `if` (a rule
that the call must match), `once`, `async`, and ours: `name`, `priority`, `on_error`, `when`.

In our own files what cannot be understood is an error with its place, so that no guard is silently
lost. In a file that was written for Claude Code (`is_foreign`) it ends no run: a hook that cannot
be read refuses whatever it was to guard, and events and types without a place here are reported in
one line each.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import (
    DEFAULT_PRIORITY,
    Action,
    DelegationPost,
    DelegationPre,
    EventHook,
    Failed,
    NotJson,
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
)
from ferrule.permissions.rule_matching import make_path_matcher
from ferrule.storage.settings.yaml_tree import Node, to_plain
from ferrule.tools.safe_patterns import compile_regex

from .claude_contract import EVENTS, NOT_FIRED, OBSERVING, HookQuestion, ask_about_each_file
from .claude_tool_names import build_tool_inputs, find_contract_names
from .commands import HookCommandRunner
from .conditions import parse_condition
from .web_hooks import WebHook

COMMAND_TIMEOUT = 60.0
"""Seconds, unless a hook sets its own."""
MAX_TIMEOUT = 3590.0
"""Seconds. People who thought of milliseconds have written more."""
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
    "if",
    "once",
    "async",
)
_NOT_RUN = ("prompt", "agent", "mcp_tool")
"""Types of the contract that are not run here."""
_RULE = re.compile(r"([A-Za-z_][\w*-]*)(?:\((.*)\))?", re.DOTALL)
_COMMAND_BREAKS = re.compile(r"&&|\|\||[;|&\n`()]")
_ASSIGNMENTS = re.compile(r"^(?:\w+=\S*\s+)+")
_LIST = re.compile(r"[\w |,-]*", re.ASCII)


NameChoice = Callable[[Occasion], str | None]
"""The tool name by which a matcher knows an event: "" for the first one, None for no match."""


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
    idle: list[FileWarning] = field(default_factory=list[FileWarning])
    """What was left out because it has no place here."""
    not_run: list[str] = field(default_factory=list[str])
    """The types of hooks that were left out."""


def parse_hook_settings(tree: Node, access: HookAccess, *, is_foreign: bool = False) -> ParsedHooks:
    """Parse the hooks of a settings file; keys other than `hooks` are ignored.

    Args:
        tree: The file.
        access: What its hooks may use.
        is_foreign: Whether the file was written for Claude Code, and not for Ferrule.

    Raises:
        ConfigError: The hooks are invalid. The message has the place.
    """
    parsed = ParsedHooks()
    events = get_field(tree, "hooks")
    if events is None:
        return parsed
    if events.pairs is None:
        raise events.error("`hooks` must be a mapping of events to lists")
    idle: list[str] = []
    for event, (key, groups) in events.pairs.items():
        if event in NOT_FIRED or (is_foreign and event not in EVENTS):
            idle.append(event)
            continue
        _check_event(key, event)
        for group in groups.items or [groups]:
            _parse_group(group, event, access, parsed, is_foreign)
    if idle:
        names = ", ".join(f"`{event}`" for event in idle)
        parsed.idle.append(
            FileWarning(tree.file, f"hooks on {names} have no effect: that never happens here")
        )
    if parsed.not_run:
        kinds = ", ".join(f"`{kind}`" for kind in dict.fromkeys(parsed.not_run))
        parsed.idle.append(FileWarning(tree.file, f"hooks of the type {kinds} are not run here"))
    return parsed


def _parse_group(
    group: Node, event: str, access: HookAccess, parsed: ParsedHooks, is_foreign: bool
) -> None:
    if group.pairs is None:
        raise group.error(f"`{event}` must be a list of mappings with `matcher` and `hooks`")
    choose = _parse_matcher(group, event)
    listed = get_field(group, "hooks")
    if listed is None or listed.items is None:
        raise group.error("`hooks` must be a list")
    if not is_foreign:
        parsed.warnings += find_unknown_keys(group, ("matcher", "hooks"), "a group of hooks")
    for node in listed.items:
        if is_foreign and get_text(node, "type") in _NOT_RUN:
            parsed.not_run.append(get_text(node, "type"))
            continue
        parsed.warnings += find_hidden_programs(node)
        if is_foreign:
            parsed.idle += find_reduced_rights(node, access)
        else:
            parsed.warnings += find_unknown_keys(node, _KEYS, "a hook")
        try:
            parsed.hooks.append(_make_hook(node, event, choose, access))
        except ConfigError as error:
            if not is_foreign:
                raise
            parsed.hooks.append(_make_refusal(node, event, choose, error))
            place, _, detail = error.detail.partition(": ")
            parsed.warnings.append(FileWarning(place, f"{detail}; what it guards is refused"))


def _make_refusal(node: Node, event: str, choose: NameChoice, error: ConfigError) -> EventHook:
    """Return a hook that refuses what a hook that cannot be read was to judge."""

    async def refuse(occasion: Occasion) -> Action:
        raise NotJson(f"it cannot be read: {error.detail}")

    return EventHook(
        name=f"{event} {node.file.rpartition('/')[2]}:{node.line}",
        events=(EVENTS.get(event, event),),
        run=refuse,
        when=lambda occasion: choose(occasion) is not None,
        on_error="allow" if event in OBSERVING else "block",
        source=node.where,
    )


def find_reduced_rights(node: Node, access: HookAccess) -> list[FileWarning]:
    """Tell of a command that does not get what the file gives it, since commands can write it."""
    command = get_text(node, "command")
    arguments = get_texts(node, "args")
    if not command:
        return []
    line = command if arguments is None else (command, *arguments)
    why = access.commands.explain_reduced_rights(line)
    if not why:
        return []
    place = get_field(node, "command") or node
    message = (
        f"the command gets the rights of commands, without `env` and the folder of this file: {why}"
    )
    return [FileWarning(place.where, message)]


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


def _make_hook(node: Node, event: str, choose: NameChoice, access: HookAccess) -> EventHook:
    events = (EVENTS.get(event, event),)
    when = get_text(node, "when")
    place = get_field(node, "when")
    condition = None
    if when and place:
        condition = parse_condition(when, place.file, place.line, place.column, events)
    timeout = min(_number(node, "timeout", COMMAND_TIMEOUT), MAX_TIMEOUT)
    has_outcome = _outcome_filter(event)
    matches_rule = _parse_rule(node)
    default = "allow" if event in OBSERVING else "block"
    on_error = get_choice(node, "on_error", ("block", "allow", "ask")) or default

    def applies(occasion: Occasion) -> bool:
        if not has_outcome(occasion) or choose(occasion) is None:
            return False
        return matches_rule(occasion) and (condition is None or condition(occasion))

    try:
        return EventHook(
            name=get_text(node, "name") or f"{event} {node.file.rpartition('/')[2]}:{node.line}",
            events=events,
            run=make_runner(node, access, timeout, event=event, choose=choose),
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


def make_runner(
    node: Node,
    access: HookAccess,
    timeout: float,
    *,
    event: str = "",
    choose: NameChoice = lambda occasion: "",
) -> Callable[[Occasion], Any]:
    """Return what a hook runs: `command` (with `args`) or `url`.

    Args:
        node: The hook.
        access: What it may use.
        timeout: Seconds that it has.
        event: The name of its event in the contract, if it was written with that.
        choose: The tool name that it is told.

    Raises:
        ConfigError: It has neither. The message has the place.
    """
    ask = _make_asker(node, access, timeout)
    is_once = _flag(node, "once")
    asked: set[str] = set()

    async def run(occasion: Occasion) -> Action:
        if is_once and occasion.identity.session in asked:
            return Action()
        asked.add(occasion.identity.session)
        question = HookQuestion(occasion, event, choose(occasion) or "")
        return await ask_about_each_file(question, ask)

    return run


def _make_asker(
    node: Node, access: HookAccess, timeout: float
) -> Callable[[HookQuestion], Awaitable[Action]]:
    command = get_text(node, "command")
    url = get_text(node, "url")
    default_kind = "http" if url else "command"
    kind = get_text(node, "type") or default_kind
    if kind == "command" and command:
        arguments = get_texts(node, "args")
        line = command if arguments is None else (command, *arguments)
        if not _flag(node, "async"):
            return lambda question: access.commands.ask(line, question, timeout)

        async def start(question: HookQuestion) -> Action:
            access.commands.start(line, question, timeout)
            return Action()

        return start
    if kind == "http" and url:
        server = _make_server(node, url, access)
        return lambda question: server.ask(question, timeout)
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


def _flag(node: Node, name: str) -> bool:
    found = get_field(node, name)
    return found is not None and found.value is True


def _parse_matcher(group: Node, event: str) -> NameChoice:
    text = get_text(group, "matcher")
    if text in ("", "*"):
        return lambda occasion: ""
    if _LIST.fullmatch(text):
        names = frozenset(name.strip() for name in re.split(r"[|,]", text))
        matches: Callable[[str], object] = names.__contains__
    else:
        try:
            matches = compile_regex(text)
        except ValueError as error:
            place = get_field(group, "matcher") or group
            raise place.error(f"`matcher`: {error}") from error

    def choose(occasion: Occasion) -> str | None:
        subjects = _matcher_subjects(occasion)
        if not subjects:
            return ""
        return next((name for name in subjects if matches(name)), None)

    return choose


def _matcher_subjects(occasion: Occasion) -> tuple[str, ...]:
    """Return what a matcher is compared with; nothing where the contract ignores it."""
    match occasion.payload:
        case ToolPre() | ToolPost() as call:
            return find_contract_names(call)
        case SessionStart(source=source):
            return (source,)
        case SessionEnd(reason=reason):
            return (reason,)
        case DelegationPre(agent=agent) | DelegationPost(agent=agent):
            return (agent,)
        case Failed(code=code):
            return (code,)
        case _:
            return ()


def _parse_rule(node: Node) -> Callable[[Occasion], bool]:
    """Parse `if`: a hook is asked only about calls that this rule matches.

    Where that cannot be known from a command's text, it is asked.
    """
    text = get_text(node, "if")
    rule = _RULE.fullmatch(text)
    if not text:
        return lambda occasion: True
    if rule is None:
        raise node.error(f"`if` is `{text}`", hint="write a rule, for example `Bash(git *)`")
    tool, specifier = rule.groups()

    def matches(occasion: Occasion) -> bool:
        call = occasion.payload
        if not isinstance(call, (ToolPre, ToolPost)):
            return True
        name = next((one for one in find_contract_names(call) if fnmatchcase(one, tool)), None)
        if name is None or not specifier:
            return name is not None
        return any(
            _matches_specifier(one.values, specifier, occasion.workspace)
            for one in build_tool_inputs(call, name, occasion.workspace)
        )

    return matches


def _matches_specifier(values: Mapping[str, Any], specifier: str, root: str) -> bool:
    command, path = values.get("command"), values.get("file_path")
    if isinstance(command, str):
        pattern = f"{specifier[:-2]}*" if specifier.endswith(":*") else specifier
        return any(fnmatchcase(part, pattern) for part in _split_command(command))
    if isinstance(path, str):
        return make_path_matcher(specifier, root, root, str(Path.home()), careful=True)(path)
    return True


def _split_command(command: str) -> Iterator[str]:
    for part in (command, *_COMMAND_BREAKS.split(command)):
        yield _ASSIGNMENTS.sub("", part.strip(" \t$\"'"))
