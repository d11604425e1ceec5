"""The dispatcher: the one pipeline and the one gate that every tool call passes through.

    evaluate   1 resolve  2 rights  3 parse  4 validate  5 policy          no I/O, never raises
               6 approval                                                  the driver asks a person
    execute    7 pre hooks  8 handler under the reliability policy  9 validate the result
               10 post hooks  11 bound                                     one Result, never raises
               12 record                                                   the driver writes the
               journal

No handler, hook or other I/O runs before step 5 has allowed the call, and `execute` refuses a call
that was not allowed. An approval is bound to the digest of the arguments: a hook that changes them
sends the call back for another decision.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol, cast

from ferrule.core.calls import ErrorType, ToolCall, ToolResult, decode_arguments
from ferrule.core.errors import ConfigError, FerruleError, JournalError, ToolFailed
from ferrule.core.events import EXCLUSIVE, CallEvaluated, CallHooked
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP
from ferrule.core.media import MediaReference, has_media
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import Refuser
from ferrule.permissions.rule_evaluation import Decision, PermissionGate, digest_arguments
from ferrule.tools.background_launch import Launch
from ferrule.tools.catalog import Catalog
from ferrule.tools.chunked_output import Chunks
from ferrule.tools.context import Context
from ferrule.tools.definition import Loading, Risk, SideEffect, Tool, misfit_notice

from . import rewind, timeouts_and_retries, tool_search
from .artifacts.large_results import ArtifactIntake, cut_chunks
from .clock import Clock, SystemClock
from .hooks.broken_guards import log_broken_guard
from .hooks.call_hooks import Answer, Ask, Block, Change, Hook
from .result_bounds import Bounded, bound_text
from .stopping import STOP_SECONDS, check_stop, get_stop
from .threads import run_blocking

_LOGGER = logging.getLogger("ferrule.tools")
_MOST_PROBLEMS = 8
MAX_CAUSES = 5
"""Causes of one error that are kept, the nearest first."""
MAX_CAUSE_CHARACTERS = 300
_CHANGES_FILES = (SideEffect.WRITE, SideEffect.EXECUTE)


@frozen
class PreparedCall:
    """A call after step 5. `tool` is None if the call was refused before a tool was found."""

    call: ToolCall
    evaluation: CallEvaluated
    tool: Tool | None = None
    values: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    decision: Decision | None = None
    approval_reason: str = ""
    """Why a hook requires a person's approval, whatever the rules allow."""
    start: str = ""
    """The folder, relative to the workspace, in which the gate took its command to start."""
    changes: int = 0
    """How often what a person was shown had changed when the approved call was about to run."""


class ResultMedia(Protocol):
    """Keeps pictures and the like that tools return (`engine.session_media`)."""

    async def take_result(self, value: object) -> tuple[object, tuple[MediaReference, ...]]: ...


@frozen
class CallSurroundings:
    """What a session puts around its calls. All of it stays the same while the session lasts.

    Attributes:
        is_by_model: Tells by a call's id whether a model made the call. Only a model must have been
            shown a deferred tool before it calls it.
        tool_discovery: Knows which deferred tools the model was shown; None if there are none.
        artifact_intake: Keeps large results as artifacts. Without it they are cut.
        file_copies: Keeps copies of files before a call overwrites them.
        open_media: Opens what keeps pictures and the like that tools return.
        enter_scope: Sets context variables for a run or a call, and returns what unsets them.
        parallel: Whether calls of a turn may run together.
        hides_errors: Whether the text of exceptions that nobody foresaw is kept from the model, in
            the log.
        stop_seconds: How long a stopped handler may take to end.
    """

    is_by_model: Callable[[str], bool] = lambda call_id: False
    tool_discovery: tool_search.ToolDiscovery | None = None
    artifact_intake: ArtifactIntake | None = None
    file_copies: rewind.FileCopies | None = None
    open_media: Callable[[], ResultMedia] | None = None
    enter_scope: Callable[[Identity, str], Callable[[], None]] | None = None
    parallel: bool = True
    hides_errors: bool = False
    stop_seconds: float = STOP_SECONDS


NO_SURROUNDINGS = CallSurroundings()


