"""Check everything in a workspace: settings, rules, tools, bundles, hooks, agents, skills.

It is read as a person's trust would let it take effect, whether they trust it or not, since nothing
of it takes effect here. Each file is checked separately, so that an unreadable one hides no other;
then all together, for names that are defined twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.extensions.agents.agent_file import parse_agent
from ferrule.extensions.agents.loading import FOLDERS, load_agents
from ferrule.extensions.front_matter import get_field
from ferrule.extensions.skills.loading import load_skills
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.loading import load_tools
from ferrule.extensions.tool_files.python_tools import SETTING as PYTHON
from ferrule.extensions.tool_files.python_tools import (
    check_python_files,
    handler_name,
    list_functions,
)
from ferrule.extensions.tool_files.tool_file import NO_SCRIPT, ToolFile
from ferrule.permissions.rules import PermissionRule, RuleSet
from ferrule.storage import paths
from ferrule.storage.settings.merge import MergedSettings
from ferrule.storage.settings.mistakes import Mistakes
from ferrule.storage.settings.settings import (
    PROJECT_FILE,
    USER_FILE_NAME,
    check_python_names,
    load_settings,
)
from ferrule.storage.settings.values import read_tree
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.storage.trust import ConfigurationSnapshot, TrustStore

from .files import check_file, is_checkable, parse_tools
from .tool_file import Problem, convert_error, convert_warnings, make_problem

_OF_OTHERS = ("__", "::")
"""Parts of the names of tools from servers and documents, which are known only at run time."""


@dataclass(slots=True)
class CheckedWorkspace:
    """The checked files, their problems in order of the files, and the readable tools."""

    files: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list[Problem])
    tools: list[ToolFile] = field(default_factory=list[ToolFile])


class AssumedTrust(TrustStore):
    """Reads a workspace as if a person had trusted it. What it returns must not take effect."""

    def read(self, workspace: str | Path) -> ConfigurationSnapshot:
        """Read the workspace; `trusted` unless there is nothing."""
        seen = super().read(workspace)
        return seen if seen.state == "absent" else replace(seen, state="trusted")


async def check_workspace(
    workspace: str | Path,
    *,
    shipped: Iterable[str] = (),
    pool: WorkerPool | None = None,
) -> CheckedWorkspace:
    """Check everything in a workspace.

    Args:
        workspace: The workspace.
        shipped: The names of the tools that ship with Ferrule.
        pool: The worker pool that compiles scripts.

    Raises:
        ConfigError: Nothing can be read at all.
    """
    seen = AssumedTrust().read(workspace)
    checked = CheckedWorkspace(tuple(sorted(seen.files)))
    found = checked.problems
    rules: list[PermissionRule] = []
    found += _check_settings(seen, rules)
    hosts = load_hook_hosts()
    for name, data in sorted(seen.files.items()):
        if is_checkable(name):
            found += await check_file(name, data, hosts=hosts, pool=pool)
            checked.tools += parse_tools(name, data)
    found += _check_together(seen.files, found)
    python_tools, functions = _read_python(seen, found)
    names = (*shipped, *python_tools, *(tool.name for tool in checked.tools))
    with_handler = {tool.file for tool in checked.tools if handler_name(tool.name) in functions}
    found[:] = [
        known for known in found if known.message != NO_SCRIPT or known.file not in with_handler
    ]
    found += _lint(seen, rules, names)
    found += _check_tool_names(seen.files.get(PROJECT_FILE), PROJECT_FILE, names)
    found += _check_own_tool_names(names)
    found += _check_agents(seen, names)
    found += _check_skills(seen)
    found += [
        make_problem(name, "it is a link, and links are not followed", level="warning")
        for name in sorted(seen.links)
    ]
    found.sort(key=lambda known: (known.file, known.line, known.column))
    return checked


def _check_together(files: Mapping[str, bytes], found: list[Problem]) -> list[Problem]:
    """Return problems of files together: repeated names, missing bundles, shadowed tools."""
    try:
        shadowed = load_tools(files).shadowed
    except ConfigError as error:
        # What is wrong with single files was already found.
        known = {earlier.message for earlier in found}
        candidates = [
            make_problem(_file_in(line, files), line) for line in error.detail.splitlines()
        ]
        return [candidate for candidate in candidates if candidate.message not in known]
    return [make_problem(tool.file, str(tool), level="warning") for tool in shadowed]


def _file_in(line: str, files: Mapping[str, bytes]) -> str:
    return next((name for name in sorted(files) if name in line), "")


# ---- settings


def _check_settings(seen: ConfigurationSnapshot, rules: list[PermissionRule]) -> Iterator[Problem]:
    """Check every key of the repository's settings separately, and collect its rules in `rules`."""
    data = seen.files.get(PROJECT_FILE)
    if data is None:
        return
    try:
        tree = parse_yaml(data, PROJECT_FILE)
    except ConfigError as error:
        yield from convert_error(error, PROJECT_FILE)
        return
    for single in _single_keys(tree):
        mistakes = Mistakes()
        merged = MergedSettings.check(read_tree(single, mistakes), mistakes)
        for error in merged.mistakes.errors:
            yield from convert_error(error, PROJECT_FILE)
        rules += merged.rules
        for notice in merged.notices:
            yield make_problem(PROJECT_FILE, notice, level="warning")


