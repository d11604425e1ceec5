"""The built-ins of scripts that do something: each goes through the run's own pipeline, never around it.

What each returns (requirement 003 and systems.md §4.1; a failure is an error of the script, which it cannot catch):

    exec.run(program, args=[], timeout_ms=30000, dir=".")  {ok, stdout, stderr, exit_code, duration_ms, timed_out}; tool `run_command`
    fs.read(path), fs.read_lines(path, first, last)         text, list of lines; tool `read_text`
    fs.exists(path), fs.stat(path), fs.list(path)           bool, {path, name, kind, size, modified}, list of these; `stat_path`
    fs.find(path=".", pattern="*")                          list of paths; tool `file_tree`
    fs.write, fs.append (path, content)                     bytes of the whole file; tool `write_file`
    fs.replace, fs.replace_all (path, old, new), fs.insert_at(path, line, text), fs.replace_lines(path, first, last, text),
    fs.mkdir(path), fs.move(source, target), fs.remove(path, recursive=False)           None; the editing tools
    http.get(url, headers={}, timeout_seconds=30), http.post(url, body="", ...)         {status, ok, url, body, headers, truncated}
    cache.get(key, default=None), set(key, value), has(key), delete(key), clear()       of this file, for this session
    time.now(), uuid.v4(), random(min, max), sleep(ms)      seconds since 1970, text, a whole number with both ends, None
    env(name, default=None)                                 a variable that child processes may see
    delegate(task, ...)                                     what the run's `delegate` gives; refused where there is none
    meta.call_tool(name, args)                              the tool's value, or its error as text; other `meta.*`: the run's `meta`

Not protected: the plain `run_command` answers with text for a reader, so a program that prints `[exit status 1]` at the end of its
output is taken for one that failed. The full form (requirement 001's) has no such doubt. `fs.append` reads and writes: what another
program adds in between is lost.
"""

from __future__ import annotations

import asyncio
import fnmatch
import inspect
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from ferrule.core.calls import ErrorType, Result, compact
from ferrule.core.errors import ToolFailed
from ferrule.guard.environment import child_environment
from ferrule.tools.context import Context
from ferrule.tools.definition import OWN

from .companions import PIECE
from .web.domains import Domains
from .web.fetch import Web

CACHE_BYTES = 1 << 20
CACHE_KEYS = 1_000
"""Of one file in one session."""
TEXT_LIMIT = 4 << 20
"""Characters of one file that `fs.read` puts together at the most."""
LONGEST_FETCH = 300
LONGEST_SLEEP = 60_000
_MEMORY = "extend.cache"
_STATUS = re.compile(r"^\[exit status (-?\d+)\]$", re.MULTILINE)

Delegate = Callable[[Context, Mapping[str, Any]], Awaitable[Any]]
"""Runs a task elsewhere. Gets what the script gave, by name (`task` at least)."""
Meta = Callable[[Context, str, Mapping[str, Any]], Awaitable[Any]]
"""Carries out `tool_register`, `hook_register`, `agent_register` or `list_tools` with what the script gave."""


@dataclass(frozen=True, slots=True)
class World:
    """What the scripts of a run may use beyond its tools: given from outside, the same for all of them."""

    web: Web = field(default_factory=lambda: Web(Domains()))
    delegate: Delegate | None = None
    meta: Meta | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    taken: frozenset[str] = frozenset()
    """Names of tools that ship and had to give them to tools of files: the built-ins go on using those that ship."""


