"""Workers, kept warm: a script is run by the next free one, and whoever dies is replaced.

The rules:

* Started when first needed. Up to `warm` wait for the next script; they belong to no event loop and
  to no thread.
* At most `most` scripts compute at the same time. One that waits for a built-in does not count, so
  a script that asks for another (through `delegate`, or a tool that is a script) never waits for
  itself.
* The wall clock is the owner's: the library stops a script at its time, and if it does not the
  worker is killed shortly after. A script whose caller is cancelled is killed at once, and what its
  built-in was doing is cancelled first.
* A worker that was killed answers its call with an error. Nothing is run twice by itself.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

from .inside.frames import TooLarge
from .process import Ended, Process
from .script import Bounds, Script, ScriptFailed, Serve

GRACE = 0.25
"""Seconds after its time at which a script that did not stop is killed with its worker."""
CALLS = 1_000
"""Calls after which a worker is replaced: memory that an allocator never gives back ends with it.
"""
KNOWN = 256
"""Scripts that a worker remembers (`inside.scripts.KEPT`)."""

NESTED = 5
"""Scripts that may be at work for each other: one that calls itself through a tool ends here
(systems.md §4.1, call depth).
"""
STANDARD = Bounds()
_depth: ContextVar[int] = ContextVar("ferrule_scripts", default=0)

Told = Callable[[str, str, Mapping[str, Any]], None]
"""What a script prints and logs: level (`print`, `info`, `warn`, `error`, `debug`), text, further
fields.
"""


def _unheard(level: str, text: str, fields: Mapping[str, Any]) -> None:
    """Nobody listens."""


async def _nothing(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    raise ToolFailed(ErrorType.PERMISSION_DENIED, f"`{name}` cannot be used here")


class Pool:
    """See the head of this file. `shared()` is the one that everything uses; others are for
    tests.
    """

    def __init__(self, *, warm: int = 2, most: int = 0) -> None:
        self._warm = warm
        self._most = most or max(4, 2 * (os.cpu_count() or 1))
        self._lock = threading.Lock()
        self._idle: list[Process] = []
        self._live: set[Process] = set()
        self._computing = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that are alive, those that wait included."""
        with self._lock:
            return tuple(process.pid for process in self._live)

    async def run(
        self,
        script: Script,
        function: str = "run",
        arguments: Sequence[Any] = (),
        *,
        serve: Serve = _nothing,
        told: Told = _unheard,
        bounds: Bounds = STANDARD,
        pure: bool = False,
    ) -> Any:
        """Call `function` of `script` in a fresh scope; its value as JSON would read it.

        `serve` answers its built-ins, one at a time, in this task. `pure` leaves out all that does
        something outside. An empty `function` only evaluates the text (which shows whether it can
        be read at all) and gives None. Numbers that JSON has not (infinite ones) become null.
        Raises ScriptFailed; ConfigError if the library is missing.
        """
        depth = _depth.get()
        if depth > NESTED:
            said = (
                f"not run: {depth} scripts wait for each other already, each called by the one "
                "before"
            )
            raise ScriptFailed("depth", f"{script.file}: {said}")
        await self._enter()
        turn, nested = _Turn(self), _depth.set(depth + 1)
        try:
            process = await self._take()
            call = _Call(process, script, _nothing if pure else serve, told, bounds, turn)
            try:
                value = await call.run(function, arguments, pure)
            except ScriptFailed:
                self._give(process, keep=not call.spent)
                raise
            except BaseException:
                self._give(process, keep=False)
                raise
            self._give(process, keep=True)
            return value
        finally:
            _depth.reset(nested)
            turn.over()

    def close(self) -> None:
        """End every worker, also those at work: their calls are answered with an error."""
        with self._lock:
            everyone, self._idle, self._live = list(self._live), [], set()
        for process in everyone:
            process.kill()

    # ---- workers

    async def _take(self) -> Process:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.usable:
                    return process
                self._live.discard(process)
                process.kill()
        process = Process()
        with self._lock:
            self._live.add(process)
        try:
            await process.ready()
        except Ended as ended:
            self._give(process, keep=False)
            raise ScriptFailed(
                "ended", f"a worker for scripts did not start (status {ended.status})"
            ) from None
        except BaseException:
            self._give(process, keep=False)
            raise
        return process

    def _give(self, process: Process, *, keep: bool) -> None:
        with self._lock:
            # A pool that was closed meanwhile has forgotten it.
            room = (
                keep
                and process in self._live
                and len(self._idle) < self._warm
                and process.calls < CALLS
            )
            if room:
                self._idle.append(process)
            else:
                self._live.discard(process)
        if not room:
            process.kill()

    # ---- turns

    async def _enter(self) -> None:
        with self._lock:
            if self._computing < self._most:
                self._computing += 1
                return
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                waiting = turn in self._waiting
                if waiting:
                    self._waiting.remove(turn)
            if not waiting and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """A script computes no more: the next one may."""
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
                continue  # Its loop is closed: nobody waits there any more.

    def again(self) -> None:
        """A script that had left computes again, whoever else does."""
        with self._lock:
            self._computing += 1

    def _hand_over(self, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self.leave()
        else:
            turn.set_result(None)


class _Turn:
    """One script's place among those that compute. Left while a built-in is served."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._held = pool, True

    def rest(self) -> None:
        self._pool.leave()
        self._held = False

    def resume(self) -> None:
        self._pool.again()
        self._held = True

    def over(self) -> None:
        if self._held:
            self._pool.leave()


class _Call:
    """One call of a function on one worker."""

    def __init__(
        self,
        process: Process,
        script: Script,
        serve: Serve,
        told: Told,
        bounds: Bounds,
        turn: _Turn,
    ) -> None:
        self._process, self._script, self._serve = process, script, serve
        self._told, self._bounds, self._turn = told, bounds, turn
        self.spent = False
        """Whether the worker can be used no more."""

    async def run(self, function: str, arguments: Sequence[Any], pure: bool) -> Any:
        seconds = self._bounds.seconds
        clock = asyncio.timeout(None if seconds is None else seconds + GRACE)
        try:
            async with clock:
                return await self._exchange(self._request(function, arguments, pure))
        except TimeoutError:
            if not clock.expired():
                raise
            self.spent = True
            self._process.kill()
            raise self._late() from None
        except Ended as ended:
            self.spent = True
            raise self._ended(ended.status) from None
        except TooLarge as error:
            self.spent = True
            raise ScriptFailed(
                "size", f"{self._script.file}: too large to hand over: {error}"
            ) from None

    def _request(self, function: str, arguments: Sequence[Any], pure: bool) -> dict[str, Any]:
        process, script, bounds = self._process, self._script, self._bounds
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
        if script.digest not in process.known:
            request |= {"source": script.placed, "file": script.file}
            if len(process.known) >= KNOWN:
                process.known.clear()
        return request

    async def _exchange(self, request: dict[str, Any]) -> Any:
        process = self._process
        await process.send(request)
        while True:
            message = await process.receive()
            if "done" in message:
                process.known.add(self._script.digest)
                return message["done"]
            if "call" in message:
                await process.send(await self._answer(message))
            elif "failed" in message and message["failed"][0] == "unknown":
                # The worker has forgotten the text; nothing of it was run.
                process.known.clear()
                await process.send(
                    request | {"source": self._script.placed, "file": self._script.file}
                )
            elif "failed" in message:
                raise self._failure(*message["failed"], spent=bool(message.get("spent")))
            elif "print" in message:
                self._told("print", str(message["print"]), {})
            elif "log" in message:
                level, text, fields = message["log"]
                self._told(str(level), str(text), dict(fields))
            else:
                raise Ended(process.end())

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """What a built-in came to, for the worker. Anything but a ToolFailed ends the call."""
        self._turn.rest()
        try:
            return {"value": await self._serve(message["call"], message["args"], message["named"])}
        except ToolFailed as failed:
            return {"error": [str(failed.error_type), failed.message]}
        finally:
            self._turn.resume()

    def _failure(
        self, reason: str, message: str, kind: str, *, spent: bool = False
    ) -> ScriptFailed:
        self.spent = spent
        if reason != "compile":
            self._process.known.add(self._script.digest)
        if reason == "timeout":
            return self._late()
        if reason == "memory":
            return self._too_much()
        return ScriptFailed(reason, message, ErrorType(kind) if kind else None)

    def _late(self) -> ScriptFailed:
        seconds = self._bounds.seconds or 0
        return ScriptFailed(
            "timeout",
            f"{self._script.file}: stopped after {seconds * 1000:g} ms, the time it may take",
        )

    def _too_much(self) -> ScriptFailed:
        bound = self._bounds.memory >> 20
        return ScriptFailed(
            "memory", f"{self._script.file}: stopped, as it took more than {bound} MiB of memory"
        )

    def _ended(self, status: int) -> ScriptFailed:
        if status == -6:
            return self._too_much()
        if status == -11:
            return ScriptFailed(
                "depth", f"{self._script.file}: it nests too deeply to be read or run"
            )
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return ScriptFailed(
            "ended",
            (
                f"{self._script.file}: its worker process was ended {how}; what it did until "
                "then stands"
            ),
        )


_pools: dict[str, Pool] = {}
_making = threading.Lock()


def shared() -> Pool:
    """The pool of this process. It ends with the process; nobody closes it."""
    return _pool("shared")


def beside() -> Pool:
    """Another such pool, for scripts that go on while others are waited for: neither takes the
    other's places.
    """
    return _pool("beside")


def _pool(name: str) -> Pool:
    with _making:
        found = _pools.get(name)
        if found is None:
            found = _pools[name] = Pool()
            atexit.register(found.close)
        return found
