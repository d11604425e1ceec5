"""From a call to a running command: every check in its order, then the start. The one way to a
child process.

    arguments -> request -> folder -> words -> prefixes -> settings -> policy function -> person ->
    start

Nothing touches the disk before the last step, and what a policy function changed goes back to the
first: through the session's own pipeline and gate where there is one, since the gate has judged
other arguments.
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
from ferrule.permissions.approval_digest import digest
from ferrule.permissions.approvals import ApprovalRequest, Approver
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

_MOST_CHANGES = 3
_changes: ContextVar[int] = ContextVar("changes", default=0)
"""How often policy functions have changed the request that is being judged."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A command that passed every check. `folder` is where it starts, relative to the workspace."""

    request: Request
    planned: Planned
    folder: str
    policy_context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """What the answer is without a start: the record of what was blocked; or, `finished`, what came
    of the request that a policy function put in its place, as the tool answered it.
    """

    value: Any
    finished: bool = False


def plan_of(
    given: Mapping[str, Any], context: Context, options: CommandOptions
) -> tuple[Request, Planned, str]:
    """The request, the words that would run and the folder. Raises ToolFailed for what the settings
    do not allow.
    """
    request, planned, folder = _read(given, context, options)
    check(
        planned,
        policy=CommandPolicy.of(context),
        workspace=context.resource(Workspace),
        folder=folder,
    )
    return request, planned, folder


def _read(
    given: Mapping[str, Any], context: Context, options: CommandOptions
) -> tuple[Request, Planned, str]:
    workspace = context.resource(Workspace)
    request = parse(given, options, CommandPolicy.of(context))
    folder = starting_folder(request, options, workspace)
    return request, read(request.command, shell=request.shell, workspace=workspace), folder


async def prepare(
    given: Mapping[str, Any], context: Context, options: CommandOptions, tool: Tool
) -> Ready | Answered:
    """Judge a request. Raises ToolFailed for what the settings do not allow, ConfigError for a
    policy function that answers nonsense.
    """
    policy, workspace = CommandPolicy.of(context), context.resource(Workspace)
    request, planned, folder = _read(given, context, options)
    if options.prefixes is not None:
        why = beyond_prefixes(planned.argv, planned.analysis, options.prefixes, shell=planned.shell)
        if why:
            return Answered(blocked(planned, why, context.call_id, options.prefixes))
    check(planned, policy=policy, workspace=workspace, folder=folder)
    request = _in_words(request, planned)
    if options.command_policy is None:
        return Ready(request, planned, folder, {})
    verdict = await judge(options.command_policy, request.described(planned), given)
    if verdict.denied:
        return Answered(blocked(planned, verdict.denied, context.call_id))
    if verdict.changed is not None:
        changed = parse(verdict.changed, options, policy)
        words = read(changed.command, shell=changed.shell, workspace=workspace)
        if (changed := _in_words(changed, words)) != request:
            return await _again(changed, context, options, tool)
    if verdict.ask and (no := await _asked(verdict.ask, request, planned, context, options, tool)):
        return Answered(blocked(planned, no, context.call_id))
    return Ready(request, planned, folder, verdict.context)


def _in_words(request: Request, planned: Planned) -> Request:
    """The same request with the words that would run: text without a shell is another spelling of
    them.
    """
    return request if planned.shell else replace(request, argv=planned.argv, text="")


async def _again(
    request: Request, context: Context, options: CommandOptions, tool: Tool
) -> Ready | Answered:
    """Run another request in place of this one, through everything that judged this one."""
    if _changes.get() >= _MOST_CHANGES:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            "the command was not run: the command policy keeps changing what it itself asked for",
        )
    token = _changes.set(_changes.get() + 1)
    try:
        if context.call is None:
            # No pipeline is around us, so none has judged the first request either.
            return await prepare(request.arguments(), context, options, tool)
        result = await context.call(options.called(tool.name), request.arguments())
    finally:
        _changes.reset(token)
    if not result.success:
        raise ToolFailed(
            result.error_type, result.error_message or "the changed command was not run"
        )
    return Answered(result.data, finished=True)


