"""From a call to a running command: every check in order, then the start.

This is the only way to a child process:

    arguments -> request -> folder -> words -> prefixes -> settings -> policy function -> person ->
    start

Nothing touches the disk before the last step. What a policy function changed goes back to the
first: through the session's own pipeline and gate if there is one, since the gate has judged other
arguments.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

from ferrule.core.calls import ErrorType, ToolCall, encode_json
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.approvals import ApprovalRequest, Approver, digest_arguments
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import GrantOffer
from ferrule.sandbox.command import Command, OutputSink, RunningCommand
from ferrule.sandbox.openings import Opening
from ferrule.sandbox.running_command import ProgramUnseen
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.context import SANDBOX_TOPIC, Context
from ferrule.tools.definition import Tool

from .output_copies import plan_copy
from .output_folding import fold_output
from .outputs import Outputs
from .pipe_status import plan_pipe_status
from .plan import (
    LIST_PROCESSES,
    SHELL_COMMAND,
    CommandPlan,
    check_plan,
    hide_text,
    make_printable,
    needs_shell,
    read_command,
)
from .policy import CommandOptions, CommandPolicy, find_prefix_violation
from .record import DisplayLimits, describe_progress, make_blocked_record
from .refused_access import OpeningAnswer, describe_refusals, list_offers
from .repositories import repository_hints
from .request import CommandRequest, parse_request, resolve_start_folder
from .session_commands import (
    MEMORY_KEY,
    CommandHandle,
    ProgressReports,
    SessionCommands,
    new_ids,
    owner_key,
)
from .shell_state import plan_recording
from .start import (
    decide_shell,
    find_executable,
    get_sandbox,
    make_environment,
    record_confinement,
)
from .verdict import ask_policy

_SHOW_SECONDS = 0.5
"""How often the person is shown the end of what a command has printed."""
_SHOWN_BYTES = 2_000
_KEPT_BYTES = 8_000
"""The end of an output that a command which was stopped leaves to the model and the person."""
_MAX_CHANGES = 3
_MAX_QUESTIONS = 5
"""Questions about openings that one call may ask, and so how often it is run again."""
_MAX_NOTED = 20
"""Refusals of one command that the journal lists."""
EXPLAINED_BYTES = 65_536
"""Bytes of an output, from its end, in which an explanation of a failure is looked for."""
_changes: ContextVar[int] = ContextVar("changes", default=0)
"""Number of times that policy functions have changed the request that is being judged."""


@frozen
class ReadyCommand:
    """A command that passed every check; it starts in `folder`, relative to the workspace."""

    request: CommandRequest
    planned: CommandPlan
    folder: str
    policy_context: Mapping[str, Any]


@frozen
class EarlyAnswer:
    """An answer without a start.

    It is the record of a blocked command, or (`finished`) the result of the request that a policy
    function put in its place, as the tool returned it.
    """

    value: Any
    finished: bool = False


def _add_openings(policy: CommandPolicy, context: Context) -> CommandPolicy:
    """Return the policy with what a person opened for the session."""
    commands = context.memory.get(MEMORY_KEY)
    if policy.confine is None or not isinstance(commands, SessionCommands):
        return policy
    return replace(policy, confine=commands.sandbox.openings.add_to(policy.confine))


def plan_request(
    given: Mapping[str, Any], context: Context, options: CommandOptions
) -> tuple[CommandRequest, CommandPlan, str]:
    """Return the request, the command to run and its folder.

    Raises:
        ToolFailed: The settings do not allow it.
    """
    policy = _add_openings(decide_shell(context), context)
    request, planned, folder = _read_request(given, context, options, policy)
    check_plan(planned, policy=policy, resources=context.resources, folder=folder)
    return request, planned, folder


def _read_request(
    given: Mapping[str, Any], context: Context, options: CommandOptions, policy: CommandPolicy
) -> tuple[CommandRequest, CommandPlan, str]:
    workspace = context.resource(Workspace)
    request = _choose_mode(parse_request(given, options, policy), policy, workspace)
    folder = resolve_start_folder(request, options, workspace)
    shell = request.mode == "shell"
    planned = read_command(request.command, shell=shell, workspace=workspace)
    return request, planned, folder


def _choose_mode(
    request: CommandRequest, policy: CommandPolicy, workspace: Workspace
) -> CommandRequest:
    """Return the request with `auto` decided: a shell for a text that needs one and may have it."""
    if request.mode != "auto":
        return request
    allowed = bool(policy.shell_allowed and request.text)
    shell = allowed and needs_shell(request.text, workspace)
    return replace(request, mode="shell" if shell else "argv")


async def prepare(
    given: Mapping[str, Any], context: Context, options: CommandOptions, tool: Tool
) -> ReadyCommand | EarlyAnswer:
    """Judge a request.

    Raises:
        ToolFailed: The settings do not allow it.
        ConfigError: A policy function returned a value that is not a verdict.
    """
    policy = _add_openings(decide_shell(context), context)
    workspace = context.resource(Workspace)
    request, planned, folder = _read_request(given, context, options, policy)
    if options.prefixes is not None:
        violation = find_prefix_violation(
            planned.argv, planned.analysis, options.prefixes, shell=planned.uses_shell
        )
        if violation:
            return EarlyAnswer(
                make_blocked_record(planned, violation, context.call_id, options.prefixes)
            )
    check_plan(planned, policy=policy, resources=context.resources, folder=folder)
    request = _with_words(request, planned)
    if options.command_policy is None:
        return ReadyCommand(request, planned, folder, {})
    verdict = await ask_policy(options.command_policy, request.describe(planned), given)
    if verdict.denial_reason:
        return EarlyAnswer(make_blocked_record(planned, verdict.denial_reason, context.call_id))
    if verdict.changed_arguments is not None:
        changed = parse_request(verdict.changed_arguments, options, policy)
        changed = _choose_mode(changed, policy, workspace)
        shell = changed.mode == "shell"
        words = read_command(changed.command, shell=shell, workspace=workspace)
        changed = _with_words(changed, words)
        if changed != request:
            return await _restart_with(changed, context, options, tool)
    if verdict.approval_reason:
        refusal = await ask_person(
            verdict.approval_reason, request, planned, context, options, tool
        )
        if refusal:
            return EarlyAnswer(make_blocked_record(planned, refusal, context.call_id))
    return ReadyCommand(request, planned, folder, verdict.context)


def _with_words(request: CommandRequest, planned: CommandPlan) -> CommandRequest:
    """Return the request with the words that would run.

    Text without a shell is only another spelling of these words.
    """
    return request if planned.uses_shell else replace(request, argv=planned.argv, text="")


async def _restart_with(
    request: CommandRequest, context: Context, options: CommandOptions, tool: Tool
) -> ReadyCommand | EarlyAnswer:
    """Run another request instead, through every check that judged this one."""
    if _changes.get() >= _MAX_CHANGES:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "the command was not run: the command policy keeps changing what it itself asked for",
        )
    token = _changes.set(_changes.get() + 1)
    try:
        if context.call is None:
            # There is no pipeline here, so none has judged the first request either.
            return await prepare(request.to_arguments(), context, options, tool)
        result = await context.call(options.catalog_name(tool.name), request.to_arguments())
    finally:
        _changes.reset(token)
    if not result.success:
        raise ToolFailed(
            result.error_type, result.error_message or "the changed command was not run"
        )
    return EarlyAnswer(result.data, finished=True)


async def ask_person(
    reason: str,
    request: CommandRequest,
    planned: CommandPlan,
    context: Context,
    options: CommandOptions,
    tool: Tool,
) -> str:
    """Ask the person a question that only the command's own tool can put.

    Returns:
        The reason why not, or empty if the answer was yes.
    """
    approver: Any = context.resources.get(Approver)
    if approver is None:
        return f"{reason}; this needs a person's yes and nobody can be asked"
    name = options.catalog_name(tool.name)
    arguments = request.to_arguments()
    answer = await approver.ask(
        ApprovalRequest(
            call=ToolCall(context.call_id, name, encode_json(arguments)),
            tool=tool,
            risk=str(tool.risk),
            reason=reason,
            labels=tuple(sorted(planned.analysis.labels)),
            preview=preview_command(request, planned),
            offers=(GrantOffer("once", ""),),
            digest=digest_arguments(name, arguments),
            identity=context.identity,
            values=arguments,
        )
    )
    if answer.choice != "deny":
        return ""
    return f"{reason}; the answer was no. {answer.note}".strip()


def preview_command(request: CommandRequest, planned: CommandPlan) -> str:
    """Describe the exact command line, where and how it would run, and its input."""
    line = make_printable(planned.text) if planned.uses_shell else planned.format_command_line()
    how = "in a shell" if planned.uses_shell else "without a shell"
    lines = [line, f"(in `{request.cwd or '.'}`, {how}, at most {request.timeout_ms / 1000:g} s)"]
    if request.background_after_ms is not None:
        wait = request.background_after_ms
        lines.append(f"(in the background {f'after {wait / 1000:g} s' if wait else 'at once'})")
    if request.env_mode == "replace":
        lines.append("with no variables but PATH and those that follow")
    lines += [f"with {name}={make_printable(value)}" for name, value in request.env.items()]
    if request.env_remove:
        lines.append(f"without {', '.join(request.env_remove)}")
    discarded: list[str] = []
    if not request.keep_stdout:
        discarded.append("output")
    if not request.keep_stderr:
        discarded.append("error")
    if discarded:
        lines.append(f"(standard {' and '.join(discarded)} is discarded)")
    if request.stdin:
        lines.append(f"standard input:\n{make_printable(request.stdin)}")
    return "\n".join(lines)


@frozen
class _Attempt:
    """A command that was started, or that could not be: the sandbox does not show its program."""

    handle: CommandHandle | None = None
    unseen: ProgramUnseen | None = None
    is_over: bool = True


async def run_ready_command(
    ready: ReadyCommand,
    context: Context,
    *,
    keep: int,
    copy: bool = False,
    carry: bool = False,
    honest: bool = False,
) -> CommandHandle:
    """Run a command that passed every check, to its end or into the background.

    If it fails after the sandbox refused it something, a person is asked to open that; after a yes
    it is run again, from its beginning. Arguments and errors are those of `launch`.
    """
    session = SessionCommands.from_context(context).sandbox
    opened_once: tuple[Opening, ...] = ()
    hints: list[str] = []
    while True:
        async with session.open_once(opened_once) as sandbox:
            attempt = await _attempt(
                ready, context, sandbox, keep=keep, copy=copy, carry=carry, honest=honest
            )
        is_last = len(hints) >= _MAX_QUESTIONS
        answer = None if is_last else await _ask_to_open(attempt, ready, context, opened_once)
        if answer is not None and answer.choice != "deny":
            if answer.choice == "once":
                opened_once = (*opened_once, answer.opening)
            hints.append(f"run again after a person opened {answer.opening.name}{answer.note}")
            continue
        if attempt.unseen is not None:
            raise attempt.unseen
        assert attempt.handle is not None
        if answer is not None:
            hints.append(f"not opened: {answer.note or 'a person said no'}")
        attempt.handle.hints += hints
        return attempt.handle


async def _attempt(
    ready: ReadyCommand,
    context: Context,
    sandbox: Sandbox | None,
    *,
    keep: int,
    copy: bool,
    carry: bool,
    honest: bool,
) -> _Attempt:
    try:
        handle = await launch(
            ready, context, keep=keep, copy=copy, carry=carry, honest=honest, sandbox=sandbox
        )
    except ProgramUnseen as error:
        return _Attempt(unseen=error)
    return _Attempt(handle, is_over=await wait_for_command(handle, ready.request, context))


async def _ask_to_open(
    attempt: _Attempt, ready: ReadyCommand, context: Context, opened: Sequence[Opening]
) -> OpeningAnswer | None:
    """Ask a person to open what the sandbox refused. None if there is nothing to ask, or nobody.

    `opened` was open for this attempt already.
    """
    session = SessionCommands.from_context(context).sandbox
    sandbox = session.current
    is_given = context.resources.get(Sandbox) is not None
    if sandbox is None or is_given or sandbox.is_busy:
        return None
    handle = attempt.handle
    if handle is None:
        refusals = attempt.unseen.refusals if attempt.unseen is not None else ()
        output = ""
    elif attempt.is_over and handle.ended is not None and handle.has_failed:
        refusals = handle.ended.refusals
        output = handle.outputs.combined.tail(EXPLAINED_BYTES)
    else:
        return None
    policy = CommandPolicy.from_context(context)
    applied = sandbox.policy
    for one in opened:
        applied = one.add_to(applied)
    opening = session.openings.find_askable(refusals, output, applied, policy.closed_folders)
    if opening is None:
        return None
    remember = policy.remember_opening
    offers = list_offers(
        opening,
        sandbox.policy.root,
        once=ready.request.background_after_ms is None,
        remember=remember is not None,
    )
    command = ready.planned.format_command_line()
    answer = await session.openings.ask(opening, command, context, sandbox.policy, offers)
    if answer is not None and answer.choice == "remember" and remember is not None:
        try:
            remember(opening)
        except ConfigError as error:
            return replace(answer, note=f" for this session: {error}")
    return answer


async def launch(
    ready: ReadyCommand,
    context: Context,
    *,
    keep: int,
    copy: bool = False,
    carry: bool = False,
    honest: bool = False,
    sandbox: Sandbox | None = None,
) -> CommandHandle:
    """Start a command that passed every check.

    Args:
        ready: The command.
        context: The context of the call that runs it.
        keep: Bytes of each output that stay in memory from its beginning, and as many from its end.
        copy: Whether to keep what a filter at the end of the command hides.
        sandbox: The sandbox to start it in; by default that of the session.
        carry: Whether the session's shell goes on where this command leaves it; not with `copy`.
        honest: Whether its pipelines answer for their producers (`pipe_status`); not with `copy`.

    Raises:
        ToolFailed: The command cannot start.
    """
    request = ready.request
    planned = ready.planned
    policy = CommandPolicy.from_context(context)
    workspace = context.resource(Workspace)
    environment = make_environment(request, policy, workspace, ready.folder)
    program = find_executable(planned, environment.values, workspace, policy)
    commands = SessionCommands.from_context(context)
    sandbox = sandbox or await get_sandbox(context, commands)
    record_confinement(context, sandbox, make_printable(program))
    words, collectors = _arrange(
        planned, sandbox, commands, str(workspace.root), copy=copy, carry=carry, honest=honest
    )
    variables = environment.values
    if _lists_processes(planned):
        words, variables = hide_text(words, variables)
    command_id, handle_id = new_ids()
    seconds = request.timeout_ms / 1000
    if request.background_after_ms is None and context.deadline is not None:
        seconds = min(seconds, max(0.1, context.deadline - 5))
    outputs = commands.create_outputs(
        command_id, keep=keep, limit=policy.output_bytes, merged=request.merge_stderr
    )
    directory = -1
    try:
        directory = workspace.open_descriptor(ready.folder)
        command = Command(
            words,
            program=program,
            directory=directory,
            environment=variables,
            output=outputs.take if request.keep_stdout else _discard,
            errors=_error_sink(request, outputs),
            stdin=request.stdin.encode("utf-8", "surrogateescape"),
            timeout=seconds,
            identity=context.identity,
        )

        def make_handle(running: RunningCommand) -> CommandHandle:
            handle = CommandHandle(
                owner_key(context.identity),
                context.call_id,
                planned,
                ready.folder,
                environment,
                seconds,
                outputs,
                running,
                command_id,
                handle_id,
                ready.policy_context,
            )
            if sandbox.policy.preview:
                handle.extra_fields["changes"] = []
            for collect in collectors:
                handle.end_callbacks.append(partial(collect, handle))
            handle.end_callbacks.append(
                lambda: handle.hints.extend(_explain(handle, workspace, sandbox))
            )
            handle.end_callbacks.append(lambda: _note_refusals(handle, context))
            return handle

        return await commands.start(sandbox, command, make_handle, max_running=policy.max_running)
    except BaseException:
        outputs.discard()
        raise
    finally:
        if directory >= 0:
            os.close(directory)


def _arrange(
    planned: CommandPlan,
    sandbox: Sandbox,
    commands: SessionCommands,
    root: str,
    *,
    copy: bool,
    carry: bool,
    honest: bool,
) -> tuple[tuple[str, ...], list[Callable[[CommandHandle], None]]]:
    """Return the words to start instead of the planned ones, and what to do when they have ended.

    The arguments are those of `launch`.
    """
    collectors: list[Callable[[CommandHandle], None]] = []
    if copy:
        arrangement = plan_copy(planned, sandbox, commands.folder)
        if arrangement is None:
            return planned.argv, []
        collectors.append(lambda handle: arrangement.collect(handle, commands.folder))
        return arrangement.argv, collectors
    started = planned
    pipes = plan_pipe_status(planned, sandbox, commands) if honest else None
    if pipes is not None:
        text = pipes.honest.text
        started = replace(planned, text=text, argv=(*SHELL_COMMAND, text))
        collectors.append(lambda handle: pipes.collect(handle, sandbox, commands))
    recorder = plan_recording(started, sandbox, commands.folder, root) if carry else None
    if recorder is None:
        return started.argv, collectors
    collectors.append(lambda handle: recorder.collect(handle, commands))
    return recorder.argv, collectors


def _lists_processes(planned: CommandPlan) -> bool:
    parts = planned.analysis.parts
    return planned.uses_shell and any(part.wrapped_program in LIST_PROCESSES for part in parts)


def _note_refusals(handle: CommandHandle, context: Context) -> None:
    """Note in the journal what the sandbox saw and refused."""
    refusals = handle.ended.refusals if handle.ended is not None else ()
    if refusals:
        listed = [f"{one.access} {make_printable(one.target)}" for one in refusals[:_MAX_NOTED]]
        more = f" and {len(refusals) - _MAX_NOTED} more" if len(refusals) > _MAX_NOTED else ""
        context.note(SANDBOX_TOPIC, f"{handle.call_id}: refused {', '.join(listed)}{more}")


def _explain(handle: CommandHandle, workspace: Workspace, sandbox: Sandbox) -> list[str]:
    """Explain what the sandbox refused a command that has ended."""
    ended = handle.ended
    if ended is None:
        return []
    hints = repository_hints(ended.refused_names, workspace) if ended.refused_names else []
    refused = {one.target for one in ended.refusals if one.access == "write"}
    hints += _describe_lost_writes(handle, sandbox, refused)
    failed = handle.has_failed
    if failed or ended.refusals:
        output = handle.outputs.combined.tail(EXPLAINED_BYTES)
        folder = str(workspace.root / handle.folder)
        hints += describe_refusals(ended.refusals, output, sandbox, folder, failed=failed)
    return hints


def _describe_lost_writes(handle: CommandHandle, sandbox: Sandbox, refused: set[str]) -> list[str]:
    """Say which files outside exist for the session's commands alone: those not refused."""
    if sandbox.protections().backend not in ("namespaces", "bubblewrap", "container"):
        return []
    written = sandbox.policy.writable
    places = [
        finding.place
        for finding in handle.plan.analysis.findings
        if finding.is_written
        and finding.place
        and finding.place not in refused
        and not finding.place.startswith("/tmp/")
        and not any(f"{finding.place}/".startswith(f"{folder}/") for folder in written)
    ]
    return [
        f"`{make_printable(place)}` is only in the commands' own folders: outside the sandbox "
        "nothing was written"
        for place in dict.fromkeys(places)
    ]


