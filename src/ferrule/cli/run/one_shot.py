"""Run one message for `ferrule run`: assemble the agent, print its output, choose an exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Any

from ferrule.cli.live_output import LiveOutput
from ferrule.cli.terminal import encode_json
from ferrule.cli.terminal_agent import TerminalAssembly, assemble_at_terminal
from ferrule.core.calls import ErrorType, ToolResult, parse_json
from ferrule.core.errors import ConfigError, FerruleError, LimitReached, RunCancelled
from ferrule.core.events import FORMAT, Event, event_to_json
from ferrule.core.media import Content
from ferrule.engine.live_events import ArgumentsDelta, Live, Progress, ReasoningDelta, TextDelta
from ferrule.engine.session import RunResult, Session
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.resumed_sessions import find_session_model

with lazy_imports():
    from ferrule.cli.setup import dialogue

    from . import schema_option

CALL_EXIT_CODES = {
    ErrorType.PERMISSION_DENIED: 4,
    ErrorType.LIMIT: 5,
    ErrorType.TIMEOUT: 124,
    ErrorType.CANCELLED: 130,
}
"""Exit codes for a single failed tool call; every other failure gives 1."""
NOT_DONE = 3
"""The exit code of a run without an answer, or in which a required tool never succeeded."""


async def run_once(
    text: Content, options: dict[str, Any], *, session_id: str | None = None, finish: bool = False
) -> int:
    """Run a message and return the exit code.

    Ctrl-C and SIGTERM end the run in order and leave a session that can be continued.

    Args:
        text: The message: text, or a list of texts and media.
        options: The options of the command, by parameter name.
        session_id: The session to continue, by its id or the beginning of it; None for a new one.
        finish: Whether to finish first what the session left open.
    """
    if session_id and not options.get("model"):
        options["model"] = find_session_model(session_id)
    if not options.get("model"):
        await dialogue.offer_setup(options)
    assembly = assemble_at_terminal(options)
    schema = options.get("schema") or options.get("schema_multi")
    if schema:
        wanted = schema_option.read_schema_option(schema, multi=bool(options.get("schema_multi")))
        assembly.agent = assembly.agent.copy_for_output(wanted, mode=options["output_mode"])
    session = assembly.open_session(session_id)
    task = asyncio.ensure_future(_work(session, text, assembly, options, finish))
    assembly.terminal.on_reader_gone = task.cancel
    succeeded = False
    with cancel_on_signals(task) as exit_codes:
        try:
            code = await task
            succeeded = True
            return code
        except asyncio.CancelledError:
            assembly.terminal.write_message(
                f"stopped; continue with `ferrule run --resume {session.id} ...`"
            )
            return exit_codes[-1] if exit_codes else 130
        finally:
            # A failed task refers to its traceback, and that to this frame. The garbage collector
            # of Python 3.11 does not see the first, so the circle would stay for ever.
            assembly.terminal.on_reader_gone = lambda: None
            del task
            await assembly.close(session, strict=succeeded)


@contextmanager
def cancel_on_signals(task: asyncio.Task[Any], *, interrupts: bool = True) -> Generator[list[int]]:
    """Let SIGTERM, and SIGINT if `interrupts`, cancel the task. Yield the exit codes they mean.

    A signal raised as an exception into the event loop would cancel every task at once, and the run
    could not end in order.
    """
    exit_codes: list[int] = []

    def stop(number: int) -> None:
        exit_codes.append(128 + number)
        task.cancel()

    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT] if interrupts else [signal.SIGTERM]
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield exit_codes
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _work(
    session: Session,
    text: Content,
    assembly: TerminalAssembly,
    options: dict[str, Any],
    finish: bool,
) -> int:
    stream = bool(options.get("json_stream"))
    one_object = bool(options.get("as_json"))
    typed = bool(options.get("schema") or options.get("schema_multi"))
    live = not stream and not one_object and not typed and sys.stdout.isatty()
    show = LiveOutput(assembly.terminal, session.history.find_call, live=live)
    session.observe(_printer(assembly, show) if stream else show)
    if stream:
        opening = {"v": FORMAT, "kind": "session", "session": session.id, "model": session.model}
        assembly.terminal.write_answer(encode_json(opening))
    error: FerruleError | None = None
    results: list[RunResult] = []
    try:
        async for result in _runs(session, text, finish, assembly):
            results.append(result)
            if not stream and not one_object and not live:
                assembly.terminal.write_answer(result.text)
    except RunCancelled:
        raise
    except FerruleError as raised:
        error = raised
    last = results[-1] if results else None
    if one_object:
        cost = _count_cost(session, assembly)
        assembly.terminal.write_answer(encode_json(summarize_run(session, last, error, cost)))
    if error is not None:
        _explain_limit(session, error)
        raise error
    if last is not None and last.missing:
        assembly.terminal.write_message(
            f"! not done: {format_missing_tools(last.missing)} never succeeded", style="yellow"
        )
        return NOT_DONE
    if last is not None and not typed and not last.text.strip():
        assembly.terminal.write_message("! the model gave no answer", style="yellow")
        return NOT_DONE
    code = choose_exit_code(session.results())
    return 0 if typed and code == 3 else code


async def _runs(
    session: Session, text: Content, finish: bool, assembly: TerminalAssembly
) -> AsyncIterator[RunResult]:
    if finish:
        unfinished = await session.resume()
        if unfinished is not None:
            yield unfinished
        elif not text:
            assembly.terminal.write_message("nothing was left open; give a prompt to continue")
    if text:
        yield await session.run(text)


def _explain_limit(session: Session, error: FerruleError) -> None:
    if isinstance(error, LimitReached):
        error.hint = f"the session is kept; continue with `ferrule run --resume {session.id} ...`"


def _printer(assembly: TerminalAssembly, show: LiveOutput) -> Callable[[Live], None]:
    def print_event(item: Live) -> None:
        assembly.terminal.write_answer(encode_json(stream_line(item)))
        show(item)

    return print_event


def stream_line(item: Live) -> dict[str, Any]:
    """Build one line of `--json-stream`: `v` (the format), `kind`, and the event's own fields."""
    if isinstance(item, TextDelta):
        return {"v": FORMAT, "kind": "text.delta", "text": item.text}
    if isinstance(item, ReasoningDelta):
        return {"v": FORMAT, "kind": "reasoning.delta", "text": item.text}
    if isinstance(item, ArgumentsDelta):
        body: dict[str, Any] = {"call": item.call, "tool": item.tool, "text": item.text}
        return {"v": FORMAT, "kind": "arguments.delta", **body}
    if isinstance(item, Progress):
        tail = {"is_tail": True} if item.is_tail else {}
        shown = {"call_id": item.call_id, "text": item.text, **tail}
        return {"v": FORMAT, "kind": "progress", **shown}
    event: Event = item
    kind, whole = event_to_json(event)
    # No field of an event may replace the two that every line has.
    fields = {name: value for name, value in whole.items() if name not in ("v", "kind")}
    return {"v": FORMAT, "kind": kind} | fields


