"""`meta.tool_register`, `meta.hook_register`, `meta.agent_register`: what scripts add to the
session they work in.

Each is a call of a tool of its own (`register_tool`, `register_hook`, `register_agent`) that no
model is shown: so it has the gate, the hooks and the journal of every call, and a person is asked
with the whole definition. Rules of this file:

* Only a script registers, and only one that a model or a person called: not one that another tool
  called.
* What it registers has no more reach than it has itself: the same world, the hosts that it may ask,
  and of them what the definition says.
* A tool that asks the network or other agents says so and is asked about; a hook is a script that
  computes; an agent narrows what there is.
* A definition is refused with all that is wrong with it, by the same readers and checks as a file
  (`extensions.checks.tool_file`).

Not protected: a person who lets `register_tool` run unasked (a rule, `bypassPermissions`) is shown
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.invisible_characters import exact
from ferrule.engine.available_tools import Usable
from ferrule.engine.registration.registration import (
    REGISTER_AGENT,
    REGISTER_HOOK,
    REGISTER_TOOL,
    Registration,
)
from ferrule.extensions.agents import files as agent_files
from ferrule.extensions.builtins.scope import Scope, data_of, invalid, working
from ferrule.extensions.checks.hooks import check_hook
from ferrule.extensions.checks.tool_file import Problem, check_parsed, problems_of, warnings_of
from ferrule.extensions.checks.tool_file import problems as tried
from ferrule.extensions.hooks.claude_settings import Reach
from ferrule.extensions.hooks.commands import HookCommands
from ferrule.extensions.hooks.files import EVENTS_KEYS, read_hook
from ferrule.extensions.starlark.pool import Pool
from ferrule.tools.context import Context
from ferrule.tools.decorator import make
from ferrule.tools.definition import Loading, Tool

from .definitions import written
from .handlers import make_tool
from .tool_file import KEYS as TOOL_KEYS
from .tool_file import ToolFile, parse_tool, reaches_out

SETTING = "tools.register"
MOST_DESCRIPTION = 2_000
"""Characters: a model reads it with every question."""
BEHIND_BUILTINS = frozenset(
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
"""Tools that built-ins call by name: in a session without one of them, nobody may take its place. A
test compares.
"""

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_RISKS = ("safe", "low", "medium", "high", "critical")
_TOOL_KEYS = ("description", *TOOL_KEYS)
_HOOK_KEYS = (*EVENTS_KEYS, "when", "priority", "timeout_ms", "on_error", "script", "description")
_AGENT_KEYS = ("prompt", "system_prompt", *(key for key in agent_files.KEYS if key != "name"))
_A = {"tool": "a tool", "hook": "a hook", "agent": "an agent"}
_ACTIONS = {
    "tool_register": REGISTER_TOOL,
    "hook_register": REGISTER_HOOK,
    "agent_register": REGISTER_AGENT,
}

Read = Callable[[str, Mapping[str, Any]], tuple[bytes, str]]


async def meta(context: Context, action: str, given: Mapping[str, Any]) -> Any:
    """What `World.meta` is by default. Raises ToolFailed."""
    if action == "list_tools":
        return _listed(context, given.get("pattern", "*"))
    registration = context.resources.get(Registration)
    if not isinstance(registration, Registration) or context.call is None:
        said = (
            f"`meta.{action}`: this run may not extend itself; a person can turn on the setting "
            f"`{SETTING}`"
        )
        raise ToolFailed(ErrorType.PERMISSION_DENIED, said)
    fields = dict(given)
    named = {"name": fields.pop("name", None), "definition": fields}
    tool = registration.name_of(_ACTIONS[action])
    return data_of(await context.call(tool, named), f"meta.{action}")


def _listed(context: Context, pattern: Any) -> list[str]:
    if not isinstance(pattern, str):
        raise invalid("`meta.list_tools`: the pattern must be text, such as `git_*`")
    return [name for name in context.resource(Usable).names() if fnmatchcase(name, pattern)]


def registration_tools(pool: Pool | None = None) -> tuple[Tool, ...]:
    """The three tools, for an agent with `registration`. Scripts of what they make run in
    `pool`.
    """

    async def register_tool(
        context: Context, name: str, definition: dict[str, Any]
    ) -> dict[str, Any]:
        """Add a tool to this session: a script with parameters, as in a tool file."""
        registration, scope = _registrar(context)
        made = await _tool(name, definition, scope, pool)
        return _done("tool", name, lambda: registration.add_tool(made))

    async def register_hook(
        context: Context, name: str, definition: dict[str, Any]
    ) -> dict[str, Any]:
        """Add a hook to this session: a script that is asked on events, as in a hook file."""
        registration, _ = _registrar(context)
        data, file = _hook_file(name, definition)
        _refuse(name, await check_hook(data, file, pool=pool))
        hook, _ = read_hook(data, file, Reach(HookCommands("."), ()), pool=pool)
        return _done("hook", name, lambda: registration.add_hook(hook))

    async def register_agent(
        context: Context, name: str, definition: dict[str, Any]
    ) -> dict[str, Any]:
        """Add an agent to this session, to delegate to, as in an agent file."""
        registration, _ = _registrar(context)
        data, file = _agent_file(name, definition)
        try:
            agent, warned = agent_files.parse_agent(data, file)
        except ConfigError as error:
            _refuse(name, problems_of(error, file))
            raise
        _refuse(name, warnings_of(warned), strict=True)
        done = _done("agent", name, lambda: registration.add_agent(agent))
        context.tell(f"there is an agent `{name}` to delegate to: {agent.description}")
        return done

    return (
        _internal(register_tool, _tool_file),
        _internal(register_hook, _hook_file),
        _internal(register_agent, _agent_file),
    )


def _internal(handler: Callable[..., Awaitable[Any]], read: Read) -> Tool:
    made = make(handler, side_effect="external", risk="high", max_attempts=1)
    return replace(made, loading=Loading.INTERNAL, preview=_Shown(read), source="ferrule")


class _Shown:
    """The preview: the definition, whole, as the file that it could be."""

    def __init__(self, read: Read) -> None:
        self._read = read

    async def __call__(self, values: Mapping[str, Any], context: Any) -> str:
        name, definition = str(values["name"]), cast("Mapping[str, Any]", values["definition"])
        try:
            data, file = self._read(name, definition)
        except ToolFailed as error:
            return exact(f"[this call would fail: {error.message}]")
        return f"{file} (for this session)\n{exact(data.decode())}"


def _registrar(context: Context) -> tuple[Registration, Scope]:
    """The session's, and the script that registers. Raises ToolFailed for anybody else."""
    registration = context.resources.get(Registration)
    if not isinstance(registration, Registration):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"this run may not extend itself; see the setting `{SETTING}`",
        )
    caller = registration.caller(context.call_id)
    scope = working(context).get(caller)
    if scope is None:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            (
                "nothing was registered: only the script of a tool file registers "
                "(`meta.tool_register`)"
            ),
        )
    if registration.caller(caller):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            (
                "nothing was registered: this script was called by another tool; register in the "
                "one that is called first"
            ),
        )
    return registration, scope


