"""Git for agents: operations as tools (`git_tools`), or a finder and a runner.

    git_tools(repo=".", enabled_tools=["git_status", "git_log", "git_switch"],
              names={"git_log": "release_git_log"})
    git_toolbox_tools(repo=".", include_mutations=True)        find_git_tool, run_git_tool

git runs in the sandbox of the session, like any command (`run`); where there is none, only the
operations that read remain. Compared with git on a terminal these are missing: filters, signatures,
credential helpers and SSH, submodules, merges with conflicts.

A toolbox with mutations is one tool for all operations: its risk is that of the worst one, so a
person is asked about reads as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Unpack, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, RetryCall, ToolFailed
from ferrule.core.similar_names import ask_about, find_similar_names
from ferrule.toolkits.subfolder import FolderPath, enter_subfolder, read_folder
from ferrule.tools import toolset
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Arguments, CheckedArguments, Tool
from ferrule.tools.pack_options import PackOptions, apply_options, check_options

from .attempt import Attempt
from .catalog import DEFAULT_OPERATIONS, OPERATIONS, Operation, format_command
from .finder import find_operations
from .receipt import GitOptions, make_failure_result

_BY_NAME = ("names", "descriptions", "annotations", "tool_config", "formatters")


def git_tools(
    repo: FolderPath = None,
    *,
    agent: str = "agent",
    autonomy_tier: str = "",
    author: tuple[str, str] | None = None,
    **options: Unpack[PackOptions],
) -> tuple[Tool, ...]:
    """Return operations of git as tools of their own; by default those of
    `catalog.DEFAULT_OPERATIONS`.

    Args:
        repo: The folder of the repository: the workspace (None), or a folder below it.
        agent: Who acts, for receipts.
        autonomy_tier: How freely the agent acts, for receipts.
        author: Name and address for commits, instead of the person's own git settings.
        options: `enabled_tools` takes keys (`git_log`), operations (`log`) and the groups `read`,
            `mutation` and `all`.

    Raises:
        ConfigError: An option, key or name does not exist, as in every pack.
    """
    check_options(options, PackOptions)
    bound = _bind(OPERATIONS.values(), repo, GitOptions(agent, autonomy_tier, author))
    return apply_options(
        bound,
        _normalize_keys(options),
        default_selection=[f"git_{name}" for name in DEFAULT_OPERATIONS],
    )


def git_toolbox_tools(
    repo: FolderPath = None,
    *,
    include_mutations: bool = False,
    agent: str = "agent",
    autonomy_tier: str = "",
    author: tuple[str, str] | None = None,
    **options: Unpack[PackOptions],
) -> tuple[Tool, ...]:
    """Return two tools instead of many.

    `find_git_tool` tells which operation is meant, `run_git_tool` runs one. Without
    `include_mutations` only operations that read are found and run. The other parameters are those
    of `git_tools`.
    """
    check_options(options, PackOptions)
    chosen = [
        operation
        for operation in OPERATIONS.values()
        if include_mutations or operation.group == "read"
    ]
    bound = _bind(chosen, repo, GitOptions(agent, autonomy_tier, author))
    operations = {
        operation.name: replace(operation, tool=made)
        for operation, made in zip(chosen, bound, strict=True)
    }
    tools = toolset.annotate(
        toolset.add_to_groups([_make_finder(operations), _make_runner(operations)], "git"),
        {
            "find_git_tool": {"see_also": ["run_git_tool"]},
            "run_git_tool": {"see_also": ["find_git_tool"]},
        },
    )
    return apply_options(tools, options)


def _bind(
    operations: Iterable[Operation], repo: FolderPath, options: GitOptions
) -> tuple[Tool, ...]:
    """Return the tools of operations, in their groups, for one repository."""
    start = None if repo is None else read_folder(repo)
    return tuple(
        _with_facts(operation, _bind_to_repository(operation, start, options))
        for operation in operations
    )


def _with_facts(operation: Operation, made: Tool) -> Tool:
    changes = operation.group == "mutation"
    facts: dict[str, Any] = {
        "key": operation.key,
        "groups": (operation.group, operation.name),
        "kind": "execute" if changes else "read",
        "side_effect_level": _SIDE_EFFECT_LEVELS[str(made.side_effect)],
        "operation": operation.name,
    }
    return replace(
        made,
        annotations={**made.annotations, **facts},
        command_form=partial(format_command, operation.name),
    )


_SIDE_EFFECT_LEVELS = {"read": "read_only", "execute": "process_exec", "external": "network"}


def _bind_to_repository(operation: Operation, repo: FolderPath, options: GitOptions) -> Tool:
    made = operation.tool
    handler = made.handler
    preview = made.preview

    def enter(context: Context) -> Context:
        inner = context if repo is None else enter_subfolder(context, str(repo))
        own = {GitOptions: options, Attempt: Attempt()}
        return replace(inner, resources={**inner.resources, **own})

    async def run(*, context: Context, **values: Any) -> Any:
        inner = enter(context)
        try:
            return await handler(**values, context=inner)
        except RetryCall:
            raise  # The arguments have to be changed: nothing was attempted.
        except ToolFailed as failed:
            failed.data = make_failure_result(made, operation.name, inner, failed)
            raise

    async def show(values: Mapping[str, Any], context: Any) -> str:
        assert preview is not None
        return await preview(values, enter(context))

    return replace(made, handler=run, preview=show if preview else None)


def _normalize_keys(options: PackOptions) -> PackOptions:
    """Accept operations as keys of options: `log` for `git_log`."""
    changed: dict[str, Any] = dict(options)
    for name in _BY_NAME:
        given = cast("Mapping[str, Any]", options.get(name) or {})
        if given:
            changed[name] = {_operation_key(key): value for key, value in given.items()}
    return cast("PackOptions", changed)


def _operation_key(key: str) -> str:
    return f"git_{key}" if key in OPERATIONS else key


# ---- the toolbox


def _make_finder(operations: Mapping[str, Operation]) -> Tool:
    @tool(side_effect="none", risk="safe")
    async def find_git_tool(
        query: Annotated[str, "What is to be done, in a few words: `what branch am I on`."],
        max_results: Annotated[int, "How many operations to show, 1 to 20."] = 5,
    ) -> dict[str, Any]:
        """Find out which git operation does what is wanted. Run it with `run_git_tool`."""
        if not 1 <= max_results <= 20:
            raise RetryCall(f"`max_results` must be from 1 to 20, found {max_results}")
        matches = find_operations(query, operations.values(), max_results)
        if not matches:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"no git operation fits {query[:200]!r}; there are: {', '.join(operations)}",
            )
        return {"operations": [_row(match.operation, match.score) for match in matches]}

    return find_git_tool


def _row(operation: Operation, score: float) -> dict[str, Any]:
    """Return what a finder tells about an operation."""
    schema = operation.tool.arguments.schema
    return {
        "operation": operation.name,
        "description": operation.tool.description,
        "changes_something": operation.group == "mutation",
        "arguments": schema.get("properties", {}),
        "required": schema.get("required", []),
        "score": round(score, 2),
    }


def _make_runner(operations: Mapping[str, Operation]) -> Tool:
    async def run(*, context: Context, operation: str, **values: Any) -> Any:
        chosen = _find_operation(operations, operation)
        checked = chosen.tool.arguments.check(values)
        if checked.problems:
            raise RetryCall(f"`{chosen.name}`: {'; '.join(checked.problems)}")
        return await chosen.tool.handler(**checked.values, context=context)

    changes = any(operation.group == "mutation" for operation in operations.values())
    listed = ", ".join(f"`{name}`" for name in operations)
    made = define_tool(
        "run_git_tool",
        f"Run one git operation: {listed}. `find_git_tool` says what each takes.",
        parameters=_merge_schemas(operations),
        handler=run,
        touches={"paths": "read", "path": "read"},
        side_effect="external" if changes else "read",
        risk="high" if changes else "low",
        timeout=operations["status"].tool.reliability.timeout,
        parallel=not changes,
        preview=_RunnerPreview(operations),
    )
    return replace(
        made,
        context_parameter="context",
        arguments=_NullIsAbsent(made.arguments),
        command_form=_format_chosen,
    )


def _format_chosen(values: Mapping[str, Any]) -> tuple[str, ...]:
    name = _plain_name(str(values.get("operation", "")))
    return format_command(name, {key: value for key, value in values.items() if key != "operation"})


class _NullIsAbsent:
    """Arguments as models fill in a wide schema: null for what does not apply."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._arguments.schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        given = {name: value for name, value in arguments.items() if value is not None}
        return self._arguments.check(given)


