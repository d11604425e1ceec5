"""The built-ins of scripts with effects outside: each goes through the run's own pipeline.

What each returns (requirement 003 and systems.md §4.1; a failure is an error of the script, which
it cannot catch):

    exec.run(program, args=[], timeout_ms=30000, dir=".")
        {ok, stdout, stderr, exit_code, duration_ms, timed_out, truncated}; tool `run_command`,
        whose plain form has all output in stdout
    fs.read(path), fs.read_lines(path, first, last), fs.line_count(path)
        text, list of lines, number; tool `read_text`
    fs.exists(path), fs.stat(path), fs.list(path)
        bool, {path, name, kind, size, modified}, list of these; tool `stat_path`
    fs.find(path=".", pattern="*"), fs.glob(pattern)
        list of paths, by name and by path (`src/**/*.py`); tool `file_tree`
    fs.write, fs.append (path, content), fs.copy(source, target)
        bytes of the whole file; text only; tool `write_file`
    fs.diff(old, new)
        the unified difference of two files
    fs.replace, fs.replace_all (path, old, new), fs.insert_at(path, line, text),
    fs.replace_lines(path, first, last, text), fs.delete_lines(path, first, last),
    fs.mkdir(path), fs.move(source, target), fs.remove(path, recursive=False)
        None
    http.get(url, headers={}, timeout_seconds=30), http.post(url, body="", ...)
        {status, ok, url, body, headers, truncated}
    cache.get(key, default=None), set(key, value), has(key), delete(key), clear()
        of this file, for this session
    ctx: the same and snapshot()
        of all files, for this turn
    metrics.incr(name, delta=1), get(name), reset(name), snapshot()
        numbers, or a dictionary of them
    parallel.launch(tool, args={}, depends_on=[])
        an id
    parallel.wait_all, wait_any, race (ids), join(mode, ids)
        outcomes (`builtins.parallel`)
    task.poll(id), task.wait(id, timeout_ms)
        the state of a background task (`engine.background`)
    time.now(), uuid.v4(), uuid.v7(), random(min, max), sleep(ms)
        seconds since 1970, text, a whole number including both ends, None
    os.cwd(), os.hostname(), os.platform(), os.args()
        see `builtins.surroundings`
    env(name, default=None)
        a variable that child processes may see
    delegate(task, ...)
        what the run's `delegate` returns; refused if there is none
    emit(event, data=None)
        {blocked, data}: the answer of hooks on `custom.…`
    meta.call_tool(name, args)
        the tool's value, or its error as text; other `meta.*`: the run's `meta`
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.engine.web.fetch import WebClient
from ferrule.tools.context import Context

from . import commands, files, network, parallel, stores
from . import session as extending
from . import system as surroundings
from .scope import DelegateHandler, MetaHandler, Scope, ScriptEnvironment, running_scripts

__all__ = ["FUNCTIONS", "Builtins", "DelegateHandler", "MetaHandler", "ScriptEnvironment"]

FUNCTIONS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    **commands.FUNCTIONS,
    **files.FUNCTIONS,
    **network.FUNCTIONS,
    **stores.FUNCTIONS,
    **parallel.FUNCTIONS,
    **surroundings.FUNCTIONS,
    **extending.FUNCTIONS,
}
"""By full name. `starlark.inside.names.OWNER_BUILTINS` lists the same (a test compares them)."""


class Builtins:
    """Answers the built-ins of one call of a script; close it when the script ends.

    `serve` is a `starlark.script.Serve`. `file` keeps its cache apart from that of other files;
    `web` is limited to what the file may reach.
    """

    def __init__(
        self,
        context: Context,
        environment: ScriptEnvironment,
        *,
        file: str,
        web: WebClient | None = None,
    ) -> None:
        self._scope = Scope(context, environment, file, web or environment.web)
        running_scripts(context)[context.call_id] = self._scope

    async def serve(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call a built-in. Raises ToolFailed."""
        function = FUNCTIONS.get(name)
        if function is None:
            raise ToolFailed(ErrorType.NOT_FOUND, f"there is no built-in `{name}`")
        try:
            bound = _signature(name).bind(self._scope, *positional, **named)
        except TypeError as problem:
            raise ToolFailed(ErrorType.VALIDATION_FAILED, f"`{name}`: {problem}") from None
        return await function(*bound.args, **bound.kwargs)

    async def close(self) -> None:
        """Stop the calls that the script has left running."""
        running_scripts(self._scope.context).pop(self._scope.context.call_id, None)
        if self._scope.launched:
            await parallel.stop_all(self._scope)


@cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(FUNCTIONS[name])