def _check_own_tool_names(tools: Sequence[str]) -> Iterator[Problem]:
    """Yield problems about unknown tools in the person's own settings.

    A loading mode is only a warning, since another folder may define the tool. A run that requires
    a tool cannot succeed without it.
    """
    file = paths.config() / USER_FILE_NAME
    try:
        data = file.read_bytes()
    except OSError:
        return  # There are none, or `_lint` reports that they cannot be read.
    for problem in _check_tool_names(data, str(file), tools, ("entries",)):
        yield replace(problem, level="warning")
    yield from _check_tool_names(data, str(file), tools, ("required",))


def _check_tool_names(
    data: bytes | None,
    file: str,
    tools: Sequence[str],
    keys: Sequence[str] = ("entries", "required"),
) -> Iterator[Problem]:
    """Yield problems about unknown tools in `tools.entries` and `tools.required` of a file.

    Tools of servers are not known here.
    """
    try:
        group = get_field(parse_yaml(data, file), "tools") if data else None
    except ConfigError:
        return
    if group is None:
        return
    for key in keys:
        for node in _name_nodes(group, key):
            for alternative in str(node.value).split("|"):
                name = alternative.strip()
                if name in tools or any(part in name for part in _OF_OTHERS):
                    continue
                hint = suggest_names(name, tools, "`ferrule tools list` lists them")
                message = f"`tools.{key}` names a tool `{name}`, and there is none"
                yield make_problem(node.where, message, hint)


def _name_nodes(group: Node, key: str) -> Iterator[Node]:
    """Yield the texts that name tools in `tools.entries` or `tools.required`."""
    listed = get_field(group, key)
    items = (listed.items if listed is not None else None) or ()
    for item in items:
        name = get_field(item, "name") if key == "entries" else item
        if name is not None and isinstance(name.value, str):
            yield name


def _read_python(seen: ConfigurationSnapshot, found: list[Problem]) -> tuple[set[str], set[str]]:
    """Return the names of tools and of plain functions in Python files.

    Problems are added to `found`.
    """
    data = seen.files.get(PROJECT_FILE)
    try:
        entry = read_tree(parse_yaml(data, PROJECT_FILE)).get(PYTHON) if data else None
    except ConfigError:
        return set(), set()  # `_check_settings` reports it
    try:
        check_python_names(entry)
    except ConfigError as error:
        known = {earlier.message for earlier in found}
        candidates = convert_error(error, PROJECT_FILE)
        found += [candidate for candidate in candidates if candidate.message not in known]
        return set(), set()
    tools: set[str] = set()
    functions: set[str] = set()
    if entry is None:
        return tools, functions
    for error in check_python_files(entry.value, seen, entry.where):
        found += convert_error(error, PROJECT_FILE)
    for name in entry.value:
        file_functions, file_tools = list_functions(seen.files.get(name, b""))
        functions |= file_functions
        tools |= file_tools
    return tools, functions