def _plain_name(name: str) -> str:
    return name.strip().lower().removeprefix("git_").removeprefix("git ").replace("-", "_")


def _find_operation(operations: Mapping[str, Operation], name: str) -> Operation:
    """Return the operation of this name.

    Raises:
        ToolFailed: `not_found` with the nearest names, also for an operation that is disabled.
    """
    plain = _plain_name(name)
    if plain in operations:
        return operations[plain]
    if plain in OPERATIONS:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            f"the operation `{plain}` is switched off here, since it changes something; "
            f"there are: {', '.join(operations)}",
        )
    near = find_similar_names(plain, operations, count=3, cutoff=0.4)
    if not near:
        near = [match.operation.name for match in find_operations(name, operations.values(), 3)]
    step = ask_about(near) if near else f"there are: {', '.join(operations)}"
    raise ToolFailed(ErrorType.NOT_FOUND, f"there is no git operation `{name[:100]}`; {step}")


class _RunnerPreview:
    """The preview of the runner: what the operation itself would show."""

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        self._operations = operations

    async def __call__(self, values: Mapping[str, Any], context: Any) -> str:
        chosen = _find_operation(self._operations, str(values["operation"]))
        given = {name: value for name, value in values.items() if name != "operation"}
        checked = chosen.tool.arguments.check(given)
        if checked.problems:
            raise RetryCall("; ".join(checked.problems))
        arguments = " ".join(f"{name}={value!r}" for name, value in given.items())
        text = f"git {chosen.name} {arguments}".strip()
        if chosen.tool.preview is None:
            return text
        shown = await chosen.tool.preview(checked.values, context)
        return f"{text}\n{shown}" if shown else text