async def _asked(
    reason: str,
    request: Request,
    planned: Planned,
    context: Context,
    options: CommandOptions,
    tool: Tool,
) -> str:
    """Put the question of a policy function to the person. Why not, or empty for a yes."""
    approver: Any = context.resources.get(Approver)
    if approver is None:
        return f"{reason}; this needs a person's yes and nobody can be asked"
    name, arguments = options.called(tool.name), request.arguments()
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
    return "" if answer.choice != "deny" else f"{reason}; the answer was no. {answer.note}".strip()


def preview_of(request: Request, planned: Planned) -> str:
    """The exact command line, where and how it would run, and what it would be given."""
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
    if dropped := [
        n
        for n, kept in (("output", request.keep_stdout), ("error", request.keep_stderr))
        if not kept
    ]:
        lines.append(f"(standard {' and '.join(dropped)} is thrown away)")
    if request.stdin:
        lines.append(f"standard input:\n{printable(request.stdin)}")
    return "\n".join(lines)


async def launch(ready: Ready, context: Context, *, keep: int, copy: bool = False) -> Handle:
    """Start a command that passed every check. `keep` bytes of each output stay at hand from its
    beginning, and as many from its end. With `copy`, what a filter at its end hides is kept too.
    Raises ToolFailed if it cannot start.
    """
    request, planned = ready.request, ready.planned
    policy, workspace = CommandPolicy.of(context), context.resource(Workspace)
    environment = environment_of(request, policy, workspace, ready.folder)
    program = program_of(planned, environment.values, workspace, policy)
    commands = Commands.of(context)
    sandbox = await sandbox_of(context, commands)
    record_confined(context, sandbox, printable(program))
    taken = arrange(planned, sandbox, commands.folder) if copy else None
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
            planned.argv if taken is None else taken.argv,
            program=program,
            directory=directory,
            environment=environment.values,
            output=outputs.take if request.keep_stdout else _dropped,
            errors=_errors(request, outputs),
            stdin=request.stdin.encode("utf-8", "surrogateescape"),
            timeout=seconds,
            identity=context.identity,
        )

        def handle(running: Running) -> Handle:
            made = Handle(
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
                made.added["changes"] = []
            made.when_over.append(lambda: made.hints.extend(_explained(made, workspace)))
            if (collect := taken and taken.collect) is not None:
                made.when_over.append(lambda: collect(made, commands.folder))
            return made

        return await commands.start(sandbox, command, handle, most=policy.most_running)
    except BaseException:
        outputs.discard()
        raise
    finally:
        if directory >= 0:
            os.close(directory)


def _explained(handle: Handle, workspace: Workspace) -> list[str]:
    refused = handle.ended.refused if handle.ended is not None else ()
    return repository_hints(refused, workspace) if refused else []


def _errors(request: Request, outputs: Outputs) -> Sink | None:
    if request.merge_stderr:
        return None
    return outputs.take_error if request.keep_stderr else _dropped


def _dropped(data: bytes) -> bool:
    """A sink for an output that nobody wants."""
    return True


async def see(handle: Handle, request: Request, context: Context) -> bool:
    """Wait for a command as its request says. False if it goes on in the background, from where it
    reports.

    A call that is cancelled while it waits takes the command with it.
    """
    commands, after = Commands.of(context), request.background_after_ms
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
        request.progress_interval_ms / 1000, context.tell, lambda h: news_of(h, inline)
    )
    commands.report(handle, reports)
    return handle.over


def showing_of(context: Context, options: CommandOptions, inline: int) -> Showing:
    """How much of an output a result of this run may show."""
    room = CommandPolicy.of(context).result_bytes
    return Showing(inline, room, options.called("read_command_output"))
