"""Guards that ship with Ferrule: hooks for common rules, given to an Agent or named in a hook file.

    Agent(..., plugins=[Parts(hooks=[
        prefer_named_tools(), no_secrets_in_arguments(), writes_within("src", "docs"),
    ])])

Each judges only what it can see in the tool call itself. None of them is a boundary: a running
program is confined by the sandbox, and permission rules are enforced by the gate before any hook. A
guard that cannot judge a call blocks it.

Not protected: a secret that no pattern here knows, or that is split, encoded or compressed. A
command line that builds its program's name while it runs is blocked, since it cannot be judged.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from posixpath import normpath
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import Action, EventHook, Occasion, ToolPre, block
from ferrule.permissions.child_environment import is_secret_variable
from ferrule.permissions.command_analysis.analysis import CommandAnalysis, analyse_command
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.permissions.secret_patterns import SECRET_FORMATS
from ferrule.tools.safe_patterns import compile_regex

TOOLS_BY_PROGRAM: Mapping[str, str] = {
    **dict.fromkeys(("cat", "head", "tail", "less", "more", "bat", "sed"), "read_file"),
    **dict.fromkeys(("ls", "dir"), "list_files"),
    **dict.fromkeys(("tree", "find", "fd"), "file_tree"),
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg", "ag", "ack"), "search_files"),
    **dict.fromkeys(("mkdir",), "create_dir"),
    **dict.fromkeys(("mv", "rename"), "move_path"),
    **dict.fromkeys(("rm", "rmdir", "unlink"), "delete_path"),
    **dict.fromkeys(("touch", "tee"), "write_file"),
}
"""Programs, and the tool that does the same with its own checks. `sed` only where it reads."""

PRIORITY = 50
"""Before hooks without a priority of their own."""


def prefer_named_tools(
    named: Mapping[str, str] | None = None, *, priority: int = PRIORITY
) -> EventHook:
    """Block a command for which there is a tool, and name the tool.

    Only a program that stands first in a command line counts; behind a pipe it only filters output.

    Args:
        named: Programs and their tools, instead of `TOOLS_BY_PROGRAM`.
        priority: Hooks with lower numbers run first.
    """
    table = dict(TOOLS_BY_PROGRAM if named is None else named)

    async def judge(call: ToolPre, occasion: Occasion) -> Action | None:
        for command in call.commands:
            analysis = _analyse(command)
            if isinstance(analysis, str):
                return block(analysis)
            for part in analysis.parts:
                tool = table.get(part.wrapped_program)
                if tool is not None and tool != call.name and not part.fed_by:
                    return block(f"use the tool `{tool}` instead of `{part.wrapped_program}`")
        return None

    return _make_guard("prefer_named_tools", judge, priority)


_TOKENS = {form.name: form.pattern for form in SECRET_FORMATS}
_SHORTEST = 12
"""Characters of a variable's value to search for it: shorter ones occur in ordinary text."""


def no_secrets_in_arguments(
    *, patterns: Mapping[str, str] | None = None, environment: bool = True, priority: int = PRIORITY
) -> EventHook:
    """Block a call whose arguments contain what looks like a key or token.

    The refusal names the argument and the kind of secret, never the value.

    Args:
        patterns: Further kinds of secrets, each with a regular expression (`tools.safe_patterns`).
        environment: Whether to search for the values of this process's secret variables, too.
        priority: Hooks with lower numbers run first.
    """
    sources = {**_TOKENS, **(patterns or {})}
    known = {kind: compile_regex(source) for kind, source in sources.items()}

    async def judge(call: ToolPre, occasion: Occasion) -> Action | None:
        variables = _secret_variables() if environment else {}
        for where, text in _texts(call.arguments, ""):
            secret = next((kind for kind, matches in known.items() if matches(text)), None)
            if secret is None:
                names = (name for name, value in variables.items() if value in text)
                variable = next(names, None)
                secret = f"the value of `${variable}`" if variable is not None else None
            if secret is not None:
                return block(f"the argument `{where}` holds {secret}; secrets do not go into calls")
        return None

    return _make_guard("no_secrets_in_arguments", judge, priority)


