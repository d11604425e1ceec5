"""The reference: an index with one line a public name, and a page for each task.

`make_reference.py` writes them. They come from signatures and docstrings. A public
name of `ferrule` that has no place in `TASKS` is an error.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from functools import cache, partial
from importlib import import_module
from types import UnionType
from typing import Any, cast, get_args

import ferrule
from ferrule.core.events import Event
from ferrule.engine.event_bus.events import ApprovalRequested
from ferrule.engine.hooks.events import PAYLOADS
from ferrule.tools.definition import Touch

NOTE = "<!-- Made by docs/make_reference.py. Change the docstrings, then run `make docs`. -->"


@dataclass(frozen=True)
class Task:
    """A page of the reference.

    Attributes:
        title: Its heading.
        purpose: Its first sentence.
        sections: Names of `ferrule`, by the headings of their sections.
        modules: Public modules whose names follow.
    """

    title: str
    purpose: str
    sections: Mapping[str, str]
    modules: tuple[str, ...] = ()


TASKS = {
    "agents": Task(
        "Agents and runs",
        "Make an agent, run it, limit it, and read its result.",
        {
            "Agents, sessions and runs": (
                "Agent Session SessionHistory SessionApprovals RunResult RunOptions Identity Host"
            ),
            "Limits": "Limits Budget DelegationLimits",
            "Messages, context and media": (
                "MessageHistory ContextOptions ContextLeak Image Audio Document"
            ),
            "Output while a run goes": (
                "TextDelta ReasoningDelta ArgumentsDelta PartialOutput Progress"
            ),
            "One step at a time": "ModelStep CallStep",
            "Sub-agents": "SubAgent ask_agent",
            "Batches": "run_batch BatchReport BatchItem BatchProgress",
        },
        ("ferrule.notebook",),
    ),
    "tools": Task(
        "Tools",
        "Define tools, offer them to models, and use those that ship.",
        {
            "Define tools": (
                "tool define_tool Tool Context Reliability SideEffect Risk Chunks Redactor"
            ),
            "Offer tools": "Catalog ToolCalling ToolSearch RegistrationLimits",
            "Calls and results": "ToolCall ToolResult ErrorType ToolFailed RetryCall",
        },
        ("ferrule.tools", "ferrule.toolkits"),
    ),
    "permissions": Task(
        "Permissions and hooks",
        "Allow, ask for or deny calls; check and change them with functions.",
        {"Permissions": "Permissions Approver ApprovalRequest ApprovalAnswer HookBlocked"},
        ("ferrule.permissions", "ferrule.hooks"),
    ),
    "workspace": Task(
        "Workspace, sandbox and commands",
        "Open files beneath one folder, and run programs that the kernel confines.",
        {"Workspace": "Workspace"},
        ("ferrule.sandbox", "ferrule.command"),
    ),
    "models": Task(
        "Models",
        "Clients of providers, their options and prices, and a scripted model for tests.",
        {
            "Clients": "Anthropic Google Ollama OpenAIChat OpenAIResponses Scripted",
            "Options": "ModelOptions ModelFallbacks PricePerMillion",
        },
        ("ferrule.models",),
    ),
    "sessions": Task(
        "Sessions, journals and replay",
        "Store sessions and large results, read journals and audits, and replay recordings.",
        {"Storage": "Storage"},
        ("ferrule.storage", "ferrule.replay"),
    ),
    "events": Task(
        "Events and telemetry",
        "Watch runs while they happen, and export spans and metrics.",
        {"Bus and telemetry": "Bus Telemetry"},
        ("ferrule.events",),
    ),
    "connect": Task(
        "MCP, HTTP, A2A and other frameworks",
        "Use tools of other systems, and your tools in other frameworks.",
        {},
        (
            "ferrule.connectors",
            "ferrule.adapters.anthropic",
            "ferrule.adapters.langchain",
            "ferrule.adapters.llm",
            "ferrule.adapters.openai",
            "ferrule.adapters.openai_agents",
            "ferrule.adapters.pydantic_ai",
        ),
    ),
    "serve": Task(
        "Servers, web applications and jobs",
        "Serve agents and tools to other programs, and run them on many machines.",
        {},
        ("ferrule.servers", "ferrule.web", "ferrule.jobs"),
    ),
    "plugins": Task(
        "Plugins and files",
        "Write plugins, and load tools, hooks, agents and skills from files.",
        {},
        ("ferrule.plugins", "ferrule.extensions"),
    ),
    "evaluation": Task(
        "Evaluation and testing",
        "Compare models on cases, and test plugins, stores and clients of your own.",
        {},
        ("ferrule.evaluation", "ferrule.testing"),
    ),
    "errors": Task(
        "Errors",
        "The exceptions that programs catch. Errors for models are in [tools](tools.md).",
        {
            "Exceptions": (
                "FerruleError ConfigError ToolDefinitionError ProviderError LimitReached "
                "OutputInvalid RunCancelled SessionNotFound JournalError"
            )
        },
    ),
}
"""The pages below `docs/reference`, by their names, in the order of the index."""

INSIDE = {
    "Agent": (
        "gate share_model share_writes find_indexes find_media_store open_session take_over "
        "open_sub_agent copy_for_output open_rehearsal close_plugins disconnect"
    ),
    "Anthropic": "upload_file",
    "Bus": "feed find_address deliver wants_pieces tap untap add_scope remove_scope enter_scope",
    "Chunks": "encode_parts",
    "Context": "begin_attempt mark_launched mark_left keep_printed",
    "DelegationLimits": "turns_at",
    "EventHook": "handles",
    "Google": "is_newer request_headers read_refusal",
    "Bedrock": "read_refusal",
    "Grants": "for_session",
    "Hooks": "begin_run for_event add fire build_occasion ask delegate_call",
    "Identity": "for_run",
    "Limits": "of_owners counts_cost with_owner_limits fill_turns",
    "Ollama": "requested_window add_hint add_model_hint",
    "PermissionGate": (
        "start_in start_as find_start locate find_path_refusal find_denied_path_rule "
        "find_question_refusal open_named_folders path_denials only_lists with_mode for_session "
        "is_usable apply_answer"
    ),
    "OpenAIChat": "upload_file",
    "PostgresJournal": "after_fork append_batches",
    "ProviderError": "to_fields",
    "Reliability": "fill_from should_retry max_delay",
    "Sandbox": "take_view server_pid close_now",
    "Session": (
        "continue_as has_waiting_notices set_deps add_notice ask_hooks expect_output reset_model "
        "has_open_run is_recorded build_result is_usable"
    ),
    "SessionApprovals": "evaluate",
    "SessionHistory": "forget_call keep_media list_run_messages copy_media",
    "SqliteJournal": "after_fork remove_archived close_idle",
    "SubAgent": "may_use",
    "Subscription": "begin offer end wake batch",
    "Telemetry": "leave take enter_scope",
    "Tool": "offered_description declared_side_effect rule_name find_problems subjects",
    "ToolResult": "to_model_text",
    "ToolSearch": "can_be_native provider_variant own_strategy searcher_name from_setting",
    "Workspace": "check_own_code list_status names_for_commands stat_names",
}
"""Methods of public classes that only other packages of ours call: the reference leaves them out."""

EVENTS_NOTE = (
    "`BusEvent.payload` has these fields as JSON, without secrets. A call that a rule or a person "
    "refuses has no `call.answered`: its refusal is in `call.evaluated` or `person.answered`."
)


def _index() -> str:
    """Return the page with one line a public name."""
    _check_places()
    count = sum(len(list(_names(task))) for task in TASKS.values())
    parts = [
        NOTE,
        "# Reference",
        f"All {count} public names, by task; each leads to its parameters, fields, defaults and "
        "errors. What is not listed here may change with any version. Names without a module are "
        "imported from `ferrule`.",
    ]
    for page, task in TASKS.items():
        parts.append(f"## [{task.title}](reference/{page}.md)")
        parts.append(task.purpose.replace("](", "](reference/"))
        lines: dict[str, list[str]] = {}
        for module, name, value in _names(task):
            title = _title(page, module, name) if _has_entry(value) else module
            anchor = _slug(title)
            link = f"[`{name}`](reference/{page}.md#{anchor})"
            lines.setdefault(module, []).append(f"- {link}: {_first_sentence(value)}")
        for module, listed in lines.items():
            if module != "ferrule":
                parts.append(f"From `{module}`: {_summary(inspect.getdoc(import_module(module)))}")
            parts.append("\n".join(listed))
    return "\n\n".join(parts) + "\n"


def _page(name: str) -> str:
    """Return a page about a task."""
    task = TASKS[name]
    parts = [NOTE, f"# {task.title}", f"{task.purpose} All names: [reference](../reference.md)."]
    if task.sections:
        parts.append("Names of the first sections are imported from `ferrule`.")
    for title, names in task.sections.items():
        parts.append(f"## {title}")
        for each in names.split():
            parts += _entry(each, getattr(ferrule, each))
        if title == "Define tools":
            parts += ["### Marks for parameters", _format_marks()]
    for module in task.modules:
        parts += _module_entries(module, name)
    if name == "permissions":
        parts += ["## Payloads of hooks", _format_hook_payloads()]
    if name == "events":
        parts += ["## Payloads of events", EVENTS_NOTE, _format_event_payloads()]
    return "\n\n".join(parts) + "\n"


def _check_places() -> None:
    """Raise an error if a public name of `ferrule` has no place."""
    placed = {name for _, name in _places()}
    marks = {name for name in ferrule.__all__ if isinstance(getattr(ferrule, name), Touch)}
    missing = set(ferrule.__all__) - placed - marks - {"__version__"}
    if missing:
        raise SystemExit(f"docs/made_reference.py: no page in TASKS has {', '.join(missing)}")


@cache
def _places() -> tuple[tuple[str, str], ...]:
    """The names of `ferrule` with the pages that have them."""
    return tuple(
        (page, name)
        for page, task in TASKS.items()
        for names in task.sections.values()
        for name in names.split()
    )


def _names(task: Task) -> Iterator[tuple[str, str, Any]]:
    """Yield module, name and value of everything that a page describes."""
    for names in task.sections.values():
        yield from (("ferrule", name, getattr(ferrule, name)) for name in names.split())
    for module in task.modules:
        imported = import_module(module)
        for name in sorted(imported.__all__):
            if not _is_of_ferrule(name, getattr(imported, name)):
                yield module, name, getattr(imported, name)


def _is_of_ferrule(name: str, value: object) -> bool:
    return name in ferrule.__all__ and getattr(ferrule, name) is value


def _has_entry(value: object) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def _slug(title: str) -> str:
    """Return the anchor of a heading, as forges spell it."""
    return re.sub(r"[^\w-]", "", title.lower())


def _title(page: str, module: str, name: str) -> str:
    """Return the heading of a name: with its module where two of a page have it."""
    names = [each for _, each, _ in _names(TASKS[page])]
    return f"{module.rpartition('.')[2]}.{name}" if names.count(name) > 1 else name


def _first_sentence(value: object) -> str:
    if not _has_entry(value):
        return _describe_value(value)
    return re.split(r"(?<=\.) (?=[A-Z`])", _summary(inspect.getdoc(value)))[0]


def _format_marks() -> str:
    marks = [name for name in ferrule.__all__ if isinstance(getattr(ferrule, name), Touch)]
    return "\n".join(f"- `{name}`: {getattr(ferrule, name).kind}" for name in sorted(marks))


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
    return _summary(inspect.getdoc(kind))


def _module_entries(module: str, page: str) -> Iterator[str]:
    """Yield a heading, the module's summary, its names without entries, and the entries."""
    imported = import_module(module)
    yield f"## `{module}`"
    yield _summary(inspect.getdoc(imported))
    lines: list[str] = []
    detailed: list[str] = []
    pages_of = {name: where for where, name in _places()}
    for name in sorted(imported.__all__):
        value = getattr(imported, name)
        if _is_of_ferrule(name, value):
            where = "" if pages_of[name] == page else f"{pages_of[name]}.md"
            lines.append(f"- `{name}`: [as in `ferrule`]({where}#{name.lower()})")
        elif _has_entry(value):
            detailed.append(name)
        else:
            lines.append(f"- `{name}`: {_describe_value(value)}")
    if lines:
        yield "\n".join(lines)
    for name in detailed:
        yield from _entry(_title(page, module, name), getattr(imported, name))


