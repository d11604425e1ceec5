"""Conversations with a served agent: their tasks, and questions that wait for the sender.

A conversation is a session of the agent; a task is one message worked to its end. What happens to a
task is a queue of `Item`s that the server takes one after another: progress texts, a question, and
one end. A question (may this call run?) stops the run until the next message for that task: one
that begins with `yes` approves the call once; any other message denies it and is the reason. Anyone
who holds the server's token may answer, so calls of critical risk, and calls that may have run
before, are denied without a question.

Limits: `MAX_TASKS` running, as many conversations open (the one idle for longest is closed; its
journal stays), `ANSWER_SECONDS` to answer a question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ferrule.core.errors import FerruleError, RunCancelled
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.media import Content, LoadedMedia, load_media
from ferrule.core.value_class import frozen
from ferrule.engine.agent import Agent
from ferrule.engine.live_events import Live, Progress
from ferrule.engine.session import RunResult, Session
from ferrule.permissions.approval_text import describe_call
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.runtime.hidden_errors import is_for_clients, log_hidden_error
from ferrule.runtime.http.work_limits import IN_ALL
from ferrule.runtime.session_pool import PoolFull, SessionPool

MAX_TASKS = IN_ALL
"""The protocol names no persons: whoever has the token is served."""
ANSWER_SECONDS = 600.0
_SHOWN = 4_000
_LINE = 200

Leave = Callable[[Session], Awaitable[None]]
Kind = Literal["words", "question", "done", "failed", "canceled"]


@frozen
class TaskUpdate:
    """Something that happened to a task.

    `done`, `failed` and `canceled` end it; `text` is the answer, or the reason. With `is_value` it
    is JSON: the value of the agent's `output_type`. `media` are those that the run's tools have
    returned.
    """

    kind: Kind
    text: str
    is_value: bool = False
    media: tuple[LoadedMedia, ...] = ()


class TaskRefused(Exception):
    """A task that is not accepted. `str` says why."""


@dataclass(slots=True)
class _Conversation:
    session: Session
    leave: Leave
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the task that is running: one at a time."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def is_busy(self) -> bool:
        return bool(self.tasks)

    async def cancel(self) -> None:
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    async def close(self) -> None:
        await self.leave(self.session)


class Task:
    """One task. `updates` is what happens to it, in order. As an approver it asks the sender."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.updates: asyncio.Queue[TaskUpdate] = asyncio.Queue()
        self.work: asyncio.Task[None] | None = None
        self._question: asyncio.Future[ApprovalAnswer] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is still running, or will be after an answer."""
        return self.work is not None and not self.work.done()

    def receive(self, text: str) -> None:
        """Take another message: the answer to its question, or a message to the running model."""
        if self._question is None or self._question.done():
            self._session.tell(text)
            return
        yes = text.strip().lower().split(maxsplit=1)[:1] in (
            ["yes"],
            ["yes,"],
            ["yes."],
            ["yes!"],
            ["y"],
        )
        said = (
            ApprovalAnswer("once", by="a2a")
            if yes
            else ApprovalAnswer("deny", by="a2a", note=text.strip()[:_SHOWN])
        )
        self._question.set_result(said)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Implement `Approver.ask`."""
        if request.risk == "critical" or request.has_unknown_outcome:
            return ApprovalAnswer(
                "deny",
                by="a2a",
                note="this wants a person where the agent runs, not a message",
                refused_by="nobody",
            )
        asked = self._question = asyncio.get_running_loop().create_future()
        self.updates.put_nowait(TaskUpdate("question", _question_text(request)))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asked
        except TimeoutError:
            return ApprovalAnswer(
                "deny",
                by="a2a",
                note=f"nobody answered within {ANSWER_SECONDS:g} s",
                refused_by="nobody",
            )
        finally:
            self._question = None


def _list_media(result: RunResult[Any], session: Session) -> list[LoadedMedia]:
    """Return the pictures, sounds and documents of a run's results, each of them once."""
    found = {one.sha256: one for call in result.results for one in call.media}
    return [load_media(one, session.history.read_media) for one in found.values()]


def _question_text(request: ApprovalRequest) -> str:
    return (
        f"Allow `{request.tool.full_name}` to run? {escape_for_approval(request.reason)}.\n"
        f"{describe_call(request, _SHOWN)}\nAnswer `yes`, or say why not."
    )


class Conversations:
    """The conversations and tasks of one served agent. `leave` closes a session."""

    def __init__(self, agent: Agent[Any, Any], leave: Leave | None = None) -> None:
        self._agent = agent
        self._leave = leave or Session.close
        self._pool = SessionPool[str, _Conversation](MAX_TASKS)
        self._tasks: dict[str, Task] = {}

    def find_task(self, task_id: str) -> Task | None:
        """Return a task that is running, or whose end was not delivered yet."""
        return self._tasks.get(task_id)

    async def start_task(self, task_id: str, context_id: str, message: Content) -> Task:
        """Accept a task.

        Raises:
            Refused: too many tasks are running.
        """
        if sum(task.is_running for task in self._tasks.values()) >= MAX_TASKS:
            raise TaskRefused(f"{MAX_TASKS} tasks are running already; try again later")
        for unheard in [name for name, task in self._tasks.items() if not task.is_running][
            :-MAX_TASKS
        ]:
            del self._tasks[unheard]
        conversation = self._conversation(context_id)
        task = self._tasks[task_id] = Task(conversation.session)
        task.work = asyncio.create_task(
            self._run_task(task, conversation, message), name=f"a2a task {task_id}"
        )
        conversation.tasks.add(task.work)
        task.work.add_done_callback(conversation.tasks.discard)
        return task

    def forget_task(self, task_id: str) -> None:
        """Forget a task whose end was delivered."""
        self._tasks.pop(task_id, None)

    async def cancel_task(self, task_id: str) -> None:
        """Cancel a task. Its calls are settled and journaled before this returns."""
        task = self._tasks.pop(task_id, None)
        if task is not None and task.work is not None:
            task.work.cancel()
            await asyncio.wait([task.work])

    async def close(self) -> None:
        """End all tasks and close the sessions. The agent stays open for its owner."""
        self._tasks.clear()
        await self._pool.close_all()

    def _conversation(self, context_id: str) -> _Conversation:
        known = self._pool.use(context_id)
        if known is not None:
            return known
        try:
            self._pool.make_room()
        except PoolFull as full:
            raise TaskRefused(f"{full.detail}; {full.hint}") from full
        known = _Conversation(self._agent.session(), self._leave)
        self._pool.add(context_id, known)
        return known

    async def _run_task(self, task: Task, conversation: _Conversation, message: Content) -> None:
        def show_progress(item: Live) -> None:
            if isinstance(item, Progress) and not item.is_tail:
                task.updates.put_nowait(TaskUpdate("words", item.text[:_LINE]))

        session = conversation.session
        async with conversation.turn:
            session.approvals.set_approver(task)
            stop_observing = session.observe(show_progress)
            try:
                result = await session.run(message)
                media = tuple(_list_media(result, session))
                end = TaskUpdate("done", result.text, session.ends_with_value, media)
            except (asyncio.CancelledError, RunCancelled):
                end = TaskUpdate("canceled", "it was cancelled")
            except FerruleError as error:
                end = TaskUpdate("failed", describe_failure(error))
            finally:
                stop_observing()
        task.updates.put_nowait(end)


def describe_failure(error: FerruleError) -> str:
    """Return what a client is told of an error. What went wrong inside is logged."""
    if is_for_clients(error):
        return error.detail
    log_hidden_error("a2a", error)
    return f"the agent cannot work now ({error.code})"