def writes_within(*folders: str, within: Iterable[str] = (), priority: int = PRIORITY) -> EventHook:
    """Block writes outside these folders of the workspace.

    Tools that write without saying where, that run commands or that declare no side effect are
    blocked: where they write is unknown. Tools that only read pass.

    Args:
        folders: Folders of the workspace.
        within: More folders, for hook files, which can only use named options.
        priority: Hooks with lower numbers run first.

    Raises:
        ConfigError: There is no folder, or one lies outside the workspace.
    """
    allowed = tuple(_relative_name(folder, "") for folder in (*folders, *within))
    if not allowed or any(folder is None for folder in allowed):
        raise ConfigError(
            "`writes_within` needs folders of the workspace", hint='writes_within("src")'
        )

    async def judge(call: ToolPre, occasion: Occasion) -> Action | None:
        if not call.writes and call.side_effect in ("none", "read"):
            return None
        if not call.writes or call.side_effect in ("execute", "undeclared", "external"):
            return block(
                f"it is unknown where `{call.name}` writes, and writes are limited to "
                f"{_join_names(allowed)}"
            )
        for path in call.writes:
            name = _relative_name(path, occasion.workspace)
            if name is None or not any(_is_below(name, folder or "") for folder in allowed):
                return block(f"`{path}` is not in {_join_names(allowed)}")
        return None

    return _make_guard("writes_within", judge, priority)


def command_policy(
    *, allow: Iterable[str] = (), deny: Iterable[str] = (), priority: int = PRIORITY
) -> EventHook:
    """Block commands by patterns of permission rules: `deny=["rm *"]`, `allow=["git diff *"]`.

    With `allow`, anything else is blocked; every part of a command line must be allowed.

    Raises:
        ConfigError: A pattern is invalid, or there is none.
    """
    allowed = tuple(allow)
    denied = tuple(deny)
    if not allowed and not denied:
        raise ConfigError(
            "`command_policy` allows and denies nothing", hint='command_policy(deny=["rm *"])'
        )
    rules = RuleSet.parse(
        allow=tuple(f"Bash({text})" for text in allowed),
        deny=tuple(f"Bash({text})" for text in denied),
    )
    gate = PermissionGate(rules)

    async def judge(call: ToolPre, occasion: Occasion) -> Action | None:
        if not call.commands:
            if call.side_effect == "execute":
                return block(f"it is unknown what `{call.name}` runs")
            return None
        if call.tool is None:
            return block("the command cannot be judged without its tool")
        decision = gate.decide(call.tool, call.arguments)
        if decision.verdict == "deny":
            return block(decision.reason)
        if allowed and decision.verdict != "allow":
            return block(f"only these commands run here: {_join_names(allowed)}")
        for command in call.commands:
            analysis = _analyse(command)
            if isinstance(analysis, str):
                return block(analysis)
        return None

    return _make_guard("command_policy", judge, priority)


GUARDS: dict[str, Callable[..., EventHook]] = {
    "prefer_named_tools": prefer_named_tools,
    "no_secrets_in_arguments": no_secrets_in_arguments,
    "writes_within": writes_within,
    "command_policy": command_policy,
}
"""By the names that hook files use."""


def _make_guard(
    name: str, judge: Callable[[ToolPre, Occasion], Awaitable[Action | None]], priority: int
) -> EventHook:
    async def run(occasion: Occasion) -> object:
        # An error blocks, in case a guard is ever registered for another event.
        if not isinstance(occasion.payload, ToolPre):
            raise TypeError(f"`{name}` judges calls, not `{occasion.event}`")
        return await judge(occasion.payload, occasion)

    return EventHook(name=name, events=("tool.pre",), run=run, priority=priority, source="shipped")


def _analyse(command: str | tuple[str, ...]) -> CommandAnalysis | str:
    """Return the parts of a command, or why it cannot be judged."""
    analysis = analyse_command(command)
    problem = analysis.problem or analysis.over_limit
    if problem:
        return f"the command cannot be judged: {problem}"
    if any(part.words and not part.program for part in analysis.parts):
        return "the command builds the name of a program while it runs, so it cannot be judged"
    return analysis


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield every text in the arguments, keys included, with its place."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            place = f"{where}.{key}" if where else key
            yield place, key
            yield from _texts(item, place)
    elif isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        for number, item in enumerate(items):
            yield from _texts(item, f"{where}[{number}]")
        # A list of words is also searched as one text: a secret may span two of them.
        if len(items) > 1 and all(isinstance(item, str) for item in items):
            yield where, " ".join(items)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return is_secret_variable(name)


def _secret_variables() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and _is_secret(name)
    }


def _relative_name(path: str, root: str) -> str | None:
    """Normalize a path relative to the workspace. None if it leads out, or if that is unknown."""
    if path.startswith("~") or "\0" in path or "\\" in path:
        return None
    if path.startswith("/"):
        if not root or not _is_below(normpath(path), normpath(root)):
            return None
        path = normpath(path)[len(normpath(root)) :].lstrip("/")
    name = normpath(path or ".")
    return None if name == ".." or name.startswith("../") else name


def _is_below(name: str, folder: str) -> bool:
    return folder in ("", ".") or name == folder or name.startswith(folder.rstrip("/") + "/")


def _join_names(names: Iterable[str | None]) -> str:
    return ", ".join(f"`{name}`" for name in names)
