"""Delegation: a call of the tool `delegate` (`tool.py`) has another agent do a task.

The agent works in a session of its own. The call's data:

    {"status": "done", "agent": …, "answer": text, "session": id, "turns": n, "tokens": n}
                                                  also "attempts": n if the work was checked,
                                                  "note" if the answer is empty
    {"status": "limit", …}                        the same, if the agent's limits say
                                                  `on_limit: answer`
    {"status": "started", "task_id": id, "agent": …, "session": id}
                                                  for `wait: false`; `task_await` gives the rest

Rules of this file, each a promise with a test:

* A sub-agent has no tool that the session does not have, nothing is allowed to it that is not
  allowed to the session, and what it does passes the same gate, hooks and journal. Its session says
  who delegated; the delegating session says where the work went.
* It draws on what is left of the run's time, tokens, money and calls. Its turns are fewer the
  deeper it is.
* Whatever goes wrong is a typed error that names the sub-agent: `limit` (and which), `io_error`
  (its model), `permission_denied`, `cancelled`, `validation_failed` (its work failed its check).
* It never outlives the run that delegated to it. Stopping a call stops its sub-agent.
* If the process ends, whoever resumes the run resumes its sub-agents, questions included
  (`interrupted_task`).
* After two failures in a row in one run the same sub-agent is not tried again.
"""

from __future__ import annotations

from dataclasses import replace
from secrets import token_hex
from typing import Any, cast

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.similar_names import suggest_names
from ferrule.engine.hooks.events import DelegationPre
from ferrule.tools.background_launch import Launch
from ferrule.tools.context import Context

from .delegated_task import DelegatedTask, DelegatingAgent, DelegatingSession, DelegationRequest
from .delegated_tools import choose_tools, full_name
from .interrupted_task import InterruptedCalls
from .registry import SubAgentRegistry
from .session_tree import Lineage
from .sub_agent import DELEGATE, SubAgent
from .verification import plan_check

MAX_FAILURES = 2
MAX_RETRIES = 5
UNNAMED = "unnamed"
"""The name of an agent that was made for one task."""


