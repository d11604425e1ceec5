"""Let scripts add tools, hooks and agents to their session: `meta.tool_register` and the like.

Each is a call of a tool of its own (`register_tool`, `register_hook`, `register_agent`) that no
model is shown. So it passes the gate, the hooks and the journal like every call, and a person is
shown the whole definition for approval. Rules:

* Only a script registers, and only one that a model or a person called, not one that another tool
  called.
* What it registers has no more reach than itself: the same world, and of the hosts that it may ask
  only those that the definition names.
* A tool that uses the network or other agents must say so and needs approval. A hook is a script
  that only computes. An agent narrows what there is.
* A definition is refused with all its problems, by the same parsers and checks as a file
  (`extensions.checks.tool_file`).

Not protected: a person who lets `register_tool` run unasked (a rule, `bypassPermissions`) is shown
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.engine.registration.registration import (
    REGISTER_AGENT,
    REGISTER_HOOK,
    REGISTER_TOOL,
    Registration,
)
from ferrule.engine.usable_tools import UsableTools
from ferrule.extensions.agents import agent_file as agent_files
from ferrule.extensions.builtins.scope import Scope, result_data, running_scripts, usage_error
from ferrule.extensions.checks.hooks import check_hook
from ferrule.extensions.checks.tool_file import (
    Problem,
    check_parsed,
    convert_error,
    convert_warnings,
    find_problems,
)
from ferrule.extensions.hooks.claude_settings import HookAccess
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.extensions.hooks.hook_file import EVENT_KEYS, parse_hook
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool_from_function
from ferrule.tools.definition import Loading, Tool

from .handlers import make_tool
from .tool_file import KEYS as TOOL_KEYS
from .tool_file import ToolFile, is_external, parse_tool

SETTING = "tools.register"
MAX_DESCRIPTION = 2_000
"""Characters. A model reads it with every request."""
RESERVED_NAMES = frozenset(
    {
        "create_dir",
        "delegate",
        "delete_path",
        "edit_file",
        "file_tree",
        "insert_lines",
        "move_path",
        "read_text",
        "replace_lines",
        "run_command",
        "stat_path",
        "task_await",
        "task_poll",
        "web_body",
        "web_request",
        "write_file",
    }
)
"""Tools that built-ins call by name.

