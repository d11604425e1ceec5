"""Background tasks: work that goes on after its call was answered, polled or awaited by id.

    tasks = background(context)
    task_id = tasks.start(work, name="deploy", tell=context.tell_end)
    # The call is answered at once: {"task_id": task_id, "status": "running"}

A task belongs to one session and ends with it at the latest; a task of a run (`of_run`) ends with
the run. The model is told of its end through `tell`, unless a call waits for it. `TASK_TOOLS` are
the tools for a model that started some.

The journal says when a task began and how it ended. An id says which session it belongs to: for a
task that this process does not know, a session answers `unknown` if the id is its own and
`not_found` for any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex
from typing import Annotated, Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool_from_function
from ferrule.tools.definition import Tool

from .result_bounds import bound_text
from .stopping import STOP_SECONDS, Stop, enter_no_stop, leave_behind

MAX_RUNNING = 16
MAX_FINISHED = 200
"""Finished tasks whose outcome can still be read; the oldest go first."""
RESULT_BYTES = 48 * 1024
"""Limit of one task's value, so that an answer about it is not cut."""
MAX_WAIT = 600_000
"""Milliseconds."""
TOPIC = "task"
_MEMORY = "engine.background"
_LOST = (
    "its outcome is unknown: the process that ran it has ended, or it was long ago; "
    "check what it did before doing it again"
)
_LEFT = (
    f"it did not let itself be stopped within {STOP_SECONDS:g} s and was left behind; it may still "
    "be running: outcome unknown"
)


TaskStatus = Literal["running", "done", "failed", "cancelled"]


@dataclass(slots=True)
class _Task:
    """One task and its outcome, with the statuses of `BackgroundTasks.status`."""

    name: str
    of_run: bool
    status: TaskStatus = "running"
    result: Any = None
    notes: tuple[str, ...] = ()
    error_type: str = ""
    error: str = ""
    task: asyncio.Task[None] | None = None
    waiters: int = 0
    """Number of calls that wait for it: a caller that gets the answer needs no notice."""


class BackgroundTasks:
    """The background tasks of a session. Use it on the event loop of its run.

    Args:
        owner: The session's identity.
        note: Writes a notice (topic, text) into the journal.
    """

    def __init__(
        self, owner: Identity, note: Callable[[str, str], None] = lambda topic, text: None
    ) -> None:
        self._owner = f"{owner.tenant}\0{owner.user}\0{owner.session}\0"
        self._note = note
        self._tasks: dict[str, _Task] = {}
        self.is_close_registered = False
        """Whether it is registered to be closed with the session."""

    def start(
        self,
        work: Callable[[], Awaitable[Any]],
        *,
        name: str,
        tell: Callable[[str], None] = lambda text: None,
        of_run: bool = False,
    ) -> str:
        """Start a task and return its id.

        Args:
            work: What the task does.
            name: Its name for people and the model.
            tell: Called with a notice when it ends.
            of_run: Whether it ends with the run.

        Raises:
            ToolFailed: Too many tasks are running (`limit`).
        """
        running = sum(kept.status == "running" for kept in self._tasks.values())
        if running >= MAX_RUNNING:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"`{name}` was not started: {running} tasks run; wait for one with `task_await`",
            )
        chance = token_hex(6)
        task_id = f"task_{chance}{self._checksum(chance)}"
        kept = self._tasks[task_id] = _Task(name, of_run)
        self._note(TOPIC, f"{task_id} (`{name}`) started")
        # A task ends with its session or its run, and not with the call that began it.
        token = enter_no_stop()
        try:
            kept.task = asyncio.create_task(self._work(task_id, kept, work, tell))
        finally:
            Stop.leave(token)
        self._drop_old()
        return task_id

    async def _work(
        self,
        task_id: str,
        kept: _Task,
        work: Callable[[], Awaitable[Any]],
        tell: Callable[[str], None],
    ) -> None:
        try:
            found = bound_text(await work(), RESULT_BYTES)
            kept.result = found.data
            kept.notes = found.notes
            kept.status = "done"
        except asyncio.CancelledError:
            self._on_end(task_id, kept, "cancelled", ErrorType.CANCELLED, "it was stopped")
            raise
        except ToolFailed as error:
            self._on_end(task_id, kept, "failed", error.error_type, error.message)
        except Exception as error:  # noqa: BLE001  boundary: whatever a task raises is its outcome
            message = str(error)
            if not isinstance(error, FerruleError):
                message = f"{type(error).__name__}: {message}"
            self._on_end(task_id, kept, "failed", ErrorType.INTERNAL_ERROR, message)
        else:
            self._on_end(task_id, kept, "done")
        if not kept.waiters:
            tell(f"{task_id} (`{kept.name}`) is {kept.status}; `task_await` gives what came of it")

    def _on_end(
        self, task_id: str, kept: _Task, status: TaskStatus, error_type: str = "", error: str = ""
    ) -> None:
        kept.status = status
        kept.error_type = error_type
        kept.error = error
        detail = f": {error[:500]}" if error else ""
        self._note(TOPIC, f"{task_id} (`{kept.name}`) {status}{detail}")

    def status(self, task_id: str) -> dict[str, Any]:
        """Return the state of a task.

        Returns:
            `{task_id, name, status}`, with `result` if it is done (and `notes` if that was cut),
            `error_type` and `error` if it failed or was cancelled; `{task_id, status, error}` if it
            is unknown.

        Raises:
            ToolFailed: There is no such task (`not_found`).
        """
        kept = self._find(task_id)
        if kept is None:
            return {"task_id": task_id, "status": "unknown", "error": _LOST}
        found: dict[str, Any] = {"task_id": task_id, "name": kept.name, "status": kept.status}
        if kept.status == "done":
            found["result"] = kept.result
            if kept.notes:
                found["notes"] = list(kept.notes)
        elif kept.status != "running":
            found |= {"error_type": str(kept.error_type), "error": kept.error}
        return found

    async def wait(self, task_id: str, seconds: float) -> dict[str, Any]:
        """Return the state of a task once it has ended, or after this time.

        Raises ToolFailed (`not_found`).
        """
        kept = self._find(task_id)
        if (
            kept is not None
            and kept.task is not None
            and not kept.task.done()
            and _is_on_this_loop(kept.task)
        ):
            kept.waiters += 1
            try:
                await asyncio.wait([kept.task], timeout=seconds)
            finally:
                kept.waiters -= 1
        return self.status(task_id)

    async def cancel(self, task_id: str) -> dict[str, Any]:
        """Stop a task, if it runs, and return its state. Raises ToolFailed (`not_found`)."""
        kept = self._find(task_id)
        if kept is not None:
            await self._stop({task_id: kept})
        return self.status(task_id)

    async def cancel_run_tasks(self) -> None:
        """Stop the tasks of the run that ends."""
        await self._stop({task_id: kept for task_id, kept in self._tasks.items() if kept.of_run})

    async def close(self) -> None:
        """Stop all tasks."""
        self.is_close_registered = False
        await self._stop(dict(self._tasks))

    async def _stop(self, some: dict[str, _Task]) -> None:
        running: list[asyncio.Task[None]] = []
        for kept in some.values():
            if kept.task is None or kept.task.done():
                continue
            if _is_on_this_loop(kept.task):
                running.append(kept.task)
                kept.task.cancel()
                continue
            loop = kept.task.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(kept.task.cancel)
        if running:
            await asyncio.wait(running, timeout=STOP_SECONDS)
        for task_id, kept in some.items():
            if kept.task in running and not kept.task.done():
                leave_behind(kept.task)
                self._on_end(task_id, kept, "cancelled", ErrorType.CANCELLED, _LEFT)
            # Cancelled before its first step: it could not say so itself.
            if kept.status == "running":
                self._on_end(task_id, kept, "cancelled", ErrorType.CANCELLED, "it was stopped")

    def _checksum(self, chance: str) -> str:
        """Return the checksum that tells this session's ids from others. It protects nothing."""
        return sha256(f"{self._owner}{chance}".encode("utf-8", "surrogatepass")).hexdigest()[:8]

    def _find(self, task_id: str) -> _Task | None:
        """Return a task; None for one of this session that is no longer known.

        Raises ToolFailed (`not_found`).
        """
        kept = self._tasks.get(task_id)
        if kept is None and not self._is_own_id(task_id):
            known = ", ".join(list(self._tasks)[-8:])
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"there is no task `{task_id[:100]}`; there are: {known or 'none'}",
            )
        return kept

    def _is_own_id(self, task_id: str) -> bool:
        prefix, chance, check = task_id[:5], task_id[5:17], task_id[17:]
        return prefix == "task_" and len(chance) == 12 and self._checksum(chance) == check

    def _drop_old(self) -> None:
        finished = [task_id for task_id, kept in self._tasks.items() if kept.status != "running"]
        for task_id in finished[: max(0, len(finished) - MAX_FINISHED)]:
            del self._tasks[task_id]


