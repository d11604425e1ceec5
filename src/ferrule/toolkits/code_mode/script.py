"""One script from its start to its end: Monty runs it, and its requests are answered here.

    code -> worker process -> asks: a function, a name, a file, a clock, … -> a bound tool, or no ->
    … -> value

A script that contains `await` anywhere gets its calls as awaitables, and those that it awaits
together run together: reads in parallel, all others one by one in the order they were made. A call
that is not awaited is made with the next that is; one after the last `await` is not made, and the
result says so. A script without `await` gets values. The text alone decides which applies: the word
in a comment counts too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import Context as Variables
from contextvars import copy_context
from typing import Any, TypedDict, cast

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.errors import ConfigError, RetryCall, ToolFailed
from ferrule.toolkits.stdlib.text import check_text
from ferrule.tools.context import Context

from .bindings import Binding
from .data import to_data
from .failures import FailedCall, describe_crash, describe_error, make_failed_call
from .library import import_monty
from .limits import CodeLimits

_MAX_NAMES = 60


class ScriptResult(TypedDict):
    """The result of a script.

    `value` is that of its last expression, `output` what it printed; `notes` say what was cut.
    """

    value: Any
    output: str
    calls: int
    notes: list[str]


async def run_script(
    code: str, bindings: Mapping[str, Binding], limits: CodeLimits, context: Context
) -> ScriptResult:
    """Run a script.

    Raises:
        ToolFailed: `parse_error`, `limit`, `timeout`, the error of a failed call, and
            `validation_failed` for any other exception.
        ConfigError: There is no run that could make its calls.
    """
    check_text(code, "code", limits.source)
    if context.call is None:
        raise ConfigError(
            "`run_code` calls other tools, and there is no run here",
            hint="call it through an Agent",
        )
    script = _Script(code, bindings, limits, context)
    try:
        async with asyncio.timeout(limits.total_seconds):
            return await script.run()
    except TimeoutError:
        raise script.failure(
            ErrorType.TIMEOUT,
            f"the script and its calls took more than {limits.total_seconds:g} s; make fewer calls",
        ) from None
    finally:
        await script.stop()


class _Script:
    """A script in progress."""

    def __init__(
        self, code: str, bindings: Mapping[str, Binding], limits: CodeLimits, context: Context
    ) -> None:
        self.code = code
        self.bindings = bindings
        self.limits = limits
        self.context = context
        self.awaits = re.search(r"\bawait\b", code) is not None
        self.calls = 0
        self.notes: list[str] = []
        self.raised: list[FailedCall] = []
        self._output = _Output(limits.printed)
        self._asked: dict[int, tuple[Binding, dict[str, Any], int]] = {}
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._places = asyncio.Semaphore(limits.parallel)
        self._alone = asyncio.Lock()
        self._variables = copy_context()

    async def run(self) -> ScriptResult:
        """Run it to its end.

        Monty's threads (1.4) let go of the context variables of whoever asks, and of the function
        that takes the output, some time after the script has ended. They get variables without
        values and a function without a run, so nothing of the run outlives it.
        """
        return await asyncio.create_task(self._run(), context=Variables())

    async def _run(self) -> ScriptResult:
        monty = import_monty()
        try:
            async with (
                monty.AsyncMonty(
                    min_processes=1,
                    max_processes=1,
                    max_checkouts_per_worker=1,
                    request_timeout=self.limits.seconds + 5,
                ) as pool,
                pool.checkout(
                    script_name="script", limits=self._bounds(), os_policy=_POLICY
                ) as session,
            ):
                snapshot: Any = await session.feed_start(
                    self.code, print_callback=self._output.write
                )
                while not isinstance(snapshot, monty.MontyComplete):
                    snapshot = await self._answer(snapshot)
                value = to_data(snapshot.output, "the script's value", self.limits.nodes)
        except monty.MontyCrashedError as error:
            raise self.failure(*describe_crash(error, self.limits)) from None
        except monty.MontyError as error:
            raise self.failure(*describe_error(error, self.raised, self.limits)) from None
        except ToolFailed as failure:
            raise self.failure(failure.error_type, failure.message) from None
        output = self._output.text
        return ScriptResult(value=value, output=output, calls=self.calls, notes=self._all_notes())

    def _bounds(self) -> Any:
        return {
            "max_feed_duration_secs": self.limits.seconds,
            "max_memory": self.limits.memory,
            "max_recursion_depth": self.limits.depth,
            # Requests for names, clocks and files count too although they are refused; a script
            # that does nothing else is ended.
            "max_suspensions": 20 * self.limits.calls + 1_000,
        }

    def _all_notes(self) -> list[str]:
        notes = list(self.notes)
        if self._output.cut:
            notes.append(
                f"{self._output.cut} more characters were printed than the {self.limits.printed} "
                "that are kept"
            )
        never_made = len(self._asked)
        if never_made:
            notes.append(f"{never_made} calls were not made because nothing awaited them")
        return notes

    def failure(self, error_type: ErrorType, message: str) -> ToolFailed:
        """Return the failure of the script, with its output and number of calls until then."""
        data = {"output": self._output.text, "calls": self.calls, "notes": self._all_notes()}
        return ToolFailed(error_type, message, data=data)

    async def stop(self) -> None:
        """End the calls that are still running."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # ---- the requests of a script

    async def _answer(self, snapshot: Any) -> Any:
        monty = import_monty()
        if isinstance(snapshot, monty.AsyncFutureSnapshot):
            return await snapshot.resume(await self._settle(snapshot.pending_call_ids))
        if isinstance(snapshot, monty.AsyncNameLookupSnapshot):
            if snapshot.object_id is None and snapshot.variable_name in self.bindings:
                return await snapshot.resume(value=_make_function(snapshot.variable_name))
            return await snapshot.resume()
        if snapshot.is_os_function:
            # Files, environment, clock, imports: Monty's own refusal is an exception that the
            # script can read.
            return await snapshot.resume_not_handled()
        return await snapshot.resume(await self._call_function(snapshot))

    async def _call_function(self, snapshot: Any) -> Any:
        binding = self.bindings.get(snapshot.function_name) if snapshot.object_id is None else None
        if binding is None:
            return _unknown_function(str(snapshot.function_name), self.bindings)
        self.calls += 1
        line = self.code.encode()[: snapshot.position.start].count(b"\n") + 1
        if self.calls > self.limits.calls:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"line {line}: more than {self.limits.calls} calls; do less in one script",
            )
        try:
            arguments = self._arguments(binding, snapshot.args, snapshot.kwargs)
        except ToolFailed as failure:
            return self._raise(binding, failure.error_type, failure.message)
        if self.awaits:
            self._asked[snapshot.call_id] = (binding, arguments, line)
            return {"future": ...}
        return await self._start(binding, arguments, line)

    def _arguments(
        self, binding: Binding, positional: tuple[Any, ...], named: Mapping[str, Any]
    ) -> dict[str, Any]:
        if len(positional) > len(binding.parameters):
            raise RetryCall(f"takes {len(binding.parameters)} arguments, found {len(positional)}")
        given = dict(zip(binding.parameters, positional, strict=False))
        twice = given.keys() & named.keys()
        if twice:
            raise RetryCall(f"`{min(twice)}` was given twice")
        data = to_data({**given, **named}, "what it was called with", self.limits.nodes)
        return cast("dict[str, Any]", data)

    async def _settle(self, pending: list[int]) -> dict[int, Any]:
        """Return the answers of everything that is awaited now.

        All, not the first: what a script does next must not depend on which call was faster.
        """
        wanted = sorted(pending)
        for number in wanted:
            asked = self._asked.pop(number, None)
            if asked is not None:
                self._tasks[number] = self._start(*asked)
        await asyncio.gather(*(self._tasks[number] for number in wanted))
        return {number: self._tasks.pop(number).result() for number in wanted}

    def _start(self, binding: Binding, arguments: dict[str, Any], line: int) -> asyncio.Task[Any]:
        """Begin a call, with the context variables of the run."""
        return asyncio.create_task(self._call(binding, arguments, line), context=self._variables)

    async def _call(self, binding: Binding, arguments: dict[str, Any], line: int) -> Any:
        assert self.context.call is not None
        turn: AbstractAsyncContextManager[Any] = (
            nullcontext() if binding.can_run_in_parallel else self._alone
        )
        async with turn, self._places:
            result = await self.context.call(binding.tool.full_name, arguments)
        if not result.success:
            return self._raise(binding, result.error_type, result.error_message or "it failed")
        return {"return_value": self._value(binding, result, line)}

    def _value(self, binding: Binding, result: ToolResult, line: int) -> Any:
        if result.partial:
            self.notes.append(
                f"line {line}: the result of `{binding.function}` was cut ({result.size} "
                "bytes in all)"
            )
        self.notes += [f"line {line}: {note}" for note in result.notes]
        return result.data

    def _raise(self, binding: Binding, error_type: ErrorType, message: str) -> Any:
        raised = make_failed_call(binding.function, error_type, message)
        self.raised.append(raised)
        return {"exc_type": raised.exception, "message": raised.message}


class _Output:
    """What a script printed, up to `room` characters; `cut` counts those beyond."""

    def __init__(self, room: int) -> None:
        self._kept: list[str] = []
        self._room = room

    def write(self, stream: str, text: str) -> None:
        if self._room > 0:
            self._kept.append(text[: self._room])
        self._room -= len(text)

    @property
    def text(self) -> str:
        return "".join(self._kept)

    @property
    def cut(self) -> int:
        return max(0, -self._room)


_POLICY: Any = {"datetime": "call_host", "sleep": "zero", "random_start": {"seed": 0}}
"""No clock, no waiting, and the same random numbers every time.

A script that gets the same answers does the same.
"""


def _make_function(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


def _unknown_function(name: str, bindings: Mapping[str, Binding]) -> Any:
    known = ", ".join(list(bindings)[:_MAX_NAMES])
    return {
        "exc_type": "NameError",
        "message": f"name '{name[:60]}' is not defined; functions: {known}",
    }