Nothing may be registered under these names, even in a session without such a tool. A test compares
the list.
"""

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_RISKS = ("safe", "low", "medium", "high", "critical")
_TOOL_KEYS = ("description", *TOOL_KEYS)
_HOOK_KEYS = (*EVENT_KEYS, "when", "priority", "timeout_ms", "on_error", "script", "description")
_AGENT_KEYS = ("prompt", "system_prompt", *(key for key in agent_files.KEYS if key != "name"))
_WITH_ARTICLE = {"tool": "a tool", "hook": "a hook", "agent": "an agent"}
_ACTIONS = {
    "tool_register": REGISTER_TOOL,
    "hook_register": REGISTER_HOOK,
    "agent_register": REGISTER_AGENT,
}

Read = Callable[[str, Mapping[str, Any]], tuple[bytes, str]]


async def handle_meta_call(context: Context, action: str, given: Mapping[str, Any]) -> Any:
    """Carry out a `meta.*` call of a script, as the default of `ScriptEnvironment.meta`.

    Raises ToolFailed.
    """
    if action == "list_tools":
        return _list_tools(context, given.get("pattern", "*"))
    registration = context.resources.get(Registration)
    if not isinstance(registration, Registration) or context.call is None:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"`meta.{action}`: this run may not extend itself; a person can turn on the setting "
            f"`{SETTING}`",
        )
    definition = dict(given)
    name = definition.pop("name", None)
    tool = registration.name_of(_ACTIONS[action])
    result = await context.call(tool, {"name": name, "definition": definition})
    return result_data(result, f"meta.{action}")


def _list_tools(context: Context, pattern: Any) -> list[str]:
    if not isinstance(pattern, str):
        raise usage_error("`meta.list_tools`: the pattern must be text, such as `git_*`")
    return [name for name in context.resource(UsableTools).names() if fnmatchcase(name, pattern)]


def make_registration_tools(pool: WorkerPool | None = None) -> tuple[Tool, ...]:
    """Make the three tools for an agent with `registration`. Registered scripts run in `pool`."""

    async def register_tool(
        context: Context, name: str, definition: dict[str, Any]
    ) -> dict[str, Any]:
        """Add a tool to this session: a script with parameters, as in a tool file."""
        registration, scope = _check_caller(context)
        tool = await _parse_tool(name, definition, scope, pool)
        return _register("tool", name, lambda: registration.add_tool(tool))

    async def register_hook(
        context: Context, name: str, definition: dict[str, Any]
    ) -> dict[str, Any]:
        """Add a hook to this session: a script that is asked on events, as in a hook file."""
        registration, _ = _check_caller(context)
        data, file = _hook_file(name, definition)
        _refuse(name, await check_hook(data, file, pool=pool))
        hook, _ = parse_hook(data, file, HookAccess(HookCommandRunner("."), ()), pool=pool)
        return _register("hook", name, lambda: registration.add_hook(hook))

    async def register_agent(
        context: Context, name: str, definition: dict[str, Any]
    ) -> dict[str, Any]:
        """Add an agent to this session, to delegate to, as in an agent file."""
        registration, _ = _check_caller(context)
        data, file = _agent_file(name, definition)
        try:
            agent, warnings = agent_files.parse_agent(data, file)
        except ConfigError as error:
            _refuse(name, convert_error(error, file))
            raise
        _refuse(name, convert_warnings(warnings), strict=True)
        outcome = _register("agent", name, lambda: registration.add_agent(agent))
        context.tell(f"there is an agent `{name}` to delegate to: {agent.description}")
        return outcome

    return (
        _internal(register_tool, _tool_file),
        _internal(register_hook, _hook_file),
        _internal(register_agent, _agent_file),
    )


def _internal(handler: Callable[..., Awaitable[Any]], read: Read) -> Tool:
    tool = tool_from_function(handler, side_effect="external", risk="high", max_attempts=1)
    return replace(tool, loading=Loading.INTERNAL, preview=_Preview(read), source="ferrule")


class _Preview:
    """The preview for approval: the whole definition, as the file that it could be."""

    def __init__(self, read: Read) -> None:
        self._read = read

    async def __call__(self, values: Mapping[str, Any], context: Any) -> str:
        name = str(values["name"])
        definition = cast("Mapping[str, Any]", values["definition"])
        data, file = self._read(name, definition)
        return f"{file} (for this session)\n{escape_for_approval(data.decode())}"


def _check_caller(context: Context) -> tuple[Registration, Scope]:
    """Return the session's registration and the calling script.

    Raises ToolFailed for other callers.
    """
    registration = context.resources.get(Registration)
    if not isinstance(registration, Registration):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"this run may not extend itself; see the setting `{SETTING}`",
        )
    caller = registration.caller(context.call_id)
    scope = running_scripts(context).get(caller)
    if scope is None:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "nothing was registered: only the script of a tool file registers "
            "(`meta.tool_register`)",
        )
    if registration.caller(caller):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "nothing was registered: this script was called by another tool; register in the one "
            "that is called first",
        )
    return registration, scope


def _register(kind: str, name: str, add: Callable[[], int]) -> dict[str, Any]:
    try:
        left = add()
    except ConfigError as error:
        reason = f"{error.detail}; {error.hint}" if error.hint else error.detail
        raise usage_error(f"`{name}` was not registered: {reason}") from None
    return {"registered": name, "kind": kind, "left": left}


def _refuse(name: str, problems: Sequence[Problem], *, strict: bool = False) -> None:
    """Raise ToolFailed with all errors. Unknown keys count, since nobody would read a warning."""
    errors = [
        str(problem)
        for problem in problems
        if strict or problem.level == "error" or "is not a key of" in problem.message
    ]
    if errors:
        raise _refusal(name, errors)


def _refusal(name: str, errors: Sequence[str]) -> ToolFailed:
    distinct = list(dict.fromkeys(errors))
    listed = "".join(f"\n- {error}" for error in distinct)
    count = "1 problem" if len(distinct) == 1 else f"{len(distinct)} problems"
    return usage_error(f"`{name:.80}` was not registered, {count}:{listed}")


# ---- definitions as files


def _definition_file(
    kind: str, name: str, definition: Mapping[str, Any], known: Sequence[str], body: Sequence[str]
) -> tuple[bytes, str]:
    """Return the bytes and the name of a file. Raises ToolFailed.

    The value of the first key of `body` that is given becomes the file's text.
    """
    errors: list[str] = []
    if not _NAME.fullmatch(name) or "__" in name:
        errors.append(
            "a name has up to 64 lower-case letters, digits, `-` and `_`, no two `_` "
            f"together; found {name!r:.80}"
        )
    if kind == "tool" and name in RESERVED_NAMES:
        errors.append(f"`{name}` is a name that built-ins of scripts use")
    for key in sorted(set(definition) - set(known)):
        errors.append(
            f"`{key:.80}` is not a key of {_WITH_ARTICLE[kind]}; known: {', '.join(known)}"
        )
    body_text = next((definition[key] for key in body if definition.get(key)), "")
    description = definition.get("description", "")
    if not isinstance(body_text, str) or not isinstance(description, str):
        errors.append(f"`{body[0]}` and `description` must be text")
    elif len(description) > MAX_DESCRIPTION:
        errors.append(f"the description has more than {MAX_DESCRIPTION} characters")
    fields = {key: value for key, value in definition.items() if key not in body}
    text = ""
    try:
        text = render_definition(fields, str(body_text))
    except ValueError as error:
        errors.append(str(error))
    if errors:
        raise _refusal(name, errors)
    return text.encode(), f"registered/{kind}s/{name}.md"


def _tool_file(name: str, definition: Mapping[str, Any]) -> tuple[bytes, str]:
    return _definition_file("tool", name, definition, _TOOL_KEYS, ("description",))


def _hook_file(name: str, definition: Mapping[str, Any]) -> tuple[bytes, str]:
    return _definition_file("hook", name, definition, _HOOK_KEYS, ("description",))


def _agent_file(name: str, definition: Mapping[str, Any]) -> tuple[bytes, str]:
    return _definition_file("agent", name, definition, _AGENT_KEYS, ("prompt", "system_prompt"))


# ---- tools


async def _parse_tool(
    name: str, definition: Mapping[str, Any], scope: Scope, pool: WorkerPool | None
) -> Tool:
    data, file = _tool_file(name, definition)
    try:
        parsed = parse_tool(data, file)
    except ConfigError as error:
        _refuse(name, convert_error(error, file))
        raise
    problems = await check_parsed(parsed, data, pool=pool)
    claims = _false_claims(parsed, definition)
    problems += [Problem("error", file, 0, 0, claim) for claim in claims]
    if all(problem.level == "warning" for problem in problems):
        failures = convert_warnings(await find_problems(parsed, pool=pool))
        problems += [replace(problem, level="error") for problem in failures]
    _refuse(name, problems)
    return make_tool(parsed, replace(scope.environment, web=scope.web), pool=pool)


def _false_claims(file: ToolFile, definition: Mapping[str, Any]) -> list[str]:
    """Return the claims of a definition that would wrongly spare it approval."""
    claims: list[str] = []
    if file.script is None:
        claims.append("there is no `script`")
    if not is_external(file.script):
        return claims
    if definition.get("side_effect", "external") != "external":
        claims.append(
            "its script uses `http` or `delegate`: `side_effect` is `external`, or left out"
        )
    if file.risk is not None and _RISKS.index(file.risk) < _RISKS.index("medium"):
        claims.append(
            "its script uses `http` or `delegate`: `risk` is `medium` or more, or left out"
        )
    return claims


MAX_BYTES = 32_768
"""Bytes of one definition: a person must be able to read it."""


def render_definition(fields: Mapping[str, Any], body: str) -> str:
    """Return the text of a file.

    Raises:
        ValueError: It cannot be written: it is too large, not a JSON value, or has a lone
            surrogate.
    """
    lines = ["---"]
    for key, value in fields.items():
        if key == "script" and isinstance(value, str) and _is_plain(value):
            # An explicit indentation, so that no line of a script can end the block.
            lines.append("script: |2")
            lines += [f"  {line}" if line else "" for line in value.rstrip("\n").split("\n")]
        else:
            lines.append(f"{_to_json(key)}: {_to_json(value)}")
    text = "\n".join([*lines, "---", body, ""])
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character (a lone surrogate)") from None
    if size > MAX_BYTES:
        raise ValueError(f"it has {size} bytes, and {MAX_BYTES} are the most")
    return text


def _is_plain(script: str) -> bool:
    """Whether YAML reads each line back unchanged: it has more line breaks than the line feed."""
    return bool(script.strip()) and all(c.isprintable() or c in "\t\n" for c in script)


def _to_json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it holds a value that cannot be written: {error}") from None
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