def _is_on_this_loop(task: asyncio.Task[None]) -> bool:
    """Whether a task runs on the current event loop; if not, it must not be touched."""
    return task.get_loop() is asyncio.get_running_loop()


def background_tasks(context: Context) -> BackgroundTasks:
    """Return the background tasks of this session; create them on first use."""
    tasks = context.memory.get(_MEMORY)
    if tasks is None:
        tasks = context.memory[_MEMORY] = BackgroundTasks(context.identity, context.note)
    if not tasks.is_close_registered:
        tasks.is_close_registered = True
        context.on_close(tasks.close)
    return tasks


def find_background(memory: dict[str, Any]) -> BackgroundTasks | None:
    """Return the tasks in a session's memory, if it has any."""
    return memory.get(_MEMORY)


# ---- tools


async def task_poll(
    task_id: Annotated[str, "The id that starting the task gave."], context: Context
) -> dict[str, Any]:
    """Say how a background task stands, without waiting: running, done (with its result), failed or
    cancelled.
    """
    return background_tasks(context).status(task_id)


async def task_await(
    task_id: Annotated[str, "The id that starting the task gave."],
    context: Context,
    timeout_ms: Annotated[int, "Milliseconds to wait at the most, up to 600000."] = 60_000,
) -> dict[str, Any]:
    """Wait for a background task and give its result; after the time is over, say how it stands."""
    if not 0 <= timeout_ms <= MAX_WAIT:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"`timeout_ms` must be from 0 to {MAX_WAIT}, found {timeout_ms}",
        )
    return await background_tasks(context).wait(task_id, timeout_ms / 1000)


async def task_cancel(
    task_id: Annotated[str, "The id that starting the task gave."], context: Context
) -> dict[str, Any]:
    """Stop a background task. What it did so far stands."""
    return await background_tasks(context).cancel(task_id)


TASK_TOOLS: tuple[Tool, ...] = (
    tool_from_function(task_poll, side_effect="none", polls=True),
    tool_from_function(task_await, side_effect="none", polls=True, timeout=MAX_WAIT / 1000 + 10),
    tool_from_function(task_cancel, side_effect="none", idempotent=True),
)
"""Tools for a catalog in which something may start tasks."""
