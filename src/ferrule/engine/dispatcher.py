"""The dispatcher: the one pipeline and the one gate. Every call, whatever its source, goes through
here.

    evaluate   1 resolve  2 rights  3 parse  4 validate  5 policy          no I/O, never raises
               6 approval                                                  the driver asks the person
    execute    7 pre hooks  8 handler in the reliability shell  9 validate the result
               10 post hooks  11 bound                                     one Result, never raises
               12 record                                                   the driver writes the journal

Nothing in this file runs before step 5 has said yes, and `execute` refuses what was not allowed. An
approval is bound to the digest of the arguments: a hook that changes them sends the call back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ferrule.core.calls import Call, ErrorType, Result
from ferrule.core.errors import FerruleError, JournalError, ToolFailed
from ferrule.core.events import CallEvaluated, CallHooked
from ferrule.core.frozen import frozen
from ferrule.core.limits import OUTPUT_CAP
from ferrule.permissions.gate import Decision, Gate, digest
from ferrule.tools.catalog import Catalog
from ferrule.tools.chunked_output import Chunks
from ferrule.tools.context import Context
from ferrule.tools.definition import Loading, SideEffect, Tool, misfit
from ferrule.tools.launch import Launch

from . import reliability
from .clock import Clock, SystemClock
from .hooks.call_hooks import Answer, Ask, Block, Change, Hook
from .result_bounds import Bounded, bound
from .threads import run_blocking

if TYPE_CHECKING:
    from .artifacts.intake import Keeper
    from .rewind.file_copies import Copies
    from .tool_search.discovery import Searching


@frozen
class Prepared:
    """A call after step 5. `tool` is None if it was refused before a tool was found."""

    call: Call
    evaluation: CallEvaluated
    tool: Tool | None = None
    values: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    decision: Decision | None = None
    asked: str = ""
    """Why a hook wants a person to say yes, whatever the rules allow."""


class Dispatcher:
    """Takes calls through the pipeline.

    `scopes` are what this run's identity holds: a tool that wants others is refused. `cap` bounds
    the text of a result in bytes. `keeper` keeps what is large; without one it is cut. `by_model`
    says of a call's id whether a model made the call: only models must have been shown a tool
    before they call it. `searching` knows what they were shown.
    """

    def __init__(
        self,
        catalog: Catalog,
        gate: Gate,
        *,
        hooks: Sequence[Hook] = (),
        scopes: frozenset[str] = frozenset(),
        cap: int = OUTPUT_CAP,
        clock: Clock | None = None,
        keeper: Keeper | None = None,
        by_model: Callable[[str], bool] = lambda call_id: False,
        searching: Searching | None = None,
    ) -> None:
        self.catalog = catalog
        self.gate = gate
        self._hooks = tuple(hooks)
        self._scopes = scopes
        self._cap = min(cap, OUTPUT_CAP)
        self.keeper = keeper
        self.copies: Copies | None = None
        """Keeps what a call is about to write over."""
        self.searching = searching
        self._by_model = by_model
        # Hooks see a result before it is kept: up to here it is not cut for them.
        self._room = self._cap if keeper is None or not hooks else keeper.hooked
        self._clock = clock or SystemClock()

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Those around calls, in their order. Others can be given; they are asked from the next
        call on.
        """
        return self._hooks

    @hooks.setter
    def hooks(self, hooks: Sequence[Hook]) -> None:
        self._hooks = tuple(hooks)

    # ---- steps 1 to 5

    def evaluate(self, call: Call) -> Prepared:
        """Resolve, check rights, parse, validate, decide. A refusal carries the result."""
        try:
            tool = self.catalog.get(call.tool)
            if tool is None:
                return self._refuse(call, ErrorType.NOT_FOUND, self._unknown(call.tool))
            if self._by_model(call.id) and (why := self.unseen(call.tool, tool)):
                return self._refuse(call, ErrorType.NOT_FOUND, why)
            if not tool.scopes <= self._scopes:
                missing = (
                    f"`{call.tool}` needs the scope {', '.join(sorted(tool.scopes - self._scopes))}"
                )
                return self._refuse(call, ErrorType.PERMISSION_DENIED, missing)
            arguments, repairs = parse_arguments(call.arguments)
            return self._judge(call, tool, arguments, repairs)
        except ToolFailed as error:
            return self._refuse(call, error.error_type, f"`{call.tool}`: {error.message}")
        except Exception as error:  # noqa: BLE001  boundary: a call that cannot be judged is refused (fail closed)
            said = f"it could not be judged: {_said(error)}"
            return self._refuse(
                call, ErrorType.INTERNAL_ERROR, f"`{call.tool}` was not run: {said}"
            )

    def _judge(
        self, call: Call, tool: Tool, arguments: Mapping[str, Any], repairs: list[str]
    ) -> Prepared:
        checked = tool.arguments.check(arguments)
        impossible = checked.problems or tool.problems_of(checked.values)
        if impossible:
            problems = _listed(impossible)
            return self._refuse(call, ErrorType.VALIDATION_FAILED, f"`{call.tool}`: {problems}")
        decision = self.gate.decide(tool, checked.values)
        if decision.verdict == "deny":
            return self._refuse(
                call,
                ErrorType.PERMISSION_DENIED,
                f"`{call.tool}` was not run: {decision.reason}",
                decision,
            )
        repairs.extend(checked.repairs)
        # A digest binds an approval, or the announcement of an effect, to these arguments. A read
        # has neither.
        bound_to = decision.verdict != "allow" or tool.side_effect not in (
            SideEffect.NONE,
            SideEffect.READ,
        )
        evaluation = CallEvaluated(
            call.id,
            decision.verdict,
            decision.reason,
            decision.rule,
            digest(tool.full_name, checked.values) if bound_to else "",
            tool.side_effect,
            tool.risk,
            tool.access(checked.values),
            tool.polls,
            None,
            decision.layer,
            self.gate.mode,
        )
        notes = (f"[note: {_listed(repairs)[:2000]}]",) if repairs else ()
        return Prepared(call, evaluation, tool, checked.values, notes, decision)

    def _unknown(self, name: str) -> str:
        # Only what this run may use: an error message is no way to discover the rest.
        usable = {tool.full_name for tool in self.catalog if self.usable(tool)}
        near = [found for found in self.catalog.nearest(name, 10) if found in usable][:3]
        if near:
            return f"there is no tool `{name}`; did you mean {' or '.join(f'`{n}`' for n in near)}?"
        known = ", ".join(sorted(usable)[:20])
        return f"there is no tool `{name}`; there are: {known or 'none'}"

    def unseen(self, name: str, tool: Tool) -> str:
        """Why a model may not call a tool that it was not shown from the start; "" if it may. Who
        may not use it is told of none.
        """
        if tool.loading is Loading.INTERNAL:
            return self._unknown(name)
        if tool.loading is Loading.ALWAYS or self.searching is None:
            return ""
        return self.searching.refusal(tool) if self.usable(tool) else self._unknown(name)

    def usable(self, tool: Tool) -> bool:
        """Whether this run may use the tool and know of it."""
        shown = tool.loading is not Loading.INTERNAL
        return shown and tool.scopes <= self._scopes and not self.gate.hidden(tool)

    def _refuse(
        self, call: Call, error: ErrorType, message: str, decision: Decision | None = None
    ) -> Prepared:
        result = self._failed(call, error, message)
        rule, layer = (decision.rule, decision.layer) if decision else ("", "")
        reason, mode = result.error_message or "", self.gate.mode
        evaluation = CallEvaluated(
            call.id, "refuse", reason, rule, effect="none", result=result, layer=layer, mode=mode
        )
        return Prepared(call, evaluation, decision=decision)

    # ---- steps 7 to 11

    async def execute(self, prepared: Prepared, context: Context) -> Result | Prepared:
        """Carry out an allowed (or approved) call. Another `Prepared` means: ask again, it was
        changed.
        """
        tool, values, call = prepared.tool, prepared.values, prepared.call
        if tool is None or values is None or prepared.evaluation.verdict == "refuse":
            return prepared.evaluation.result or Result.error(
                call, ErrorType.PERMISSION_DENIED, "refused"
            )
        approved, asked = prepared.evaluation.digest if prepared.asked else None, ""
        answered: Answer | None = None
        for hook in self._hooks:
            stopped = await self._before(hook, prepared, context)
            if isinstance(stopped, Result):
                return stopped
            if isinstance(stopped, Answer):
                answered = stopped
                break
            if isinstance(stopped, Ask):
                asked = asked or stopped.reason
            elif stopped is not None:
                # What a person approved may run: a hook that makes the same change again asks no
                # second time.
                same = (
                    stopped.evaluation.digest == prepared.evaluation.digest
                    and stopped.tool is not None
                )
                prepared = stopped
                if prepared.values is None or not (same or prepared.evaluation.verdict == "allow"):
                    return prepared.evaluation.result or prepared
                values, asked = prepared.values, asked or prepared.asked
        if asked and digest(tool.full_name, values) != approved:
            return _question(prepared, digest(tool.full_name, values), asked)
        started = self._clock.monotonic()
        if answered is None and self.copies is not None and tool.side_effect is SideEffect.WRITE:
            result = await self.copies.around(
                tool,
                values,
                context,
                lambda: self._invoke(tool, values, prepared, context, started),
            )
        elif answered is None:
            result = await self._invoke(tool, values, prepared, context, started)
        else:
            result = await self._answered(answered, call, started)
        if context.launched:
            return result
        for hook in self._hooks:
            result = await self._after(hook, tool, result, context)
        if self.keeper is not None and self._hooks:
            result = await self._kept_after(self.keeper, tool, result, context)
        if answered is not None and self.searching is not None:
            self.searching.answered(call, tool, result)
        return result

    async def _before(
        self, hook: Hook, prepared: Prepared, context: Context
    ) -> Result | Prepared | Ask | Answer | None:
        assert prepared.tool is not None and prepared.values is not None
        call = prepared.call
        try:
            # A copy: what a hook changes in place would run without having been checked.
            answer = await hook.before(prepared.tool, deepcopy(dict(prepared.values)), context)
            if isinstance(answer, Change):
                judged = self._judge(call, prepared.tool, answer.arguments, [])
                changed = _changed(hook, prepared, judged, answer)
                if changed is not None:
                    # Before anything follows from it: what runs is not what was asked for.
                    context.record(changed)
                return replace(judged, asked=answer.ask)
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001  boundary: a broken hook blocks (fail closed)
            answer = Block(f"a hook failed: {_said(error)}")
        if isinstance(answer, Block):
            context.record(CallHooked(call.id, _name(hook), "block", answer.reason))
            message = f"`{call.tool}` was not run: {answer.reason}"
            timestamp = int(self._clock.now() * 1000)
            return Result.error(call, ErrorType.PERMISSION_DENIED, message, timestamp=timestamp)
        if isinstance(answer, Answer):
            context.record(CallHooked(call.id, _name(hook), "answer"))
        return answer

    async def _answered(self, answer: Answer, call: Call, started: float) -> Result:
        """What a hook has somebody else answer, instead of the tool."""
        try:
            given = Result(call.id, call.tool, True, timestamp=int(self._clock.now() * 1000))
            return self._bounded(replace(given, data=await answer.produce()), given)
        except ToolFailed as error:
            return self._failed(
                call, error.error_type, f"`{call.tool}` was not run: {error.message}", started
            )
        except (Exception, SystemExit) as error:  # noqa: BLE001  boundary: whatever is raised is one result
            return self._failed(
                call, ErrorType.INTERNAL_ERROR, f"`{call.tool}`: {_said(error)}", started
            )

    async def _after(self, hook: Hook, tool: Tool, result: Result, context: Context) -> Result:
        try:
            changed = await hook.after(tool, result, context)
            if changed is None:
                return result
            why = "" if changed.success else changed.error_message or ""
            context.record(CallHooked(result.call_id, _name(hook), "result", why))
            return self._bounded(changed, result)
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001  boundary: a hook that cannot check a result withholds it
            message = f"the result was withheld: a hook failed: {_said(error)}"
            context.record(CallHooked(result.call_id, _name(hook), "result", message))
            return replace(
                result,
                success=False,
                data=None,
                error_type=ErrorType.INTERNAL_ERROR,
                error_message=message,
            )

    async def _invoke(
        self,
        tool: Tool,
        values: Mapping[str, Any],
        prepared: Prepared,
        context: Context,
        started: float,
    ) -> Result:
        call, notes = prepared.call, prepared.notes
        try:
            given = (
                {**values, tool.context_parameter: context} if tool.context_parameter else values
            )
            handler = tool.handler
            attempt = (
                (lambda: handler(**given))
                if tool.is_async
                else (lambda: _in_thread(handler, given))
            )
            value = await reliability.run(tool, attempt, self._clock, context)
            if isinstance(value, Launch):
                value = self._launch(tool, value, call, context)
            else:
                value, found = _encode(tool, value)
                notes = (*notes, *found)
            if isinstance(value, Chunks):
                kept = await self._gathered(tool, value, context, notes)
            else:
                kept = _bounded_value(tool, value, self._room)
                if self.keeper is not None and kept.size >= self.keeper.near and not self._hooks:
                    kept = await self.keeper.keep(tool, value, kept, context.identity, notes)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody stopped this call: something the handler waited for was cancelled. That is its
            # failure.
            return self._failed(
                call, ErrorType.CANCELLED, f"`{call.tool}` cancelled itself", started
            )
        except ToolFailed as error:
            failed = self._failed(call, error.error_type, error.message, started)
            return (
                failed
                if error.data is None
                else replace(failed, data=bound(error.data, self._cap).data)
            )
        except OSError as error:
            return self._failed(call, ErrorType.IO_ERROR, f"`{call.tool}`: {error}", started)
        except FerruleError as error:
            return self._failed(call, ErrorType.INTERNAL_ERROR, f"`{call.tool}`: {error}", started)
        except (Exception, SystemExit) as error:  # noqa: BLE001  boundary: whatever a handler raises is one result
            return self._failed(
                call, ErrorType.INTERNAL_ERROR, f"`{call.tool}`: {_said(error)}", started
            )
        return Result(
            call.id,
            call.tool,
            True,
            kept.data,
            duration_ms=int((self._clock.monotonic() - started) * 1000),
            size=kept.size,
            timestamp=int(self._clock.now() * 1000),
            partial=kept.partial,
            notes=(*kept.notes, *notes),
        )

    def _launch(self, tool: Tool, launch: Launch, call: Call, context: Context) -> dict[str, Any]:
        """Begin the work of a call as a task; what the call is answered with. Raises ToolFailed
        (`limit`).
        """
        from .background import background

        async def work() -> Any:
            return await self._finish_task(tool, launch, call, context)

        tasks = background(context)
        task_id = tasks.start(work, name=launch.name, tell=context.tell, of_run=launch.of_run)
        context.launched = True
        return {"task_id": task_id, "status": "running", **launch.shown}

    async def _finish_task(self, tool: Tool, launch: Launch, call: Call, context: Context) -> Any:
        """What hooks leave of the outcome of a call that was launched. Raises ToolFailed, or what
        the work raised.
        """
        if not self._hooks:
            outcome, notes = _encode(tool, await launch.work())
            for note in notes:
                context.tell(note)
            return outcome
        started = self._clock.monotonic()
        try:
            outcome, notes = _encode(tool, await launch.work())
            value = bound(outcome, self._room)
        except ToolFailed as error:
            result = self._failed(call, error.error_type, error.message, started)
        except Exception as error:  # noqa: BLE001  boundary: hooks are told of whatever came of it
            result = self._failed(call, ErrorType.INTERNAL_ERROR, _said(error), started)
        else:
            duration = int((self._clock.monotonic() - started) * 1000)
            result = Result(
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
            raise ToolFailed(result.error_type, result.error_message or f"`{call.tool}` failed")
        return result.data

    async def _gathered(
        self, tool: Tool, chunks: Chunks, context: Context, notes: Sequence[str]
    ) -> Bounded:
        """A result that comes in pieces. Hooks see its beginning, and what they do not see is not
        kept.
        """
        from .artifacts.intake import cut_chunks

        seconds = reliability.time_of(tool)
        try:
            async with asyncio.timeout(seconds):
                if self.keeper is None or self._hooks:
                    return await cut_chunks(chunks, self._room)
                return await self.keeper.gather(tool, chunks, context.identity, notes)
        except TimeoutError as error:
            within = "" if seconds is None else f" within {seconds:g} s"
            said = f"`{tool.name}` did not give all of its output{within}"
            raise ToolFailed(ErrorType.TIMEOUT, said) from error

    async def _kept_after(
        self, keeper: Keeper, tool: Tool, result: Result, context: Context
    ) -> Result:
        try:
            return await keeper.after_hooks(tool, result, context.identity)
        except Exception as error:  # noqa: BLE001  boundary: a result that cannot be bounded is one failed result
            message = f"the result could not be kept: {_said(error)}"
            return replace(
                result,
                success=False,
                data=None,
                error_type=ErrorType.INTERNAL_ERROR,
                error_message=message,
            )

    def found(self, prepared: Prepared, value: Any, note: str) -> Result:
        """The result of a call that happened before this process began: what its handler would have
        returned, bounded.
        """
        kept, call = bound(value, self._cap), prepared.call
        made = int(self._clock.now() * 1000)
        return Result(
            call.id,
            call.tool,
            True,
            kept.data,
            size=kept.size,
            timestamp=made,
            partial=kept.partial,
            notes=(*kept.notes, note),
        )

    def stopped(self, prepared: Prepared, why: str = "") -> Result:
        """The result of a call whose handler was cancelled: what is known of its effect."""
        what = f"stopped: {why}" if why else "stopped"
        if prepared.tool is None or not prepared.tool.repeatable:
            what += " while it ran" if not why else "; it ran"
            what += ": outcome unknown; check what it did before doing it again"
        return self._failed(prepared.call, ErrorType.CANCELLED, what)

    def _failed(
        self, call: Call, error: ErrorType, message: str, started: float | None = None
    ) -> Result:
        result = Result.error(
            call, error, self._cut(message), timestamp=int(self._clock.now() * 1000)
        )
        if started is None:
            return result
        return replace(result, duration_ms=int((self._clock.monotonic() - started) * 1000))

    def _cut(self, message: str) -> str:
        kept = bound(message, self._cap)
        return str(kept.data) + "".join(kept.notes)

    def _bounded(self, changed: Result, result: Result) -> Result:
        """A hook's result for the same call, whatever id it carries, no larger than any other."""
        changed = replace(changed, call_id=result.call_id, tool=result.tool)
        if not changed.success:
            return replace(
                changed, error_message=self._cut(changed.error_message or "withheld by a hook")
            )
        kept = bound(changed.data, self._room)
        notes = (*kept.notes, *changed.notes)
        return replace(
            changed,
            data=kept.data,
            size=kept.size,
            partial=kept.partial or changed.partial,
            notes=notes,
        )


def _question(prepared: Prepared, bound_to: str, why: str) -> Prepared:
    """A call that may run only if a person says yes to these arguments. No answer covers the next
    call: no offers.
    """
    evaluation = replace(prepared.evaluation, verdict="ask", reason=why, digest=bound_to)
    return replace(
        prepared, evaluation=evaluation, decision=Decision("ask", why, layer="builtin"), asked=why
    )


def _changed(hook: Hook, prepared: Prepared, judged: Prepared, change: Change) -> CallHooked | None:
    """What the journal is told of a change; None if it is the one that is known, or none at all."""
    call, tool, values = prepared.call, prepared.tool, judged.values
    if tool is None or (values is not None and values == prepared.values):
        return None
    text = json.dumps(change.arguments, ensure_ascii=False, separators=(",", ":"), default=str)
    bound_to = digest(tool.full_name, values if values is not None else change.arguments)
    reason = "" if judged.tool is not None else judged.evaluation.reason
    return CallHooked(call.id, _name(hook), "change", reason or change.ask, text, bound_to)


def _name(hook: Hook) -> str:
    """What a hook is called in the journal."""
    return str(getattr(hook, "name", "") or type(hook).__name__)


def _said(error: BaseException) -> str:
    """Kind and text of an exception that we know nothing about: its text may be broken too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  boundary: the kind is all there is to say
        return type(error).__name__


def _listed(items: Sequence[str], most: int = 8) -> str:
    """Problems or repairs in one line; a list of thousands helps no model."""
    rest = len(items) - most
    return "; ".join(items[:most]) + (f"; and {rest} more" if rest > 0 else "")


def _encode(tool: Tool, value: Any) -> tuple[Any, tuple[str, ...]]:
    """A value as its tool promised it, and a notice if it is not: the effect has happened, so it is
    handed on.
    """
    if tool.output is None:
        return value, ()
    encoded, problems = tool.output.encode(value)
    return encoded, (misfit(tool, problems),) if problems else ()


def _bounded_value(tool: Tool, value: Any, room: int) -> Bounded:
    """A handler's value, bounded; one that has no JSON form is left out with a notice, for the
    effect has happened.
    """
    try:
        return bound(value, room)
    except Exception as error:  # noqa: BLE001  boundary: values of any type are asked for their own JSON form
        note = f"[note: `{tool.name}` ran, but its value is left out: {_said(error)[:500]}]"
        return Bounded(None, 0, False, (note,))


async def _in_thread(handler: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    value = await run_blocking(lambda: handler(**values))
    return await value if asyncio.iscoroutine(value) else value


def parse_arguments(text: str) -> tuple[dict[str, Any], list[str]]:
    """Arguments as an object, and what was repaired. Raises ToolFailed (`parse_error`,
    `validation_failed`).

    Accepted: an object; nothing at all (no arguments); an object that was encoded as JSON text
    twice. Anything that is cut off or broken is refused with the place: it is never completed by
    guessing.
    """
    if not text.strip():
        return {}, []
    repairs: list[str] = []
    try:
        value: Any = json.loads(text)
        if isinstance(value, str):
            value = json.loads(value)
            repairs.append("the arguments were JSON text inside JSON text")
    except (ValueError, RecursionError) as error:
        raise ToolFailed(ErrorType.PARSE_ERROR, _unreadable(error)) from error
    if value is None:
        return {}, repairs
    if not isinstance(value, dict):
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"the arguments must be a JSON object, found {type(value).__name__}",
        )
    return cast("dict[str, Any]", value), repairs


def _unreadable(error: ValueError | RecursionError) -> str:
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
