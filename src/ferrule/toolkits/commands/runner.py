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
import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from ferrule.core.calls import Call, ErrorType, compact
from ferrule.core.errors import ToolFailed
from ferrule.permissions.approvals import ApprovalRequest, Approver, digest
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.gate import Offer
from ferrule.sandbox.command import Command, Running, Sink
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .output_copies import arrange
from .outputs import Outputs
from .plan import Planned, check, printable, read
from .policy import CommandOptions, CommandPolicy, beyond_prefixes
from .record import Showing, blocked, news_of
from .repositories import repository_hints
from .request import Request, parse, starting_folder
from .session_commands import Commands, Handle, Reports, fresh_ids, owner
from .start import environment_of, program_of, record_confined, sandbox_of
from .verdict import judge

_MAX_CHANGES = 3
_changes: ContextVar[int] = ContextVar("changes", default=0)
"""Number of times that policy functions have changed the request that is being judged."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A command that passed every check; it starts in `folder`, relative to the workspace."""

    request: Request
    planned: Planned
    folder: str
    policy_context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer without a start.

    It is the record of a blocked command, or (`finished`) the result of the request that a policy
    function put in its place, as the tool returned it.
    """

    value: Any
    finished: bool = False


def plan_of(
    given: Mapping[str, Any], context: Context, options: CommandOptions
) -> tuple[Request, Planned, str]:
    """Return the request, the command to run and its folder.

    Raises:
        ToolFailed: The settings do not allow it.
    """
    request, planned, folder = _read_request(given, context, options)
    check(
        planned,
        policy=CommandPolicy.of(context),
        workspace=context.resource(Workspace),
        folder=folder,
    )
    return request, planned, folder


def _read_request(
    given: Mapping[str, Any], context: Context, options: CommandOptions
) -> tuple[Request, Planned, str]:
    workspace = context.resource(Workspace)
    request = parse(given, options, CommandPolicy.of(context))
    folder = starting_folder(request, options, workspace)
    planned = read(request.command, shell=request.shell, workspace=workspace)
    return request, planned, folder


async def prepare(
    given: Mapping[str, Any], context: Context, options: CommandOptions, tool: Tool
) -> Ready | Answered:
    """Judge a request.

    Raises:
        ToolFailed: The settings do not allow it.
        ConfigError: A policy function returned a value that is not a verdict.
    """
    policy = CommandPolicy.of(context)
    workspace = context.resource(Workspace)
    request, planned, folder = _read_request(given, context, options)
    if options.prefixes is not None:
        violation = beyond_prefixes(
            planned.argv, planned.analysis, options.prefixes, shell=planned.shell
        )
        if violation:
            return Answered(blocked(planned, violation, context.call_id, options.prefixes))
    check(planned, policy=policy, workspace=workspace, folder=folder)
    request = _with_words(request, planned)
    if options.command_policy is None:
        return Ready(request, planned, folder, {})
    verdict = await judge(options.command_policy, request.described(planned), given)
    if verdict.denied:
        return Answered(blocked(planned, verdict.denied, context.call_id))
    if verdict.changed is not None:
        changed = parse(verdict.changed, options, policy)
        words = read(changed.command, shell=changed.shell, workspace=workspace)
        changed = _with_words(changed, words)
        if changed != request:
            return await _restart_with(changed, context, options, tool)
    if verdict.ask:
        refusal = await _ask_person(verdict.ask, request, planned, context, options, tool)
        if refusal:
            return Answered(blocked(planned, refusal, context.call_id))
    return Ready(request, planned, folder, verdict.context)


def _with_words(request: Request, planned: Planned) -> Request:
    """Return the request with the words that would run.

    Text without a shell is only another spelling of these words.
    """
    return request if planned.shell else replace(request, argv=planned.argv, text="")


async def _restart_with(
    request: Request, context: Context, options: CommandOptions, tool: Tool
) -> Ready | Answered:
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
            return await prepare(request.arguments(), context, options, tool)
        result = await context.call(options.called(tool.name), request.arguments())
    finally:
        _changes.reset(token)
    if not result.success:
        raise ToolFailed(
            result.error_type, result.error_message or "the changed command was not run"
        )
    return Answered(result.data, finished=True)


async def _ask_person(
    reason: str,
    request: Request,
    planned: Planned,
    context: Context,
    options: CommandOptions,
    tool: Tool,
) -> str:
    """Ask the person the question of a policy function.

    Returns:
        The reason why not, or empty if the answer was yes.
    """
    approver: Any = context.resources.get(Approver)
    if approver is None:
        return f"{reason}; this needs a person's yes and nobody can be asked"
    name = options.called(tool.name)
    arguments = request.arguments()
    answer = await approver.ask(
        ApprovalRequest(
            call=Call(context.call_id, name, compact(arguments)),
            tool=tool,
            risk=str(tool.risk),
            reason=reason,
            labels=tuple(sorted(planned.analysis.labels)),
            preview=preview_of(request, planned),
            offers=(Offer("once", ""),),
            digest=digest(name, arguments),
            identity=context.identity,
            values=arguments,
        )
    )
    if answer.choice != "deny":
        return ""
    return f"{reason}; the answer was no. {answer.note}".strip()


def preview_of(request: Request, planned: Planned) -> str:
    """Describe the exact command line, where and how it would run, and its input."""
    line = printable(planned.text) if planned.shell else planned.shown()
    how = "in a shell" if planned.shell else "without a shell"
    lines = [line, f"(in `{request.cwd or '.'}`, {how}, at most {request.timeout_ms / 1000:g} s)"]
    if request.background_after_ms is not None:
        lines.append(f"(in the background after {request.background_after_ms} ms)")
    if request.env_mode == "replace":
        lines.append("with no variables but PATH and those that follow")
    lines += [f"with {name}={printable(value)}" for name, value in request.env.items()]
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
        lines.append(f"standard input:\n{printable(request.stdin)}")
    return "\n".join(lines)


async def launch(ready: Ready, context: Context, *, keep: int, copy: bool = False) -> Handle:
    """Start a command that passed every check.

    Args:
        keep: Bytes of each output that stay in memory from its beginning, and as many from its end.
        copy: Whether to keep what a filter at the end of the command hides.

    Raises:
        ToolFailed: The command cannot start.
    """
    request = ready.request
    planned = ready.planned
    policy = CommandPolicy.of(context)
    workspace = context.resource(Workspace)
    environment = environment_of(request, policy, workspace, ready.folder)
    program = program_of(planned, environment.values, workspace, policy)
    commands = Commands.of(context)
    sandbox = await sandbox_of(context, commands)
    record_confined(context, sandbox, printable(program))
    arrangement = arrange(planned, sandbox, commands.folder) if copy else None
    command_id, handle_id = fresh_ids()
    seconds = request.timeout_ms / 1000
    if request.background_after_ms is None and context.deadline is not None:
        seconds = min(seconds, max(0.1, context.deadline - 5))
    outputs = commands.outputs(
        command_id, keep=keep, limit=policy.output_bytes, merged=request.merge_stderr
    )
    directory = -1
    try:
        directory = workspace.descriptor(ready.folder)
        command = Command(
            planned.argv if arrangement is None else arrangement.argv,
            program=program,
            directory=directory,
            environment=environment.values,
            output=outputs.take if request.keep_stdout else _discard,
            errors=_error_sink(request, outputs),
            stdin=request.stdin.encode("utf-8", "surrogateescape"),
            timeout=seconds,
            identity=context.identity,
        )

        def make_handle(running: Running) -> Handle:
            handle = Handle(
                owner(context.identity),
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
            if sandbox.policy is not None and sandbox.policy.preview:
                handle.added["changes"] = []
            handle.when_over.append(lambda: handle.hints.extend(_explain(handle, workspace)))
            collect = arrangement.collect if arrangement is not None else None
            if collect is not None:
                handle.when_over.append(lambda: collect(handle, commands.folder))
            return handle

        return await commands.start(sandbox, command, make_handle, most=policy.most_running)
    except BaseException:
        outputs.discard()
        raise
    finally:
        if directory >= 0:
            os.close(directory)


def _explain(handle: Handle, workspace: Workspace) -> list[str]:
    refused = handle.ended.refused if handle.ended is not None else ()
    return repository_hints(refused, workspace) if refused else []


def _error_sink(request: Request, outputs: Outputs) -> Sink | None:
    if request.merge_stderr:
        return None
    return outputs.take_error if request.keep_stderr else _discard


def _discard(data: bytes) -> bool:
    """Discard an output that nobody wants. A sink."""
    return True


async def see(handle: Handle, request: Request, context: Context) -> bool:
    """Wait for a command as its request says.

    A call that is cancelled while it waits ends the command too.

    Returns:
        False if the command goes on in the background, from where it reports.
    """
    commands = Commands.of(context)
    after = request.background_after_ms
    try:
        if after is None:
            return await handle.wait()
        if after and await handle.wait(after / 1000):
            return True
    except asyncio.CancelledError:
        await commands.kill(handle)
        raise
    inline = request.progress_max_inline_bytes
    reports = Reports(
        request.progress_interval_ms / 1000,
        context.tell,
        lambda reported: news_of(reported, inline),
    )
    commands.report(handle, reports)
    return handle.over


def showing_of(context: Context, options: CommandOptions, inline: int) -> Showing:
    """Return how much of an output a result of this run may show."""
    room = CommandPolicy.of(context).result_bytes
    return Showing(inline, room, options.called("read_command_output"))
