"""The result of a command: the record of requirement 001, and the readable text for a model.

The record fits into a result: its texts are shortened until it does, and each says where the rest
is. Its fields:

    command_id, handle_id, status (completed, running, timed_out, killed, blocked), success
    (completed with exit status 0), pid, process_group_id, started_at, ended_at (ms since 1970),
    duration_ms, exit_code (-1 if a signal ended it), signal, timed_out, stdout, stderr,
    output_path, stdout_path, stderr_path, line_count, byte_count, output_sha256, sandbox {kind,
    enforced, not_enforced}, audit_id (the call's id), policy_context; if there is something to
    say: cut_outputs {stdout, stderr: their whole size in bytes}, process_cleanup {left, alive},
    output_incomplete, notes; of a preview: changes [{path, kind (created, changed, deleted),
    size}], changes_left_out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.child_environment import ChildEnvironment
from ferrule.sandbox.command import CommandResult

from .plan import CommandPlan, make_printable
from .policy import CommandOptions
from .session_commands import CommandHandle

_MAX_NAMES = 12
_EXPANDED = compile_lazily(r"\$\{?([A-Za-z_]\w*)")
_LINKS_WORKTREE = compile_lazily(r"(?:^|/)worktrees/[^/]+/(?:gitdir|commondir)$")
_NO_WORKTREE = (
    "no command links a worktree, since its files say which repository a folder uses: ask the "
    "person to run `git worktree add`, or work in a copy (`git clone -q . /tmp/NAME`) and fetch "
    "from it (`git fetch /tmp/NAME BRANCH:BRANCH`)"
)
_MAX_CHANGES = 1000
"""Most changes of a preview that a record lists."""
_LONG_TEXT = 32 * 1024
_SPARE_BYTES = 512
"""Bytes of a result that are left for what others add to it."""


@frozen
class DisplayLimits:
    """How much is shown.

    `inline_bytes` of each output, `record_bytes` for the whole record; the tool `reader` reads the
    rest.
    """

    inline_bytes: int
    record_bytes: int
    reader: str = "read_command_output"


def make_record(handle: CommandHandle, limits: DisplayLimits) -> dict[str, Any]:
    """Return the record of a command in its present state."""
    inline = limits.inline_bytes
    changes = _MAX_CHANGES
    while True:
        record = _make_record(handle, inline, changes, limits.reader)
        size = len(encode_json(record).encode("utf-8", "replace")) + _SPARE_BYTES
        if size <= limits.record_bytes or inline == changes == 0:
            return record
        if inline:
            inline = min(inline * 3 // 4, inline * limits.record_bytes // size)
        else:
            changes //= 2


def _make_record(handle: CommandHandle, inline: int, changes: int, reader: str) -> dict[str, Any]:
    ended = handle.ended
    outputs = handle.outputs
    running = handle.running
    where = f"; `{reader}` with command_id {handle.command_id} reads them"
    stdout = outputs.stdout.text(inline, where)
    stderr = "" if outputs.stdout is outputs.combined else outputs.stderr.text(inline, where)
    record: dict[str, Any] = {
        "command_id": handle.command_id,
        "handle_id": handle.handle_id,
        "status": handle.status,
        "success": handle.status == "completed" and ended is not None and ended.exit_code == 0,
        "exit_code": get_exit_code(handle),
        "signal": (ended.signal or None) if ended else None,
        "timed_out": handle.status == "timed_out",
        "stdout": stdout,
        "stderr": stderr,
        "output_path": outputs.combined.path,
        "stdout_path": outputs.stdout.path,
        "stderr_path": outputs.stderr.path,
        "line_count": outputs.combined.line_count,
        "byte_count": outputs.combined.size,
        "output_sha256": outputs.combined.digest,
        "pid": running.pid,
        "process_group_id": running.process_group,
        "started_at": handle.started_at,
        "ended_at": handle.ended_at,
        "duration_ms": handle.elapsed_ms,
        "sandbox": running.protections.as_record(),
        "audit_id": handle.call_id,
        "policy_context": dict(handle.policy_context),
        **handle.extra_fields,
    }
    cut = _cut_outputs(handle, inline)
    if cut:
        record["cut_outputs"] = cut
    if "output_capture" in record:
        record["output_capture"] = _add_reader(record["output_capture"], reader)
    if outputs.incomplete:
        record["output_incomplete"] = outputs.incomplete
    if ended is not None:
        _add_end(record, handle, ended, changes)
    return record


def _add_end(
    record: dict[str, Any], handle: CommandHandle, ended: CommandResult, changes: int
) -> None:
    """Add what is known of a command that has ended."""
    if ended.leftover_processes or ended.surviving_processes:
        record["process_cleanup"] = {
            "left": list(ended.leftover_processes[:_MAX_NAMES]),
            "alive": list(ended.surviving_processes[:_MAX_NAMES]),
        }
    has_changes = "changes" in record
    if has_changes:
        record |= _list_preview(ended, changes)
    notes = list_hints(handle, ended, record["stdout"] + record["stderr"], listed=has_changes)
    if notes:
        record["notes"] = notes


def _cut_outputs(handle: CommandHandle, inline: int) -> dict[str, int]:
    """Return the outputs that are shown in part, by name, with their whole size."""
    outputs = handle.outputs
    streams = {"stdout": outputs.stdout}
    if outputs.stdout is not outputs.combined:
        streams["stderr"] = outputs.stderr
    return {name: stream.size for name, stream in streams.items() if stream.is_cut(inline)}


def _add_reader(capture: dict[str, Any], reader: str) -> dict[str, Any]:
    """Add the tool that reads a copy to its hint: no other tool can reach the copy."""
    hint = f"{capture['hint']}; `{reader}` with `path` reads it"
    return {**capture, "hint": hint}


def _list_preview(ended: CommandResult, most: int) -> dict[str, Any]:
    shown = [
        {"path": change.name, "kind": change.kind, "size": change.size}
        for change in ended.changes[:most]
    ]
    left_out = len(ended.changes) - len(shown)
    if not left_out and not ended.changes_truncated:
        return {"changes": shown}
    # Changes that the preview itself did not list are not counted: there may be more.
    return {
        "changes": shown,
        "changes_left_out": f"at least {left_out}" if ended.changes_truncated else left_out,
    }


def get_exit_code(handle: CommandHandle) -> int | None:
    """Return the exit status; -1 if a signal ended it or nobody knows, None while it runs."""
    if not handle.has_ended:
        return None
    if handle.ended is None or handle.status == "killed" or handle.ended.exit_code is None:
        return -1
    return handle.ended.exit_code


def make_blocked_record(
    planned: CommandPlan, reason: str, call_id: str, allowed: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """Return the record of a command that was not run."""
    record: dict[str, Any] = {
        "status": "blocked",
        "blocked": True,
        "success": False,
        "reason": make_printable(reason),
        "argv": list(planned.argv),
        "audit_id": call_id,
    }
    if planned.uses_shell:
        record["command"] = planned.text
    if allowed:
        record["allowed_argv_prefixes"] = [list(prefix) for prefix in allowed]
    return record


def describe_progress(handle: CommandHandle, inline: int) -> str:
    """Describe the state or the end of a command in the background.

    With the last `inline` bytes of its output.
    """
    known_as = f"%{handle.job}" if handle.job else handle.command_id
    name = f"`{handle.plan.format_command_line()[:200]}` ({known_as})"
    state = "is still running" if not handle.has_ended else describe_end(handle)
    size = handle.outputs.combined.size
    text = f"{name} {state} after {handle.elapsed_ms / 1000:.1f} s with {size} bytes of output"
    tail = handle.outputs.combined.tail(inline)
    return f"{text}; the end of it:\n{tail}" if tail else text


def describe_end(handle: CommandHandle) -> str:
    """Describe how a command ended."""
    if handle.failure is not None:
        return f"failed: {handle.failure}"
    if handle.status == "timed_out":
        return f"was ended by its timeout after {handle.timeout_seconds:g} s"
    if handle.status == "killed" or handle.ended is None:
        return "was killed"
    signal = handle.ended.signal
    return f"was ended by {signal}" if signal else f"ended with exit status {get_exit_code(handle)}"


def format_output(handle: CommandHandle, text: str) -> str:
    """Format an output for a model: the text, and how it ended if that is not status 0."""
    return "".join(_split_around_output(handle, text))


def make_result_facts(handle: CommandHandle, text: str) -> dict[str, Any]:
    """Return how a command ended, for the program that called the tool (`tools.result_facts`).

    `before` and `after` are what `display` puts around the output, `ending` the line end that it
    leaves out between them.
    """
    before, body, after = _split_around_output(handle, text)
    code = get_exit_code(handle)
    return {
        "exit_code": -1 if code is None else code,
        "timed_out": handle.status == "timed_out",
        "before": before,
        "after": after,
        "ending": text[len(body) :],
    }


def _split_around_output(handle: CommandHandle, text: str) -> tuple[str, str, str]:
    """Return the text before an output, the output, and the text after it."""
    if not handle.has_ended:
        name = f"%{handle.job}" if handle.job else handle.command_id
        ways = f"; `wait {name}`, `kill {name}`" if handle.job else ""
        state = (
            f"[running in the background as {name}; {handle.outputs.combined.size} "
            f"bytes of output so far{ways}]"
        )
        if not text:
            return "", "", state
        return "", text.removesuffix("\n"), f"\n{state}"
    lines = list_notices(handle, text)
    if handle.status in ("timed_out", "killed"):
        others = [line for line in lines if not line.startswith(("[ended by", "[exit"))]
        lines = [f"[{describe_end(handle)}]", *others]
    nothing = "" if text else "(no output)"
    if not lines:
        return nothing, text, ""
    if len(text) > _LONG_TEXT:
        # A text longer than a result may be is cut at its end, and the status must not be cut off.
        return "\n".join([*lines, ""]), text, ""
    return nothing, text.removesuffix("\n"), "\n".join(["", *lines])


def list_notices(handle: CommandHandle, text: str) -> list[str]:
    """Return the lines after an output: how it ended if not with status 0, and what to know."""
    ended = handle.ended
    if ended is None:
        return []
    found: list[str] = []
    if ended.exit_code and not ended.timed_out:
        found.append(f"[exit status {ended.exit_code}]")
    elif ended.signal and not ended.timed_out:
        found.append(f"[ended by {ended.signal}]")
    elif ended.exit_code is None and not ended.timed_out:
        found.append("[exit status unknown]")
    if ended.leftover_processes:
        found.append(
            f"[ended what it had left running: {', '.join(ended.leftover_processes[:_MAX_NAMES])}; "
            "to keep it, start it in the background by a call of its own]"
        )
    if ended.surviving_processes:
        found.append(
            f"[may still be running: {', '.join(ended.surviving_processes[:_MAX_NAMES])}; check "
            f"before doing "
            "it again]"
        )
    return [*found, *(f"[{hint}]" for hint in list_hints(handle, ended, text))]


def list_hints(
    handle: CommandHandle, ended: CommandResult, text: str, *, listed: bool = False
) -> list[str]:
    """Return what may explain a failure, and what was withheld.

    With `listed`, what a preview changed is listed elsewhere.
    """
    planned = handle.plan
    found: list[str] = []
    failed = bool(ended.exit_code != 0 or handle.failed_producers) and not ended.timed_out
    if failed and planned.literal_globs:
        globs = ", ".join(
            f"`{make_printable(word)}`" for word in planned.literal_globs[:_MAX_NAMES]
        )
        found.append(f"{globs} was passed as it is: without a shell nothing expands it")
    names = _missed_variables(planned.text, text, handle.environment) if failed else []
    if names:
        shown = ", ".join(names[:_MAX_NAMES])
        found.append(
            f"not passed on from the environment: {shown}; a person can allow them by name"
        )
    if ended.refused_names:
        shown = ", ".join(f"`{make_printable(name)}`" for name in ended.refused_names[:_MAX_NAMES])
        found.append(f"not created, as no tool may: {shown}")
        if any(map(_LINKS_WORKTREE.search, ended.refused_names)):
            found.append(_NO_WORKTREE)
    if ended.git_hooks:
        ran = ", ".join(make_printable(name) for name in ended.git_hooks)
        found.append(f"hooks of the repository ran, confined like the command: {ran}")
    if ended.changes and listed:
        found.append("a preview: nothing was changed; `changes` lists what would be")
    elif ended.changes:
        found.append(f"a preview: nothing was changed; it would be {_list_changes(ended)}")
    return [*found, *handle.hints]


def _list_changes(ended: CommandResult) -> str:
    changes = [
        f"`{make_printable(change.name)}` {change.kind}" for change in ended.changes[:_MAX_NAMES]
    ]
    more = f" and {len(ended.changes) - _MAX_NAMES} more" if len(ended.changes) > _MAX_NAMES else ""
    return ", ".join(changes) + more


def _missed_variables(command: str, text: str, environment: ChildEnvironment) -> list[str]:
    """Return withheld variables that a failed command may have missed: it or its output names them.

    `command` is the text that a shell has read.
    """
    expanded = " ".join(_EXPANDED.findall(command))
    return list(environment.find_mentioned(f"{expanded} {text}"))


def render_record(
    record: dict[str, Any], options: CommandOptions, display: Callable[[], str] | None = None
) -> Any:
    """Return a record in the form that the options ask for."""
    if options.output_format == "value":
        return record
    if options.output_format == "display" and display is not None:
        return display()
    if options.output_format == "display":
        return str(record.get("reason") or encode_json(record))
    return encode_json(record)