def _count_cost(session: Session, assembly: TerminalAssembly) -> float | None:
    try:
        return session.cost
    except ConfigError as error:
        assembly.terminal.write_message(f"what the run costs is not counted: {error}")
        return None


def summarize_run(
    session: Session, result: RunResult | None, error: FerruleError | None, cost: float | None
) -> dict[str, Any]:
    """Build the object that `--json` prints."""
    usage = session.usage
    stop = "failed"
    if result is not None:
        stop = result.stop
    elif error is not None:
        stop = error.code
    failure = None
    if error is not None:
        failure = {"code": error.code, "detail": error.detail, "hint": error.hint}
    output = (
        {"output": parse_json(result.output_json)}
        if result is not None and result.output_json
        else {}
    )
    return {
        "v": FORMAT,
        "session": session.id,
        "stop": stop,
        "text": result.text if result else "",
        **output,
        "missing": result.missing if result else (),
        "error": failure,
        "turns": session.turns,
        "usage": {"input": usage.input, "output": usage.output, "cached": usage.cached},
        "cost": cost,
        "results": [
            {"call_id": one.call_id, "tool": one.tool, **one.to_envelope()}
            for one in session.results()
        ],
    }


def format_missing_tools(missing: tuple[tuple[str, ...], ...]) -> str:
    """List the tools that had to succeed and did not, for a message."""
    return ", ".join(" or ".join(f"`{name}`" for name in entry) for entry in missing)


def choose_exit_code(results: list[ToolResult]) -> int:
    """Return 4 if a call was denied, 3 if the last result is a failure, else 0."""
    if any(result.error_type is ErrorType.PERMISSION_DENIED for result in results):
        return 4
    return 3 if results and not results[-1].success else 0