def _summary(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((text or "").partition("\n\n")[0].split()).replace("|", "\\|")


def _describe_value(value: Any) -> str:
    """Return the names of the tools in a constant, else the name of its type."""
    if isinstance(value, tuple):
        return ", ".join(f"`{tool.name}`" for tool in value)
    if isinstance(value, UnionType):  # Python 3.14 calls it `Union`
        return "a union of types"
    return f"a value of type `{type(value).__name__}`"


def _entry(title: str, value: Any) -> Iterator[str]:
    """Yield the heading, signature, text and methods of a name."""
    name = title.rpartition(".")[2]
    yield f"### `{title}`"
    if isinstance(value, type) and issubclass(value, Enum):
        yield _document(value)
        yield "Values: " + ", ".join(f"`{member.value}`" for member in value)
        return
    yield f"```\n{_head(name, value)}\n```"
    yield _document(value)
    methods = _methods(value)
    protocol = _find_protocol(value)
    if protocol is not None:
        shared = [method for method in methods if method in vars(protocol)]
        methods = [method for method in methods if method not in shared]
        if shared:
            called = ", ".join(f"`{method}`" for method in shared)
            yield f"Implements `{protocol.__name__}`: {called}."
    for method in methods:
        member: Any = inspect.getattr_static(value, method)
        function: Any = member.fget if isinstance(member, property) else getattr(value, method)
        is_property = isinstance(member, property)
        shown = _property(method, function) if is_property else _head(method, function)
        yield f"#### `{name}.{method}`"
        yield f"```\n{shown}\n```"
        yield _document(function)


@cache
def _protocols() -> tuple[type, ...]:
    """Protocols of public modules with the method that tells their implementations."""
    from ferrule.models import ModelClient
    from ferrule.plugins import Plugin
    from ferrule.storage import ArtifactStore, Journal

    return (ModelClient, Plugin, ArtifactStore, Journal)


def _find_protocol(value: object) -> type | None:
    """Return the public protocol that a class implements."""
    if not isinstance(value, type):
        return None
    for protocol in _protocols():
        own = [one for one in vars(protocol) if not one.startswith("_")]
        wanted = [one for one in own if callable(getattr(protocol, one))]
        if value is not protocol and wanted and all(hasattr(value, one) for one in wanted):
            return protocol
    return None


def _property(name: str, getter: Any) -> str:
    """`name: type`."""
    returned = inspect.signature(getter).return_annotation
    return name if returned is inspect.Signature.empty else f"{name}: {_spelled(returned)}"


def _head(name: str, value: Any) -> str:
    """`name(parameters) -> result`, broken into lines where it is long.

    What has to be awaited begins with `async`.
    """
    if inspect.iscoroutinefunction(value):
        name = f"async {name}"
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
    if isinstance(default, type):
        return default.__name__
    if isinstance(default, Enum):
        return default.name
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
    """Return the documented methods and properties of a class that users call."""
    if not isinstance(value, type):
        return []
    own = vars(value)
    inside = INSIDE.get(value.__name__, "").split()
    named = [
        name
        for name in own
        if not name.startswith("_")
        and name not in inside
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
    return format_docstring(text) + _attributes(value)


SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
ITEM = re.compile(r"^ {4}(?P<name>\*{0,2}\w[\w.]*(?:, \w+)*): (?P<text>.*)$")


def format_docstring(text: str) -> str:
    """Return a docstring in Google's style as Markdown: its sections become lists."""
    made: list[str] = []
    section = ""
    for line in text.splitlines():
        begins = SECTION.match(line)
        item = ITEM.match(line) if section else None
        if begins:
            section = begins[1]
            made += [f"{section}:", ""]
        elif section and line and not line.startswith(" "):
            section = ""
            made += ["", line]
        elif item and section not in ("Returns", "Yields"):
            made.append(f"- `{item['name']}`: {item['text']}")
        elif section and line.startswith(" "):
            shown = line.strip() if section in ("Returns", "Yields") else f"  {line.strip()}"
            made.append(shown)
        else:
            made.append(line)
    return "\n".join(made).strip()


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


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference.md": _index,
    **{f"docs/reference/{name}.md": partial(_page, name) for name in TASKS},
}
"""The index and the pages, by their paths in the repository."""
