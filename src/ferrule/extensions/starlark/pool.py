"""The worker pool: a script is run by the next free worker process, and dead ones are replaced.

* Workers are started when first needed. Up to `warm` wait for the next script; they belong to no
  event loop and to no thread.
* At most `most` scripts compute at the same time. A script that waits for a built-in does not
  count, so one that calls another (through `delegate`, or a tool that is a script) never waits for
  itself.
* Timeouts are enforced twice: the library stops a script at its timeout, and if that fails its
  worker is killed shortly after. A script whose caller is cancelled is killed at once, and what its
  built-in was doing is cancelled first.
* The call of a worker that was killed fails. Nothing is retried automatically.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.tools.forking import make_lock
from ferrule.tools.process_resources import close_at_exit

from .inside.frames import TooLarge
from .process import WorkerEnded, WorkerProcess
from .script import BuiltinHandler, Script, ScriptFailed, ScriptLimits

KILL_AFTER = 0.25
"""Seconds after its timeout at which a script that did not stop is killed with its worker."""
MAX_CALLS = 1_000
"""Calls after which a worker is replaced, because allocators never give back all memory."""
MAX_KNOWN_SCRIPTS = 256
"""Scripts that a worker remembers (`inside.scripts.MAX_PARSED`)."""

MAX_NESTED = 5
"""Scripts that may wait for each other, so that one that calls itself through a tool ends.

Source: systems.md §4.1, call depth.
"""
DEFAULT_LIMITS = ScriptLimits()
_depth: ContextVar[int] = ContextVar("ferrule_scripts", default=0)

OutputListener = Callable[[str, str, Mapping[str, Any]], None]
"""Receives what a script prints and logs: level, text, further fields.

