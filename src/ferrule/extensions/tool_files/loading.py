"""Load the tools of a repository, and choose between those with the same name.

    override   .harness/overrides/*.md, .ferrule/overrides/*.md                    bundles
    harness    .harness/tools/*.md, .ferrule/tools/*.md; `tools:` of harness.md and ferrule.yaml
    builtin    .harness/builtins/*.md, .ferrule/builtins/*.md                      bundles
    plugin     .harness/plugins/*.md, .ferrule/plugins/*.md                        bundles

Tools in Python (`python_tools`) count as `harness`. The first in this order is used and the others
are reported as shadowed; two of the same kind are an error. A bundle is a Markdown file whose front
matter lists `tools` and `hooks`; a plugin has a `name` in kebab-case and a `description`.

Nothing of a repository takes effect before a person trusts it (`storage.trust`).

A file in `tools/` that is invalid is left out with its reason, and the others are used. Its name
stays taken: no tool with that name and a lower precedence, shipped ones included, takes its place
before the model, for the file may have been written to limit it. What is wrong elsewhere is an
error, because bundles hold hooks and conditions too; all problems are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.background import TASK_TOOLS
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.front_matter import (
    Document,
    FileWarning,
    InvalidFile,
    get_field,
    parse_document,
)
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.storage.settings.yaml_tree import Node
from ferrule.tools.definition import BUILTIN_NAMESPACE, Loading, Tool

from .bundles import (
    CONFIGURATION_FOLDERS,
    MAIN_FILES,
    Bundle,
    BundleCondition,
    collect_conditions,
    find_bundle_kind,
    find_unread_keys,
    parse_bundle,
    parse_fields,
)
from .handlers import make_tool
from .internal_tools import INTERNAL_TOOLS
from .python_tools import PythonTools
from .tool_file import NO_SCRIPT, ToolFile, find_tool_name, parse_inline, parse_tool

KINDS = ("override", "harness", "builtin", "plugin")
"""In order of precedence."""


@frozen
class PythonTool:
    """A tool in Python: its full name, and its `file:line`."""

    name: str
    file: str
    tool: Tool


@frozen
class FoundTool:
    """A tool and the kind of place it came from."""

    kind: str
    tool: ToolFile | PythonTool


@frozen
class ShadowedTool:
    """A tool that is not used, because another has the same name."""

    name: str
    kind: str
    file: str
    by_kind: str
    by_file: str

    def __str__(self) -> str:
        return (
            f"`{self.name}` of {self.file} ({self.kind}) is not used: {self.by_file} "
            f"({self.by_kind}) takes precedence"
        )


@frozen
class LoadedTools:
    """What a repository adds."""

    tools: tuple[ToolFile, ...] = ()
    bundles: tuple[Bundle, ...] = ()
    shadowed: tuple[ShadowedTool, ...] = ()
    warnings: tuple[FileWarning, ...] = ()
    left_out: tuple[InvalidFile, ...] = ()
    conditions: Mapping[str, BundleCondition] = field(default_factory=dict[str, BundleCondition])
    """Of bundles that are active only in some turns, by file."""
    python: tuple[PythonTool, ...] = ()
    handlers: Mapping[str, Callable[..., Any]] = field(
        default_factory=dict[str, Callable[..., Any]]
    )
    """Python functions for tool files without a script, by tool name."""

    def make_tools(
        self,
        environment: ScriptEnvironment,
        *,
        shipped: Iterable[Tool] = (),
        pool: WorkerPool | None = None,
    ) -> tuple[Tool, ...]:
        """Make the tools for a catalog: the loaded and shipped ones, and those that scripts need.

        Where a file and a shipped tool have the same name, the file is used; if it is invalid,
        neither is offered. The shipped one stays available to scripts (`exec.run` in a
        `run_command.md` runs something), in a namespace of its own that is hidden from the model,
        under the same gate.

        Raises:
            ConfigError: A file cannot be a tool. The message names it.
        """
        others = list(shipped)
        if self.tools:
            others += INTERNAL_TOOLS
        if any(file.is_async for file in self.tools):
            names = {tool.full_name for tool in others}
            others += [tool for tool in TASK_TOOLS if tool.full_name not in names]
        own_names = {tool.name for tool in (*self.tools, *self.python, *self.left_out)}
        taken = own_names & {tool.full_name for tool in others}
        environment = replace(environment, taken_names=frozenset(taken))
        from_files = [
            make_tool(
                file,
                environment,
                pool=pool,
                handler=self.handlers.get(file.name),
                condition=self.conditions.get(file.file),
            )
            for file in self.tools
        ]
        from_python = [python.tool for python in self.python]
        others = [_hide(tool) if tool.full_name in taken else tool for tool in others]
        return (*from_files, *from_python, *others)


def _hide(tool: Tool) -> Tool:
    return replace(tool, namespace=BUILTIN_NAMESPACE, loading=Loading.INTERNAL)


def load_tools(files: Mapping[str, bytes], python: PythonTools | None = None) -> LoadedTools:
    """Load the tools of these files and of Python files.

    Args:
        files: Contents by their names relative to the workspace.
        python: The loaded Python files.

    Raises:
        ConfigError: Files other than those in `tools/` are invalid, or two tools of one kind have
            the same name. It lists all problems.
    """
    python = python or PythonTools()
    reading = _Reading()
    for name in sorted(files):
        reading.take(name, files[name])
    for module in python.modules:
        for tool in module.tools:
            python_tool = PythonTool(tool.full_name, module.locate(tool.handler), tool)
            reading.found.append(FoundTool("harness", python_tool))
    chosen, shadowed, repeated = _choose(reading.find_usable())
    tools = tuple(tool for tool in chosen if isinstance(tool, ToolFile))
    by_file, missing = collect_conditions(reading.bundles)
    handlers, ambiguous = _find_handlers(tools, python)
    idle = python.find_unused(handlers.values())
    errors = [*reading.errors, *python.errors, *repeated, *missing, *ambiguous, *idle]
    if errors:
        hint = errors[0].hint if len(errors) == 1 else ""
        raise ConfigError("\n".join(error.detail for error in errors), code="tool_files", hint=hint)
    warnings = list(reading.warnings)
    for tool in tools:
        has_handler = tool.name in handlers
        warnings += [
            warning
            for warning in tool.warnings
            if not (has_handler and warning.message == NO_SCRIPT)
        ]
    return LoadedTools(
        tools=tools,
        bundles=tuple(reading.bundles),
        shadowed=shadowed,
        warnings=tuple(warnings),
        left_out=tuple(reading.left_out),
        conditions=by_file,
        python=tuple(tool for tool in chosen if isinstance(tool, PythonTool)),
        handlers=handlers,
    )


def _find_handlers(
    tools: Iterable[ToolFile], python: PythonTools
) -> tuple[dict[str, Callable[..., Any]], list[ConfigError]]:
    """Return the Python handlers of files without a script, and errors about ambiguous names."""
    handlers: dict[str, Callable[..., Any]] = {}
    errors: list[ConfigError] = []
    for tool in tools:
        if tool.script is not None:
            continue
        try:
            handler = python.find_handler(tool.name)
        except ConfigError as error:
            errors.append(error)
            continue
        if handler is not None:
            handlers[tool.name] = handler
    return handlers, errors


def _repeated_name(name: str, places: str, group: Iterable[FoundTool]) -> ConfigError:
    hint = "rename one"
    tools = (candidate.tool for candidate in group)
    if any(isinstance(tool, ToolFile) and tool.script is None for tool in tools):
        hint += ", or take `@tool` away where the function is meant as the handler of the file"
    return ConfigError(f"tool `{name}` is defined more than once: {places}", hint=hint)


class _Reading:
    """Goes through files and collects their tools, bundles and errors."""

    def __init__(self) -> None:
        self.found: list[FoundTool] = []
        self.bundles: list[Bundle] = []
        self.warnings: list[FileWarning] = []
        self.left_out: list[InvalidFile] = []
        self.errors: list[ConfigError] = []

    def find_usable(self) -> list[FoundTool]:
        """Return what was found, without what would stand in for a file that is left out."""
        taken = {file.name for file in self.left_out}
        return [one for one in self.found if one.kind == "override" or one.tool.name not in taken]

    def take(self, name: str, data: bytes) -> None:
        root, _, rest = name.partition("/")
        folder, _, leaf = rest.partition("/")
        is_tool = (
            root in CONFIGURATION_FOLDERS
            and folder == "tools"
            and leaf.endswith(".md")
            and "/" not in leaf
        )
        bundle_kind = find_bundle_kind(name)
        try:
            if name in MAIN_FILES:
                fields = parse_fields(data, name)
                self.warnings += find_unread_keys(fields)
                self._take_list("harness", fields, data)
            elif bundle_kind:
                self._take_bundle(bundle_kind, parse_document(data, name), data)
            elif is_tool:
                self._take_tool(name, data)
        except ConfigError as error:
            self.errors.append(error)

    def _take_tool(self, file: str, data: bytes) -> None:
        try:
            self.found.append(FoundTool("harness", parse_tool(data, file)))
        except ConfigError as error:
            invalid = InvalidFile("tool", find_tool_name(file), error.detail, error.hint)
            self.left_out.append(invalid)

    def _take_bundle(self, kind: str, document: Document, data: bytes) -> None:
        bundle, warnings = parse_bundle(kind, document, data)
        self.warnings += warnings
        self.bundles.append(bundle)
        self._take_list(kind, document.fields, data)

    def _take_list(self, kind: str, fields: Node, data: bytes) -> None:
        tools = get_field(fields, "tools")
        if tools is None or (fields.file.endswith(".yaml") and tools.pairs is not None):
            return  # In a settings file, a mapping `tools` is a section of settings.
        if tools.items is None:
            raise tools.error(
                "`tools` must be a list of tools",
                hint="write `- name: my_tool`, and its keys below",
            )
        for item in tools.items:
            try:
                self.found.append(FoundTool(kind, parse_inline(item, data)))
            except ConfigError as error:
                self.errors.append(error)


def _choose(
    found: Iterable[FoundTool],
) -> tuple[tuple[ToolFile | PythonTool, ...], tuple[ShadowedTool, ...], list[ConfigError]]:
    """Return the tools in use by name, the shadowed ones, and errors about repeated names."""
    by_name: dict[str, list[FoundTool]] = {}
    for candidate in found:
        by_name.setdefault(candidate.tool.name, []).append(candidate)
    tools: list[ToolFile | PythonTool] = []
    shadowed: list[ShadowedTool] = []
    errors: list[ConfigError] = []
    for name, group in sorted(by_name.items()):
        first, *rest = sorted(group, key=lambda candidate: KINDS.index(candidate.kind))
        tools.append(first.tool)
        for kind in KINDS:
            files = [candidate.tool.file for candidate in group if candidate.kind == kind]
            if len(files) > 1:
                errors.append(_repeated_name(name, " and ".join(files), group))
        shadowed += [
            ShadowedTool(name, other.kind, other.tool.file, first.kind, first.tool.file)
            for other in rest
        ]
    return tuple(tools), tuple(shadowed), errors
