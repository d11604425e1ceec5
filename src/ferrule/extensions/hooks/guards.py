"""Guards that ship: hooks for rules that many want, made with options and given to an Agent or
named in a hook file.

    Agent(..., hooks=[prefer_named_tools(), no_secrets_in_arguments(), writes_within("src",
    "docs")])

Each answers only to what it can see in the call itself. None of them is a boundary: what a program
does once it runs is held by the sandbox, and what rules say is held by the gate before any hook. A
guard that cannot judge a call refuses it.

Not protected: a secret that no pattern here knows, or that is split, encoded or compressed; a
command line that builds its program's name while it runs (it is refused, since it cannot be
judged).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from posixpath import normpath
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.engine.hooks.events import Action, EventHook, Occasion, ToolPre, block
from ferrule.permissions.child_environment import looks_secret
from ferrule.permissions.commands.analysis import Analysis, analyse
from ferrule.permissions.gate import Gate
from ferrule.permissions.rules import RuleSet
from ferrule.permissions.secret_patterns import FORMS
from ferrule.tools.safe_patterns import compile_regex

NAMED: Mapping[str, str] = {
    **dict.fromkeys(("cat", "head", "tail", "less", "more", "bat", "sed"), "read_file"),
    **dict.fromkeys(("ls", "dir"), "list_files"),
    **dict.fromkeys(("tree", "find", "fd"), "file_tree"),
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg", "ag", "ack"), "search_files"),
    **dict.fromkeys(("mkdir",), "create_dir"),
    **dict.fromkeys(("mv", "rename"), "move_path"),
    **dict.fromkeys(("rm", "rmdir", "unlink"), "delete_path"),
    **dict.fromkeys(("touch", "tee"), "write_file"),
}
"""Programs and the tool that does the same with its own checks. `sed` only where it reads."""

PRIORITY = 50
"""Before hooks that say nothing."""


def prefer_named_tools(
    named: Mapping[str, str] | None = None, *, priority: int = PRIORITY
) -> EventHook:
    """Refuse a command for which there is a tool, and say which. `named` (program to tool) replaces
    `NAMED`.

    A program counts where it stands first in a command line; behind a pipe it only filters what
    another one said.
    """
    table = dict(NAMED if named is None else named)

    async def judge(call: ToolPre, occasion: Occasion) -> Action | None:
        for command in call.commands:
            seen = _analysed(command)
            if isinstance(seen, str):
                return block(seen)
            for part in seen.parts:
                tool = table.get(part.target)
                if tool is not None and tool != call.name and not part.fed_by:
                    return block(f"use the tool `{tool}` instead of `{part.target}`")
        return None

    return _guard("prefer_named_tools", judge, priority)


_TOKENS = {form.what: form.pattern for form in FORMS}
_SHORTEST = 12
"""Characters of a variable's value that is looked for: shorter ones stand in ordinary text."""


def no_secrets_in_arguments(
    *, patterns: Mapping[str, str] | None = None, environment: bool = True, priority: int = PRIORITY
) -> EventHook:
    """Refuse a call whose arguments hold what looks like a key or a token, or the value of a secret
    variable of this process.

    `patterns` (what it is, to an expression, see `matching`) are looked for as well. The refusal
    names the argument and the kind, never the value.
    """
    known = {what: compile_regex(text) for what, text in {**_TOKENS, **(patterns or {})}.items()}

    async def judge(call: ToolPre, occasion: Occasion) -> Action | None:
        held = _held() if environment else {}
        for where, text in _texts(call.arguments, ""):
            for what, pattern in known.items():
                if pattern(text):
                    return block(
                        f"the argument `{where}` holds {what}; secrets do not go into calls"
                    )
            for name, value in held.items():
                if value in text:
                    return block(
                        f"the argument `{where}` holds the value of `${name}`; secrets do "
                        "not go into calls"
                    )
        return None

    return _guard("no_secrets_in_arguments", judge, priority)


def writes_within(*folders: str, within: Iterable[str] = (), priority: int = PRIORITY) -> EventHook:
    """Refuse writes outside these folders of the workspace. (`within` is for hook files, which have
    names only.)

    Tools that write and do not say where, and those that run commands or were not declared, are
    refused: where they write cannot be seen. Tools that only read pass.
    """
    allowed = tuple(_inside(folder, "") for folder in (*folders, *within))
    if not allowed or any(folder is None for folder in allowed):
        raise ConfigError(
            "`writes_within` needs folders of the workspace", hint='writes_within("src")'
        )

    async def judge(call: ToolPre, occasion: Occasion) -> Action | None:
        if not call.writes and call.side_effect in ("none", "read"):
            return None
        if not call.writes or call.side_effect in ("execute", "undeclared", "external"):
            return block(
                f"where `{call.name}` writes cannot be seen, and writes are kept to "
                f"{_listed(allowed)}"
            )
        for path in call.writes:
            name = _inside(path, occasion.workspace)
            if name is None or not any(_below(name, folder or "") for folder in allowed):
                return block(f"`{path}` is not in {_listed(allowed)}")
        return None

    return _guard("writes_within", judge, priority)


