"""Where tools come from in a repository, and which of two with one name holds.

    override   .harness/overrides/*.md, .ferrule/overrides/*.md                    bundles
    harness    .harness/tools/*.md, .ferrule/tools/*.md; `tools:` of harness.md and ferrule.yaml
    builtin    .harness/builtins/*.md, .ferrule/builtins/*.md                      bundles
    plugin     .harness/plugins/*.md, .ferrule/plugins/*.md                        bundles

Tools in Python (`python_tools`) count as `harness`. The first in this order holds and the others
are reported as shadowed; two of the same kind are an error. A bundle is a Markdown file whose front
matter lists `tools` and `hooks`; a plugin has a `name` in kebab-case and a `description`.

Nothing of a repository takes effect before a person trusts it as it stands (`storage.trust`):
`look` reads it once, says what would change, and what it read is what is used. Everything that is
wrong is said at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as part
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.engine.background import TASK_TOOLS
from ferrule.extensions.builtins.builtins import World
from ferrule.extensions.front_matter import Document, Warned, field, parse_document
from ferrule.extensions.starlark.pool import Pool
from ferrule.storage.settings.yaml_tree import Node
from ferrule.storage.trust import Change, State, Trust
from ferrule.tools.definition import OWN, Loading, Tool

from .bundles import INLINE, ROOTS, Bundle, Condition, conditions, fields_of, kind_of, read_bundle
from .companions import COMPANIONS
from .handlers import make_tool
from .python_tools import PythonTools
from .tool_file import NO_SCRIPT, ToolFile, parse_inline, parse_tool

KINDS = ("override", "harness", "builtin", "plugin")
"""What holds first."""


@dataclass(frozen=True, slots=True)
class PythonTool:
    """A tool in Python: its full name, and `file:line` of it."""

    name: str
    file: str
    tool: Tool


@dataclass(frozen=True, slots=True)
class Found:
    """A tool and the kind of place it came from."""

    kind: str
    tool: ToolFile | PythonTool


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A tool that another with the same name keeps from being used."""

    name: str
    kind: str
    file: str
    by_kind: str
    by_file: str

    def __str__(self) -> str:
        return (
            f"`{self.name}` of {self.file} ({self.kind}) is not used: {self.by_file} "
            f"({self.by_kind}) holds"
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a repository brings. Unless `state` is `trusted` there is nothing in it but `changes`,
    to be shown to a person.
    """

    state: State
    tools: tuple[ToolFile, ...] = ()
    bundles: tuple[Bundle, ...] = ()
    shadowed: tuple[Shadowed, ...] = ()
    warnings: tuple[Warned, ...] = ()
    changes: tuple[Change, ...] = ()
    conditions: Mapping[str, Condition] = part(default_factory=dict[str, Condition])
    """Of bundles that take part in some turns only, by file."""
    python: tuple[PythonTool, ...] = ()
    handlers: Mapping[str, Callable[..., Any]] = part(default_factory=dict[str, Callable[..., Any]])
    """In Python, for tool files without a script, by name."""

    def make(
        self, world: World, *, shipped: Iterable[Tool] = (), pool: Pool | None = None
    ) -> tuple[Tool, ...]:
        """The tools for a catalog: these, those that ship, those that scripts read files with, and
        those that tell of tasks.

        Where a file and a tool that ships have one name the file holds. The other one stays for
        scripts (`exec.run` in a `run_command.md` runs something), in a namespace of its own where
        the model does not see it, under the same gate. Raises ConfigError naming the file.
        """
        known = (*shipped, *(COMPANIONS if self.tools else ()))
        names = {tool.full_name for tool in known}
        tasks = TASK_TOOLS if any(file.is_async for file in self.tools) else ()
        beside = (*known, *(tool for tool in tasks if tool.full_name not in names))
        named = {one.name for one in (*self.tools, *self.python)}
        taken = named & {tool.full_name for tool in beside}
        given = replace(world, taken=frozenset(taken))
        return (
            *(
                make_tool(
                    file,
                    given,
                    pool=pool,
                    handler=self.handlers.get(file.name),
                    condition=self.conditions.get(file.file),
                )
                for file in self.tools
            ),
            *(one.tool for one in self.python),
            *(_moved(tool) if tool.full_name in taken else tool for tool in beside),
        )


def _moved(tool: Tool) -> Tool:
    return replace(tool, namespace=OWN, loading=Loading.INTERNAL)


def look(workspace: str | Path, trust: Trust | None = None) -> Loaded:
    """What the repository at `workspace` brings, if it is trusted. Raises ConfigError with
    everything that is wrong.
    """
    trust = trust or Trust()
    seen = trust.look(workspace)
    if seen.state != "trusted":
        changes = () if seen.state == "absent" else tuple(trust.diff(workspace))
        return Loaded(seen.state, changes=changes)
    loaded = load(seen.files)
    links = [
        Warned(name, "it is a link, and links are not followed")
        for name in seen.links
        if name.endswith(".md") and name.startswith(ROOTS)
    ]
    return replace(loaded, warnings=(*loaded.warnings, *links))


def load(files: Mapping[str, bytes], python: PythonTools | None = None) -> Loaded:
    """What these files bring, by their names relative to the workspace, beside tools in Python.
    Raises ConfigError with everything that is wrong.
    """
    python = python or PythonTools()
    reading = _Reading()
    for name in sorted(files):
        reading.take(name, files[name])
    for brought in python.brought:
        for tool in brought.tools:
            reading.found.append(
                Found("harness", PythonTool(tool.full_name, brought.place(tool.handler), tool))
            )
    chosen, shadowed, doubled = _chosen(reading.found)
    tools = tuple(one for one in chosen if isinstance(one, ToolFile))
    held, missing = conditions(reading.bundles)
    handlers, unclear = _handlers(tools, python)
    idle = python.idle(handlers.values())
    wrong = [*reading.wrong, *python.wrong, *doubled, *missing, *unclear, *idle]
    if wrong:
        hint = wrong[0].hint if len(wrong) == 1 else ""
        raise ConfigError("\n".join(error.detail for error in wrong), code="tool_files", hint=hint)
    warnings = [*reading.warnings]
    for tool in tools:
        warnings += [
            one for one in tool.warnings if one.message != NO_SCRIPT or tool.name not in handlers
        ]
    return Loaded(
        "trusted",
        tools,
        tuple(reading.bundles),
        shadowed,
        tuple(warnings),
        conditions=held,
        python=tuple(one for one in chosen if isinstance(one, PythonTool)),
        handlers=handlers,
    )


def _handlers(
    tools: Iterable[ToolFile], python: PythonTools
) -> tuple[dict[str, Callable[..., Any]], list[ConfigError]]:
    """The handlers that Python has for files without a script, and errors about names that two
    files have.
    """
    found: dict[str, Callable[..., Any]] = {}
    wrong: list[ConfigError] = []
    for tool in tools:
        if tool.script is not None:
            continue
        try:
            handler = python.handler(tool.name)
        except ConfigError as error:
            wrong.append(error)
            continue
        if handler is not None:
            found[tool.name] = handler
    return found, wrong


def _defined_twice(name: str, places: str, group: Iterable[Found]) -> ConfigError:
    hint = "rename one"
    if any(isinstance(one.tool, ToolFile) and one.tool.script is None for one in group):
        hint += ", or take `@tool` away where the function is meant as the handler of the file"
    return ConfigError(f"tool `{name}` is defined more than once: {places}", hint=hint)


class _Reading:
    """Goes through files and keeps what they hold, errors included."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.bundles: list[Bundle] = []
        self.warnings: list[Warned] = []
        self.wrong: list[ConfigError] = []

    def take(self, name: str, data: bytes) -> None:
        root, _, rest = name.partition("/")
        folder, _, leaf = rest.partition("/")
        try:
            if name in INLINE:
                self._inline("harness", fields_of(data, name), data)
            elif kind := kind_of(name):
                self._bundle(kind, parse_document(data, name), data)
            elif root in ROOTS and folder == "tools" and leaf.endswith(".md") and "/" not in leaf:
                self.found.append(Found("harness", parse_tool(data, name)))
        except ConfigError as error:
            self.wrong.append(error)

    def _bundle(self, kind: str, document: Document, data: bytes) -> None:
        bundle, warned = read_bundle(kind, document, data)
        self.warnings += warned
        self.bundles.append(bundle)
        self._inline(kind, document.fields, data)

    def _inline(self, kind: str, fields: Node, data: bytes) -> None:
        tools = field(fields, "tools")
        if tools is None or (fields.file.endswith(".yaml") and tools.pairs is not None):
            return  # In a settings file `tools` is also a section of settings, which is a mapping.
        if tools.items is None:
            raise tools.error(
                "`tools` must be a list of tools",
                hint="write `- name: my_tool`, and its keys below",
            )
        for item in tools.items:
            try:
                self.found.append(Found(kind, parse_inline(item, data)))
            except ConfigError as error:
                self.wrong.append(error)


def _chosen(
    found: Iterable[Found],
) -> tuple[tuple[ToolFile | PythonTool, ...], tuple[Shadowed, ...], list[ConfigError]]:
    """The tools that hold, sorted by name; those that do not; and names that are defined twice by
    one kind.
    """
    by_name: dict[str, list[Found]] = {}
    for one in found:
        by_name.setdefault(one.tool.name, []).append(one)
    tools: list[ToolFile | PythonTool] = []
    shadowed: list[Shadowed] = []
    wrong: list[ConfigError] = []
    for name, group in sorted(by_name.items()):
        first, *rest = sorted(group, key=lambda one: KINDS.index(one.kind))
        tools.append(first.tool)
        kinds = [one.kind for one in group]
        for kind in KINDS:
            if kinds.count(kind) > 1:
                places = " and ".join(one.tool.file for one in group if one.kind == kind)
                wrong.append(_defined_twice(name, places, group))
        shadowed += [
            Shadowed(name, one.kind, one.tool.file, first.kind, first.tool.file) for one in rest
        ]
    return tuple(tools), tuple(shadowed), wrong