class Dispatcher:
    """Takes tool calls through the pipeline.

    Args:
        catalog: The tools that can be called.
        gate: Decides about each call.
        hooks: Hooks around calls, in their order.
        scopes: The scopes that this run's identity has; a tool that needs others is refused.
        cap: Limit of a result's text in bytes.
        clock: The clock to use; by default the system's.
        surroundings: What the session puts around its calls.
    """

    def __init__(
        self,
        catalog: Catalog,
        gate: PermissionGate,
        *,
        hooks: Sequence[Hook] = (),
        scopes: frozenset[str] = frozenset(),
        cap: int = OUTPUT_CAP,
        clock: Clock | None = None,
        surroundings: CallSurroundings = NO_SURROUNDINGS,
    ) -> None:
        self.catalog = catalog
        self.gate = gate
        self._hooks = tuple(hooks)
        self._scopes = scopes
        self._cap = min(cap, OUTPUT_CAP)
        self.artifact_intake = surroundings.artifact_intake
        self.file_copies = surroundings.file_copies
        self.open_media = surroundings.open_media
        self.tool_discovery = surroundings.tool_discovery
        self.enter_scope = surroundings.enter_scope
        self.stop_seconds = surroundings.stop_seconds
        self._parallel = surroundings.parallel
        self._hides_errors = surroundings.hides_errors
        self._is_by_model = surroundings.is_by_model
        self._handler_cap = self._cap
        if self.artifact_intake is not None and hooks:
            # Hooks see a result before it is kept, and up to this size it is not cut for them.
            self._handler_cap = self.artifact_intake.hook_limit
        self._clock = clock or SystemClock()

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The hooks around calls, in their order."""
        return self._hooks

    def change_hooks(self, hooks: Sequence[Hook]) -> None:
        """Put these hooks around calls, from the next one on."""
        self._hooks = tuple(hooks)

    def change_gate(self, gate: PermissionGate) -> None:
        """Have another gate decide, from the next call on."""
        self.gate = gate

    # ---- steps 1 to 5

    def evaluate(self, call: ToolCall) -> PreparedCall:
        """Take a call through steps 1 to 5: resolve, rights, parse, validate, policy.

        A refusal carries its result.
        """
        try:
            tool = self.catalog.get(call.tool)
            if tool is None:
                return self._refuse(call, ErrorType.NOT_FOUND, self._explain_unknown(call.tool))
            if self._is_by_model(call.id):
                unseen = self.explain_unseen(call.tool, tool)
                if unseen:
                    return self._refuse(call, ErrorType.NOT_FOUND, unseen)
            missing_scopes = tool.scopes - self._scopes
            if missing_scopes:
                named = ", ".join(sorted(missing_scopes))
                message = f"`{call.tool}` needs the scope {named}"
                return self._refuse(call, ErrorType.PERMISSION_DENIED, message, refused_by="gate")
            arguments, repairs = parse_arguments(call.arguments)
            return self._judge(call, tool, arguments, repairs)
        except ToolFailed as error:
            message = f"`{call.tool}`: {error.message}"
            return self._refuse(call, error.error_type, message, refused_by=error.refused_by)
        except Exception as error:  # noqa: BLE001  boundary: a call that cannot be judged is refused (fail closed)
            message = f"`{call.tool}` was not run: it could not be judged: {_describe_error(error)}"
            return self._refuse(call, ErrorType.INTERNAL_ERROR, message)

    def _judge(
        self, call: ToolCall, tool: Tool, arguments: Mapping[str, Any], repairs: list[str]
    ) -> PreparedCall:
        """Take a call through steps 4 and 5: validate the arguments, and ask the gate."""
        checked = tool.arguments.check(arguments)
        impossible = checked.problems or tool.find_problems(checked.values)
        if impossible:
            problems = _join_problems(impossible)
            return self._refuse(call, ErrorType.VALIDATION_FAILED, f"`{call.tool}`: {problems}")
        decision = self.gate.decide(tool, checked.values)
        if decision.verdict == "deny":
            return self._refuse(
                call,
                ErrorType.PERMISSION_DENIED,
                f"`{call.tool}` was not run: {decision.reason}",
                decision,
                tool=tool,
                refused_by=decision.refuser,
            )
        repairs.extend(checked.repairs)
        # A digest binds an approval, or the announcement of an effect, to these arguments. An
        # allowed read has neither.
        reads_only = tool.side_effect in (SideEffect.NONE, SideEffect.READ)
        needs_digest = decision.verdict != "allow" or not reads_only
        evaluation = CallEvaluated(
            call.id,
            decision.verdict,
            decision.reason,
            decision.rule,
            digest_arguments(tool.full_name, checked.values) if needs_digest else "",
            tool.side_effect,
            tool.risk,
            tool.access(checked.values) if self._parallel else EXCLUSIVE,
            tool.polls,
            None,
            decision.layer,
            self.gate.mode,
        )
        notes = (f"[note: {_join_problems(repairs)[:2000]}]",) if repairs else ()
        start = self.gate.find_start(tool, checked.values)
        return PreparedCall(call, evaluation, tool, checked.values, notes, decision, start=start)

    def has_moved(self, prepared: PreparedCall) -> bool:
        """Whether its command would start in another folder than it was judged for.

        An earlier command of the same answer may have changed it.
        """
        if prepared.tool is None or prepared.values is None:
            return False
        return self.gate.find_start(prepared.tool, prepared.values) != prepared.start

    def _explain_unknown(self, name: str) -> str:
        # Only what this run may use: an error message must not disclose the rest.
        usable = {tool.full_name for tool in self.catalog if self.is_usable(tool)}
        known = f"there are: {', '.join(sorted(usable)[:20]) or 'none'}"
        suggestion = suggest_names(name, usable, known, count=3, cutoff=0.5)
        return f"there is no tool `{name}`; {suggestion}"

    def explain_unseen(self, name: str, tool: Tool) -> str:
        """Explain why a model may not call a tool that it has not been shown yet.

        Returns:
            The reason, or "" if the call is fine. A tool that this run may not use is reported as
            unknown, so that the message does not disclose it.
        """
        if tool.loading is Loading.INTERNAL:
            return self._explain_unknown(name)
        if self.tool_discovery is None or not self.tool_discovery.is_deferred(tool):
            return ""
        if not self.is_usable(tool):
            return self._explain_unknown(name)
        return self.tool_discovery.refusal(tool)

    def is_usable(self, tool: Tool) -> bool:
        """Whether this run may use the tool and know that it exists."""
        return self.gate.is_usable(tool, self._scopes)

    def _refuse(
        self,
        call: ToolCall,
        error: ErrorType,
        message: str,
        decision: Decision | None = None,
        *,
        tool: Tool | None = None,
        refused_by: Refuser | Literal[""] = "",
    ) -> PreparedCall:
        """Build a prepared call that will not run, with the result that says why.

        With `tool` the record has what the call would have done, as for a call that runs.
        """
        result = self._fail(call, error, message, refused_by=refused_by)
        evaluation = CallEvaluated(
            call.id,
            "refuse",
            result.error_message or "",
            decision.rule if decision else "",
            effect=tool.side_effect if tool else SideEffect.NONE,
            risk=tool.risk if tool else Risk.MEDIUM,
            result=result,
            layer=decision.layer if decision else "",
            mode=self.gate.mode,
        )
        return PreparedCall(call, evaluation, decision=decision)

    # ---- steps 7 to 11

    async def execute(self, prepared: PreparedCall, context: Context) -> ToolResult | PreparedCall:
        """Take an allowed or approved call through steps 7 to 11: hooks, handler, result.

        Returns:
            The result; or another `PreparedCall` if a hook changed the call so that it needs a new
            approval.
        """
        tool = prepared.tool
        call = prepared.call
        if tool is None or prepared.values is None or prepared.evaluation.verdict == "refuse":
            return prepared.evaluation.result or ToolResult.refusal(call, "gate", "refused")
        answered: Answer | None = None
        if self._hooks:
            passed = await self._ask_hooks(tool, prepared, context)
            if not isinstance(passed, tuple):
                return passed
            prepared, answered = passed
            # A hook may have swallowed that the call was stopped.
            check_stop()
        started = self._clock.monotonic()
        if answered is not None:
            result = await self._answer_by_hook(answered, call, started)
        elif self.file_copies is not None and tool.side_effect in _CHANGES_FILES:
            result = await self._invoke_with_copies(
                self.file_copies, tool, prepared, context, started
            )
        else:
            result = await self._invoke(tool, prepared, context, started)
        if context.launched:
            return result
        for hook in self._hooks:
            result = await self._after(hook, tool, result, context)
        if self.artifact_intake is not None and self._hooks:
            result = await self._keep_after_hooks(self.artifact_intake, tool, result, context)
        if answered is not None and self.tool_discovery is not None:
            self.tool_discovery.on_call_answered(call, tool, result)
        return result

    async def _ask_hooks(
        self, tool: Tool, prepared: PreparedCall, context: Context
    ) -> tuple[PreparedCall, Answer | None] | PreparedCall | ToolResult:
        """Ask the hooks before a call.

        Returns:
            The call as they left it, with an answer that one of them gave; another `PreparedCall`
            if it needs an approval, or the result of a call that must not run.
        """
        approved = prepared.evaluation.digest if prepared.approval_reason else None
        asked = ""
        answered: Answer | None = None
        for hook in self._hooks:
            said = await self._before(hook, prepared, context)
            if isinstance(said, ToolResult):
                return said
            if isinstance(said, Answer):
                answered = said
                break
            if isinstance(said, Ask):
                asked = asked or said.reason
            elif said is not None:
                if not _may_run(said, prepared):
                    return said.evaluation.result or said
                prepared = said
                asked = asked or prepared.approval_reason
        if asked and prepared.values is not None:
            current = digest_arguments(tool.full_name, prepared.values)
            if current != approved:
                return require_approval(prepared, current, asked)
        return prepared, answered

    async def _invoke_with_copies(
        self,
        copies: rewind.FileCopies,
        tool: Tool,
        prepared: PreparedCall,
        context: Context,
        started: float,
    ) -> ToolResult:
        """Run the handler, after keeping copies of the files that it may change."""
        assert prepared.values is not None
        invoke = partial(self._invoke, tool, prepared, context, started)
        return await copies.around(tool, prepared.values, context, invoke)

    async def _before(
        self, hook: Hook, prepared: PreparedCall, context: Context
    ) -> ToolResult | PreparedCall | Ask | Answer | None:
        """Ask one hook before the call. A hook that fails blocks it."""
        assert prepared.tool is not None and prepared.values is not None
        call = prepared.call
        try:
            # A copy: a change in place would run without having been checked.
            answer = await hook.before(prepared.tool, deepcopy(dict(prepared.values)), context)
            if isinstance(answer, Change):
                judged = self._judge(call, prepared.tool, answer.arguments, [])
                changed = _apply_change(hook, prepared, judged, answer)
                if changed is not None:
                    # Journaled before anything follows: what runs is not what was asked for.
                    context.record(changed)
                return replace(judged, approval_reason=answer.ask)
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001  boundary: a broken hook blocks (fail closed)
            log_broken_guard(f"the hook `{_hook_name(hook)}`", call.id, error)
            answer = Block(f"a hook failed: {_describe_error(error)}")
        if isinstance(answer, Block):
            context.record(CallHooked(call.id, _hook_name(hook), "block", answer.reason))
            message = f"`{call.tool}` was not run: {answer.reason}"
            return self._fail(call, ErrorType.PERMISSION_DENIED, message, refused_by="hook")
        if isinstance(answer, Answer):
            context.record(CallHooked(call.id, _hook_name(hook), "answer"))
        return answer

    async def _answer_by_hook(self, answer: Answer, call: ToolCall, started: float) -> ToolResult:
        """Return the result that a hook has somebody else produce, instead of the tool."""
        try:
            given = ToolResult(call.id, call.tool, True, timestamp=self._read_clock())
            return self._bound_hook_result(replace(given, data=await answer.produce()), given)
        except ToolFailed as error:
            message = f"`{call.tool}` was not run: {error.message}"
            return self._fail(call, error.error_type, message, started, refused_by=error.refused_by)
        except (Exception, SystemExit) as error:  # noqa: BLE001  boundary: whatever is raised is one result
            return self._fail(
                call, ErrorType.INTERNAL_ERROR, f"`{call.tool}`: {_describe_error(error)}", started
            )

    async def _after(
        self, hook: Hook, tool: Tool, result: ToolResult, context: Context
    ) -> ToolResult:
        """Ask one hook about the result. A hook that fails withholds it."""
        try:
            changed = await hook.after(tool, result, context)
            if changed is None:
                return result
            why = "" if changed.success else changed.error_message or ""
            context.record(CallHooked(result.call_id, _hook_name(hook), "result", why))
            return self._bound_hook_result(changed, result)
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001  boundary: a hook that cannot check a result withholds it
            log_broken_guard(f"the hook `{_hook_name(hook)}`", result.call_id, error)
            message = f"the result was withheld: a hook failed: {_describe_error(error)}"
            context.record(CallHooked(result.call_id, _hook_name(hook), "result", message))
            return replace(
                result,
                success=False,
                data=None,
                error_type=ErrorType.INTERNAL_ERROR,
                error_message=message,
            )

    async def _invoke(
        self, tool: Tool, prepared: PreparedCall, context: Context, started: float
    ) -> ToolResult:
        """Run the handler under the reliability policy and bound its value: steps 8, 9 and 11."""
        call = prepared.call
        try:
            kept, notes, media = await self._run_handler(tool, prepared, context)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody stopped this call: something the handler waited for was cancelled. That is a
            # failure of the handler.
            return self._fail(call, ErrorType.CANCELLED, f"`{call.tool}` cancelled itself", started)
        except timeouts_and_retries.HandlerExited as error:
            return self._fail_by_error(call, error.__cause__ or error, started)
        except (Exception, SystemExit) as error:  # noqa: BLE001  boundary: whatever a handler raises is one result
            return self._fail_by_error(call, error, started)
        return ToolResult(
            call.id,
            call.tool,
            True,
            kept.data,
            duration_ms=int((self._clock.monotonic() - started) * 1000),
            size=kept.size,
            timestamp=self._read_clock(),
            partial=kept.partial,
            notes=(*kept.notes, *notes),
            media=media,
        )

    async def _run_handler(
        self, tool: Tool, prepared: PreparedCall, context: Context
    ) -> tuple[Bounded, tuple[str, ...], tuple[MediaReference, ...]]:
        """Run a tool; return its bounded value, notes on the call and on the value, and media."""
        values = prepared.values
        assert values is not None
        notes = prepared.notes
        media: tuple[MediaReference, ...] = ()
        attempt = _attempt(tool, values, context)
        if self.enter_scope is not None:
            attempt = partial(_start_in_scope, self.enter_scope, context, attempt)
        value = await timeouts_and_retries.run_with_policy(
            tool, attempt, self._clock, context, self.stop_seconds
        )
        if isinstance(value, Launch):
            value = self._launch(tool, value, prepared.call, context)
        elif self.open_media is not None and has_media(value):
            value, media = await self.open_media().take_result(value)
        else:
            value, found = _encode(tool, value)
            notes = (*notes, *found)
        if isinstance(value, Chunks):
            return await self._gather(tool, value, context, notes), notes, media
        kept = _bounded_value(tool, value, self._handler_cap)
        intake = self.artifact_intake
        if intake is not None and kept.size >= intake.min_checked_size and not self._hooks:
            kept = await intake.keep(tool, value, kept, context.identity, notes)
        return kept, notes, media

    def _fail_by_error(self, call: ToolCall, error: BaseException, started: float) -> ToolResult:
        """Return the result of a call whose tool raised an error."""
        result = self._describe_failure(call, error, started)
        # Where errors are hidden the log has the causes, with everything else.
        return result if self._hides_errors else replace(result, cause=_describe_causes(error))

    def _describe_failure(self, call: ToolCall, error: BaseException, started: float) -> ToolResult:
        if isinstance(error, ToolFailed):
            failed = self._fail(
                call, error.error_type, error.message, started, refused_by=error.refused_by
            )
            if error.data is None:
                return failed
            return replace(failed, data=bound_text(error.data, self._cap).data)
        if self._hides_errors and not isinstance(error, FerruleError):
            _LOGGER.error("the tool `%s` failed (call %s)", call.tool, call.id, exc_info=error)
            kind = ErrorType.IO_ERROR if isinstance(error, OSError) else ErrorType.INTERNAL_ERROR
            message = f"`{call.tool}` failed: {type(error).__name__}; what it says is in the log"
            return self._fail(call, kind, message, started)
        if isinstance(error, OSError):
            return self._fail(call, ErrorType.IO_ERROR, f"`{call.tool}`: {error}", started)
        if isinstance(error, ConfigError) and error.code == "media_invalid":
            return self._fail(call, ErrorType.TOOL_ERROR, f"`{call.tool}`: {error}", started)
        reason = str(error) if isinstance(error, FerruleError) else _describe_error(error)
        return self._fail(call, ErrorType.INTERNAL_ERROR, f"`{call.tool}`: {reason}", started)

    def _launch(
        self, tool: Tool, launch: Launch, call: ToolCall, context: Context
    ) -> dict[str, Any]:
        """Start a call's work as a background task and return what the call is answered with.

        Raises ToolFailed (`limit`).
        """
        from .background import background_tasks

        async def work() -> Any:
            return await self._finish_task(tool, launch, call, context)

        tasks = background_tasks(context)
        task_id = tasks.start(
            work, name=launch.name, tell=context.tell_end, of_run=launch.ends_with_run
        )
        context.mark_launched()
        return {"task_id": task_id, "status": "running", **launch.answer_fields}

    async def _finish_task(
        self, tool: Tool, launch: Launch, call: ToolCall, context: Context
    ) -> Any:
        """Return what the hooks make of the outcome of a launched call.

        Raises ToolFailed, or what the work raised.
        """
        if not self._hooks:
            outcome, notes = _encode(tool, await launch.work())
            for note in notes:
                context.tell(note)
            return outcome
        started = self._clock.monotonic()
        try:
            outcome, notes = _encode(tool, await launch.work())
            value = bound_text(outcome, self._handler_cap)
        except ToolFailed as error:
            result = self._fail(
                call, error.error_type, error.message, started, refused_by=error.refused_by
            )
        except Exception as error:  # noqa: BLE001  boundary: hooks are told of whatever came of it
            result = self._fail(call, ErrorType.INTERNAL_ERROR, _describe_error(error), started)
        else:
            duration = int((self._clock.monotonic() - started) * 1000)
            result = ToolResult(
                call.id,
                call.tool,
                True,
                value.data,
                duration_ms=duration,
                partial=value.partial,
                notes=notes,
            )
        for hook in self._hooks:
            result = await self._after(hook, tool, result, context)
        for note in result.notes:
            context.tell(note)
        if not result.success:
            raise ToolFailed(
                result.error_type,
                result.error_message or f"`{call.tool}` failed",
                refused_by=result.refused_by or "tool",
            )
        return result.data

    async def _gather(
        self, tool: Tool, chunks: Chunks, context: Context, notes: Sequence[str]
    ) -> Bounded:
        """Collect a result that comes in pieces.

        Hooks see only its beginning, and what they do not see is not kept.
        """
        seconds = timeouts_and_retries.attempt_timeout(tool)
        try:
            async with asyncio.timeout(seconds):
                if self.artifact_intake is None or self._hooks:
                    return await cut_chunks(chunks, self._handler_cap)
                return await self.artifact_intake.keep_chunks(tool, chunks, context.identity, notes)
        except TimeoutError as error:
            within = "" if seconds is None else f" within {seconds:g} s"
            said = f"`{tool.name}` did not give all of its output{within}"
            raise ToolFailed(ErrorType.TIMEOUT, said) from error

    async def _keep_after_hooks(
        self, keeper: ArtifactIntake, tool: Tool, result: ToolResult, context: Context
    ) -> ToolResult:
        try:
            return await keeper.after_hooks(tool, result, context.identity)
        except Exception as error:  # noqa: BLE001  boundary: a result that cannot be bounded is one failed result
            message = f"the result could not be kept: {_describe_error(error)}"
            return replace(
                result,
                success=False,
                data=None,
                error_type=ErrorType.INTERNAL_ERROR,
                error_message=message,
            )

    def find_unknown_outcome(self, prepared: PreparedCall, value: Any, note: str) -> ToolResult:
        """Build the result of a call that took effect before this process started.

        `value` is what its handler would have returned; it is bounded like any other.
        """
        kept = bound_text(value, self._cap)
        call = prepared.call
        return ToolResult(
            call.id,
            call.tool,
            True,
            kept.data,
            size=kept.size,
            timestamp=self._read_clock(),
            partial=kept.partial,
            notes=(*kept.notes, note),
        )

    def build_stopped_result(
        self, prepared: PreparedCall, why: str = "", *, was_left: bool = False, printed: str = ""
    ) -> ToolResult:
        """Build the result of a call whose handler was cancelled: what is known of its effect.

        Args:
            prepared: The call.
            why: Why it was stopped, if that was about this call.
            was_left: The handler did not end and may still be running.
            printed: What it had printed until then.
        """
        what = f"stopped: {why}" if why else "stopped"
        if was_left:
            left = timeouts_and_retries.describe_left_behind(self.stop_seconds)
            return self._fail(
                prepared.call, ErrorType.CANCELLED, f"`{prepared.call.tool}` {left} ({what})"
            )
        if prepared.tool is None or not prepared.tool.is_repeatable:
            what += " while it ran" if not why else "; it ran"
            what += ": outcome unknown; check what it did before doing it again"
        if printed:
            what += f"\nIts output until then:\n{printed}"
        return self._fail(prepared.call, ErrorType.CANCELLED, what)

    def _fail(
        self,
        call: ToolCall,
        error: ErrorType,
        message: str,
        started: float | None = None,
        *,
        refused_by: Refuser | Literal[""] = "",
    ) -> ToolResult:
        result = ToolResult.error(call, error, self._cut(message), timestamp=self._read_clock())
        result = replace(result, refused_by=refused_by)
        if started is None:
            return result
        return replace(result, duration_ms=int((self._clock.monotonic() - started) * 1000))

    def _read_clock(self) -> int:
        """Return the time in milliseconds, as results have it."""
        return int(self._clock.now() * 1000)

    def _cut(self, message: str) -> str:
        kept = bound_text(message, self._cap)
        return str(kept.data) + "".join(kept.notes)

    def _bound_hook_result(self, changed: ToolResult, result: ToolResult) -> ToolResult:
        """Bound a hook's result like any other and give it the call's own id and tool."""
        changed = replace(changed, call_id=result.call_id, tool=result.tool)
        if not changed.success:
            return replace(
                changed, error_message=self._cut(changed.error_message or "withheld by a hook")
            )
        kept = bound_text(changed.data, self._handler_cap)
        notes = (*kept.notes, *changed.notes)
        return replace(
            changed,
            data=kept.data,
            size=kept.size,
            partial=kept.partial or changed.partial,
            notes=notes,
        )


def _may_run(changed: PreparedCall, before: PreparedCall) -> bool:
    """Return whether a call that a hook changed may run without another decision.

    What a person approved may run: a hook that makes the same change again does not ask a second
    time.
    """
    if changed.values is None:
        return False
    is_same = changed.tool is not None and changed.evaluation.digest == before.evaluation.digest
    return is_same or changed.evaluation.verdict == "allow"


def require_approval(prepared: PreparedCall, bound_to: str, why: str) -> PreparedCall:
    """Turn a call into one that needs a person's approval of exactly these arguments.

    It offers no grants: no answer covers the next call.
    """
    evaluation = replace(prepared.evaluation, verdict="ask", reason=why, digest=bound_to)
    return replace(
        prepared,
        evaluation=evaluation,
        decision=Decision("ask", why, layer="builtin"),
        approval_reason=why,
    )


def _apply_change(
    hook: Hook, prepared: PreparedCall, judged: PreparedCall, change: Change
) -> CallHooked | None:
    """Build the journal's event for a hook's change; None if nothing changed."""
    call = prepared.call
    tool = prepared.tool
    values = judged.values
    if tool is None or (values is not None and values == prepared.values):
        return None
    text = json.dumps(change.arguments, ensure_ascii=False, separators=(",", ":"), default=str)
    bound_to = digest_arguments(tool.full_name, values if values is not None else change.arguments)
    reason = "" if judged.tool is not None else judged.evaluation.reason
    return CallHooked(call.id, _hook_name(hook), "change", reason or change.ask, text, bound_to)


def _hook_name(hook: Hook) -> str:
    """Return a hook's name for the journal."""
    return str(getattr(hook, "name", "") or type(hook).__name__)


