"""One delegated task: open the sub-agent's session, ask it, check its work, close it.

What may be delegated at all is decided in `delegation`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeVar, cast

from ferrule.core.calls import ErrorType, encode_json, parse_json
from ferrule.core.errors import (
    ConfigError,
    JournalError,
    LimitReached,
    OutputInvalid,
    ProviderError,
    RunCancelled,
    ToolFailed,
)
from ferrule.core.events import DelegationFinished, DelegationStarted, ModelAnswered, Usage
from ferrule.core.limits import Limits
from ferrule.core.messages import AssistantMessage
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import RunStop
from ferrule.engine.budgets import NANODOLLARS, count_usage
from ferrule.engine.dispatcher import Dispatcher
from ferrule.engine.hooks.call_hooks import HookBlocked
from ferrule.engine.hooks.chain import Hooks
from ferrule.engine.hooks.events import DelegationPost, DelegationVerified
from ferrule.engine.live_events import Live, Observer, Progress
from ferrule.engine.session import RunResult, Session
from ferrule.engine.session_log import SessionLog
from ferrule.permissions.approvals import Approver
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .inherited_parts import AgentApprover, SubAgentParts, tighten
from .interrupted_task import CORRECT, PastWork, read_past_work
from .registry import SubAgentRegistry
from .session_tree import Lineage
from .sub_agent import SubAgent
from .verification import Check, Verdict, run_check

N = TypeVar("N", int, float)

MAX_LEASE_SECONDS = 60.0
"""How long a session that an ended process has left is waited for."""
NO_ANSWER = "it ended without an answer; what it was to do may be done or not"
MAX_LAST_MESSAGE = 1000
"""Characters of the sub-agent's last message in the error about its limit."""
_STOPS: dict[ErrorType, RunStop] = {ErrorType.LIMIT: "limit", ErrorType.CANCELLED: "cancelled"}
_UNLIMITED = Limits(max_calls_per_turn=1_000_000)


class DelegatingAgent(Protocol):
    """The agent whose session delegates."""

    limits: Limits

    @property
    def model(self) -> str: ...

    def open_sub_agent(self, part: SubAgentParts) -> Session:
        """Open the session of a sub-agent: this agent's in everything but `part`.

        Raises ConfigError.
        """
        ...


class DelegatingSession(Protocol):
    """The session that delegates."""

    lineage: Lineage
    hooks: Hooks

    @property
    def dispatcher(self) -> Dispatcher: ...

    @property
    def log(self) -> SessionLog: ...

    @property
    def approver(self) -> Approver: ...

    def record(self, event: DelegationStarted | DelegationFinished) -> None:
        """Write an event to the session's journal."""
        ...


@frozen
class DelegationRequest:
    """What to delegate: the parameters of the tool `delegate` (`tool.py`), with its defaults."""

    task: str
    agent: str = ""
    tools: tuple[str, ...] | None = None
    system_prompt: str = ""
    model: str = ""
    verify: Check = ""
    max_verify_retries: int = 2
    wait: bool = True

    @staticmethod
    def of(values: Mapping[str, Any]) -> DelegationRequest:
        """Build a request from the checked arguments of the tool."""
        given = dict(values)
        if given["tools"] is not None:
            given["tools"] = tuple(given["tools"])
        return DelegationRequest(**given)

    def as_dict(self) -> dict[str, Any]:
        """Return the request as hooks see it."""
        return {part.name: getattr(self, part.name) for part in fields(self)}