Levels are `print`, `info`, `warn`, `error` and `debug`.
"""


def _ignore_output(level: str, text: str, fields: Mapping[str, Any]) -> None:
    """Ignore the output."""


async def _refuse(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    raise ToolFailed(ErrorType.PERMISSION_DENIED, f"`{name}` cannot be used here")


class WorkerPool:
    """A pool of workers; see the module's documentation.

    Ferrule uses `shared()` and `beside()`; other pools are for tests.

    Args:
        warm: Idle workers to keep.
        max_computing: Scripts that compute at the same time. 0: depends on the number of
            processors.
    """

    def __init__(self, *, warm: int = 2, max_computing: int = 0) -> None:
        self._warm = warm
        self._max_computing = max_computing or max(4, 2 * (os.cpu_count() or 1))
        self._lock = make_lock()
        self._idle: list[WorkerProcess] = []
        self._live: set[WorkerProcess] = set()
        self._computing = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the living worker processes, idle ones included."""
        with self._lock:
            return tuple(process.pid for process in self._live)

    async def run(
        self,
        script: Script,
        function: str = "run",
        arguments: Sequence[Any] = (),
        *,
        serve: BuiltinHandler = _refuse,
        listener: OutputListener = _ignore_output,
        limits: ScriptLimits = DEFAULT_LIMITS,
        pure: bool = False,
    ) -> Any:
        """Call a function of a script in a fresh scope, and return its value as JSON would read it.

        Numbers that JSON does not have (infinite ones) become null.

        Args:
            script: The script.
            function: The function to call. "" only evaluates the top level, which shows whether the
                script can be compiled, and returns None.
            arguments: The positional arguments, as JSON values.
            serve: Answers the script's built-ins, one at a time, in this task.
            listener: Receives printed and logged lines.
            limits: Limits of time, memory and result.
            pure: Leave out all built-ins with effects outside the worker.

        Raises:
            ScriptFailed: The script failed.
            ConfigError: The Starlark library is missing.
        """
        depth = _depth.get()
        if depth > MAX_NESTED:
            raise ScriptFailed(
                "depth",
                f"{script.file}: not run: {depth} scripts wait for each other already, each called "
                "by the one before",
            )
        await self._wait_for_slot()
        slot = _Slot(self)
        depth_token = _depth.set(depth + 1)
        try:
            process = await self._take_worker()
            call = _Call(process, script, _refuse if pure else serve, listener, limits, slot)
            try:
                value = await call.run(function, arguments, pure)
            except ScriptFailed:
                self._return_worker(process, keep=not call.spent)
                raise
            except BaseException:
                self._return_worker(process, keep=False)
                raise
            self._return_worker(process, keep=True)
            return value
        finally:
            _depth.reset(depth_token)
            slot.close()

    def close(self) -> None:
        """End every worker. The calls of busy ones fail."""
        with self._lock:
            processes = list(self._live)
            self._idle.clear()
            self._live.clear()
        for process in processes:
            process.kill()

    # ---- workers

    async def _take_worker(self) -> WorkerProcess:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_usable:
                    return process
                self._live.discard(process)
                process.kill()
        process = WorkerProcess()
        with self._lock:
            self._live.add(process)
        try:
            await process.wait_ready()
        except WorkerEnded as ended:
            self._return_worker(process, keep=False)
            raise ScriptFailed(
                "ended", f"a worker for scripts did not start (status {ended.status})"
            ) from None
        except BaseException:
            self._return_worker(process, keep=False)
            raise
        return process

    def _return_worker(self, process: WorkerProcess, *, keep: bool) -> None:
        with self._lock:
            # `_live` does not have it if the pool was closed in the meantime.
            is_kept = (
                keep
                and process in self._live
                and len(self._idle) < self._warm
                and process.calls < MAX_CALLS
            )
            if is_kept:
                self._idle.append(process)
            else:
                self._live.discard(process)
        if not is_kept:
            process.kill()

    # ---- slots

    async def _wait_for_slot(self) -> None:
        with self._lock:
            if self._computing < self._max_computing:
                self._computing += 1
                return
            slot = asyncio.get_running_loop().create_future()
            self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            with self._lock:
                is_waiting = slot in self._waiting
                if is_waiting:
                    self._waiting.remove(slot)
            if not is_waiting and not slot.cancelled():
                self.release_slot()
            raise

    def release_slot(self) -> None:
        """Give the slot of a script to the next one that waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._computing -= 1
                    return
                following = self._waiting.popleft()
            try:
                following.get_loop().call_soon_threadsafe(self._hand_over, following)
                return
            except RuntimeError:
                continue  # Its event loop is closed, so nothing waits there any more.

    def reclaim_slot(self) -> None:
        """Take a slot for a script that computes again, even if none is free."""
        with self._lock:
            self._computing += 1

    def _hand_over(self, slot: asyncio.Future[None]) -> None:
        if slot.done():
            self.release_slot()
        else:
            slot.set_result(None)


class _Slot:
    """One script's slot among those that compute. Released while a built-in is served."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._is_held = True

    def release(self) -> None:
        self._pool.release_slot()
        self._is_held = False

    def reclaim(self) -> None:
        self._pool.reclaim_slot()
        self._is_held = True

    def close(self) -> None:
        if self._is_held:
            self._pool.release_slot()


