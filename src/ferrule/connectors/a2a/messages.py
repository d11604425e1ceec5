"""What is said to a peer: a message of a call, in the conversation that its session has with that
peer.

A session has one conversation with a peer (`contextId`): the first answer begins it, later messages
name it. It lives in the memory of the session, so another session, and a sub-agent, have their own.
A task may be gone on with only where it was begun, so that no text can lead a model to the task of
somebody else.

A message has an id of its own each time. Which skill was meant stands in its metadata (`skill`),
since the protocol has no place for it. Who a call is for stands there only where the person said
so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ferrule.connectors.json_values import list_of, mapping_of
from ferrule.connectors.schemas import depth_of
from ferrule.core.calls import compact
from ferrule.core.errors import RetryCall
from ferrule.tools.context import Context

from .cards import Skill
from .spec import A2aPeer
from .task_state import Work

MAX_MESSAGE = 256 * 1024
"""Bytes of what one call says to a peer."""
_DEPTH = 64
_TASKS = 100
_EXACT = 2**53
"""Numbers of the wire are floats: whole ones beyond this would arrive as others."""
_MEMORY = "ferrule a2a"


@dataclass(slots=True)
class Conversation:
    """What a session has with one peer. `tasks` are those that wait for an answer, the oldest
    first, with their contexts.
    """

    context_id: str = ""
    tasks: dict[str, str] = field(default_factory=dict[str, str])

    def learn(self, work: Work) -> None:
        """Remember what came of a message."""
        self.context_id = self.context_id or work.context_id
        self.tasks.pop(work.task_id, None)
        if work.runs and work.settled:
            self.tasks[work.task_id] = work.context_id
            while len(self.tasks) > _TASKS:
                del self.tasks[next(iter(self.tasks))]


def conversation_of(context: Context, peer: str) -> Conversation:
    """The one that the session of a call has with a peer."""
    talks: dict[str, Conversation] = context.memory.setdefault(_MEMORY, {})
    return talks.setdefault(peer, Conversation())


def message_of(
    peer: A2aPeer, skill: Skill, values: Mapping[str, Any], talk: Conversation, context: Context
) -> dict[str, Any]:
    """A message, in the protocol's JSON. Raises RetryCall for what is too much, or for a task that
    does not wait in this session.
    """
    parts: list[dict[str, Any]] = [{"text": values["message"]}]
    if "data" in values:
        _check(values["data"])
        parts.append({"data": values["data"]})
    if len(compact(parts).encode("utf-8", "replace")) > MAX_MESSAGE:
        raise RetryCall(f"`message` and `data` are more than {MAX_MESSAGE} bytes: say it with less")
    task = values.get("task_id", "")
    if task and task not in talk.tasks:
        raise RetryCall(
            f"no task of `{peer.name}` with this `task_id` waits in this session: leave it out"
        )
    metadata: dict[str, Any] = {"skill": skill.id}
    if peer.identity:
        who = context.identity
        about = {"tenant": who.tenant, "user": who.user, "session": who.session, "run": who.run}
        metadata["ferrule/identity"] = about
    message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": parts, "metadata": metadata}
    if task:
        message["taskId"] = task
    if context_id := talk.tasks[task] if task else talk.context_id:
        message["contextId"] = context_id
    return message


def _check(data: Mapping[str, Any]) -> None:
    if depth_of(data, _DEPTH + 1) > _DEPTH:
        raise RetryCall(f"`data` is nested more than {_DEPTH} deep: say it flatter")
    left: list[Any] = [data]
    while left:
        one = left.pop()
        if isinstance(one, int) and abs(one) > _EXACT:
            said = str(one)[:40]
            raise RetryCall(
                f"`data` holds {said}, which this protocol cannot carry exactly: write it as a text"
            )
        left += [*mapping_of(one).values(), *list_of(one)]
