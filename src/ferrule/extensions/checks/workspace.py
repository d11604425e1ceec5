"""Everything that a workspace brings, checked at once: settings and rules, tools, bundles, hooks,
servers, agents, skills.

It is read as a person's trust would let it take effect, whether they trust it or not, since nothing
of it takes effect here. Each file is checked for itself, so that one that cannot be read hides no
other; then all together, for names that are defined twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.extensions.front_matter import field as field_of
from ferrule.extensions.starlark.pool import Pool
from ferrule.extensions.tool_files.python_tools import SETTING as PYTHON
from ferrule.extensions.tool_files.python_tools import check_python, functions_of, handler_name
from ferrule.extensions.tool_files.sources import load
from ferrule.extensions.tool_files.tool_file import NO_SCRIPT, ToolFile
from ferrule.permissions.rules import Rule, RuleSet
from ferrule.storage.settings.merge import Merged
from ferrule.storage.settings.settings import PROJECT_FILE, check_python_names, load_settings
from ferrule.storage.settings.values import read_tree
from ferrule.storage.settings.yaml_tree import Node, parse_yaml
from ferrule.storage.trust import Snapshot, Trust

from .files import SERVERS, check_file, holds_artifacts, tools_of
from .others import check_agents, check_skills
from .tool_file import Problem, problem, problems_of

_OF_OTHERS = ("__", "::")
"""Part of the names of tools that servers and documents bring: which there are is known where they
are reached.
"""


@dataclass(slots=True)
class Checked:
    """What was looked at, and what is wrong with it, in the order of the files. `tools` are those
    that can be read.
    """

    files: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list[Problem])
    tools: list[ToolFile] = field(default_factory=list[ToolFile])


class AsIfTrusted(Trust):
    """Looks at a workspace as if a person had said yes to it. For reading only: what it gives must
    not take effect.
    """

    def look(self, workspace: str | Path) -> Snapshot:
        """What is there; `trusted` unless there is nothing."""
        seen = super().look(workspace)
        return seen if seen.state == "absent" else replace(seen, state="trusted")


async def check_workspace(
    workspace: str | Path,
    *,
    shipped: Iterable[str] = (),
    pool: Pool | None = None,
) -> Checked:
    """Check all that `workspace` brings. `shipped` are the names of the tools there are besides.
    Raises ConfigError only where nothing can be read at all.
    """
    seen = AsIfTrusted().look(workspace)
    checked = Checked(tuple(sorted(seen.files)))
    found = checked.problems
    rules: list[Rule] = []
    found += _settings(seen, rules)
    hosts = hosts_of_person()
    for name, data in sorted(seen.files.items()):
        if holds_artifacts(name) or name == SERVERS:
            found += await check_file(name, data, hosts=hosts, pool=pool)
            checked.tools += tools_of(name, data)
    found += _together(seen.files, found)
    in_python, functions = _python(seen, found)
    names = (*shipped, *in_python, *(tool.name for tool in checked.tools))
    handled = {tool.file for tool in checked.tools if handler_name(tool.name) in functions}
    found[:] = [one for one in found if one.message != NO_SCRIPT or one.file not in handled]
    found += _lint(seen, rules, names)
    found += _named_tools(seen, names)
    found += check_agents(seen, names)
    found += check_skills(seen)
    found += [
        problem(name, "it is a link, and links are not followed", level="warning")
        for name in sorted(seen.links)
    ]
    found.sort(key=lambda one: (one.file, one.line, one.column))
    return checked


def _together(files: Mapping[str, bytes], found: list[Problem]) -> list[Problem]:
    """What is wrong with files beside each other: names that are defined twice, bundles that are
    missing, what shadows what.
    """
    try:
        shadowed = load(files).shadowed
    except ConfigError as error:
        # Each file was looked at for itself, and what is wrong with it was said.
        known = {one.message for one in found}
        lines = [problem(_first(line, files), line) for line in error.detail.splitlines()]
        return [one for one in lines if one.message not in known]
    return [problem(one.file, str(one), level="warning") for one in shadowed]


def _first(line: str, files: Mapping[str, bytes]) -> str:
    return next((name for name in sorted(files) if name in line), "")


# ---- settings


def _settings(seen: Snapshot, rules: list[Rule]) -> Iterator[Problem]:
    """Every key of the repository's settings for itself, as a repository may set it; its rules go
    into `rules`.
    """
    data = seen.files.get(PROJECT_FILE)
    if data is None:
        return
    try:
        tree = parse_yaml(data, PROJECT_FILE)
    except ConfigError as error:
        yield from problems_of(error, PROJECT_FILE)
        return
    for single in _singly(tree):
        merged = Merged()
        try:
            merged.add("project", read_tree(single), root=seen.workspace)
        except ConfigError as error:
            yield from problems_of(error, PROJECT_FILE)
        rules += merged.rules
        for notice in merged.notices:
            yield problem(PROJECT_FILE, notice, level="warning")


def _named_tools(seen: Snapshot, tools: Sequence[str]) -> Iterator[Problem]:
    """Names under `tools.entries` and `tools.required` that no tool has. Tools of servers are not
    known here.
    """
    data = seen.files.get(PROJECT_FILE)
    try:
        group = field_of(parse_yaml(data, PROJECT_FILE), "tools") if data else None
    except ConfigError:
        return
    for key in ("entries", "required"):
        listed = field_of(group, key) if group is not None else None
        for item in (listed.items if listed is not None else None) or ():
            name = field_of(item, "name") if key == "entries" else item
            if name is None or not isinstance(name.value, str):
                continue
            for one in name.value.split("|"):
                if one.strip() in tools or any(mark in one for mark in _OF_OTHERS):
                    continue
                near = get_close_matches(one.strip(), tools, 1)
                hint = f"did you mean `{near[0]}`?" if near else "`ferrule tools list` lists them"
                yield problem(
                    name.where,
                    f"`tools.{key}` names a tool `{one.strip()}`, and there is none",
                    hint,
                )


def _python(seen: Snapshot, found: list[Problem]) -> tuple[set[str], set[str]]:
    """Names of the tools in Python files, and of their plain functions. What is wrong with the
    files goes into `found`.
    """
    data = seen.files.get(PROJECT_FILE)
    try:
        entry = read_tree(parse_yaml(data, PROJECT_FILE)).get(PYTHON) if data else None
        check_python_names(entry)
    except ConfigError as error:
        known = {one.message for one in found}
        found += [one for one in problems_of(error, PROJECT_FILE) if one.message not in known]
        return set(), set()
    tools: set[str] = set()
    functions: set[str] = set()
    if entry is None:
        return tools, functions
    for error in check_python(entry.value, seen, entry.where):
        found += problems_of(error, PROJECT_FILE)
    for name in entry.value:
        plain, made = functions_of(seen.files.get(name, b""))
        functions |= plain
        tools |= made
    return tools, functions


def _singly(tree: Node) -> Iterator[Node]:
    """The tree with one key only, for each key of it, and of its groups."""
    if tree.pairs is None:
        yield tree
        return
    for name, (key, value) in tree.pairs.items():
        for single in _singly(value) if value.pairs else (value,):
            yield replace(tree, value={name: (key, single)})


def hosts_of_person() -> tuple[str, ...]:
    """Hosts that web hooks may ask: the person's own setting, whatever else is wrong."""
    try:
        return tuple(load_settings(trust=_Nothing())["hooks.hosts"])
    except ConfigError:
        return ()


class _Nothing(Trust):
    """A workspace without configuration of its own."""

    def look(self, workspace: str | Path) -> Snapshot:
        return Snapshot(str(workspace), "absent", "")


def _lint(seen: Snapshot, rules: list[Rule], tools: Iterable[str]) -> Iterator[Problem]:
    """Rules of the repository that can never match, never decide or say nothing new, beside those
    of the person.
    """
    try:
        own = load_settings(workspace=seen.workspace, trust=_Nothing()).rules
    except ConfigError as error:
        yield from problems_of(error, "your settings")
        own = RuleSet()
    data = seen.files.get(PROJECT_FILE)
    places = (
        {node.value: node.where for node in _texts(parse_yaml(data, PROJECT_FILE))}
        if rules and data
        else {}
    )
    for said in RuleSet((*own, *rules)).lint(tools):
        where = places.get(said.partition("`")[2].partition("`")[0])
        if where is not None:
            yield problem(where, said, level="warning")


def _texts(node: Node) -> Iterator[Node]:
    if node.pairs is not None:
        for _, value in node.pairs.values():
            yield from _texts(value)
    elif node.items is not None:
        for item in node.items:
            yield from _texts(item)
    else:
        yield node