# ---- agents and skills


def _check_agents(seen: ConfigurationSnapshot, tools: Iterable[str]) -> Iterator[Problem]:
    """Check each agent file separately, then all together. `tools` are the names of all tools."""
    known_tools = frozenset(tools)
    known: set[str] = set()
    for name, data in sorted(seen.files.items()):
        if name.rpartition("/")[0] not in FOLDERS or not name.endswith(".md"):
            continue
        found = _check_agent(name, data, known_tools)
        known.update(one.message for one in found)
        yield from found
    try:
        left_out = load_agents(seen).left_out
    except ConfigError as error:
        yield make_problem("", error.detail, error.hint)
        return
    for file in left_out:
        where, _, message = file.detail.partition(": ")
        if message not in known:
            yield make_problem(where, message, file.hint)


def _check_agent(name: str, data: bytes, known_tools: frozenset[str]) -> list[Problem]:
    try:
        agent, warnings = parse_agent(data, name)
    except ConfigError as error:
        return convert_error(error, name)
    found = convert_warnings(warnings)
    for tool in agent.tools or ():
        if tool not in known_tools and "__" not in tool and "*" not in tool:
            message = f"the agent may use `{tool}`, and there is no such tool"
            found.append(make_problem(name, message, level="warning"))
    return found


def _check_skills(seen: ConfigurationSnapshot) -> list[Problem]:
    """Check the skills of the workspace; those of the person are not read."""
    loaded = load_skills(Path(seen.workspace), seen)
    broken = set(loaded.broken)
    return [
        make_problem(
            warning.where, warning.message, level="error" if warning in broken else "warning"
        )
        for warning in loaded.warnings
    ]


# ---- rules


def _single_keys(tree: Node) -> Iterator[Node]:
    """Yield the tree reduced to one key, for each key of it and of its groups."""
    if tree.pairs is None:
        yield tree
        return
    for name, (key, value) in tree.pairs.items():
        singles = _single_keys(value) if value.pairs else (value,)
        for single in singles:
            yield replace(tree, value={name: (key, single)})


def load_hook_hosts() -> tuple[str, ...]:
    """Return the hosts that web hooks may ask: the person's own setting, whatever else is wrong."""
    try:
        return tuple(load_settings(trust=_NoConfiguration())["hooks.hosts"])
    except ConfigError:
        return ()


class _NoConfiguration(TrustStore):
    """Sees a workspace without configuration of its own."""

    def read(self, workspace: str | Path) -> ConfigurationSnapshot:
        return ConfigurationSnapshot(str(workspace), "absent", "")


def _lint(
    seen: ConfigurationSnapshot, rules: list[PermissionRule], tools: Iterable[str]
) -> Iterator[Problem]:
    """Yield rules of the repository that never match, never decide or repeat another rule.

    The person's own rules count as well.
    """
    own = RuleSet()
    can_grow = False
    try:
        settings = load_settings(workspace=seen.workspace, trust=_NoConfiguration())
        own = settings.rules
        can_grow = bool(settings["tools.register"])
    except ConfigError as error:
        yield from convert_error(error, "your settings")
    data = seen.files.get(PROJECT_FILE)
    places: dict[object, str] = {}
    if rules and data:
        nodes = _leaves(parse_yaml(data, PROJECT_FILE))
        places = {node.value: node.where for node in nodes}
    for message in RuleSet((*own, *rules)).lint(tools, can_grow=can_grow):
        rule = message.partition("`")[2].partition("`")[0]
        where = places.get(rule)
        if where is not None:
            yield make_problem(where, message, level="warning")


def _leaves(node: Node) -> Iterator[Node]:
    if node.pairs is not None:
        for _, value in node.pairs.values():
            yield from _leaves(value)
    elif node.items is not None:
        for item in node.items:
            yield from _leaves(item)
    else:
        yield node
