"""Check a hook file before it is used: its events, its `when`, its script, and the keys it reads.

A script that reads a key which its events never have would fail on every one of them, or, with
`payload.get`, never see what it guards against. Both are errors here. Commands and servers are not
asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.engine.hooks.events import PAYLOADS, EventHook
from ferrule.extensions.front_matter import get_field, get_text, locate_text, parse_document
from ferrule.extensions.hooks.claude_settings import HookAccess, parse_hook_settings
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.extensions.hooks.hook_file import parse_hook_node
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.starlark.script import Script
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.storage.trust import CLAUDE_SETTINGS

from .script_text import ScriptText
from .tool_file import Problem, check_script, convert_error, convert_warnings, make_problem


async def check_hook(
    data: bytes, file: str, *, hosts: Iterable[str] = (), pool: WorkerPool | None = None
) -> list[Problem]:
    """Return everything that is wrong with a hook file, warnings included.

    Args:
        data: Its bytes.
        file: Its name as people see it.
        hosts: Hosts that web hooks may ask.
        pool: The worker pool that compiles the script.
    """
    try:
        node = parse_document(data, file).fields
    except ConfigError as error:
        return convert_error(error, file)
    return await check_hook_node(node, PurePosixPath(file).stem, data, hosts=hosts, pool=pool)


async def check_inline_hooks(
    fields: Node, data: bytes, *, hosts: Iterable[str] = (), pool: WorkerPool | None = None
) -> list[Problem]:
    """Check the `hooks` of a bundle or main file; `data` is the whole file."""
    listed = get_field(fields, "hooks")
    if listed is None:
        return []
    problems: list[Problem] = []
    for item in listed.items or []:
        name = get_text(item, "name") if item.pairs is not None else ""
        problems += await check_hook_node(item, name or "hook", data, hosts=hosts, pool=pool)
    return problems


async def check_hook_node(
    node: Node, name: str, data: bytes, *, hosts: Iterable[str] = (), pool: WorkerPool | None = None
) -> list[Problem]:
    """Check one hook's mapping; `data` is the whole file that contains it."""
    try:
        hook, warnings = parse_hook_node(node, name, data, _reach(hosts), pool=pool)
    except ConfigError as error:
        return convert_error(error, node.file)
    problems = convert_warnings(warnings)
    place = get_field(node, "script")
    if place is None:
        return problems
    line, _ = locate_text(place, data)
    script = Script(get_text(node, "script"), place.file, line)
    problems += await check_script(script, "handle", ("event", "payload"), pure=True, pool=pool)
    problems += _check_keys(script, hook)
    return problems


def check_hook_table(data: bytes, file: str, *, hosts: Iterable[str] = ()) -> list[Problem]:
    """Check a `hooks.json`, or settings of Claude Code."""
    try:
        tree = parse_yaml(data, file)
        is_foreign = file in CLAUDE_SETTINGS
        parsed = parse_hook_settings(tree, _reach(hosts), is_foreign=is_foreign)
        return convert_warnings([*parsed.idle, *parsed.warnings])
    except ConfigError as error:
        return convert_error(error, file)


def _reach(hosts: Iterable[str]) -> HookAccess:
    # Nothing is run: commands start with the first event.
    return HookAccess(HookCommandRunner("."), tuple(hosts))


def _check_keys(script: Script, hook: EventHook) -> Iterator[Problem]:
    """Yield problems about keys of the payload that none of the hook's events has."""
    if any(event.startswith("custom.") for event in hook.events):
        return  # The data of custom events is not known here.
    use = ScriptText(script.source).trace_argument("handle", 1)
    if use is None:
        return
    known: set[str] = set()
    for event in hook.events:
        known.update(PAYLOADS[event]().as_dict())
    events = ", ".join(f"`{event}`" for event in hook.events)
    for name, line in use.read.items():
        if name in known:
            continue
        hint = suggest_names(name, known, f"there are: {', '.join(sorted(known))}")
        where = f"{script.file}:{script.line + line - 1}"
        yield make_problem(where, f"the payload of {events} has no `{name}`", hint)
