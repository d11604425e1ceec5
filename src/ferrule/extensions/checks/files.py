"""Check one file of a repository: determine its kind, parse its tools, and report its problems.

The kind of a file in its place (`.ferrule/tools/x.md`) follows from the place. Any other file that
a person names is a hook if its front matter has `events` or if it lies in a folder `hooks`, else a
tool.
"""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.core.errors import ConfigError
from ferrule.extensions.front_matter import Document, FileWarning, get_field, parse_document
from ferrule.extensions.hooks.hook_file import EVENT_KEYS
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.bundles import (
    find_bundle_kind,
    find_unread_keys,
    parse_bundle,
    parse_fields,
)
from ferrule.extensions.tool_files.loading import CONFIGURATION_FOLDERS, MAIN_FILES
from ferrule.extensions.tool_files.tool_file import ToolFile, parse_inline, parse_tool
from ferrule.storage.settings.yaml_tree import parse_yaml
from ferrule.storage.trust import CLAUDE_SETTINGS

from .hooks import check_hook, check_hook_table, check_inline_hooks
from .tool_file import (
    Problem,
    check_parsed,
    check_tool,
    convert_error,
    convert_warnings,
    make_problem,
)

_TABLES = ("hooks.json", "hooks.yaml")


def is_checkable(name: str, *, hooks: bool = True) -> bool:
    """Return whether tools (or hooks) are loaded from a file of a workspace, by its place."""
    return _is_source(name) or (hooks and _hook_kind(name) != "")


def parse_tools(name: str, data: bytes) -> list[ToolFile]:
    """Return the readable tools of a file; none for a hook.

    `check_file` reports what is wrong with the others.
    """
    if not _is_source(name) and (_is_hook(name, data) or _hook_kind(name)):
        return []
    return _read(name, data)[0]


def _read(name: str, data: bytes) -> tuple[list[ToolFile], list[FileWarning], list[Problem]]:
    """Return the tools of a file, warnings about what surrounds them, and all problems."""
    if not _is_source(name) or _split_root(name)[1].startswith("tools/"):
        try:
            return [parse_tool(data, name)], [], []
        except ConfigError as error:
            return [], [], convert_error(error, name)
    is_yaml = name.endswith(".yaml")
    kind = find_bundle_kind(name)
    warnings: list[FileWarning] = []
    problems: list[Problem] = []
    try:
        if is_yaml:
            fields = parse_yaml(data, name)
        else:
            document = parse_document(data, name)
            fields = document.fields
            if kind:
                warnings = _bundle_warnings(kind, document, data, problems)
            else:
                warnings = find_unread_keys(fields)
    except ConfigError as error:
        return [], [], convert_error(error, name)
    listed = get_field(fields, "tools")
    if listed is None:
        return [], warnings, problems
    is_settings_section = is_yaml and listed.pairs is not None
    if listed.items is None and not is_settings_section:
        problems.append(make_problem(listed.where, "`tools` must be a list of tools"))
    tools: list[ToolFile] = []
    for item in listed.items or []:
        try:
            tools.append(parse_inline(item, data))
        except ConfigError as error:
            problems += convert_error(error, name)
    return tools, warnings, problems


def _bundle_warnings(
    kind: str, document: Document, data: bytes, problems: list[Problem]
) -> list[FileWarning]:
    try:
        _, warnings = parse_bundle(kind, document, data)
    except ConfigError as error:
        problems += convert_error(error, document.file)
        return []
    return warnings


async def check_file(
    name: str, data: bytes, *, hosts: Iterable[str] = (), pool: WorkerPool | None = None
) -> list[Problem]:
    """Return everything that is wrong with a file, warnings included.

    Args:
        name: Its path relative to the workspace.
        data: Its bytes.
        hosts: Hosts that web hooks may ask.
        pool: The worker pool that compiles scripts.
    """
    if _hook_kind(name) == "table":
        return check_hook_table(data, name, hosts=hosts)
    if not _is_source(name):
        if _hook_kind(name) or _is_hook(name, data):
            return await check_hook(data, name, hosts=hosts, pool=pool)
        return await check_tool(data, name, pool=pool)
    tools, warnings, problems = _read(name, data)
    for tool in tools:
        problems += await check_parsed(tool, data, pool=pool)
    if find_bundle_kind(name) or name in MAIN_FILES:
        problems += await _check_hooks_in(name, data, hosts, pool)
    return [*problems, *convert_warnings(warnings)]


async def _check_hooks_in(
    name: str, data: bytes, hosts: Iterable[str], pool: WorkerPool | None
) -> list[Problem]:
    """Return what is wrong with the hooks of a bundle or main file, if it can be parsed."""
    try:
        fields = parse_fields(data, name)
    except ConfigError:
        return []
    return await check_inline_hooks(fields, data, hosts=hosts, pool=pool)


def _split_root(name: str) -> tuple[str, str]:
    root, _, rest = name.partition("/")
    return (root, rest) if root in CONFIGURATION_FOLDERS else ("", name)


def _is_source(name: str) -> bool:
    if name in MAIN_FILES:
        return True
    root, rest = _split_root(name)
    if find_bundle_kind(name):
        return True
    return bool(root) and _is_markdown_in("tools", rest)


def _is_markdown_in(folder: str, path: str) -> bool:
    """Whether a path is that of a Markdown file directly in this folder."""
    parent, _, leaf = path.partition("/")
    return parent == folder and leaf.endswith(".md") and "/" not in leaf


def _hook_kind(name: str) -> str:
    """Return `table`, `file` or "", by the place."""
    if name in CLAUDE_SETTINGS:
        return "table"
    root, rest = _split_root(name)
    if not root:
        return ""
    if rest in _TABLES:
        return "table"
    return "file" if _is_markdown_in("hooks", rest) else ""


def _is_hook(name: str, data: bytes) -> bool:
    if "hooks" in name.split("/")[:-1]:
        return True
    try:
        fields = parse_document(data, name).fields
    except ConfigError:
        return False
    return any(get_field(fields, key) is not None for key in EVENT_KEYS)
