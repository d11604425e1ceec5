"""A request that takes more than one round: the server wants something first, or answers with a
task that is worked on.

    input_required    it is asked again with the answers to its questions and its own state, as it gave it (2026-07-28)
    task              it is asked for the task until that has ended: `tasks/get`, and `tasks/result` where it is the older kind

Bounds: `ROUNDS` rounds, and the time of the call; between two looks at a task passes what the
server wishes, within `WAIT`. Cancelling the call cancels its task at the server, without waiting
for that. Questions other than elicitation (sampling, roots) are not
answered: they are no capability of this client.

Sources: SEP-2322 (input required), SEP-2663 (tasks extension), the 2025-11-25 schema (tasks in the
    core).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ferrule.connectors.json_values import mapping_of, text_of

from .connection import Connection, Failure
from .elicitation import Asking

ROUNDS = 10
WAIT = (0.1, 10.0)
_PAUSE = 0.25
_ENDED = ("completed", "failed", "cancelled")

_cancelling: set[asyncio.Task[None]] = set()


async def ask(
    connection: Connection,
    asking: Asking,
    method: str,
    params: Mapping[str, Any],
    *,
    as_task: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Mapping[str, Any]:
    """The final result of a request, as JSON. Raises Failure."""
    given: dict[str, Any] = dict(params)
    if as_task:
        given["task"] = {}
    for _ in range(ROUNDS):
        result = await connection.request(method, given, progress=progress, unusual=as_task)
        kind = result.get("resultType", "complete")
        if kind == "input_required":
            more = await _answers(asking, result)
            given = {**params, **more}
            if "inputResponses" not in more:
                await asyncio.sleep(_PAUSE)
        elif kind == "task" or "taskId" in mapping_of(result.get("task")):
            return await _task(connection, asking, result, progress)
        elif kind == "complete":
            return result
        else:
            raise Failure(
                "permanent", f"it answered with a result of the kind `{text_of(kind)[:40]}`"
            )
    raise Failure("permanent", f"it wanted something else more than {ROUNDS} times")


async def _answers(asking: Asking, result: Mapping[str, Any]) -> dict[str, Any]:
    """What goes along with the next round."""
    asked = mapping_of(result.get("inputRequests"))
    more: dict[str, Any] = {}
    if asked:
        more["inputResponses"] = {
            key: await _answer(asking, mapping_of(one)) for key, one in asked.items()
        }
    if isinstance(result.get("requestState"), str):
        more["requestState"] = result["requestState"]
    return more


async def _answer(asking: Asking, request: Mapping[str, Any]) -> Mapping[str, Any]:
    method = text_of(request.get("method"))
    if method != "elicitation/create":
        raise Failure("permanent", f"it asks for `{method[:60]}`, which it is not given")
    return await asking.answer(mapping_of(request.get("params")))


async def _task(
    connection: Connection,
    asking: Asking,
    result: Mapping[str, Any],
    progress: Callable[[str], None] | None,
) -> Mapping[str, Any]:
    older = "taskId" in mapping_of(result.get("task"))
    task = mapping_of(result.get("task")) if older else result
    name = text_of(task.get("taskId"))
    try:
        return await _followed(connection, asking, task, name, older, progress)
    except asyncio.CancelledError:
        farewell = asyncio.create_task(_cancel(connection, name))
        _cancelling.add(farewell)
        farewell.add_done_callback(_cancelling.discard)
        raise


async def _followed(
    connection: Connection,
    asking: Asking,
    task: Mapping[str, Any],
    name: str,
    older: bool,
    progress: Callable[[str], None] | None,
) -> Mapping[str, Any]:
    answered: set[str] = set()
    while task.get("status") not in _ENDED:
        if progress is not None and (said := text_of(task.get("statusMessage"))):
            progress(said[:200])
        if task.get("status") == "input_required":
            if older:
                break  # the older kind asks while its result is waited for
            await _supply(connection, asking, task, name, answered)
        await asyncio.sleep(_pause(task))
        task = await connection.request("tasks/get", {"taskId": name}, named="taskId")
    return await _outcome(connection, task, name, older)


async def _supply(
    connection: Connection, asking: Asking, task: Mapping[str, Any], name: str, answered: set[str]
) -> None:
    """Answer what a task asks and was not answered yet."""
    asked = {
        key: one
        for key, one in mapping_of(task.get("inputRequests")).items()
        if key not in answered
    }
    if not asked:
        return
    answers = {key: await _answer(asking, mapping_of(one)) for key, one in asked.items()}
    answered.update(asked)
    await connection.request(
        "tasks/update", {"taskId": name, "inputResponses": answers}, named="taskId"
    )


def _pause(task: Mapping[str, Any]) -> float:
    wished = task.get("pollIntervalMs", task.get("pollInterval"))
    seconds = wished / 1000 if isinstance(wished, (int, float)) else 1.0
    return min(max(seconds, WAIT[0]), WAIT[1])


async def _outcome(
    connection: Connection, task: Mapping[str, Any], name: str, older: bool
) -> Mapping[str, Any]:
    if older:
        return await connection.request("tasks/result", {"taskId": name}, named="taskId")
    if task.get("status") == "completed":
        return mapping_of(task.get("result"))
    said = text_of(mapping_of(task.get("error")).get("message")) or text_of(
        task.get("statusMessage")
    )
    raise Failure(
        "permanent", f"its task {task.get('status')}" + (f": {said[:1_000]}" if said else "")
    )


async def _cancel(connection: Connection, name: str) -> None:
    try:
        async with asyncio.timeout(5):
            await connection.request("tasks/cancel", {"taskId": name}, named="taskId")
    except (Failure, TimeoutError):
        return  # the call is over for us either way
