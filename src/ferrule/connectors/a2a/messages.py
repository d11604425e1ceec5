"""Messages to a peer, in the conversation that a session has with that peer.

A session has one conversation with a peer (`contextId`): the first answer begins it, later messages
name it. It lives in the memory of the session, so another session, and a sub-agent, have their own.
A task can be continued only in the session that began it, so no text can lead a model to somebody
else's task.

A message has an id of its own each time. The skill that is meant is in its metadata (`skill`),
since the protocol has no place for it. The identity that a call is for is in there only if the
person allowed it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ferrule.connectors.bounded_schemas import nesting_depth
from ferrule.connectors.json_values import list_or_empty, mapping_or_empty
from ferrule.core.calls import encode_json
from ferrule.core.errors import RetryCall
from ferrule.engine.session_media import read_input
from ferrule.tools.context import Context
from ferrule.tools.media_types import MediaInvalid, detect_type

from .cards import Skill
from .spec import A2aPeer
from .task_state import TaskState

MAX_MESSAGE = 256 * 1024
"""Bytes of what one call may send to a peer, without its files."""
MAX_FILES = 16
MAX_FILE_BYTES = 16 * 1024 * 1024
"""Bytes of all files of one call together."""
_MAX_DEPTH = 64
_MAX_TASKS = 100
_MAX_EXACT_INTEGER = 2**53
"""The protocol carries numbers as floats: larger integers would arrive as others."""
_MEMORY_KEY = "ferrule a2a"


@dataclass(slots=True)
class Conversation:
    """What a session has with one peer.

    `tasks` are those that wait for an answer, the oldest first, with their contexts.
    """

    context_id: str = ""
    tasks: dict[str, str] = field(default_factory=dict[str, str])

    def record(self, task: TaskState) -> None:
        """Record what came of a message."""
        self.context_id = self.context_id or task.context_id
        self.tasks.pop(task.task_id, None)
        if task.can_cancel and task.is_settled:
            self.tasks[task.task_id] = task.context_id
            while len(self.tasks) > _MAX_TASKS:
                del self.tasks[next(iter(self.tasks))]


def get_conversation(context: Context, peer: str) -> Conversation:
    """Return the conversation that the session of a call has with a peer."""
    conversations: dict[str, Conversation] = context.memory.setdefault(_MEMORY_KEY, {})
    return conversations.setdefault(peer, Conversation())


async def read_files(names: Sequence[str], context: Context) -> list[dict[str, Any]]:
    """Return files as parts of a message, by their bytes, with their types by content.

    Raises:
        RetryCall: They are too large together.
        ToolFailed: One cannot be read, by the rules of every tool.
    """
    parts: list[dict[str, Any]] = []
    size = 0
    for one in names:
        data, name = await read_input(one, context)
        size += len(data)
        if size > MAX_FILE_BYTES:
            raise RetryCall(f"`files` are more than {MAX_FILE_BYTES} bytes together: send less")
        parts.append(
            {
                "raw": base64.b64encode(data).decode(),
                "filename": name.rpartition("/")[2],
                "mediaType": _media_type(data, name),
            }
        )
    return parts


def _media_type(data: bytes, name: str) -> str:
    try:
        return detect_type(data, name).mime
    except MediaInvalid:
        return "application/octet-stream"


def make_message(
    peer: A2aPeer,
    skill: Skill,
    arguments: Mapping[str, Any],
    files: Sequence[Mapping[str, Any]],
    conversation: Conversation,
    context: Context,
) -> dict[str, Any]:
    """Return a message as the protocol's JSON.

    Args:
        peer: Who it is for.
        skill: The skill that is meant.
        arguments: Those of the call.
        files: Its files as parts.
        conversation: What the session has with the peer.
        context: The call's.

    Raises:
        RetryCall: The message is too large, or its task does not wait in this session.
    """
    parts: list[dict[str, Any]] = [{"text": arguments["message"]}]
    if "data" in arguments:
        _check_data(arguments["data"])
        parts.append({"data": arguments["data"]})
    if len(encode_json(parts).encode("utf-8", "replace")) > MAX_MESSAGE:
        raise RetryCall(f"`message` and `data` are more than {MAX_MESSAGE} bytes: say it with less")
    parts += [dict(part) for part in files]
    task_id = arguments.get("task_id", "")
    if task_id and task_id not in conversation.tasks:
        raise RetryCall(
            f"no task of `{peer.name}` with this `task_id` waits in this session: leave it out"
        )
    metadata: dict[str, Any] = {"skill": skill.id}
    if peer.identity:
        identity = context.identity
        metadata["ferrule/identity"] = {
            "tenant": identity.tenant,
            "user": identity.user,
            "session": identity.session,
            "run": identity.run,
        }
    message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": parts, "metadata": metadata}
    if task_id:
        message["taskId"] = task_id
    context_id = conversation.tasks[task_id] if task_id else conversation.context_id
    if context_id:
        message["contextId"] = context_id
    return message


def _check_data(data: Mapping[str, Any]) -> None:
    if nesting_depth(data, _MAX_DEPTH + 1) > _MAX_DEPTH:
        raise RetryCall(f"`data` is nested more than {_MAX_DEPTH} deep: say it flatter")
    remaining: list[Any] = [data]
    while remaining:
        value = remaining.pop()
        if isinstance(value, int) and abs(value) > _MAX_EXACT_INTEGER:
            raise RetryCall(
                f"`data` holds {str(value)[:40]}, which this protocol cannot carry exactly: "
                "write it as a text"
            )
        remaining += [*mapping_or_empty(value).values(), *list_or_empty(value)]