@dataclass(slots=True)
class DelegatedTask:
    """A request that may be carried out, once, by `run`.

    `agent` and `driver` are those of the delegating session. `earlier` is what the journal says of
    the sub-agent if an ended process has begun the task. `usage` is what the sub-agent's runs used
    so far.
    """

    request: DelegationRequest
    definition: SubAgent
    tools: list[Tool]
    context: Context
    session_id: str
    agent: DelegatingAgent
    driver: DelegatingSession
    roster: SubAgentRegistry
    earlier: DelegationStarted | DelegationFinished | None = None
    usage: Usage = field(default_factory=Usage)

    @property
    def name(self) -> str:
        """The sub-agent's name."""
        return self.definition.name

    @property
    def check(self) -> Check:
        """How the work is checked, "" if it is not."""
        return self.request.verify or self.definition.verify

    async def run(self) -> dict[str, Any]:
        """Do the work and return the call's data. Raises ToolFailed."""
        session = await self._open()
        call_id = self.context.call_id
        stop: RunStop = "cancelled"
        try:
            if self.earlier is None:
                # What the delegating session names must be there, whenever the process ends.
                session.flush()
                self.driver.record(DelegationStarted(call_id, self.session_id, self.name))
            answer = await self._run_checked(session)
            stop = answer["status"]
        except ToolFailed as error:
            stop = _STOPS.get(error.error_type, "failed")
            raise
        except Exception:
            stop = "failed"
            raise
        finally:
            try:
                await session.close()
            finally:
                if not isinstance(self.earlier, DelegationFinished):
                    ended = DelegationFinished(call_id, self.session_id, stop, self.usage)
                    self.driver.record(ended)
        return await self._run_post_hooks(answer)

    async def _open(self) -> Session:
        """Open the sub-agent's session, or the one that an ended process has left.

        On a server, the lease of such a session may end a moment later than that of the session
        that delegates.
        """
        until = asyncio.get_running_loop().time() + MAX_LEASE_SECONDS
        while True:
            try:
                return self._make_session()
            except JournalError as error:
                left = until - asyncio.get_running_loop().time()
                if error.code != "journal_leased" or self.earlier is None or left <= 0:
                    raise
                await asyncio.sleep(min(1.0, left))

    def _make_session(self) -> Session:
        definition = self.definition
        request = self.request
        driver = self.driver
        limits = self._limits()
        above = driver.lineage
        prompt = "\n\n".join(
            part for part in (definition.prompt, request.system_prompt) if part.strip()
        )
        asked = AgentApprover(lambda: driver.approver, self.name)
        gate, approver = tighten(driver.dispatcher.gate, asked, definition.mode)
        session = self.agent.open_sub_agent(
            SubAgentParts(
                session_id=self.session_id,
                instructions=prompt,
                tools=tuple(self.tools),
                model=request.model or definition.model,
                limits=limits,
                gate=gate,
                approver=approver,
                hooks=(*self.driver.hooks.added, *definition.hooks),
                output_type=definition.output_type,
                deps=self.context.deps,
                is_interrupted=self.earlier is not None,
                lineage=above.for_sub_agent(
                    limits, definition.name, self.context.identity.session, self.context.call_id
                ),
            )
        )
        if driver.log.is_watched:
            session.observe(_show_progress(self))
        return session

    async def _run_checked(self, session: Session) -> dict[str, Any]:
        """Return the sub-agent's answer; if there is a check, one that has passed it."""
        past = self._take_up(session) if self.earlier is not None and session.history else None
        attempt = 0
        if past is None:
            result = await self._ask(session, self.request.task)
        else:
            attempt = past.checks
            result = await self._finish(session, past)
        if not self.check:
            return _build_answer(self, result)
        while True:
            attempt += 1
            verdict = await self._verify(attempt)
            if verdict.passed:
                return {**_build_answer(self, result), "attempts": attempt}
            if attempt > self.request.max_verify_retries:
                raise _invalid(
                    f"the work of `{self.name}` did not pass its check after {attempt} "
                    f"attempts: {verdict.report}"
                )
            # What a check prints is data like any tool's; as the message itself it would be an
            # instruction.
            session.tell(verdict.report or "(it said nothing)", "check")
            session.change(limits=self._limits())
            result = await self._ask(session, CORRECT)

    def _take_up(self, session: Session) -> PastWork:
        """Read what the sub-agent had done when its process ended, and count it.

        What an open run used is counted where it is resumed.
        """
        past = read_past_work(self.driver.log.journal, session.id)
        self.usage += past.usage
        if not isinstance(self.earlier, DelegationFinished):
            self.driver.lineage.shared.spend(past.usage, past.calls)
        return past

    async def _finish(self, session: Session, past: PastWork) -> RunResult:
        """Finish the run that was left open, or return the result of the last one that ended."""
        if past.finished is None:
            return await self._ask(session)
        with self._explain_failure(session):
            return session.rebuild_result(past.finished)

    async def _ask(self, session: Session, text: str = "") -> RunResult:
        """Send the sub-agent a message; without one, finish the run that is open."""
        before = session.driver.machine.usage if text else None
        try:
            with self._explain_failure(session):
                if text:
                    return await session.run(text)
                done = await session.resume()
                assert done is not None
                return done
        finally:
            machine = session.driver.machine
            # The same value: no run began, because a hook refused it.
            if machine.usage is not before:
                self.usage += count_usage(machine)

    @contextmanager
    def _explain_failure(self, session: Session) -> Generator[None]:
        """Turn what a run raises into an error of the call."""
        try:
            yield
        except ConfigError as error:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"the agent `{self.name}` was not asked: {error.detail}",
            ) from error
        except LimitReached as error:
            said = _describe_last_message(session)
            raise ToolFailed(
                ErrorType.LIMIT,
                f"the agent `{self.name}` reached its limit {error.limit} = {error.value:g}"
                f" (session {session.id}){said}",
            ) from error
        except RunCancelled as error:
            raise ToolFailed(
                ErrorType.CANCELLED, f"the agent `{self.name}` was stopped: {error.detail}"
            ) from error
        except HookBlocked as error:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"the agent `{self.name}`: {error.detail}"
            ) from error
        except OutputInvalid as error:
            raise _invalid(f"the agent `{self.name}` gave {error.detail}") from error
        except ProviderError as error:
            raise ToolFailed(
                ErrorType.IO_ERROR,
                f"the agent `{self.name}` got no answer from its model: {error.detail}",
                data=error.to_fields(),
            ) from error

    async def _verify(self, attempt: int) -> Verdict:
        assert self.context.call is not None
        verdict = await run_check(self.check, self.driver.dispatcher.catalog, self.context.call)
        payload = DelegationVerified(
            self.name,
            self.request.as_dict(),
            self.session_id,
            attempt,
            verdict.passed,
            verdict.report,
        )
        outcome = await self.driver.hooks.fire(payload)
        return Verdict(False, outcome.blocked) if outcome.blocked else verdict

    async def _run_post_hooks(self, answer: dict[str, Any]) -> dict[str, Any]:
        payload = DelegationPost(self.name, self.request.as_dict(), answer, self.session_id)
        outcome = await self.driver.hooks.fire(payload)
        if outcome.blocked:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"the answer of `{self.name}` was withheld: {outcome.blocked}",
            )
        assert isinstance(outcome.payload, DelegationPost)
        changed = outcome.payload.result
        # An object takes the place of all of it: what a hook left out must not come back.
        shown = {**answer, "answer": changed}
        if isinstance(changed, dict):
            shown = cast("dict[str, Any]", changed)
        return _shorten_answer(shown, self.driver.lineage.limits.max_output_bytes)

    def _limits(self) -> Limits:
        """Return the tighter of what is left of the run's limits and the sub-agent's own.

        Raises ToolFailed (`limit`) if nothing is left.
        """
        own = self.definition.limits or _UNLIMITED
        above = self.driver.lineage
        seconds = _min_of(above.remaining_seconds(), own.max_seconds)
        tokens = _min_of(above.shared.compute_remaining("max_tokens"), own.max_tokens)
        nano = above.shared.compute_remaining("max_cost")
        cost = _min_of(None if nano is None else nano / NANODOLLARS, own.max_cost)
        calls = _min_of(above.shared.compute_remaining("max_calls"), own.max_calls)
        bounds = {
            "max_seconds": seconds,
            "max_tokens": tokens,
            "max_cost": cost,
            "max_calls": calls,
        }
        for name, left in bounds.items():
            if left is not None and left <= 0:
                raise ToolFailed(
                    ErrorType.LIMIT, f"`{self.name}` was not asked: the run's {name} are used up"
                )
        model = self.request.model or self.definition.model or self.agent.model
        turns = self.roster.limits.turns_at(above.depth + 1, model)
        return Limits(
            max_turns=_min_of(own.max_turns, turns),
            max_calls_per_turn=min(own.max_calls_per_turn, above.limits.max_calls_per_turn),
            max_output_bytes=min(own.max_output_bytes, above.limits.max_output_bytes),
            max_seconds=seconds,
            max_tokens=tokens,
            on_limit=own.on_limit,
            max_cost=cost,
            max_calls=calls,
            warn_at=above.limits.warn_at,
        ).with_owner_limits(above.limits)


