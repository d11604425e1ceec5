"""What `ferrule run` does once it has a message: assemble, drive, print, choose the exit code."""

from __future__ import annotations

import json
import signal
from typing import Any

from ferrule.core.calls import ErrorType, Result, compact
from ferrule.core.errors import FerruleError, LimitReached, RunCancelled
from ferrule.core.events import FORMAT, Event, encode
from ferrule.engine.live import Live, Progress, ReasoningDelta, TextDelta
from ferrule.engine.session import RunResult, Session

from .assemble import Assembly, assemble
from .show import Show


async def one_shot(text: str, options: dict[str, Any]) -> int:
    """Run `text` in a new (or resumed) session; the exit code."""
    import asyncio

    assembly = assemble(options)
    session = assembly.open(options.get("resume_id"))
    task = asyncio.ensure_future(_work(session, text, assembly, options))
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        assembly.terminal.say(f"stopped; go on with `ferrule run --resume {session.id} ...`")
        return 130
    finally:
        session.close()
        await assembly.agent.close()


async def _work(session: Session, text: str, assembly: Assembly, options: dict[str, Any]) -> int:
    as_json, as_stream = bool(options.get("as_json")), bool(options.get("json_stream"))
    show = Show(assembly.terminal, assembly.find(session), answer_to_stdout=not (as_json or as_stream))
    error: FerruleError | None = None
    result: RunResult | None = None
    session.driver.log.observer = _printer(assembly, show) if as_stream else show
    try:
        result = await session.run(text)
    except RunCancelled:
        raise
    except FerruleError as raised:
        error = raised
    if as_json:
        assembly.terminal.answer(json.dumps(summary(session, result, error), ensure_ascii=False))
    elif result is not None and not as_stream and not show.streamed:
        assembly.terminal.answer(result.text)
    if error is not None:
        if isinstance(error, LimitReached):
            assembly.terminal.say(f"! {error.detail}; the session is kept", style="yellow")
        raise error
    return exit_code(session.driver.machine.results())


def _printer(assembly: Assembly, show: Show) -> Any:
    def printed(item: Live) -> None:
        assembly.terminal.answer(compact(line_of(item)))

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
    return {"v": FORMAT, "kind": kind, **body}


def summary(session: Session, result: RunResult | None, error: FerruleError | None) -> dict[str, Any]:
    """The object of `--json`."""
    machine = session.driver.machine
    return {
        "v": FORMAT,
        "session": session.id,
        "stop": result.stop if result else (error.code if error else "failed"),
        "text": result.text if result else "",
        "error": None if error is None else {"code": error.code, "detail": error.detail, "hint": error.hint},
        "rounds": machine.round,
        "usage": {
            "input": machine.usage.input,
            "output": machine.usage.output,
            "cached": machine.usage.cached,
        },
        "results": [{"call_id": r.call_id, "tool": r.tool, **r.envelope()} for r in machine.results()],
    }


def exit_code(results: list[Result]) -> int:
    """0, or 4 if all that was tried was denied, or 3 if the last result was a failure."""
    if not results or results[-1].success:
        return 0
    if all(result.error_type is ErrorType.PERMISSION_DENIED for result in results):
        return 4
    return 3


async def resumed(session_id: str, text: str, options: dict[str, Any]) -> int:
    """Finish what the session left open, then run `text` if there is any; the exit code."""
    assembly = assemble(options)
    session = assembly.open(session_id)
    session.driver.log.observer = show = Show(assembly.terminal, assembly.find(session))
    try:
        finished = await session.resume()
        if finished is not None and not show.streamed:
            assembly.terminal.answer(finished.text)
        if finished is None and not text:
            assembly.terminal.say("nothing was left open; give a prompt to go on")
        if text:
            show.streamed = False
            done = await session.run(text)
            if not show.streamed:
                assembly.terminal.answer(done.text)
        return exit_code(session.driver.machine.results())
    finally:
        session.close()
        await assembly.agent.close()
