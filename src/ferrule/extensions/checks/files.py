"""One file of a repository, whatever it holds: which kind it is, the tools in it, and what is wrong
with it.

A file in its place (`.ferrule/tools/x.md`) is what its place says. Any other file that a person
names is a hook if its front matter has `events`, or if it lies in a folder `hooks`; else a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.extensions.front_matter import Warned, field, parse_document
from ferrule.extensions.hooks.files import EVENTS_KEYS
from ferrule.extensions.starlark.pool import Pool
from ferrule.extensions.tool_files.bundles import fields_of, kind_of, read_bundle
from ferrule.extensions.tool_files.sources import INLINE, ROOTS
from ferrule.extensions.tool_files.tool_file import ToolFile, parse_inline, parse_tool
from ferrule.storage.settings.yaml_tree import parse_yaml

from .hooks import check_hook, check_hook_table, check_inline_hooks
from .tool_file import Problem, check_parsed, check_tool, problem, problems_of, warnings_of

SERVERS = ".mcp.json"
_TABLES = ("hooks.json", "hooks.yaml")


def holds_artifacts(name: str, *, hooks: bool = True) -> bool:
    """Whether a file of a workspace is one that tools (or hooks) come from, by its place."""
    return _is_source(name) or (hooks and _hook_kind(name) != "")


def tools_of(name: str, data: bytes) -> list[ToolFile]:
    """The tools of a file that can be read; none for a hook. What is wrong with the others is said
    by `check_file`.
    """
    if not _is_source(name) and (_is_hook(name, data) or _hook_kind(name)):
        return []
    return _read(name, data)[0]


def _read(name: str, data: bytes) -> tuple[list[ToolFile], list[Warned], list[Problem]]:
    """The tools of a file, warnings about what is around them, and what is wrong: each artifact for
    itself.
    """
    if not _is_source(name) or _parts(name)[1].startswith("tools/"):
        try:
            return [parse_tool(data, name)], [], []
        except ConfigError as error:
            return [], [], problems_of(error, name)
    try:
        document = None if name.endswith(".yaml") else parse_document(data, name)
        fields = document.fields if document is not None else parse_yaml(data, name)
    except ConfigError as error:
        return [], [], problems_of(error, name)
    tools: list[ToolFile] = []
    warned: list[Warned] = []
    wrong: list[Problem] = []
    if document is not None and (kind := kind_of(name)):
        try:
            warned = read_bundle(kind, document, data)[1]
        except ConfigError as error:
            wrong += problems_of(error, name)
    listed = field(fields, "tools")
    if (
        listed is not None
        and listed.items is None
        and not (document is None and listed.pairs is not None)
    ):
        wrong.append(problem(listed.where, "`tools` must be a list of tools"))
    for item in (listed.items or []) if listed is not None else []:
        try:
            tools.append(parse_inline(item, data))
        except ConfigError as error:
            wrong += problems_of(error, name)
    return tools, warned, wrong


async def check_file(
    name: str, data: bytes, *, hosts: Iterable[str] = (), pool: Pool | None = None
) -> list[Problem]:
    """Everything that is wrong with a file, warnings too; `hosts` are those that web hooks may
    ask.
    """
    if _hook_kind(name) == "table":
        return check_hook_table(data, name, hosts=hosts)
    if name == SERVERS:
        return list(_servers(data))
    if not _is_source(name):
        if _hook_kind(name) or _is_hook(name, data):
            return await check_hook(data, name, hosts=hosts, pool=pool)
        return await check_tool(data, name, pool=pool)
    tools, warned, found = _read(name, data)
    for tool in tools:
        found += await check_parsed(tool, data, pool=pool)
    if kind_of(name) or name in INLINE:
        found += await _hooks_in(name, data, hosts, pool)
    return [*found, *warnings_of(warned)]


async def _hooks_in(
    name: str, data: bytes, hosts: Iterable[str], pool: Pool | None
) -> list[Problem]:
    """What is wrong with the hooks of a bundle or main file; of one that cannot be read, that was
    said.
    """
    try:
        fields = fields_of(data, name)
    except ConfigError:
        return []
    return await check_inline_hooks(fields, data, hosts=hosts, pool=pool)


def _parts(name: str) -> tuple[str, str]:
    root, _, rest = name.partition("/")
    return (root, rest) if root in ROOTS else ("", name)


def _is_source(name: str) -> bool:
    if name in INLINE:
        return True
    root, rest = _parts(name)
    folder, _, leaf = rest.partition("/")
    own = bool(root) and folder == "tools" and leaf.endswith(".md") and "/" not in leaf
    return own or kind_of(name) != ""


def _hook_kind(name: str) -> str:
    """`table`, `file` or nothing, by the place."""
    root, rest = _parts(name)
    if root and rest in _TABLES:
        return "table"
    folder, _, leaf = rest.partition("/")
    return "file" if root and folder == "hooks" and leaf.endswith(".md") and "/" not in leaf else ""


def _is_hook(name: str, data: bytes) -> bool:
    if "hooks" in name.split("/")[:-1]:
        return True
    try:
        fields = parse_document(data, name).fields
    except ConfigError:
        return False
    return any(field(fields, key) is not None for key in EVENTS_KEYS)


def _servers(data: bytes) -> Iterator[Problem]:
    """The shape of `.mcp.json`: `{"mcpServers": {name: {command, args, env} or {url, headers}}}`.
    No server is started or asked.
    """
    try:
        tree = parse_yaml(data, SERVERS)
    except ConfigError as error:
        yield from problems_of(error, SERVERS)
        return
    listed = (tree.pairs or {}).get("mcpServers")
    if listed is None or listed[1].pairs is None:
        yield problem(tree.where, "there is no `mcpServers`, a mapping of names to servers")
        return
    for name, (key, server) in listed[1].pairs.items():
        given: dict[str, Any] = server.pairs or {}
        if ("command" in given) == ("url" in given):
            yield problem(
                key.where, f"the server `{name}` needs a `command` or a `url`, one of them"
            )
