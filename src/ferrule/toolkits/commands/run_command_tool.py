"""`run_command` in its plain form: the built-in one, with few parameters and readable text.

The full form (`full_command_tools.py`) has all that requirement 001 asks for and returns a record.
Both use the same runner. Only this one goes on where the last command left the shell
(`shell_state`).
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.engine.threads import run_blocking
from ferrule.engine.usable_tools import UsableTools
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.command_analysis.reading_commands import only_reads
from ferrule.permissions.command_variables import is_harmless
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.files.patch_tool import find_command_patch, run_patch
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import COMMAND, READS
from ferrule.tools.result_facts import store_facts

from .confinement import find_confinement
from .jobs import read_job_command, run_job_command, split_background
from .output_files import keep_output
from .output_folding import cut_to_lines, fold_output
from .output_reduction import reduce_output
from .plan import CommandPlan
from .policy import MAX_TIMEOUT, CommandOptions, CommandPolicy
from .record import format_output, list_notices, make_result_facts
from .request import CommandRequest
from .runner import ReadyCommand, ask_person, plan_request, preview_command, run_ready_command
from .session_commands import MEMORY_KEY, CommandHandle, SessionCommands, ShellState, owner_key
from .start import decide_shell, get_sandbox

_PROGRESS_MS = 3_600_000
"""Only the end of a command in the background is told; `wait` returns what it has written."""
MAX_SHOWN = 16 * 1024
"""Bytes of an output that are shown."""
_PLAIN = CommandOptions()


def _request(values: Mapping[str, Any], policy: CommandPolicy, shell: ShellState) -> dict[str, Any]:
    """Translate the arguments of the plain form into those of the full one."""
    timeout = values.get("timeout")
    # A server lives as long as a command may, or until it is ended.
    usual = MAX_TIMEOUT if values.get("background") else policy.timeout
    seconds = usual if timeout is None else timeout
    problem = _timeout_problem(seconds)
    if problem:
        raise RetryCall(problem)
    return {
        "command": values["command"],
        "mode": "auto",
        "cwd": values.get("cwd") or shell.folder,
        "env": dict(shell.variables),
        "env_remove": list(shell.removed),
        "stdin": values.get("stdin", ""),
        "timeout_ms": round(seconds * 1000),
        "capture": {"merge_stderr": True},
        "background": bool(values.get("background")),
        "progress_interval_ms": _PROGRESS_MS,
    }


def _find_shell(values: Mapping[str, Any], context: Context) -> ShellState:
    """Return the state that a command would start with."""
    found = context.memory.get(MEMORY_KEY)
    if values.get("restart") or not isinstance(found, SessionCommands):
        return ShellState()
    # Safe mode lets no call set variables.
    safe = CommandPolicy.from_context(context).safe_mode.on
    return replace(found.shell, variables={}, removed=()) if safe else found.shell


def _leave_missing_folder(values: Mapping[str, Any], context: Context) -> None:
    """Leave the folder where the last `cd` led, if it is gone.

    Nothing is run elsewhere instead: the call was judged as one that starts there.

    Raises:
        ToolFailed: It is gone (`not_found`); the next command starts in the nearest one above.
    """
    shell = _find_shell(values, context)
    if values.get("cwd") or shell.folder in ("", "."):
        return
    workspace = context.resource(Workspace)
    folder = shell.folder
    while folder not in ("", ".") and not _is_folder(workspace, folder):
        folder = posixpath.dirname(folder)
    if folder == shell.folder:
        return
    commands = SessionCommands.from_context(context)
    commands.shell = replace(commands.shell, folder=folder or ".")
    _follow_folder(context)
    raise ToolFailed(
        ErrorType.NOT_FOUND,
        f"nothing was run: {quote_path(shell.folder)}, where the last `cd` led, is gone; the next "
        f"command starts in {quote_path(folder or '.')}",
    )


def _is_folder(workspace: Workspace, folder: str) -> bool:
    try:
        return workspace.stat(folder).kind == "dir"
    except ToolFailed as error:
        return error.error_type is not ErrorType.NOT_FOUND


def _follow_folder(context: Context) -> None:
    """Have the gate judge the next command from the folder where it will start."""
    usable = context.resources.get(UsableTools)
    if isinstance(usable, UsableTools):
        found = SessionCommands.from_context(context).shell.folder
        folder = "" if found == "." else found
        usable.start_in(run_command, folder, ("cwd", "restart"))


async def _preview(values: Mapping[str, Any], context: Any) -> str:
    """Show the exact command line and where it would run."""
    patch = find_command_patch(values["command"])
    if patch is not None:
        return patch[0]
    request, planned, folder = _plan(values, context)
    return preview_command(replace(request, cwd=folder), planned)


def _plan(values: Mapping[str, Any], context: Context) -> tuple[CommandRequest, CommandPlan, str]:
    policy = CommandPolicy.from_context(context)
    shell = _find_shell(values, context)
    return plan_request(_request(values, policy, shell), context, _PLAIN)


async def _settle_variables(
    values: Mapping[str, Any], request: CommandRequest, planned: CommandPlan, context: Context
) -> tuple[CommandRequest, str]:
    """Return the request with the variables of the shell that it may have, and a note on the rest.

    The command is judged as the line that sets them and then runs it. What rules do not cover is
    asked about once; after a no it runs without them. Whoever was asked about this call has seen
    them in its preview.
    """
    commands = SessionCommands.from_context(context)
    usable = context.resources.get(UsableTools)
    new = {
        name: value
        for name, value in request.env.items()
        if not is_harmless(name) and commands.agreed_variables.get(name) != value
    }
    if not new or not isinstance(usable, UsableTools):
        return request, ""
    if usable.decide(run_command, values).verdict != "allow":
        return request, ""
    command = values["command"]
    text = command if isinstance(command, str) else shlex.join(command)
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in new.items())
    decision = usable.decide(run_command, {**values, "command": f"export {exports}\n{text}"})
    if decision.verdict == "allow":
        return request, ""
    names = ", ".join(f"`{name}`" for name in new)
    refusal = decision.reason
    if decision.verdict == "ask":
        reason = f"earlier commands have set {names}: {decision.reason}"
        refusal = await ask_person(reason, request, planned, context, _PLAIN, run_command)
    if not refusal:
        commands.agreed_variables.update(new)
        return request, ""
    kept = {name: value for name, value in request.env.items() if name not in new}
    note = f"it ran without {names}, which earlier commands have set: no rule covers it with them"
    return replace(request, env=kept), note


def runs_with_others(values: Mapping[str, Any]) -> bool:
    """Whether a call only reads and leaves the session's shell as it is."""
    command = values.get("command", values.get("commands"))
    changes_shell = any(values.get(name) for name in ("background", "is_background", "restart"))
    if changes_shell or not isinstance(command, (str, list)) or split_background(command):
        return False
    # Of `commands`, each is a line of its own.
    texts = cast("list[str | list[str]]", command if "commands" in values else [command])
    analyses = [analyse_command(text) for text in texts]
    return all(
        only_reads(analysis) and all(part.program != "cd" for part in analysis.parts)
        for analysis in analyses
    )