class Delegation:
    """What the `delegate` calls of one session do. `context.resource(Delegation)` finds it."""

    def __init__(
        self, home: DelegatingAgent, driver: DelegatingSession, roster: SubAgentRegistry
    ) -> None:
        self._home = home
        self._driver = driver
        self._roster = roster
        self._own: dict[str, SubAgent] = {}
        self.interrupted = InterruptedCalls(driver.log.journal)
        self._failures: dict[str, tuple[int, str]] = {}
        self._run = ""

    @property
    def agents(self) -> dict[str, SubAgent]:
        """The sub-agents of this session, by name."""
        return {**self._roster.agents, **self._own}

    def add(self, agent: SubAgent) -> None:
        """Add a sub-agent to this session. The description of its tool stays as it is.

        Raises ConfigError for a name that is taken.
        """
        if agent.name in self.agents:
            raise ConfigError(
                f"there is an agent `{agent.name}` already", hint="choose another name"
            )
        self._own[agent.name] = agent

    async def run(self, request: DelegationRequest, context: Context) -> dict[str, Any] | Launch:
        """Carry out a request. Raises ToolFailed."""
        earlier = self.interrupted.find(context.call_id)
        session_id = token_hex(16) if earlier is None else earlier.session
        work = self._plan(request, context, session_id)
        work = await self._allow(work)
        self._refuse_failed(work)
        if request.wait:
            return await self._count_failure(work)
        self._check_room(work.name)
        shown = {"status": "started", "agent": work.name, "session": work.session_id}
        return Launch(
            lambda: self._count_failure(work),
            f"agent {work.name}",
            ends_with_run=True,
            answer_fields=shown,
        )

    # ---- what would be done

    def _plan(self, request: DelegationRequest, context: Context, session_id: str) -> DelegatedTask:
        """Check everything that can be refused before anybody is asked."""
        if not request.task.strip():
            raise _invalid("the task is empty; say what to do")
        if not 0 <= request.max_verify_retries <= MAX_RETRIES:
            raise _invalid(f"max_verify_retries = {request.max_verify_retries}: 0 to {MAX_RETRIES}")
        depth, most = self._lineage.depth, self._roster.limits.max_depth
        if depth >= most:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"nothing was delegated: limit max_depth = {most}; do the work here",
            )
        definition = self._find_definition(request)
        self._check_model(request)
        catalog = self._driver.dispatcher.catalog
        is_last = depth + 1 >= most
        tools = choose_tools(definition, request, catalog, self._driver.log, last=is_last)
        work = DelegatedTask(
            request,
            definition,
            tools,
            context,
            session_id,
            self._home,
            self._driver,
            self._roster,
            self.interrupted.find(context.call_id),
        )
        if work.check:
            dispatcher = self._driver.dispatcher
            if request.verify:
                # A check that the call names may use only what the model itself may call. A check
                # in a definition is its author's.
                plan_check(work.check, dispatcher.catalog, dispatcher.explain_unseen)
            else:
                plan_check(work.check, dispatcher.catalog)
        return work

    @property
    def _lineage(self) -> Lineage:
        return self._driver.lineage

    def _find_definition(self, request: DelegationRequest) -> SubAgent:
        agents = self.agents
        if request.agent:
            found = agents.get(request.agent)
            if found is not None:
                return found
            known = f"there are: {', '.join(sorted(agents)) or 'none'}"
            hint = suggest_names(request.agent, agents, known)
            raise ToolFailed(ErrorType.NOT_FOUND, f"there is no agent `{request.agent}`; {hint}")
        if request.tools is None:
            raise _invalid(
                "name an `agent`, or the `tools` of one; agents: "
                f"{', '.join(sorted(agents)) or 'none'}"
            )
        catalog = self._driver.dispatcher.catalog
        names = tuple(full_name(catalog.get(name)) or name for name in request.tools)
        return SubAgent(UNNAMED, "made for one task", tools=names)

    @property
    def models(self) -> set[str]:
        """Models that a sub-agent may be asked to use.

        The session's, its sub-agents' and those that the limits name.
        """
        agents = (agent.model for agent in self.agents.values())
        return {self._home.model, *self._roster.limits.models, *agents} - {""}

    def _check_model(self, request: DelegationRequest) -> None:
        allowed = self.models
        if request.model and request.model not in allowed:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                (
                    f"the model `{request.model}` may not be used for this; allowed: "
                    f"{', '.join(sorted(allowed))}"
                ),
            )

    async def _allow(self, work: DelegatedTask) -> DelegatedTask:
        """Ask the hooks. If one changes the request, the new request is checked again.

        Raises ToolFailed.
        """
        payload = DelegationPre(work.name, work.request.as_dict(), work.session_id)
        outcome = await self._driver.hooks.fire(payload)
        if outcome.blocked:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, f"nothing was delegated: {outcome.blocked}"
            )
        assert isinstance(outcome.payload, DelegationPre)
        changed = dict(outcome.payload.request)
        if changed == dict(payload.as_dict()["request"]) or changed == work.request.as_dict():
            return work
        tool = self._driver.dispatcher.catalog.get(DELEGATE)
        assert tool is not None
        checked = tool.arguments.check(changed)
        if checked.problems:
            raise _invalid(f"a hook changed the request: {'; '.join(checked.problems)}")
        decision = self._driver.dispatcher.gate.decide(tool, checked.values)
        if decision.verdict != "allow":
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                (
                    "nothing was delegated: as a hook changed it, it is not allowed: "
                    f"{decision.reason}"
                ),
            )
        request = DelegationRequest.of(checked.values)
        return self._plan(replace(request, wait=work.request.wait), work.context, work.session_id)

    # ---- bounds

    def _check_room(self, name: str) -> None:
        working, most = self._lineage.tree.working, self._roster.limits.max_concurrent
        if working >= most:
            raise ToolFailed(
                ErrorType.LIMIT,
                (
                    f"`{name}` was not started: limit max_concurrent = {most}; {working} agents "
                    "are at work, wait for one"
                ),
            )

    def _refuse_failed(self, work: DelegatedTask) -> None:
        run = work.context.identity.run
        if run != self._run:
            self._run, self._failures = run, {}
        times, why = self._failures.get(work.name, (0, ""))
        if times >= MAX_FAILURES:
            raise ToolFailed(
                ErrorType.LIMIT,
                (
                    f"`{work.name}` was not asked again: it failed {times} times in a row "
                    f"({why}); do it in another way"
                ),
            )

    async def _count_failure(self, work: DelegatedTask) -> dict[str, Any]:
        self._check_room(work.name)
        with self._lineage.tree.count_working():
            try:
                done = await work.run()
            except ToolFailed as error:
                times = self._failures.get(work.name, (0, ""))[0] + 1
                self._failures[work.name] = (times, error.message[:200])
                raise
        self._failures.pop(work.name, None)
        return done


def unwrap_result(result: ToolResult) -> dict[str, Any]:
    """Return the data of a `delegate` call.

    Raises ToolFailed with its error, or if there are no agents to delegate to.
    """
    message = result.error_message or ""
    found: Any = result.data
    if result.success and isinstance(found, dict):
        return cast("dict[str, Any]", found)
    if result.error_type is ErrorType.NOT_FOUND and message.startswith(
        f"there is no tool `{DELEGATE}`"
    ):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED, "nothing was delegated: this session has no agents"
        )
    raise ToolFailed(
        result.error_type if not result.success else ErrorType.INTERNAL_ERROR,
        message or "no answer",
    )


def _invalid(why: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, why)