def _done(kind: str, name: str, add: Callable[[], int]) -> dict[str, Any]:
    try:
        left = add()
    except ConfigError as error:
        said = f"{error.detail}; {error.hint}" if error.hint else error.detail
        raise invalid(f"`{name}` was not registered: {said}") from None
    return {"registered": name, "kind": kind, "left": left}


def _refuse(name: str, found: Sequence[Problem], *, strict: bool = False) -> None:
    """Raise ToolFailed with all errors. Keys that mean nothing are errors here, too: there is
    nobody to read a warning.
    """
    wrong = [
        str(one) for one in found if strict or one.level == "error" or "is no key of" in one.message
    ]
    if wrong:
        raise _problems(name, wrong)


def _problems(name: str, wrong: Sequence[str]) -> ToolFailed:
    found = list(dict.fromkeys(wrong))
    listed = "".join(f"\n- {one}" for one in found)
    counted = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    return invalid(f"`{name:.80}` was not registered, {counted}:{listed}")


# ---- definitions as files


def _file(
    kind: str, name: str, definition: Mapping[str, Any], known: Sequence[str], body: Sequence[str]
) -> tuple[bytes, str]:
    """The bytes and the name of a file. `body` are keys whose first becomes its text. Raises
    ToolFailed.
    """
    wrong: list[str] = []
    if not _NAME.fullmatch(name) or "__" in name:
        wrong.append(
            "a name has up to 64 lower-case letters, digits, `-` and `_`, no two `_` "
            f"together; found {name!r:.80}"
        )
    if kind == "tool" and name in BEHIND_BUILTINS:
        wrong.append(f"`{name}` is a name that built-ins of scripts use")
    strange = sorted(set(definition) - set(known))
    wrong += [f"`{key:.80}` is no key of {_A[kind]}; known: {', '.join(known)}" for key in strange]
    said = next((definition[key] for key in body if definition.get(key)), "")
    if not isinstance(said, str) or not isinstance(definition.get("description", ""), str):
        wrong.append(f"`{body[0]}` and `description` must be text")
    elif len(definition.get("description", "")) > MOST_DESCRIPTION:
        wrong.append(f"the description has more than {MOST_DESCRIPTION} characters")
    fields = {key: value for key, value in definition.items() if key not in body}
    text = ""
    try:
        text = written(fields, str(said))
    except ValueError as error:
        wrong.append(str(error))
    if wrong:
        raise _problems(name, wrong)
    return text.encode(), f"registered/{kind}s/{name}.md"