def _build_answer(work: DelegatedTask, result: RunResult) -> dict[str, Any]:
    answer = _format_answer(result)
    note = {"note": NO_ANSWER} if isinstance(answer, str) and not answer.strip() else {}
    return {
        "status": result.stop,
        "agent": work.name,
        "answer": answer,
        **note,
        "session": work.session_id,
        "turns": result.turns,
        "tokens": work.usage.input + work.usage.output,
    }


def _format_answer(result: RunResult[Any]) -> Any:
    """Return the text of the answer, or the JSON value of the sub-agent's output type."""
    return parse_json(result.output_json) if result.output_json else result.text


def _shorten_answer(answer: dict[str, Any], cap: int) -> dict[str, Any]:
    """Shorten the answer until the whole fits the limit of a result, and say so."""
    text = answer.get("answer")
    if len(encode_json(answer).encode("utf-8", "replace")) <= cap or not isinstance(text, str):
        return answer
    note = f"the answer has {len(text)} characters; the whole of it is in its session"
    kept = text
    shown = {**answer, "answer": kept, "cut": note}
    while kept and len(encode_json(shown).encode("utf-8", "replace")) > cap:
        kept = kept[: len(kept) * 4 // 5]
        shown = {**answer, "answer": kept, "cut": note}
    return shown


def _show_progress(work: DelegatedTask) -> Observer:
    """Return an observer that shows which tools the sub-agent uses."""

    def watch(item: Live) -> None:
        if isinstance(item, ModelAnswered) and item.calls:
            work.context.progress(f"{work.name}: {', '.join(call.tool for call in item.calls)}")
        elif isinstance(item, Progress) and item.is_tail:
            work.context.show_tail(item.text)
        elif isinstance(item, Progress):
            work.context.progress(f"{work.name}: {item.text}")

    return watch


def _describe_last_message(session: Session) -> str:
    said = [m.text for m in session.driver.machine.history if isinstance(m, AssistantMessage)]
    # The last one says that there is no answer.
    words = next((text for text in reversed(said[:-1]) if text), "")
    return f"; it said last: {words[:MAX_LAST_MESSAGE]}" if words else ""


def _min_of(some: N | None, other: N | None) -> N | None:
    found = [one for one in (some, other) if one is not None]
    return min(found) if found else None


def _invalid(why: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, why)
