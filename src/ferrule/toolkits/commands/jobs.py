"""Commands in the background, in the words of a shell, which every model knows.

    npm run dev &      goes on in the background as %1, also after the call
    jobs               lists those of the session
    wait %1            waits for its end, at most the call's `timeout`; returns what is new
    kill %1            ends it, and all that it started; returns what is new
    pkill -f server    the same for those whose command line it matches

`wait`, `kill` and `pkill` may stand before other commands: `kill %1; npm run build`. No command
sees the processes of another one, so what a `pkill` means can only be done from here.
So there is no further tool, and the shells of all model families have it. What a call returns of a
command's output begins where the call before it ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from .output_folding import cut_to_lines, fold_output
from .plan import make_printable
from .record import describe_end
from .session_commands import CommandHandle, SessionCommands

WAIT_SECONDS = 60.0
"""How long `wait` waits where the call names no timeout."""
_READ_BYTES = 1024 * 1024
_MAX_SHOWN = 16 * 1024
_LIST = compile_lazily(r"\s*jobs(?:\s+-l)?\s*;?\s*")
_FIRST = compile_lazily(
    r"""\s*(?:(?P<word>wait|fg|kill)(?:\s+-\w+)*\s+%(?P<number>\d+)
        |pkill(?P<options>(?:\s+-\w+)*)\s+(?P<quote>['"]?)(?P<text>[\w./:=@ -]+)(?P=quote))
    (?:\s*(?:2>|&>|>)\s*/dev/null(?:\s+2>&1)?)?(?:\s*\|\|\s*(?:true|:))?\s*(?:;(?!;)|&&|\n|$)\s*""",
    re.VERBOSE,
)
_IN_BACKGROUND = compile_lazily(r"(.*[^&\\\s>])\s*&\s*", re.DOTALL)

JobWord = Literal["jobs", "wait", "kill"]


@frozen
class JobCommand:
    """What to do with commands in the background.

    Attributes:
        word: What to do.
        number: With which; 0 for `jobs`, and where `pattern` says with which.
        pattern: What their command lines contain, or one of their programs is called.
        whole_line: Whether `pattern` is looked for in command lines.
        rest: The command line to run afterwards.
    """

    word: JobWord
    number: int = 0
    pattern: str = ""
    whole_line: bool = False
    rest: str = ""

    def find(self, jobs: Mapping[int, CommandHandle]) -> list[int]:
        """Return the numbers of the running commands that a `pkill` means."""
        return [
            number
            for number, handle in jobs.items()
            if not handle.has_ended and _matches(self.pattern, _line(handle), self.whole_line)
        ]


def read_job_command(command: Any) -> JobCommand | None:
    """Return what a command line says about the session's background; None if it is another one."""
    if not isinstance(command, str):
        return None
    if _LIST.fullmatch(command):
        return JobCommand("jobs")
    found = _FIRST.match(command)
    if found is None:
        return None
    rest = command[found.end() :]
    if found["number"]:
        word = "kill" if found["word"] == "kill" else "wait"
        return JobCommand(word, int(found["number"]), rest=rest)
    if not found["quote"] and " " in found["text"]:
        return None
    return JobCommand("kill", 0, found["text"], "f" in found["options"], rest)


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
    if job.pattern:
        ended = [replace(job, number=number, pattern="") for number in job.find(listed)]
        return "\n".join([await run_job_command(one, commands, owner, None) for one in ended])
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
    size = handle.outputs.combined.size
    took = f"{handle.elapsed_ms / 1000:.1f} s"
    return f"%{number} {state} after {took}, {size} bytes: {_line(handle)[:100]}"


def _line(handle: CommandHandle) -> str:
    return make_printable(handle.plan.text) or handle.plan.format_command_line()


def _matches(pattern: str, line: str, whole_line: bool) -> bool:
    if whole_line:
        return pattern in line
    programs = re.split(r"[;&|\s]+", line)
    return pattern in {program.rpartition("/")[2] for program in programs}


def _take_new_output(handle: CommandHandle) -> str:
    try:
        piece = handle.outputs.combined.read(handle.shown_bytes, _READ_BYTES)
    except OSError:
        return ""
    handle.shown_bytes = piece.offset + piece.size
    return cut_to_lines(fold_output(piece.content)[0], _MAX_SHOWN, 0)