def _tool_file(name: str, definition: Mapping[str, Any]) -> tuple[bytes, str]:
    return _file("tool", name, definition, _TOOL_KEYS, ("description",))


def _hook_file(name: str, definition: Mapping[str, Any]) -> tuple[bytes, str]:
    return _file("hook", name, definition, _HOOK_KEYS, ("description",))


def _agent_file(name: str, definition: Mapping[str, Any]) -> tuple[bytes, str]:
    return _file("agent", name, definition, _AGENT_KEYS, ("prompt", "system_prompt"))


# ---- tools


async def _tool(name: str, definition: Mapping[str, Any], scope: Scope, pool: Pool | None) -> Tool:
    data, file = _tool_file(name, definition)
    try:
        parsed = parse_tool(data, file)
    except ConfigError as error:
        _refuse(name, problems_of(error, file))
        raise
    found = [
        *await check_parsed(parsed, data, pool=pool),
        *(Problem("error", file, 0, 0, one) for one in _too_much(parsed, definition)),
    ]
    if all(one.level == "warning" for one in found):
        found += [
            replace(one, level="error") for one in warnings_of(await tried(parsed, pool=pool))
        ]
    _refuse(name, found)
    return make_tool(parsed, replace(scope.world, web=scope.web), pool=pool)


def _too_much(file: ToolFile, definition: Mapping[str, Any]) -> list[str]:
    """What a definition claims that would spare it questions."""
    wrong: list[str] = []
    if file.script is None:
        wrong.append("there is no `script`")
    if not reaches_out(file.script):
        return wrong
    if definition.get("side_effect", "external") != "external":
        wrong.append(
            "its script uses `http` or `delegate`: `side_effect` is `external`, or left out"
        )
    if file.risk is not None and _RISKS.index(file.risk) < _RISKS.index("medium"):
        wrong.append(
            "its script uses `http` or `delegate`: `risk` is `medium` or more, or left out"
        )
    return wrong
