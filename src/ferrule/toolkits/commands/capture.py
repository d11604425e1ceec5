"""Keeps what a producer wrote when a filter shows only a part of it: `make 2>&1 | tail -3`.

A copy is taken between the two by the system's own `tee`; the filter gets every byte, and the model
learns where the copy is, so it need not run a slow command again. The rules:

* The model's command decides what happens, with or without a copy: the same bytes from the filter,
  the same standard error, the same exit status (also under `set -e` and `set -o pipefail`).
* A text that is not understood completely is left alone, with the reason (`pipelines.py`).
* If a copy cannot be made or continued (full disk, no `tee`), only the copy is lost.
* A copy has a largest size. Beyond it the file stops growing and the pipeline goes on: `tee` runs
  under the shell's own `ulimit -f` with SIGXFSZ ignored, so a write fails and POSIX has `tee` carry
  on with the other output (IEEE Std 1003.1, tee, Consequences of Errors). No program of ours stands
  in the way of the bytes.
* The producer's exit status is reported beside the filter's. bash provides it after the pipeline
  (`PIPESTATUS`); for other shells the producer is put into a group that writes its status down.

Differences from running without a copy: one more process reads and writes, so a producer learns one
read later that its filter is gone, and may have finished by then. In a `sh` that is bash, a
producer ended by a signal is mentioned on standard error (bash does not mention it within a
pipeline); a message that bash prints about a whole pipeline shows the addition. A producer's status
is None if nobody could write it down: the shell was killed, a compound command failed under `set
-e`, or (not in bash) a builtin got SIGPIPE or the pipeline contained `exit`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ferrule.core.value_class import frozen
from ferrule.permissions.command_analysis.program_facts import program_name

from .pipelines import NotCapturable, Pipeline, find_last_pipeline

CAPTURE_LIMIT = 64 * 1024 * 1024
"""Bytes of a producer's output that are kept."""

_SHELLS = frozenset(("bash", "sh", "dash", "ash", "mksh"))
"""Shells in which the tests run all pipelines (`ash` is BusyBox).

Not in the list because the tests failed: zsh, which sends output both into a file and down the
pipe, and ksh93, whose pipes are sockets.
"""
NOTES_SUFFIX = ".status"
"""What the name of the notes has beyond that of the copy that they lie beside."""
NOTES_BYTES = 4096
"""As many bytes of the notes are read."""
_UNITS = {"bash": 1024, "dash": 512, "ash": 512, "mksh": 512}
"""Bytes that `ulimit -f` counts in.

A `sh` may be any of these: it is given the larger unit, and keeps at least half.
"""


@frozen
class CapturePlan:
    """A command that leaves a copy behind. `command` has the form of the one that was given.

    `path` is the copy as the command sees it. `producer` and `filter` are the texts around the last
    pipe; `parts` is how many commands the producer's own pipeline has.
    """

    command: str | tuple[str, ...]
    path: str
    producer: str
    filter: str
    parts: int
    limit: int


@frozen
class NotCaptured:
    """Nothing is captured; `reason` completes "not captured: ..."."""

    reason: str


def plan_capture(
    command: str | Sequence[str], path: str, *, shell: str = "bash", limit: int = CAPTURE_LIMIT
) -> CapturePlan | NotCaptured:
    """Plan how `command` would run with a copy of its producer's output at `path`. Pure.

    Args:
        command: Text for `shell`, or the words of such a shell with `-c` and a text.
        path: Absolute path of the copy. It does not exist, and is in a folder that the command has
            no reason to list.
        shell: `bash`, `sh`, `dash`, `ash` or `mksh`.
        limit: Largest size of the copy in bytes, at least 1024.

    Raises:
        ValueError: The path is not absolute, or the limit is too small.
    """
    if not path.startswith("/") or limit < 1024:
        raise ValueError(
            f"a capture needs an absolute path and 1024 bytes, found {path!r} and {limit}"
        )
    try:
        if isinstance(command, str):
            return _plan(command, program_name(shell), path, limit)
        index = _find_text_index(command)
        plan = _plan(command[index], program_name(command[0]), path, limit)
    except NotCapturable as reason:
        return NotCaptured(str(reason))
    return replace(plan, command=(*command[:index], str(plan.command), *command[index + 1 :]))


def _find_text_index(words: Sequence[str]) -> int:
    """Return the index of the text in the words of `sh -c text`."""
    if not words or program_name(words[0]) not in _SHELLS:
        raise NotCapturable("it is run without a shell")
    expected = re.compile(r"--noprofile|--norc|--login|-[eul]+|-[eu]*o|pipefail")
    for index, word in enumerate(words[1:-1], 1):
        if re.fullmatch(r"-[eul]*c[eul]*", word):
            return index + 1
        if not expected.fullmatch(word):
            raise NotCapturable(f"`{word}` is an option of the shell that is not looked into")
    raise NotCapturable("its shell is given no text")