class Builtins:
    """Answers the built-ins of one call of one script: `serve` is a `starlark.script.Serve`.

    `file` keeps its cache apart from that of other files; `web` is what the file may reach.
    """

    def __init__(self, context: Context, world: World, *, file: str, web: Web | None = None) -> None:
        self._context, self._world, self._file = context, world, file
        self._web = web or world.web

    async def serve(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Raises ToolFailed."""
        function = _FUNCTIONS.get(name)
        if function is None:
            raise ToolFailed(ErrorType.NOT_FOUND, f"there is no built-in `{name}`")
        try:
            bound = inspect.signature(function).bind(self, *positional, **named)
        except TypeError as problem:
            raise ToolFailed(ErrorType.VALIDATION_FAILED, f"`{name}`: {problem}") from None
        return await function(*bound.args, **bound.kwargs)

    # ---- tools

    async def _result(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        if self._context.call is None:
            raise ToolFailed(ErrorType.PERMISSION_DENIED, f"`{tool}` cannot be called outside of a run")
        return await self._context.call(tool, dict(arguments))

    async def _value(self, tool: str, /, **arguments: Any) -> Any:
        """The value of a tool that ships, through the gate. Raises ToolFailed with its error."""
        return _data(await self._shipped(tool, arguments), tool)

    async def _shipped(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        return await self._result(f"{OWN}::{tool}" if tool in self._world.taken else tool, arguments)

    # ---- exec

    async def exec_run(
        self, program: str, args: Sequence[str] = (), timeout_ms: int = 30_000, dir: str = "."
    ) -> dict[str, Any]:
        if not isinstance(program, str) or not isinstance(args, (list, tuple)):  # pyright: ignore[reportUnnecessaryIsInstance] - scripts are not typed
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED, "`exec.run` takes a program and a list of arguments"
            )
        started = time.monotonic()
        result = await self._command([program, *map(str, args)], int(timeout_ms), dir)
        took = int((time.monotonic() - started) * 1000)
        if result.error_type is ErrorType.TIMEOUT:
            said = result.error_message or ""
            return _ran(False, "", said, -1, took, timed_out=True)
        if not result.success:
            raise ToolFailed(result.error_type, result.error_message or "`run_command` failed")
        return _outcome(result.data, took)

    async def _command(self, argv: list[str], timeout_ms: int, folder: str) -> Result:
        """`run_command` comes in two forms: one takes seconds, the other (requirement 001's) milliseconds."""
        form = self._context.memory.get("extend.run_command", "seconds")
        timed: dict[str, dict[str, Any]] = {
            "seconds": {"timeout": max(1, -(-timeout_ms // 1000))},
            "milliseconds": {"timeout_ms": max(1, timeout_ms)},
        }
        given = {"command": argv, "cwd": folder or "."}
        result = await self._shipped("run_command", given | timed[form])
        if form == "seconds" and _wrong_form(result):
            # Refused before anything happened: it is the other form. It stays so for the session.
            self._context.memory["extend.run_command"] = "milliseconds"
            result = await self._shipped("run_command", given | timed["milliseconds"])
        return result

    # ---- fs

    async def fs_read(self, path: str) -> str:
        pieces: list[str] = []
        offset: int | None = 0
        limit = PIECE
        while offset is not None:
            result = await self._shipped("read_text", {"path": path, "offset": offset, "limit": limit})
            if result.success and result.partial and limit > 256:
                limit //= 4  # Its characters are long, or this run's results are small.
                continue
            found = _data(result, "read_text")
            pieces.append(found["text"])
            offset = found["next"]
            if offset is not None and offset > TEXT_LIMIT:
                raise ToolFailed(
                    ErrorType.LIMIT, f"`fs.read`: `{path}` has more than {TEXT_LIMIT} characters"
                )
        return "".join(pieces)

    async def fs_read_lines(self, path: str, first: int = 1, last: int | None = None) -> list[str]:
        lines = (await self.fs_read(path)).split("\n")
        if lines and not lines[-1]:
            lines.pop()
        return lines[max(0, first - 1) : last]

    async def fs_write(self, path: str, content: str) -> int:
        await self._value("write_file", path=path, content=content)
        return len(content.encode())

    async def fs_append(self, path: str, content: str) -> int:
        before = await self.fs_read(path) if await self.fs_exists(path) else ""
        return await self.fs_write(path, before + content)

    async def fs_exists(self, path: str) -> bool:
        result = await self._shipped("stat_path", {"path": path})
        if result.error_type is ErrorType.NOT_FOUND and "there is no tool" not in (
            result.error_message or ""
        ):
            return False
        if not result.success:
            raise ToolFailed(result.error_type, result.error_message or "`stat_path` failed")
        return True

    async def fs_stat(self, path: str) -> Any:
        return await self._value("stat_path", path=path)

    async def fs_list(self, path: str = ".") -> list[Any]:
        found: list[Any] = []
        skip: int | None = 0
        while skip is not None:
            part = await self._value("stat_path", path=path, entries=True, skip=skip)
            found += part["entries"]
            skip = part["next"]
        return found

    async def fs_find(self, path: str = ".", pattern: str = "*") -> list[str]:
        paths = cast("list[str]", await self._value("file_tree", path=path, max_entries=5000))
        return [one for one in paths if fnmatch.fnmatchcase(one.rpartition("/")[2] or one, pattern)]

    async def fs_mkdir(self, path: str) -> None:
        await self._value("create_dir", path=path)

    async def fs_move(self, source: str, target: str, overwrite: bool = False) -> None:
        await self._value("move_path", source=source, target=target, overwrite=overwrite)

    async def fs_remove(self, path: str, recursive: bool = False) -> None:
        await self._value("delete_path", path=path, recursive=recursive)

    async def fs_replace(self, path: str, old: str, new: str) -> None:
        await self._value("edit_file", path=path, old_string=old, new_string=new)

    async def fs_replace_all(self, path: str, old: str, new: str) -> None:
        await self._value("edit_file", path=path, old_string=old, new_string=new, replace_all=True)

    async def fs_insert_at(self, path: str, line: int, text: str) -> None:
        await self._value("insert_lines", path=path, line_start=line, new_content=text)

    async def fs_replace_lines(self, path: str, first: int, last: int, text: str) -> None:
        await self._value("replace_lines", path=path, line_start=first, line_end=last, new_content=text)

    # ---- http

    async def http_get(
        self, url: str, headers: Mapping[str, str] | None = None, timeout_seconds: float = 30
    ) -> dict[str, Any]:
        return await self._web.fetch("GET", url, headers or {}, None, _seconds(timeout_seconds))

    async def http_post(
        self, url: str, body: Any = "", headers: Mapping[str, str] | None = None, timeout_seconds: float = 30
    ) -> dict[str, Any]:
        fields = dict(headers or {})
        if not isinstance(body, str):
            body = compact(body)
            if not any(name.lower() == "content-type" for name in fields):
                fields["Content-Type"] = "application/json"
        return await self._web.fetch("POST", url, fields, body.encode(), _seconds(timeout_seconds))

    # ---- cache

    @property
    def _cache(self) -> dict[str, Any]:
        return self._context.memory.setdefault(_MEMORY, {}).setdefault(self._file, {})

    async def cache_get(self, key: str, default: Any = None) -> Any:
        return self._cache.get(key, default)

    async def cache_set(self, key: str, value: Any) -> None:
        cache = {**self._cache, key: value}
        if len(cache) > CACHE_KEYS or len(compact(cache)) > CACHE_BYTES:
            said = f"`cache.set`: the cache of `{self._file}` would hold more than {CACHE_KEYS} keys or {CACHE_BYTES} bytes"
            raise ToolFailed(ErrorType.LIMIT, f"{said}; delete something first")
        self._cache[key] = value

    async def cache_has(self, key: str) -> bool:
        return key in self._cache

    async def cache_delete(self, key: str) -> None:
        self._cache.pop(key, None)

    async def cache_clear(self) -> None:
        self._cache.clear()

    # ---- the rest

    async def env(self, name: str, default: Any = None) -> Any:
        return child_environment(self._world.environment).values.get(name, default)

    async def now(self) -> float:
        return time.time()

    async def uuid(self) -> str:
        return str(uuid4())

    async def random(self, min: int, max: int) -> int:
        if not min < max:
            raise ToolFailed(ErrorType.VALIDATION_FAILED, f"`random`: {min} is not less than {max}")
        return random.randint(min, max)

    async def sleep(self, ms: float) -> None:
        if not 0 <= ms <= LONGEST_SLEEP:
            raise ToolFailed(ErrorType.VALIDATION_FAILED, f"`sleep`: {ms} ms; at most {LONGEST_SLEEP}")
        await asyncio.sleep(ms / 1000)

    async def delegate(self, task: Any, **options: Any) -> Any:
        if self._world.delegate is None:
            raise ToolFailed(ErrorType.PERMISSION_DENIED, "`delegate`: this run has no sub-agents")
        given = cast("dict[str, Any]", task) if isinstance(task, dict) else {"task": task}
        return await self._world.delegate(self._context, {**given, **options})

    async def call_tool(self, name: str, args: Mapping[str, Any] | None = None) -> Any:
        result = await self._result(name, args or {})
        return result.data if result.success else f"error ({result.error_type}): {result.error_message}"

    async def _meta(self, action: str, given: Mapping[str, Any]) -> Any:
        if self._world.meta is None:
            raise ToolFailed(ErrorType.PERMISSION_DENIED, f"`meta.{action}`: this run may not extend itself")
        return await self._world.meta(self._context, action, given)

    async def register_tool(self, name: str, definition: Any = None, **more: Any) -> Any:
        return await self._meta("tool_register", {**_fields(definition), **more, "name": name})

    async def register_hook(self, name: str, definition: Any = None, **more: Any) -> Any:
        return await self._meta("hook_register", {**_fields(definition), **more, "name": name})

    async def register_agent(self, name: str, definition: Any = None, **more: Any) -> Any:
        return await self._meta("agent_register", {**_fields(definition), **more, "name": name})

    async def list_tools(self, pattern: str = "*") -> Any:
        return await self._meta("list_tools", {"pattern": pattern})


_FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "exec.run": Builtins.exec_run,
    "http.get": Builtins.http_get,
    "http.post": Builtins.http_post,
    **{
        f"fs.{name}": getattr(Builtins, f"fs_{name}")
        for name in (
            "read", "read_lines", "write", "append", "exists", "stat", "list", "find", "mkdir", "move", "remove",
            "replace", "replace_all", "insert_at", "replace_lines",
        )
    },
    **{f"cache.{name}": getattr(Builtins, f"cache_{name}") for name in ("get", "set", "has", "delete", "clear")},
    "time.now": Builtins.now,
    "uuid.v4": Builtins.uuid,
    "random": Builtins.random,
    "sleep": Builtins.sleep,
    "env": Builtins.env,
    "delegate": Builtins.delegate,
    "meta.call_tool": Builtins.call_tool,
    "meta.list_tools": Builtins.list_tools,
    "meta.tool_register": Builtins.register_tool,
    "meta.register_tool": Builtins.register_tool,
    "meta.hook_register": Builtins.register_hook,
    "meta.register_hook": Builtins.register_hook,
    "meta.agent_register": Builtins.register_agent,
    "meta.register_agent": Builtins.register_agent,
}  # fmt: skip
"""By full name; `starlark.inside.names.ASKED` lists the same (a test compares them)."""


def _seconds(given: float) -> float:
    if not isinstance(given, (int, float)) or not 0 < given <= LONGEST_FETCH:  # pyright: ignore[reportUnnecessaryIsInstance] - scripts are not typed
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"`timeout_seconds` = {given!r}: more than 0, at most {LONGEST_FETCH}",
        )
    return given


def _fields(definition: Any) -> dict[str, Any]:
    return dict(cast("dict[str, Any]", definition)) if isinstance(definition, dict) else {}


def _data(result: Result, tool: str) -> Any:
    """The value of a result. Raises ToolFailed where there is none, or only a part of it."""
    if not result.success:
        raise ToolFailed(result.error_type, result.error_message or f"`{tool}` failed")
    if result.partial:
        raise ToolFailed(
            ErrorType.LIMIT, f"`{tool}`: its result was larger than a result may be; ask for less"
        )
    return result.data


def _wrong_form(result: Result) -> bool:
    return result.error_type is ErrorType.VALIDATION_FAILED and "`timeout` is not an argument" in (
        result.error_message or ""
    )


def _outcome(data: Any, took: int) -> dict[str, Any]:
    """A command's result in either form. The plain one is text: both outputs, then `[exit status N]` if that is not 0."""
    if isinstance(data, dict):
        record = cast("dict[str, Any]", data)
        if record.get("status") == "blocked":
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, str(record.get("reason", "the command was not run"))
            )
        code = record.get("exit_code")
        timed_out = bool(record.get("timed_out"))
        texts = str(record.get("stdout", "")), str(record.get("stderr", ""))
        return _ran(
            bool(record.get("success")), *texts, -1 if code is None else code, took, timed_out=timed_out
        )
    text = str(data)
    found = list(_STATUS.finditer(text))
    ended = re.search(r"^\[(ended by |exit status unknown)", text, re.MULTILINE)
    code = int(found[-1][1]) if found else -1 if ended else 0
    if found and found[-1].start():
        text = text[: found[-1].start()]  # What follows is for a reader.
    text = text.removeprefix("(no output)\n") if found else text
    return _ran(code == 0, "" if text == "(no output)" else text, "", code, took)


def _ran(ok: bool, out: str, err: str, code: int, took: int, *, timed_out: bool = False) -> dict[str, Any]:
    return {
        "ok": ok,
        "stdout": out,
        "stderr": err,
        "exit_code": code,
        "duration_ms": took,
        "timed_out": timed_out,
    }
