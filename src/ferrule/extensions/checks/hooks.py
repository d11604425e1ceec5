"""What can be known of a hook file before it is asked: its events, its `when`, its script, and the
keys of the payload that it reads.

A script that reads a key which its events never have would fail on every one of them, or, with
`payload.get`, never see what it guards against: both are errors here. Commands and servers are not
asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import PurePosixPath

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import PAYLOADS, EventHook
from ferrule.extensions.front_matter import begins, field, parse_document, text_of
from ferrule.extensions.hooks.claude_settings import Reach, read_configured
from ferrule.extensions.hooks.commands import HookCommands
from ferrule.extensions.hooks.files import read_hook_node
from ferrule.extensions.starlark.pool import Pool
from ferrule.extensions.starlark.script import Script
from ferrule.storage.settings.yaml_tree import Node, parse_yaml

from .scripts import Text
from .tool_file import Problem, check_script, problem, problems_of, warnings_of


async def check_hook(
    data: bytes, file: str, *, hosts: Iterable[str] = (), pool: Pool | None = None
) -> list[Problem]:
    """Everything that is wrong with the bytes of a hook file, warnings too. `hosts` are those that
    web hooks may ask.
    """
    try:
        node = parse_document(data, file).fields
    except ConfigError as error:
        return problems_of(error, file)
    return await check_hook_node(node, PurePosixPath(file).stem, data, hosts=hosts, pool=pool)


async def check_inline_hooks(
    fields: Node, data: bytes, *, hosts: Iterable[str] = (), pool: Pool | None = None
) -> list[Problem]:
    """The same for `hooks` of a bundle or main file, a list of hooks with a `name` each; `data` is
    the whole file.
    """
    listed = field(fields, "hooks")
    found: list[Problem] = []
    for item in (listed.items or []) if listed is not None else []:
        name = text_of(item, "name") if item.pairs is not None else ""
        found += await check_hook_node(item, name or "hook", data, hosts=hosts, pool=pool)
    return found


async def check_hook_node(
    node: Node, name: str, data: bytes, *, hosts: Iterable[str] = (), pool: Pool | None = None
) -> list[Problem]:
    """The same for one hook's mapping; `data` is the whole file it stands in."""
    try:
        hook, warned = read_hook_node(node, name, data, _reach(hosts), pool=pool)
    except ConfigError as error:
        return problems_of(error, node.file)
    found = warnings_of(warned)
    source, place = text_of(node, "script"), field(node, "script")
    if place is not None:
        script = Script(source, place.file, begins(place, data)[0])
        found += await check_script(script, "handle", ("event", "payload"), pure=True, pool=pool)
        found += _keys(script, hook)
    return found


def check_hook_table(data: bytes, file: str, *, hosts: Iterable[str] = ()) -> list[Problem]:
    """The same for a `hooks.json`."""
    try:
        return warnings_of(read_configured(parse_yaml(data, file), _reach(hosts)).warnings)
    except ConfigError as error:
        return problems_of(error, file)


def _reach(hosts: Iterable[str]) -> Reach:
    # Nothing is run: commands are made with the first event.
    return Reach(HookCommands("."), tuple(hosts))


def _keys(script: Script, hook: EventHook) -> Iterator[Problem]:
    """Keys of the payload that none of the hook's events has."""
    if any(event.startswith("custom.") for event in hook.events):
        return  # What these hold is between those who emit and those who listen.
    looked = Text(script.source).looks("handle", 1)
    known = {key for event in hook.events for key in PAYLOADS[event]().as_dict()}
    for name, line in (looked.read if looked is not None else {}).items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = (
                f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(sorted(known))}"
            )
            said = (
                f"the payload of {', '.join(f'`{event}`' for event in hook.events)} has no `{name}`"
            )
            yield problem(f"{script.file}:{script.line + line - 1}", said, hint)