def _impossible(values: Mapping[str, Any]) -> list[str]:
    problem = _timeout_problem(values.get("timeout"))
    return [problem] if problem else []


def _timeout_problem(seconds: float | None) -> str:
    if seconds is None or 0.001 <= seconds <= MAX_TIMEOUT:
        return ""
    return f"`timeout` must be from 0.001 to {MAX_TIMEOUT} seconds, found {seconds}"


@tool(
    side_effect="execute",
    risk="high",
    timeout=MAX_TIMEOUT + 60,
    parallel=runs_with_others,
    preview=_preview,
    impossible=_impossible,
    inline=True,
    confined_by=find_confinement,
)
async def run_command(
    command: Annotated[
        str | list[str],
        COMMAND,
        "A command line for bash: `cd web && npm test 2>&1 | tail -20`; or a program and its "
        'arguments as a list, which no shell reads: ["grep", "-n", "a|b", "x.py"].',
    ],
    context: Context,
    timeout: Annotated[
        float | None, "Seconds after which it is ended, up to 3600 (default 300)."
    ] = None,
    cwd: Annotated[
        str, READS, "Folder of the workspace to start in. Default: where the last `cd` led."
    ] = "",
    stdin: Annotated[str, "Text for its standard input."] = "",
    background: Annotated[
        bool, "Do not wait for its end, as `&` does. Later: `jobs`, `wait %1`, `kill %1`."
    ] = False,
    restart: Annotated[
        bool, "Before it starts, end those in the background and forget folder and variables."
    ] = False,
) -> str:
    """Run a command in the workspace and return its output, followed by its exit status if that is
    not 0.

    Folder and exported variables live on in the next call. It gets no secrets from the environment,
    has no terminal, and all that it starts ends with it.
    """
    policy = CommandPolicy.from_context(context)
    job = read_job_command(command)
    commands = SessionCommands.from_context(context)
    if job is not None and (not job.pattern or job.find(commands.jobs)):
        told = await run_job_command(job, commands, owner_key(context.identity), timeout)
        if not job.rest:
            return told
        rest = await run_command(
            job.rest, context, timeout, cwd, stdin, background=background, restart=restart
        )
        return f"{told}\n{rest}"
    before_ampersand = split_background(command)
    if before_ampersand is not None and decide_shell(context).shell_allowed:
        command = before_ampersand
        background = True
    values = {
        "command": command,
        "timeout": timeout,
        "cwd": cwd,
        "stdin": stdin,
        "background": background,
        "restart": restart,
    }
    patched = await apply_command_patch(command, context, cwd)
    if patched is not None:
        return patched
    _leave_missing_folder(values, context)
    request, planned, folder = _plan(values, context)
    request, note = await _settle_variables(values, request, planned, context)
    if restart:
        await commands.restart_shell()
    handle = await run_ready_command(
        ReadyCommand(request, planned, folder, {}),
        context,
        keep=policy.kept_bytes,
        carry=not background,
        honest=True,
    )
    if background and not handle.has_ended:
        commands.add_job(handle)
    if note:
        handle.hints.append(note)
    try:
        # Scripts run lists of words, and get each byte of the output.
        return await _answer(handle, context, fold=isinstance(command, str))
    finally:
        _follow_folder(context)
        # The files have the output; a session of many commands must not hold all of it in memory.
        if handle.has_ended:
            handle.outputs.shrink(_PLAIN.max_inline_bytes)