def _describe_error(error: BaseException) -> str:
    """Describe an exception from foreign code, whose own text may fail too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  boundary: the kind is all there is to say
        return type(error).__name__


def _describe_causes(error: BaseException) -> str:
    """Describe what an error was raised from, one error after the other; "" for nothing.

    As in a traceback: the cause (`raise ... from`), or else what was being handled when it was
    raised, unless the tool hid that (`from None`). Of a group, its members.
    """
    causes: list[str] = []
    latest: BaseException | None = error
    while latest is not None and len(causes) < MAX_CAUSES:
        if isinstance(latest, BaseExceptionGroup):
            members = cast("BaseExceptionGroup[BaseException]", latest).exceptions
            causes += [f"with {_describe_cause(one)}" for one in members]
        handled = None if latest.__suppress_context__ else latest.__context__
        if latest.__cause__ is not None:
            causes.append(f"from {_describe_cause(latest.__cause__)}")
        elif handled is not None:
            causes.append(f"while handling {_describe_cause(handled)}")
        latest = latest.__cause__ or handled
    return "; ".join(causes[:MAX_CAUSES]).removeprefix("from ")


def _describe_cause(cause: BaseException) -> str:
    return _describe_error(cause)[:MAX_CAUSE_CHARACTERS]


def _join_problems(items: Sequence[str]) -> str:
    """Join problems or repairs into one line; thousands of them would not help a model."""
    rest = len(items) - _MOST_PROBLEMS
    return "; ".join(items[:_MOST_PROBLEMS]) + (f"; and {rest} more" if rest > 0 else "")


def _encode(tool: Tool, value: Any) -> tuple[Any, tuple[str, ...]]:
    """Encode a value as its tool's output schema says, with a notice if it does not fit.

    A value that does not fit is passed on: the effect has already happened.
    """
    if tool.output is None:
        return value, ()
    encoded, problems = tool.output.encode(value)
    return encoded, (misfit_notice(tool, problems),) if problems else ()


def _bounded_value(tool: Tool, value: Any, room: int) -> Bounded:
    """Bound a handler's value; one without a JSON form is left out with a notice.

    It is not an error, because the effect has already happened.
    """
    try:
        return bound_text(value, room)
    except Exception as error:  # noqa: BLE001  boundary: values of any type are asked for their own JSON form
        note = (
            f"[note: `{tool.name}` ran, but its value is left out: {_describe_error(error)[:500]}]"
        )
        return Bounded(None, 0, False, (note,))


def _attempt(
    tool: Tool, values: Mapping[str, Any], context: Context
) -> Callable[[], Awaitable[Any]]:
    """Return a function that starts the handler once: a coroutine, or in a thread if it blocks."""
    handler = tool.handler
    given = {**values, tool.context_parameter: context} if tool.context_parameter else values
    if tool.is_async:
        return lambda: _contain_exit(handler, given)
    return lambda: _start_in_thread(handler, given)


def _start_in_scope(
    enter: Callable[[Identity, str], Callable[[], None]],
    context: Context,
    attempt: Callable[[], Awaitable[Any]],
) -> Awaitable[Any]:
    """Start a handler with the context variables of its call."""
    leave = enter(context.identity, context.call_id)
    try:
        return asyncio.ensure_future(attempt())
    finally:
        leave()


async def _contain_exit(handler: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Run a handler. A `SystemExit` in a task would end the event loop, and not just the call."""
    try:
        return await handler(**values)
    except SystemExit as error:
        raise timeouts_and_retries.HandlerExited from error


