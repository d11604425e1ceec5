"""Writes the pages of the documentation that are made from the code: `make docs`.

`reference.md` comes from the docstrings of the public names, `settings.md` from the table of
settings, the tables of `providers.md` and `plugins.md` from those of providers and of the keys of
manifests, the map in `AGENTS.md` from the
first sentence of every package, `promises.md` from the lists of promises and the tests that claim
them. A test compares them with what is checked in.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum, StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_args

sys.path.insert(0, str(Path(__file__).parent))

import made_field_reports
import made_plugins
import made_promises
import made_providers

import ferrule
from ferrule.console.plugin_pages import ConsolePage
from ferrule.core.events import Event
from ferrule.engine.event_bus.events import ApprovalRequested
from ferrule.engine.hooks.events import PAYLOADS
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup
from ferrule.storage.settings.table import format_reference as settings_reference

ROOT = Path(__file__).resolve().parents[1]
NOTE = "<!-- Made by docs/make_reference.py. Change the docstrings, then run `make docs`. -->"

GROUPS = {
    "Running": ("Agent", "Session", "RunResult", "Limits", "Identity"),
    "Tools": (
        "tool",
        "define_tool",
        "Tool",
        "Catalog",
        "Context",
        "Reliability",
        "SideEffect",
        "Risk",
    ),
    "Calls and results": ("ToolCall", "ToolResult", "ErrorType"),
    "What a run shows while it goes": ("TextDelta", "ReasoningDelta", "Progress"),
    "The folder": ("Workspace",),
    "Models": ("ModelOptions",),
    "For tools that fail": ("ToolFailed", "RetryCall"),
    "Errors for programs and people": (
        "FerruleError",
        "ConfigError",
        "ToolDefinitionError",
        "ProviderError",
        "LimitReached",
        "RunCancelled",
        "SessionNotFound",
        "JournalError",
    ),
}
"""Order of the page. Public names that are missing here come last, under `More`."""

MODULES = (
    "ferrule.hooks",
    "ferrule.events",
    "ferrule.replay",
    "ferrule.jobs",
    "ferrule.storage",
    "ferrule.toolkits",
    "ferrule.tools",
    "ferrule.connectors",
    "ferrule.evaluation",
    "ferrule.extensions",
    "ferrule.models",
    "ferrule.notebook",
    "ferrule.permissions",
    "ferrule.plugins",
    "ferrule.sandbox",
    "ferrule.servers",
    "ferrule.adapters.anthropic",
    "ferrule.adapters.langchain",
    "ferrule.adapters.llm",
    "ferrule.adapters.openai",
    "ferrule.adapters.openai_agents",
    "ferrule.adapters.pydantic_ai",
    "ferrule.command",
    "ferrule.testing",
    "ferrule.web",
)
"""Public modules beside `ferrule` itself."""

PLUGIN_CLASSES = (Setup, Parts, CatalogChanges, ConsolePage)
EVENTS_NOTE = (
    "`BusEvent.payload` has these fields as JSON, without secrets. A call that a rule or a person "
    "refuses has no `call.answered`: its refusal is in `call.evaluated` or `person.answered`."
)


def reference() -> str:
    """The page about the public names, as Markdown."""
    public = [name for name in ferrule.__all__ if name != "__version__"]
    grouped = {name for names in GROUPS.values() for name in names}
    rest = tuple(
        name for name in public if name not in grouped and inspect.getdoc(getattr(ferrule, name))
    )
    marks = tuple(name for name in public if isinstance(getattr(ferrule, name), _touch()))
    groups = {**GROUPS, "More": tuple(name for name in rest if name not in marks)}
    parts = [NOTE, "# Reference", "Everything down to *Other modules* is imported from `ferrule`."]
    for title, names in groups.items():
        if names:
            parts.append(f"## {title}")
            parts += [entry for name in names for entry in _entry(name, getattr(ferrule, name))]
    parts.append("## Marks for parameters")
    parts.append("\n".join(f"- `{name}`: {getattr(ferrule, name).kind}" for name in sorted(marks)))
    parts.append("## Other modules")
    for module in MODULES:
        parts += _module_entries(module)
    parts.append("## Plugins")
    parts += [entry for one in PLUGIN_CLASSES for entry in _entry(one.__name__, one)]
    parts += ["## Payloads of hooks", _format_hook_payloads()]
    parts += ["## Payloads of events", EVENTS_NOTE, _format_event_payloads()]
    return "\n\n".join(parts) + "\n"


def _format_hook_payloads() -> str:
    """Return a table of what hooks get, by the names of their events."""
    rows = ["| event | class | fields | |", "|---|---|---|---|"]
    for event, payload in PAYLOADS.items():
        given = _format_fields(payload)
        rows.append(f"| `{event}` | `{payload.__name__}` | {given} | {_describe(payload)} |")
    return "\n".join(rows)


def _format_event_payloads() -> str:
    """Return a table of what events of the bus carry, by their kinds."""
    rows = ["| kind | payload | |", "|---|---|---|"]
    kinds = {one.kind: one for one in (*get_args(Event), ApprovalRequested)}
    del kinds["unknown"]  # what a later version wrote
    for kind, event in sorted(kinds.items()):
        rows.append(f"| `{kind}` | {_format_fields(event)} | {_describe(event)} |")
    return "\n".join(rows)


def _format_fields(kind: type) -> str:
    listed = [f"`{one.name}: {_spelled(one.type)}`" for one in fields(kind) if one.repr]
    return ", ".join(listed).replace("|", "\\|")


def _describe(kind: type) -> str:
    return _summary(inspect.getdoc(kind) or "")


def _module_entries(module: str) -> Iterator[str]:
    """Yield a heading, the module's summary, a table of its names, and an entry for each of them.

    Values have no entry, nor have names that `ferrule` itself has.
    """
    imported = import_module(module)
    rows = ["| name | |", "|---|---|"]
    detailed: list[str] = []
    for name in sorted(imported.__all__):
        value = getattr(imported, name)
        if getattr(ferrule, name, None) is value and name in ferrule.__all__:
            rows.append(f"| `{name}` | [as in `ferrule`](#{name.lower()}) |")
        elif inspect.isclass(value) or inspect.isroutine(value):
            rows.append(f"| `{name}` | {_summary(inspect.getdoc(value) or '')} |")
            detailed.append(name)
        else:
            rows.append(f"| `{name}` | {_describe_value(value)} |")
    yield f"### `{module}`"
    yield _summary(inspect.getdoc(imported) or "")
    yield "\n".join(rows)
    for name in detailed:
        for part in _entry(name, getattr(imported, name)):
            # One level deeper than the names of `ferrule`.
            yield f"#{part}" if part.startswith("#") else part


def _summary(text: str) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def _describe_value(value: Any) -> str:
    """Return the names of the tools in a constant, else the name of its type."""
    if isinstance(value, tuple):
        return ", ".join(f"`{tool.name}`" for tool in value)
    return f"a value of type `{type(value).__name__}`"


def settings() -> str:
    """The page about settings, as Markdown."""
    purpose = (
        "Every key of `ferrule.yaml`, with its default and with what a repository's own file may "
        "set. `ferrule validate` names the file and the line of a value that cannot be used."
    )
    return f"{NOTE}\n\n# Settings\n\n{purpose}\n\n{settings_reference('local').strip()}\n"


def agents() -> str:
    """`AGENTS.md` with the map of today."""
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    begin, end = re.search(r"<!-- map:.*-->\n", text), text.index("<!-- end of map -->")
    assert begin is not None
    return f"{text[: begin.end()]}\n{_map()}\n{text[end:]}"


def _map() -> str:
    lines: list[str] = []
    sources = (ROOT / "src", ROOT / "packages/ferrule-local/src")
    for path in (file for source in sources for file in sorted(source.rglob("__init__.py"))):
        folder = path.parent.relative_to(next(one for one in sources if one in path.parents))
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"- `{folder}`: {_sentence(text)}")
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference.md": reference,
    "docs/settings.md": settings,
    "docs/promises.md": made_promises.page,
    "docs/field-reports.md": made_field_reports.page,
    "docs/plugins.md": made_plugins.page,
    "docs/providers.md": made_providers.page,
    "AGENTS.md": agents,
}
"""What is made, by its path in the repository."""


def _touch() -> type:
    from ferrule.tools.definition import Touch

    return Touch


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### `{name}`"
    if isinstance(value, type) and issubclass(value, Enum):
        yield _document(value)
        yield "Values: " + ", ".join(f"`{member.value}`" for member in value)
        return
    yield f"```\n{_head(name, value)}\n```"
    yield _document(value)
    for method in _methods(value):
        member: Any = inspect.getattr_static(value, method)
        function: Any = member.fget if isinstance(member, property) else getattr(value, method)
        shown = method if isinstance(member, property) else _head(method, function)
        yield f"#### `{name}.{method}`"
        yield f"```\n{shown}\n```"
        yield _document(function)


def _head(name: str, value: Any) -> str:
    """`name(parameters) -> result`, broken into lines where it is long."""
    if is_dataclass(value) and isinstance(value, type):
        pairs = [_field(item) for item in fields(value) if not item.name.startswith("_")]
        return _broken(name, pairs, "")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    kept = [p for key, p in signature.parameters.items() if key not in ("self", "cls")]
    returns = (
        ""
        if signature.return_annotation is inspect.Signature.empty
        else f" -> {_spelled(signature.return_annotation)}"
    )
    pairs = [_parameter(parameter) for parameter in kept]
    return _broken(name, _starred(kept, pairs), "" if isinstance(value, type) else returns)


def _field(item: Field[Any]) -> str:
    """`name: type`, with the default if there is one; `...` for one that is made."""
    typed = f"{item.name}: {_spelled(item.type)}"
    if item.default is not MISSING:
        return f"{typed} = {_shown(item.default)}"
    return typed if item.default_factory is MISSING else f"{typed} = ..."


def _shown(default: object) -> str:
    if isinstance(default, frozenset):
        # In the order of the text: that of a set is another one in each process.
        items = ", ".join(sorted(_shown(one) for one in cast("frozenset[object]", default)))
        return f"frozenset({{{items}}})" if items else "frozenset()"
    if isinstance(default, StrEnum):
        return repr(str(default))
    text = repr(default)
    return "..." if " at 0x" in text else text


def _parameter(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    typed = "" if parameter.annotation is parameter.empty else f": {_spelled(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {_shown(parameter.default)}"
    return f"{star}{parameter.name}{typed}{default}"


def _starred(kept: list[inspect.Parameter], pairs: list[str]) -> list[str]:
    for place, parameter in enumerate(kept):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return pairs
        if parameter.kind is parameter.KEYWORD_ONLY:
            return [*pairs[:place], "*", *pairs[place:]]
    return pairs


def _broken(name: str, pairs: list[str], returns: str) -> str:
    short = f"{name}({', '.join(pairs)}){returns}"
    if len(short) <= 100:
        return short
    lines = "".join(f"    {pair},\n" for pair in pairs)
    return f"{name}(\n{lines}){returns}"


def _spelled(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _methods(value: Any) -> list[str]:
    if not isinstance(value, type):
        return []
    own = vars(value)
    named = [
        name
        for name in own
        if not name.startswith("_")
        and (callable(getattr(value, name)) or isinstance(own[name], property))
    ]
    return [
        name
        for name in named
        if inspect.getdoc(own[name].fget if isinstance(own[name], property) else own[name])
    ]


def _document(value: Any) -> str:
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    if is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}("):
        return ""
    return text + _attributes(value)


def _attributes(value: Any) -> str:
    """Texts written under attributes, as in `self.status = status` followed by a string."""
    if not isinstance(value, type) or not issubclass(value, BaseException):
        return ""
    try:
        tree = ast.parse(inspect.getsource(value))
    except (OSError, SyntaxError):
        return ""
    found: list[str] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for line, text in zip(function.body, function.body[1:], strict=False):
                target = line.targets[0] if isinstance(line, ast.Assign) else None
                said = text.value if isinstance(text, ast.Expr) else None
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(said, ast.Constant)
                    and isinstance(said.value, str)
                ):
                    found.append(f"- `{target.attr}`: {inspect.cleandoc(said.value)}")
    return "\n\n" + "\n".join(found) if found else ""


def main() -> int:
    """Write the pages; with `--check` only say which are stale (exit status 1)."""
    stale = [name for name, make in PAGES.items() if not _same(ROOT / name, make())]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is stale: run `make docs`", file=sys.stderr)
        return bool(stale)
    for name in stale:
        (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main())