def _error_sink(request: CommandRequest, outputs: Outputs) -> OutputSink | None:
    if request.merge_stderr:
        return None
    return outputs.take_error if request.keep_stderr else _discard


def _discard(data: bytes) -> bool:
    """Discard an output that nobody wants. A sink."""
    return True


async def wait_for_command(
    handle: CommandHandle, request: CommandRequest, context: Context
) -> bool:
    """Wait for a command as its request says.

    A call that is cancelled while it waits ends the command too.

    Returns:
        False if the command goes on in the background, from where it reports.
    """
    commands = SessionCommands.from_context(context)
    after = request.background_after_ms
    try:
        seconds = None if after is None else after / 1000
        if seconds != 0 and await _wait_and_show(handle, seconds, context):
            return True
    except asyncio.CancelledError:
        await commands.kill(handle)
        context.keep_printed(_end_of_output(handle, _KEPT_BYTES))
        raise
    inline = request.progress_max_inline_bytes
    reports = ProgressReports(
        request.progress_interval_ms / 1000,
        context.tell,
        context.tell_end,
        lambda reported: describe_progress(reported, inline),
    )
    commands.report(handle, reports)
    return handle.has_ended


async def _wait_and_show(handle: CommandHandle, seconds: float | None, context: Context) -> bool:
    """Wait as `CommandHandle.wait`, and show the person the end of the output meanwhile."""
    shown = 0
    left = math.inf if seconds is None else seconds
    while left > 0:
        if await handle.wait(min(left, _SHOW_SECONDS)):
            return True
        left -= _SHOW_SECONDS
        size = handle.outputs.combined.size
        if size != shown:
            shown = size
            context.show_tail(_end_of_output(handle, _SHOWN_BYTES))
    return handle.has_ended


def _end_of_output(handle: CommandHandle, most: int) -> str:
    """Return the last lines of an output, as a terminal leaves them."""
    return fold_output(handle.outputs.combined.tail(most))[0].rstrip("\n")


def make_display_limits(context: Context, options: CommandOptions, inline: int) -> DisplayLimits:
    """Return how much of an output a result of this run may show."""
    room = CommandPolicy.from_context(context).result_bytes
    return DisplayLimits(inline, room, options.catalog_name("read_command_output"))
