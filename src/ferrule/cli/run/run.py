"""What `ferrule run` does once it has a message: assemble, drive, print, choose the exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Any

from ferrule.cli.live_output import Show
from ferrule.cli.terminal import as_json
from ferrule.cli.terminal_agent import Seated, seat
from ferrule.core.calls import ErrorType, Result
from ferrule.core.errors import FerruleError, LimitReached, RunCancelled
from ferrule.core.events import FORMAT, Event, encode
from ferrule.engine.live_events import Live, Progress, ReasoningDelta, TextDelta
from ferrule.engine.session import RunResult, Session
from ferrule.runtime.assemble import model_of

OUTCOMES = {
    ErrorType.PERMISSION_DENIED: 4,
    ErrorType.LIMIT: 5,
    ErrorType.TIMEOUT: 124,
    ErrorType.CANCELLED: 130,
}
"""Exit codes of a single call that failed; 1 for all other failures."""
NOT_DONE = 3
"""The exit code of a run that ended without what it was to do."""


async def one_shot(
    text: str, options: dict[str, Any], *, session_id: str | None = None, finish: bool = False
) -> int:
    """Run `text` in a new session or the one of that id; the exit code.

    `finish`: first finish what the session left open. Ctrl-C and SIGTERM settle the run and leave a
    session to go on with.
    """
    if session_id and not options.get("model"):
        options["model"] = model_of(session_id)
    assembly = seat(options)
    session = assembly.open(session_id)
    task = asyncio.ensure_future(_work(session, text, assembly, options, finish))
    assembly.terminal.reader_gone = task.cancel
    fine = False
    with stopping(task) as stopped:
        try:
            code = await task
            fine = True
            return code
        except asyncio.CancelledError:
            assembly.terminal.say(f"stopped; go on with `ferrule run --resume {session.id} ...`")
            return stopped[-1] if stopped else 130
        finally:
            await assembly.close(session, strict=fine)


@contextmanager
def stopping(task: asyncio.Task[Any], *, interrupts: bool = True) -> Generator[list[int]]:
    """SIGTERM (and SIGINT) cancel the task; the list gets their exit codes. Raised as an exception
    into the loop, a signal would cancel every task at once, and the run could not settle.
    """
    stopped: list[int] = []

    def stop(number: int) -> None:
        stopped.append(128 + number)
        task.cancel()

    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT] if interrupts else [signal.SIGTERM]
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield stopped
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _work(
    session: Session, text: str, assembly: Seated, options: dict[str, Any], finish: bool
) -> int:
    stream, one_object = bool(options.get("json_stream")), bool(options.get("as_json"))
    live = not stream and not one_object and sys.stdout.isatty()
    show = Show(assembly.terminal, session.find_call, live=live)
    session.observe(_printer(assembly, show) if stream else show)
    if stream:
        opening = {"v": FORMAT, "kind": "session", "session": session.id, "model": session.model}
        assembly.terminal.answer(as_json(opening))
    error: FerruleError | None = None
    results: list[RunResult] = []
    try:
        async for result in _runs(session, text, finish, assembly):
            results.append(result)
            if not stream and not one_object and not live:
                assembly.terminal.answer(result.text)
    except RunCancelled:
        raise
    except FerruleError as raised:
        error = raised
    if one_object:
        assembly.terminal.answer(as_json(summary(session, results[-1] if results else None, error)))
    if error is not None:
        return _failed(session, assembly, error)
    if results and results[-1].missing:
        assembly.terminal.say(
            f"! not done: {unmet(results[-1].missing)} never succeeded", style="yellow"
        )
        return NOT_DONE
    return exit_code(session.results())


async def _runs(
    session: Session, text: str, finish: bool, assembly: Seated
) -> AsyncIterator[RunResult]:
    if finish:
        left = await session.resume()
        if left is not None:
            yield left
        elif not text:
            assembly.terminal.say("nothing was left open; give a prompt to go on")
    if text:
        yield await session.run(text)


def _failed(session: Session, assembly: Seated, error: FerruleError) -> int:
    if isinstance(error, LimitReached):
        assembly.terminal.say(f"! the session is kept: {session.id}", style="yellow")
        if error.limit == "max_seconds":
            error.exit_code = 124
    raise error


def _printer(assembly: Seated, show: Show) -> Callable[[Live], None]:
    def printed(item: Live) -> None:
        assembly.terminal.answer(as_json(line_of(item)))
        show(item)

    return printed


def line_of(item: Live) -> dict[str, Any]:
    """One line of `--json-stream`: `v` (format), `kind`, and the event's own fields."""
    if isinstance(item, TextDelta):
        return {"v": FORMAT, "kind": "text.delta", "text": item.text}
    if isinstance(item, ReasoningDelta):
        return {"v": FORMAT, "kind": "reasoning.delta", "text": item.text}
    if isinstance(item, Progress):
        return {"v": FORMAT, "kind": "progress", "call_id": item.call_id, "text": item.text}
    event: Event = item
    kind, body = encode(event)
    # In this order: no field of an event takes the place of the two that every line has.
    return {"v": FORMAT, "kind": kind} | {
        name: value for name, value in body.items() if name not in ("v", "kind")
    }


def summary(
    session: Session, result: RunResult | None, error: FerruleError | None
) -> dict[str, Any]:
    """The object of `--json`."""
    usage = session.usage
    return {
        "v": FORMAT,
        "session": session.id,
        "stop": result.stop if result else (error.code if error else "failed"),
        "text": result.text if result else "",
        "missing": result.missing if result else (),
        "error": None
        if error is None
        else {"code": error.code, "detail": error.detail, "hint": error.hint},
        "rounds": session.rounds,
        "usage": {"input": usage.input, "output": usage.output, "cached": usage.cached},
        "cost": session.cost,
        "results": [
            {"call_id": one.call_id, "tool": one.tool, **one.envelope()}
            for one in session.results()
        ],
    }


def unmet(missing: tuple[tuple[str, ...], ...]) -> str:
    """Tools that had to succeed, in words."""
    return ", ".join(" or ".join(f"`{name}`" for name in entry) for entry in missing)


def exit_code(results: list[Result]) -> int:
    """0, or 4 if all that was tried was denied, or 3 if the last result was a failure."""
    if not results or results[-1].success:
        return 0
    if all(result.error_type is ErrorType.PERMISSION_DENIED for result in results):
        return 4
    return 3