def command_policy(
    *, allow: Iterable[str] = (), deny: Iterable[str] = (), priority: int = PRIORITY
) -> EventHook:
    """Refuse commands by the patterns of permission rules: `deny=["rm *"]`, `allow=["git diff *",
    "npm test"]`.

    With `allow`, whatever is not in it is refused; every part of a command line must be. Raises
    ConfigError for a pattern that cannot be read.
    """
    allowed, denied = tuple(allow), tuple(deny)
    if not allowed and not denied:
        raise ConfigError(
            "`command_policy` allows and denies nothing", hint='command_policy(deny=["rm *"])'
        )
    rules = RuleSet.of(
        allow=tuple(f"Bash({text})" for text in allowed),
        deny=tuple(f"Bash({text})" for text in denied),
    )
    gate = Gate(rules)

    async def judge(call: ToolPre, occasion: Occasion) -> Action | None:
        if not call.commands:
            if call.side_effect == "execute":
                return block(f"what `{call.name}` runs cannot be seen")
            return None
        if call.tool is None:
            return block("the command cannot be judged without its tool")
        decision = gate.decide(call.tool, call.arguments)
        if decision.verdict == "deny":
            return block(decision.reason)
        if allowed and decision.verdict != "allow":
            return block(f"only these commands run here: {_listed(allowed)}")
        problem = next(
            (seen for seen in map(_analysed, call.commands) if isinstance(seen, str)), None
        )
        return block(problem) if problem else None

    return _guard("command_policy", judge, priority)


GUARDS: dict[str, Callable[..., EventHook]] = {
    "prefer_named_tools": prefer_named_tools,
    "no_secrets_in_arguments": no_secrets_in_arguments,
    "writes_within": writes_within,
    "command_policy": command_policy,
}
"""By the names that hook files use."""


def _guard(
    name: str, judge: Callable[[ToolPre, Occasion], Awaitable[Action | None]], priority: int
) -> EventHook:
    async def run(occasion: Occasion) -> object:
        # Fails, and so blocks, if it were ever asked about something else.
        if not isinstance(occasion.payload, ToolPre):
            raise TypeError(f"`{name}` judges calls, not `{occasion.event}`")
        return await judge(occasion.payload, occasion)

    return EventHook(name=name, events=("tool.pre",), run=run, priority=priority, source="shipped")


def _analysed(command: str | tuple[str, ...]) -> Analysis | str:
    """The command's parts, or why it cannot be judged."""
    seen = analyse(command)
    unknown = seen.problem or seen.over_limit
    if unknown:
        return f"the command cannot be judged: {unknown}"
    if any(part.words and not part.program for part in seen.parts):
        return "the command builds the name of a program while it runs, so it cannot be judged"
    return seen


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text in the arguments, keys too, with the place where it stands."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield f"{where}.{key}" if where else key, key
            yield from _texts(item, f"{where}.{key}" if where else key)
    elif isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        for number, item in enumerate(items):
            yield from _texts(item, f"{where}[{number}]")
        # A command as a list of words is one text as well: a secret may stand across two of them.
        if len(items) > 1 and all(isinstance(item, str) for item in items):
            yield where, " ".join(items)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return looks_secret(name)


def _held() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and _is_secret(name)
    }


def _inside(path: str, root: str) -> str | None:
    """A path relative to the workspace, in one spelling; None if it leads out, or nobody knows."""
    if path.startswith("~") or "\0" in path or "\\" in path:
        return None
    if path.startswith("/"):
        if not root or not _below(normpath(path), normpath(root)):
            return None
        path = normpath(path)[len(normpath(root)) :].lstrip("/")
    name = normpath(path or ".")
    return None if name == ".." or name.startswith("../") else name


def _below(name: str, folder: str) -> bool:
    return folder in ("", ".") or name == folder or name.startswith(folder.rstrip("/") + "/")


def _listed(names: Iterable[str | None]) -> str:
    return ", ".join(f"`{name}`" for name in names)