class _Call:
    """One call of a function on one worker."""

    def __init__(
        self,
        process: WorkerProcess,
        script: Script,
        serve: BuiltinHandler,
        listener: OutputListener,
        limits: ScriptLimits,
        slot: _Slot,
    ) -> None:
        self._process = process
        self._script = script
        self._serve = serve
        self._listener = listener
        self._limits = limits
        self._slot = slot
        self.spent = False
        """Whether the worker must not be used again."""

    async def run(self, function: str, arguments: Sequence[Any], pure: bool) -> Any:
        seconds = self._limits.seconds
        timeout = asyncio.timeout(None if seconds is None else seconds + KILL_AFTER)
        try:
            async with timeout:
                return await self._exchange(self._request(function, arguments, pure))
        except TimeoutError:
            if not timeout.expired():
                raise
            self.spent = True
            self._process.kill()
            raise self._timeout_error() from None
        except WorkerEnded as ended:
            self.spent = True
            raise self._exit_error(ended.status) from None
        except TooLarge as error:
            self.spent = True
            raise ScriptFailed(
                "size", f"{self._script.file}: too large to hand over: {error}"
            ) from None

    def _request(self, function: str, arguments: Sequence[Any], pure: bool) -> dict[str, Any]:
        process = self._process
        script = self._script
        bounds = self._limits
        request: dict[str, Any] = {
            "run": script.digest,
            "function": function,
            "arguments": list(arguments),
            "seconds": bounds.seconds,
            "memory": bounds.memory,
            "result": bounds.result,
            "pure": pure,
        }
        process.calls += 1
        if script.digest not in process.known_scripts:
            request |= {"source": script.padded_source, "file": script.file}
            if len(process.known_scripts) >= MAX_KNOWN_SCRIPTS:
                process.known_scripts.clear()
        return request

    async def _exchange(self, request: dict[str, Any]) -> Any:
        process = self._process
        await process.send(request)
        while True:
            message = await process.receive()
            if "done" in message:
                process.known_scripts.add(self._script.digest)
                return message["done"]
            if "call" in message:
                await process.send(await self._answer(message))
            elif "failed" in message and message["failed"][0] == "unknown":
                # The worker has forgotten the script, and ran nothing of it.
                process.known_scripts.clear()
                await process.send(
                    request | {"source": self._script.padded_source, "file": self._script.file}
                )
            elif "failed" in message:
                raise self._failure(*message["failed"], spent=bool(message.get("spent")))
            elif "print" in message:
                self._listener("print", str(message["print"]), {})
            elif "log" in message:
                level, text, fields = message["log"]
                self._listener(str(level), str(text), dict(fields))
            else:
                raise WorkerEnded(process.end())

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a built-in for the worker.

        Errors other than ToolFailed end the call.
        """
        self._slot.release()
        try:
            value = await self._serve(message["call"], message["args"], message["named"])
        except ToolFailed as failed:
            return {"error": [str(failed.error_type), failed.message]}
        finally:
            self._slot.reclaim()
        return {"value": value}

    def _failure(
        self, reason: str, message: str, kind: str, *, spent: bool = False
    ) -> ScriptFailed:
        self.spent = spent
        if reason != "compile":
            self._process.known_scripts.add(self._script.digest)
        if reason == "timeout":
            return self._timeout_error()
        if reason == "memory":
            return self._memory_error()
        return ScriptFailed(reason, message, ErrorType(kind) if kind else None)

    def _timeout_error(self) -> ScriptFailed:
        seconds = self._limits.seconds or 0
        return ScriptFailed(
            "timeout",
            f"{self._script.file}: stopped after {seconds * 1000:g} ms, the time it may take",
        )

    def _memory_error(self) -> ScriptFailed:
        limit = self._limits.memory >> 20
        return ScriptFailed(
            "memory", f"{self._script.file}: stopped, as it took more than {limit} MiB of memory"
        )

    def _exit_error(self, status: int) -> ScriptFailed:
        if status == -6:
            return self._memory_error()
        if status == -11:
            return ScriptFailed(
                "depth", f"{self._script.file}: it nests too deeply to be read or run"
            )
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return ScriptFailed(
            "ended",
            f"{self._script.file}: its worker process was ended {how}; what it did until then is "
            "not undone",
        )


_pools: dict[str, WorkerPool] = {}
_pools_lock = make_lock()


def shared_pool() -> WorkerPool:
    """Return the shared pool of this process. It is closed when the process ends."""
    return _get_pool("shared")


def background_pool() -> WorkerPool:
    """Return a second shared pool, for scripts that run in the background of others.

    Neither pool takes slots of the other.
    """
    return _get_pool("beside")


def _get_pool(name: str) -> WorkerPool:
    with _pools_lock:
        pool = _pools.get(name)
        if pool is None:
            pool = _pools[name] = WorkerPool()
            close_at_exit(pool.close)
        return pool