_SHARED = {
    "paths": "Files or folders.",
    "rev": "A commit: a branch, a tag, an id, or the like of `HEAD~2`.",
    "rev_range": "Two commits, as in `main..HEAD`.",
    "branch": "The name of a branch.",
    "all": "Everything that changed.",
    "stat": "Only which files, and how many lines.",
}
"""Descriptions of arguments that several operations take, each in its own way."""


def _merge_schemas(operations: Mapping[str, Operation]) -> dict[str, Any]:
    """Return one schema for the arguments of all operations.

    The description of an argument names the operations that take it.
    """
    properties: dict[str, Any] = {
        "operation": {
            "type": "string",
            "description": "Which operation, as `find_git_tool` names it.",
        }
    }
    users: dict[str, list[str]] = {}
    for operation in operations.values():
        for name, schema in operation.tool.arguments.schema.get("properties", {}).items():
            users.setdefault(name, []).append(operation.name)
            kept = {key: value for key, value in schema.items() if key != "default"}
            known = properties.setdefault(name, kept)
            if known.get("type") != kept.get("type"):
                raise ConfigError(
                    f"operations of git disagree about the type of `{name}`", code="git_catalog"
                )
            if "enum" in known and known.get("enum") != kept.get("enum"):
                raise ConfigError(
                    f"operations of git disagree about the values of `{name}`", code="git_catalog"
                )
    for name, names in users.items():
        description = _SHARED.get(name) or properties[name].get("description", "")
        properties[name] = {
            **properties[name],
            "description": f"({', '.join(names)}) {description}",
        }
    return {
        "type": "object",
        "properties": properties,
        "required": ["operation"],
        "additionalProperties": False,
    }