async def apply_command_patch(
    command: str | Sequence[str], context: Context, cwd: str = ""
) -> str | None:
    """Apply the patch that a command hands to `apply_patch`; None: it does nothing of the kind.

    Its paths start where the command would.
    """
    patch = find_command_patch(command)
    if patch is None:
        return None
    start = cwd or _find_shell({}, context).folder
    return await run_patch(patch[0], context, posixpath.normpath(f"{start}/{patch[1]}"))


async def _show(handle: CommandHandle, context: Context) -> str:
    """Return what a model is shown of an output, folded and reduced to failures.

    If lines are left out, a hint names the file that has them all.
    """
    stream = handle.outputs.combined
    text, left_out = fold_output(stream.text())
    if left_out:
        handle.hints.append(f"{left_out}; `> FILE` keeps an output whole")
    reduced = reduce_output(text)
    if reduced is not None:
        handle.hints.append(reduced.left_out)
    whole = text if reduced is None else reduced.text
    shown = cut_to_lines(whole, MAX_SHOWN, 0 if left_out or reduced else stream.line_count)
    if reduced is not None or shown is not whole:
        commands = SessionCommands.from_context(context)
        sandbox = await get_sandbox(context, commands)
        path = await run_blocking(lambda: keep_output(stream, sandbox, commands))
        if path:
            handle.hints.append(f"all {stream.line_count} lines: {path}")
    return shown


async def _answer(handle: CommandHandle, context: Context, *, fold: bool) -> str:
    store_facts(context, make_result_facts(handle, handle.outputs.combined.text()))
    handle.shown_bytes = handle.outputs.combined.size
    if fold and handle.has_ended:
        text = await _show(handle, context)
    else:
        text = handle.outputs.combined.text()
    if handle.status != "timed_out":
        return format_output(handle, text)
    output = f"output until then:\n{text}" if text else "there was no output"
    raise ToolFailed(
        ErrorType.TIMEOUT,
        f"`{handle.plan.format_command_line()[:200]}` was ended after {handle.timeout_seconds:g} "
        f"s, and all it "
        "had started; what it did "
        f"until then stands. {' '.join([*list_notices(handle, text), output])}",
    )