def _start_in_thread(handler: Callable[..., Any], values: Mapping[str, Any]) -> asyncio.Future[Any]:
    """Start a blocking handler in a thread, unless it was stopped before a thread was free."""
    stop = get_stop()

    def work() -> Any:
        if stop is not None and stop.is_requested:
            raise timeouts_and_retries.NotStarted
        return handler(**values)

    return run_blocking(work)


def parse_arguments(text: str) -> tuple[dict[str, Any], list[str]]:
    """Parse a call's arguments into an object, and say what was repaired.

    Accepted are an object; nothing at all (no arguments); and an object that was encoded as JSON
    text twice. Text that is cut off or broken is refused with its position: it is never completed
    by guessing.

    Returns:
        The arguments, and a description of each repair.

    Raises:
        ToolFailed: The text is not JSON (`parse_error`) or not an object (`validation_failed`).
    """
    try:
        value, is_nested = decode_arguments(text)
    except (ValueError, RecursionError) as error:
        raise ToolFailed(ErrorType.PARSE_ERROR, _describe_parse_error(error)) from error
    repairs = ["the arguments were JSON text inside JSON text"] if is_nested else []
    if not isinstance(value, dict):
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"the arguments must be a JSON object, found {type(value).__name__}",
        )
    return cast("dict[str, Any]", value), repairs


def _describe_parse_error(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "the arguments are nested too deeply"
    if not isinstance(error, json.JSONDecodeError):
        # Not JSON's fault: a number with more digits than Python reads.
        return f"the arguments cannot be read: {error}"
    text = error.doc
    cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
    said = "cut off" if cut else f"not valid JSON: {error.msg}"
    around = text[max(0, error.pos - 20) : error.pos + 20]
    return (
        f"the arguments are {said} at character {error.pos} (near {around!r}); send one complete "
        "JSON object"
    )
