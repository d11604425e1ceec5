"""Commands in the background, in the words of a shell, which every model knows.

    npm run dev &      goes on in the background as %1, also after the call
    jobs               lists those of the session
    wait %1            waits for its end, at most the call's `timeout`; returns what is new
    kill %1            ends it, and all that it started; returns what is new

So there is no further tool, and the shells of all model families have it. What a call returns of a
command's output begins where the call before it ended.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen

from .output_folding import cut_to_lines, fold_output
from .plan import make_printable
from .record import describe_end
from .session_commands import CommandHandle, SessionCommands

WAIT_SECONDS = 60.0
"""How long `wait` waits where the call names no timeout."""
_READ_BYTES = 1024 * 1024
_MAX_SHOWN = 16 * 1024
_WORDS = re.compile(r"\s*(?:(jobs)(?:\s+-l)?|(wait|fg|kill)(?:\s+-\w+)*\s+%(\d+))\s*;?\s*")
_IN_BACKGROUND = re.compile(r"(.*[^&\\\s>])\s*&\s*", re.DOTALL)

JobWord = Literal["jobs", "wait", "kill"]


@frozen
class JobCommand:
    """What to do with a command in the background; `number` is 0 for `jobs`."""

    word: JobWord
    number: int = 0


def read_job_command(command: Any) -> JobCommand | None:
    """Return what a command line says about the session's background; None if it is another one."""
    found = _WORDS.fullmatch(command) if isinstance(command, str) else None
    if found is None:
        return None
    if found[1]:
        return JobCommand("jobs")
    return JobCommand("kill" if found[2] == "kill" else "wait", int(found[3]))


def split_background(command: Any) -> str | None:
    """Return the command line before a `&` at its end; None if it has none."""
    found = _IN_BACKGROUND.fullmatch(command) if isinstance(command, str) else None
    return found[1] if found else None


async def run_job_command(
    job: JobCommand, commands: SessionCommands, owner: tuple[str, str, str], seconds: float | None
) -> str:
    """Carry out such a command line.

    Raises:
        ToolFailed: `not_found` if there is no such command.
    """
    listed = {number: one for number, one in commands.jobs.items() if one.owner == owner}
    if job.word == "jobs":
        rows = [_describe(number, handle) for number, handle in listed.items()]
        return "\n".join(rows) or "[nothing was started in the background]"
    handle = listed.get(job.number)
    if handle is None:
        known = ", ".join(f"%{number}" for number in listed) or "none"
        raise ToolFailed(ErrorType.NOT_FOUND, f"there is no %{job.number}; there is {known}")
    if job.word == "kill":
        await commands.kill(handle)
    else:
        await handle.wait(WAIT_SECONDS if seconds is None else seconds)
    text = _take_new_output(handle)
    state = f"[{_describe(job.number, handle)}]"
    return f"{text.removesuffix(chr(10))}\n{state}" if text else state


def _describe(number: int, handle: CommandHandle) -> str:
    state = describe_end(handle) if handle.has_ended else "is running"
    line = (make_printable(handle.plan.text) or handle.plan.format_command_line())[:100]
    size = handle.outputs.combined.size
    return f"%{number} {state} after {handle.elapsed_ms / 1000:.1f} s, {size} bytes: {line}"


def _take_new_output(handle: CommandHandle) -> str:
    try:
        piece = handle.outputs.combined.read(handle.shown_bytes, _READ_BYTES)
    except OSError:
        return ""
    handle.shown_bytes = piece.offset + piece.size
    return cut_to_lines(fold_output(piece.content)[0], _MAX_SHOWN, 0)
