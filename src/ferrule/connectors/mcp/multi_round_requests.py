"""Requests that take more than one exchange: the server asks for input, or works on a task.

    input_required  the request is sent again with the answers to the server's questions and the
                    server's own state, as it gave it (2026-07-28)
    task            the task is polled until it has ended: `tasks/get`, and `tasks/result` for the
                    older kind

Bounds: `MAX_EXCHANGES` exchanges, and the timeout of the call; between two polls of a task the
interval that the server wants is kept, within `POLL_SECONDS`. Cancelling the call cancels its task
at the server, without waiting for that. Questions other than elicitation (sampling, roots) are not
answered: they are no capability of this client.

Sources: SEP-2322 (input required), SEP-2663 (tasks extension), the 2025-11-25 schema (tasks in the
core).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ferrule.connectors.json_values import mapping_or_empty, text_or_empty

from .connection import Connection, RequestFailed
from .elicitation import ElicitationRouter

MAX_EXCHANGES = 10
POLL_SECONDS = (0.1, 10.0)
_RETRY_SECONDS = 0.25
_END_STATES = ("completed", "failed", "cancelled")

_cancelling: set[asyncio.Task[None]] = set()


async def send_request(
    connection: Connection,
    elicitation: ElicitationRouter,
    method: str,
    params: Mapping[str, Any],
    *,
    as_task: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Mapping[str, Any]:
    """Send a request until it has a final result, and return that as JSON. Raises RequestFailed.

    Args:
        connection: The connection to the server.
        elicitation: Answers the server's questions.
        method: A method of the protocol.
        params: Its parameters, as JSON.
        as_task: Ask for a task of the 2025-11-25 protocol.
        progress: Called with each progress message.
    """
    current_params: dict[str, Any] = dict(params)
    if as_task:
        current_params["task"] = {}
    for _ in range(MAX_EXCHANGES):
        result = await connection.request(
            method, current_params, progress=progress, allow_task_result=as_task
        )
        kind = result.get("resultType", "complete")
        if kind == "input_required":
            answers = await _next_params(elicitation, result)
            current_params = {**params, **answers}
            if "inputResponses" not in answers:
                await asyncio.sleep(_RETRY_SECONDS)
        elif kind == "task" or "taskId" in mapping_or_empty(result.get("task")):
            return await _run_task(connection, elicitation, result, progress)
        elif kind == "complete":
            return result
        else:
            raise RequestFailed(
                "permanent", f"it answered with a result of the kind `{text_or_empty(kind)[:40]}`"
            )
    raise RequestFailed("permanent", f"it wanted something else more than {MAX_EXCHANGES} times")


async def _next_params(asking: ElicitationRouter, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the next request says in addition."""
    questions = mapping_or_empty(result.get("inputRequests"))
    added: dict[str, Any] = {}
    if questions:
        added["inputResponses"] = {
            key: await _answer_question(asking, mapping_or_empty(question))
            for key, question in questions.items()
        }
    if isinstance(result.get("requestState"), str):
        added["requestState"] = result["requestState"]
    return added


async def _answer_question(
    asking: ElicitationRouter, request: Mapping[str, Any]
) -> Mapping[str, Any]:
    method = text_or_empty(request.get("method"))
    if method != "elicitation/create":
        raise RequestFailed("permanent", f"it asks for `{method[:60]}`, which it is not given")
    return await asking.answer(mapping_or_empty(request.get("params")))


async def _run_task(
    connection: Connection,
    asking: ElicitationRouter,
    result: Mapping[str, Any],
    progress: Callable[[str], None] | None,
) -> Mapping[str, Any]:
    is_older = "taskId" in mapping_or_empty(result.get("task"))
    task = mapping_or_empty(result.get("task")) if is_older else result
    task_id = text_or_empty(task.get("taskId"))
    try:
        return await _poll(connection, asking, task, task_id, is_older, progress)
    except RequestFailed as failure:
        if failure.kind != "expired":
            raise
        # The task itself was begun, and runs or ran.
        raise RequestFailed("gone", failure.message, code=failure.code) from failure
    except asyncio.CancelledError:
        cancellation = asyncio.create_task(_cancel(connection, task_id))
        _cancelling.add(cancellation)
        cancellation.add_done_callback(_cancelling.discard)
        raise


async def _poll(
    connection: Connection,
    asking: ElicitationRouter,
    task: Mapping[str, Any],
    task_id: str,
    is_older: bool,
    progress: Callable[[str], None] | None,
) -> Mapping[str, Any]:
    answered: set[str] = set()
    while task.get("status") not in _END_STATES:
        status_message = text_or_empty(task.get("statusMessage"))
        if progress is not None and status_message:
            progress(status_message[:200])
        if task.get("status") == "input_required":
            if is_older:
                break  # the older kind asks while its result is requested
            await _answer_task(connection, asking, task, task_id, answered)
        await asyncio.sleep(_poll_interval(task))
        task = await connection.request("tasks/get", {"taskId": task_id}, header_parameter="taskId")
    return await _task_result(connection, task, task_id, is_older)


async def _answer_task(
    connection: Connection,
    asking: ElicitationRouter,
    task: Mapping[str, Any],
    task_id: str,
    answered: set[str],
) -> None:
    """Answer the questions of a task that have not been answered yet."""
    questions = {
        key: question
        for key, question in mapping_or_empty(task.get("inputRequests")).items()
        if key not in answered
    }
    if not questions:
        return
    answers = {
        key: await _answer_question(asking, mapping_or_empty(question))
        for key, question in questions.items()
    }
    answered.update(questions)
    await connection.request(
        "tasks/update", {"taskId": task_id, "inputResponses": answers}, header_parameter="taskId"
    )


def _poll_interval(task: Mapping[str, Any]) -> float:
    milliseconds = task.get("pollIntervalMs", task.get("pollInterval"))
    seconds = milliseconds / 1000 if isinstance(milliseconds, (int, float)) else 1.0
    return min(max(seconds, POLL_SECONDS[0]), POLL_SECONDS[1])


async def _task_result(
    connection: Connection, task: Mapping[str, Any], task_id: str, is_older: bool
) -> Mapping[str, Any]:
    if is_older:
        return await connection.request(
            "tasks/result", {"taskId": task_id}, header_parameter="taskId"
        )
    if task.get("status") == "completed":
        return mapping_or_empty(task.get("result"))
    reason = text_or_empty(mapping_or_empty(task.get("error")).get("message"))
    reason = reason or text_or_empty(task.get("statusMessage"))
    message = f"its task {task.get('status')}"
    if reason:
        message += f": {reason[:1_000]}"
    raise RequestFailed("permanent", message)


async def _cancel(connection: Connection, task_id: str) -> None:
    try:
        async with asyncio.timeout(5):
            await connection.request("tasks/cancel", {"taskId": task_id}, header_parameter="taskId")
    except (RequestFailed, TimeoutError):
        return  # the call is over for us either way
