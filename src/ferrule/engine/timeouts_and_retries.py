"""Reliability: timeout, attempts and waits. Applied exactly once around every handler.

A call that a handler makes has its own.

Whether a failure is retried depends on its class (`tools.reliability`): a `ToolFailed` names its
class; a `TimeoutError` is `timeout`, a `ConnectionError` `transient`; an exception of an HTTP
client that carries a status is `5xx`, or `transient` for 429. Anything else is permanent. The text
of an error is never parsed. If a tool has side effects, only failures that certainly had none
(`transient`, a refused connection) are retried: after any other the outcome is unknown.

The wait between attempts is the policy's, or what the service asked for (`retry_after`), but never
longer than `backoff_max`; it does not count towards the time of an attempt. When attempts run out,
the result's data holds their number and the class of the last failure (`attempts`, `last_class`),
and the journal holds a notice `policy_exhausted`.

An attempt runs in a task of its own, or in a thread. One that is over its time or was stopped has
some seconds to end (`stopping`); one that does not is left behind, and the message says so. A
thread cannot be stopped: a handler in one looks at `Context.is_stopped`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.events import Cancelled
from ferrule.models.http.retry import parse_retry_after, random_fraction
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .clock import Clock
from .stopping import (
    LEFT_BEHIND,
    STOP_SECONDS,
    STOPPED,
    Stop,
    check_stop,
    end_within,
    get_stop,
    leave_behind,
)

DEFAULT_TIMEOUT = 300.0
"""Seconds per attempt if a tool sets no timeout: a handler may compute or wait for its calls."""
EXHAUSTED = "policy_exhausted"
"""The topic of the notice in the journal."""


class NotStarted(Exception):
    """A blocking handler was stopped before a thread was free for it."""


class HandlerExited(Exception):
    """A handler in a task called `sys.exit`, which would have ended the event loop."""


async def run_with_policy(
    tool: Tool,
    attempt: Callable[[], Awaitable[Any]],
    clock: Clock,
    context: Context,
    stop_seconds: float = STOP_SECONDS,
) -> Any:
    """Run a handler under its tool's policy and return its value.

    `attempt` starts the handler: a coroutine runs in a task, a future is what a thread does.
    Retries are shown to the person by `context.progress`, exhaustion is journaled by
    `context.note`.

    Raises:
        ToolFailed: The last attempt failed with a known class.
        Exception: Whatever else the last attempt raised.
    """
    policy = tool.reliability
    number = 0
    seconds = attempt_timeout(tool)
    while True:
        number += 1
        check_stop()
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                context.timeouts.add(limit)
                return await _run_attempt(attempt, limit, context, stop_seconds)
        except Exception as error:
            if context.was_left:
                context.note(
                    LEFT_BEHIND, f"`{tool.full_name}` {describe_left_behind(stop_seconds)}"
                )
            failure = _classify(tool, error, clock, seconds if limit.expired() else None)
            if context.was_left and isinstance(error, TimeoutError):
                said = f"no answer within {seconds:g} s; it {describe_left_behind(stop_seconds)}"
                failure = ToolFailed(ErrorType.TIMEOUT, f"`{tool.name}`: {said}", kind="")
            if failure is None:
                raise
        if not policy.should_retry(failure.kind):
            raise failure
        most = policy.total_attempts(tool.is_repeatable)
        wait = max(policy.retry_delay(number, random_fraction()), failure.retry_after or 0)
        if number >= most or wait > policy.max_delay:
            raise _exhaust(tool, failure, number, context, wait if number < most else None)
        context.progress(
            f"`{tool.name}` failed ({failure}); attempt {number + 1} of {most} in {wait:.1f} s"
        )
        await clock.sleep(wait)


async def _run_attempt(
    attempt: Callable[[], Awaitable[Any]],
    limit: asyncio.Timeout,
    context: Context,
    stop_seconds: float,
) -> Any:
    """Run a handler once. If this is cancelled, the handler is stopped and waited for.

    A handler that swallows its cancellation and returns has returned: its value is what counts. A
    thread is waited for only if the run is stopped: what it does would come after the run's end.
    """
    run = get_stop()
    stop = Stop()
    context.begin_attempt(lambda: stop.is_requested)
    token = stop.enter()
    try:
        work = _start(attempt)
    finally:
        stop.leave(token)
    waiter = asyncio.get_running_loop().create_future()
    work.add_done_callback(lambda _: waiter.done() or waiter.set_result(None))
    try:
        await waiter
    except asyncio.CancelledError:
        stop.request(Cancelled(STOPPED))
        if isinstance(work, asyncio.Task) or run is None or not run.is_requested:
            work.cancel()
        if not await end_within(work, stop_seconds):
            stop.mark_left()
            context.mark_left()
            if isinstance(work, asyncio.Task):
                leave_behind(work)
            else:
                work.cancel()
            raise
        if work.cancelled():
            raise
    finally:
        stop.close()
    try:
        value = work.result()
    except NotStarted:
        raise asyncio.CancelledError from None
    if asyncio.iscoroutine(value) and not isinstance(work, asyncio.Task):
        return await _run_attempt(lambda: value, limit, context, stop_seconds)
    return value


def _start(attempt: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
    """Start a handler: as a task, or as the future of a thread that it returned."""
    return asyncio.ensure_future(attempt())


def describe_left_behind(seconds: float) -> str:
    """Return what is known of a handler that did not end when it was stopped."""
    return (
        f"did not let itself be stopped within {seconds:g} s and was left behind; it may still be "
        "running: outcome unknown; check what it did before doing it again"
    )


def attempt_timeout(tool: Tool) -> float | None:
    """Return the seconds that one attempt may take; None means no limit."""
    seconds = tool.reliability.timeout or DEFAULT_TIMEOUT
    return None if seconds == math.inf else seconds


def _exhaust(
    tool: Tool, failure: ToolFailed, attempts: int, context: Context, asked: float | None
) -> ToolFailed:
    """Return the last failure, with the number of attempts.

    `asked` is the wait that the service wants, if that is longer than the policy allows.
    """
    tried = f"{attempts} attempt{'s' if attempts > 1 else ''}, the last failed as {failure.kind}"
    if asked is not None:
        tried += f"; it asks to be left alone for {asked:g} s"
    context.note(EXHAUSTED, f"`{tool.full_name}`: {tried}")
    message = failure.message
    if attempts > 1 or asked is not None:
        message += f" ({tried})"
    return ToolFailed(
        failure.error_type,
        message,
        data={**(failure.data or {}), "attempts": attempts, "last_class": failure.kind},
    )


def _classify(tool: Tool, error: Exception, clock: Clock, bound: float | None) -> ToolFailed | None:
    """Return a failure with its class; None for an exception that tells nothing about it.

    `bound` is the timeout in seconds, if it expired.
    """
    if isinstance(error, ToolFailed):
        unsure = error.kind in ("timeout", "5xx") and not tool.is_repeatable
        return ToolFailed(error.error_type, error.message, data=error.data) if unsure else error
    if isinstance(error, TimeoutError):
        # A handler's own TimeoutError is a failure of the world, not our bound: both are "timeout".
        said = f"timed out: {error}" if bound is None else f"no answer within {bound:g} s"
        kind = "timeout" if tool.is_repeatable else ""
        return ToolFailed(
            ErrorType.TIMEOUT, f"`{tool.name}`: {said}{_describe_leftover(tool)}", kind=kind
        )
    if isinstance(error, ConnectionError):
        sure = tool.is_repeatable or isinstance(error, ConnectionRefusedError)
        return ToolFailed(
            ErrorType.IO_ERROR,
            f"`{tool.name}`: {error}{'' if sure else _UNKNOWN}",
            kind="transient" if sure else "",
        )
    status, after = _read_status(error, clock)
    if not (status == 429 or 500 <= status <= 599):
        return None
    message = f"`{tool.name}`: {type(error).__name__}: {error}"
    if status == 429:
        return ToolFailed(ErrorType.IO_ERROR, message, kind="transient", retry_after=after)
    if tool.is_repeatable:
        return ToolFailed(ErrorType.IO_ERROR, message, kind="5xx", retry_after=after)
    return ToolFailed(ErrorType.IO_ERROR, message + _UNKNOWN, kind="", retry_after=after)


_UNKNOWN = "; outcome unknown: check what it did before doing it again"


def _describe_leftover(tool: Tool) -> str:
    if tool.is_repeatable:
        return ""
    if tool.is_async:
        return "; it was stopped, but what it did so far may stand"
    return "; it may still be running"


def _read_status(error: Exception, clock: Clock) -> tuple[int, float | None]:
    """Return an exception's HTTP status (0 if none) and the requested wait in seconds.

    Clients name it `status` (aiohttp, urllib), or `status_code` of a `response` (httpx, requests).
    Ferrule's own errors are excluded: requests to a model or a server have retries of their own.
    """
    response = getattr(error, "response", None)
    status = (
        getattr(error, "status", None)
        if response is None
        else getattr(response, "status_code", None)
    )
    if type(status) is not int or isinstance(error, FerruleError):
        return 0, None
    headers: Any = getattr(error if response is None else response, "headers", None)
    asked: Any = headers.get("retry-after") if hasattr(headers, "get") else None
    return status, parse_retry_after(asked if isinstance(asked, str) else None, clock.now())