def _plan(text: str, shell: str, path: str, limit: int) -> CapturePlan:
    if shell not in _SHELLS:
        raise NotCapturable(f"how `{shell}` reads it was not checked")
    folder = os.path.dirname(path)  # noqa: PTH120  text of another system's view
    if folder != "/" and folder in text:
        raise NotCapturable(f"it names `{folder}`, where the copy would be")
    found = find_last_pipeline(text, bash=shell == "bash")
    rewritten = _Rewritten(text.encode(), found, path)
    tee = _tee_command(path, limit // _UNITS.get(shell, 1024))
    command = rewritten.with_codes(tee) if shell == "bash" else rewritten.with_group(tee)
    return CapturePlan(command, path, rewritten.producer, rewritten.filter, found.parts, limit)


class _Rewritten:
    """A text that is taken apart and put together with `tee` in it."""

    def __init__(self, source: bytes, found: Pipeline, path: str) -> None:
        self._before = source[: found.start].decode()
        self.producer = source[found.start : found.pipe].decode().strip()
        self.filter = source[found.pipe + 1 : found.end].decode().strip()
        self._after = source[found.end :].decode()
        self._simple = found.simple
        self._status = shlex.quote(_status_path(path))

    def with_codes(self, tee: str) -> str:
        # An EXIT trap would see `set -e` too, but a shell with a trap may miss a SIGTERM.
        # `(exit)`: `exit` itself would have a login shell read its logout file.
        succeeded = '__ferrule=(0 "${PIPESTATUS[@]}")'
        ended = '__ferrule=("$?" "${PIPESTATUS[@]}")'
        kept = f"&& {succeeded} || {ended}" if self._simple else f"; {ended}"
        note = (
            '{ printf parts; printf " %s" "${__ferrule[@]:1}"; '
            '[[ ! -o pipefail ]] || printf " pipefail"; echo; } '
            f"2>/dev/null >>{self._status} || :"
        )
        return (
            f"{self._before}{self.producer} | {tee} | {self.filter} {kept}; {note}; "
            '[[ ${__ferrule[0]} = 0 ]] || (exit "${__ferrule[0]}")'
        )

    def with_group(self, tee: str) -> str:
        # `set -e` would leave the group before the note is made, except behind `&&`: for single
        # commands that changes nothing else; in a compound command it would change what runs.
        kept = "&& __ferrule=0 || __ferrule=$?" if self._simple else "; __ferrule=$?"
        note = f'{{ echo "producer $__ferrule" >>{self._status}; }} 2>/dev/null || :'
        group = f'{{ {self.producer} {kept}; {note}; exit "$__ferrule"; }}'
        return f"{self._before}{group} | {tee} | {self.filter}{self._after}"


def _tee_command(path: str, blocks: int) -> str:
    """Return a part of a pipeline that copies up to a limit; its own status is always 0.

    `command` skips functions. Without a `tee` on the PATH the bytes are passed on by `cat`.
    """
    return (
        "{ set +e; umask 077; command trap '' XFSZ && ulimit -f " + str(blocks) + "; "
        f"command tee {shlex.quote(path)}; __ferrule=$?; "
        'case "$__ferrule" in 126|127) command -p cat;; esac; '
        f'echo "tee $__ferrule" >>{shlex.quote(_status_path(path))}; :; }} 2>/dev/null'
    )


def _status_path(path: str) -> str:
    return path + NOTES_SUFFIX


# ---- after the command has ended


def describe_copy(plan: CapturePlan, size: int, notes: bytes, path: str) -> dict[str, Any]:
    """Return what the model is told of a copy.

    Args:
        plan: The copy that `plan_copy` planned.
        size: Bytes in the copy.
        notes: What the shell wrote down beside it. A command can write there too: it is data.
        path: The copy's path for the model.

    Returns:
        `full_output_path`, `producer`, `filter`, `hint`, `producer_exit_code` (None: unknown),
        `bytes`, and `complete` (False: the copy ended before the output did).
    """
    read = _parse_notes(notes)
    code = _producer_status(read, plan)
    complete = read.get("tee") == ["0"]
    return {
        "full_output_path": path,
        "producer": plan.producer,
        "filter": plan.filter,
        "hint": _hint(size, code, complete),
        "producer_exit_code": code,
        "bytes": size,
        "complete": complete,
    }


def _hint(size: int, code: int | None, complete: bool) -> str:
    if complete:
        extent = f"all {size} bytes that the producer wrote are in this file"
    else:
        extent = (
            f"the first {size} bytes that the producer wrote are in this file, the rest was not "
            "kept"
        )
    failed = f"; the producer ended with status {code}" if code else ""
    return f"{extent}: read it instead of running the command again{failed}"


def _parse_notes(data: bytes) -> dict[str, list[str]]:
    lines = [line.split() for line in data.decode("ascii", "replace").splitlines()]
    return {words[0]: words[1:] for words in lines if words}


def _producer_status(notes: dict[str, list[str]], plan: CapturePlan) -> int | None:
    status = notes.get("producer")
    if status:
        return _parse_code(status[0])
    words = notes.get("parts", [])
    codes = [_parse_code(word) for word in words if word != "pipefail"]
    # The last two are the status of `tee` and of the filter.
    if len(codes) != plan.parts + 2 or None in codes:
        return None
    producer = codes[:-2]
    failed = [code for code in producer if code]
    if "pipefail" in words and failed:
        return failed[-1]
    return producer[-1]


def _parse_code(word: str) -> int | None:
    return int(word) if re.fullmatch(r"[0-9]{1,3}", word) else None
