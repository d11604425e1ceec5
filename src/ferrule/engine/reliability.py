"""The reliability shell: timeout, attempts, waits. Around every handler, exactly once: a call that
a handler makes has its own.

What a failure says of another attempt is its class (`tools.reliability`): a `ToolFailed` names it;
a `TimeoutError` is `timeout`, a `ConnectionError` `transient`; an exception of an HTTP client that
carries a status is `5xx`, or `transient` for 429. Anything else is permanent. Nothing is read out
of the text of an error. Where a tool has an effect, only what says of itself that nothing happened
(`transient`, a refused connection) is tried again: after anything else nobody knows.

Between attempts it waits as the policy says, or as long as the service asked (`retry_after`), never
longer than `backoff_max`; no attempt's time is spent on it. When attempts run out, the result's
data says how many there were and of which class the last failure was (`attempts`, `last_class`),
and the journal holds a notice `policy_exhausted`.

An attempt that timed out in a thread cannot be stopped: the thread goes on and the message says so.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.models.http.retry import dice
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .clock import Clock

DEFAULT_TIMEOUT = 300.0
"""Seconds per attempt where a tool says nothing: a handler may compute, or wait for calls of its
own.
"""
EXHAUSTED = "policy_exhausted"
"""The topic of the notice in the journal."""


async def run(
    tool: Tool, attempt: Callable[[], Awaitable[Any]], clock: Clock, context: Context
) -> Any:
    """The handler's value. Raises ToolFailed, or whatever the last attempt raised.

    Retries are shown to the person by `context.progress`, exhaustion is noted by `context.note`.
    """
    policy = tool.reliability
    number = 0
    seconds = time_of(tool)
    while True:
        number += 1
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await attempt()
        except Exception as error:
            failure = _classed(tool, error, clock, seconds if limit.expired() else None)
            if failure is None:
                raise
        if not policy.retries(failure.kind):
            raise failure
        most = policy.attempts(tool.repeatable)
        wait = max(policy.wait(number, dice()), failure.retry_after or 0)
        if number >= most or wait > policy.longest:
            raise _exhausted(tool, failure, number, context, wait if number < most else None)
        context.progress(
            f"`{tool.name}` failed ({failure}); attempt {number + 1} of {most} in {wait:.1f} s"
        )
        await clock.sleep(wait)


def time_of(tool: Tool) -> float | None:
    """Seconds that one attempt may take; None: no bound."""
    seconds = tool.reliability.timeout or DEFAULT_TIMEOUT
    return None if seconds == math.inf else seconds


def _exhausted(
    tool: Tool, failure: ToolFailed, attempts: int, context: Context, asked: float | None
) -> ToolFailed:
    """The last failure, with how often it was tried. `asked`: the service wants a longer wait than
    the policy allows.
    """
    tried = f"{attempts} attempt{'s' if attempts > 1 else ''}, the last failed as {failure.kind}"
    if asked is not None:
        tried += f"; it asks to be left alone for {asked:g} s"
    context.note(EXHAUSTED, f"`{tool.full_name}`: {tried}")
    told = attempts > 1 or asked is not None
    return ToolFailed(
        failure.error_type,
        f"{failure.message} ({tried})" if told else failure.message,
        data={**(failure.data or {}), "attempts": attempts, "last_class": failure.kind},
    )


def _classed(tool: Tool, error: Exception, clock: Clock, bound: float | None) -> ToolFailed | None:
    """A failure with its class; None for an exception that says nothing of it. `bound`: the time
    that ran out.
    """
    if isinstance(error, ToolFailed):
        unsure = error.kind in ("timeout", "5xx") and not tool.repeatable
        return ToolFailed(error.error_type, error.message, data=error.data) if unsure else error
    if isinstance(error, TimeoutError):
        # A handler's own TimeoutError is a failure of the world, not our bound: both are "timeout".
        said = f"timed out: {error}" if bound is None else f"no answer within {bound:g} s"
        kind = "timeout" if tool.repeatable else ""
        return ToolFailed(ErrorType.TIMEOUT, f"`{tool.name}`: {said}{_still(tool)}", kind=kind)
    if isinstance(error, ConnectionError):
        sure = tool.repeatable or isinstance(error, ConnectionRefusedError)
        return ToolFailed(
            ErrorType.IO_ERROR,
            f"`{tool.name}`: {error}{'' if sure else _UNKNOWN}",
            kind="transient" if sure else "",
        )
    status, after = _answered(error, clock)
    if not (status == 429 or 500 <= status <= 599):
        return None
    sure = tool.repeatable or status == 429
    kind = "transient" if status == 429 else "5xx" if sure else ""
    said = f"`{tool.name}`: {type(error).__name__}: {error}{'' if sure else _UNKNOWN}"
    return ToolFailed(ErrorType.IO_ERROR, said, kind=kind, retry_after=after)


_UNKNOWN = "; outcome unknown: check what it did before doing it again"


def _still(tool: Tool) -> str:
    if tool.repeatable:
        return ""
    if tool.is_async:
        return "; it was stopped, but what it did so far may stand"
    return "; it may still be running"


def _answered(error: Exception, clock: Clock) -> tuple[int, float | None]:
    """The HTTP status that an exception carries (0: none) and the wait that was asked for, in
    seconds.

    As clients have it: `status` (aiohttp, urllib), or `status_code` of a `response` (httpx,
    requests). What we ask ourselves for a handler (a model, a server) was tried as often as it
    should be there.
    """
    response = getattr(error, "response", None)
    status = (
        getattr(error, "status", None)
        if response is None
        else getattr(response, "status_code", None)
    )
    if type(status) is not int or isinstance(error, FerruleError):
        return 0, None
    from ferrule.models.http.retry import parse_retry_after

    headers: Any = getattr(error if response is None else response, "headers", None)
    asked: Any = headers.get("retry-after") if hasattr(headers, "get") else None
    return status, parse_retry_after(asked if isinstance(asked, str) else None, clock.now())
