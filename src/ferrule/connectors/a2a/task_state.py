"""The state of a task at a peer, folded from what the peer says of it. No I/O.

A peer answers a message with a message, which ends it, or with a task, which goes through states:

    submitted, working             it is still running
    completed                      the answer is its artifacts and its last message
    failed, rejected, canceled     an error of the call
    input-required, auth-required  it waits; the answer says for what, and how to continue

An artifact comes at once or in pieces (`append`); a text that continues a text is joined to it
without anything between.

Source: A2A 1.0, "Task state" and "Streaming" (the JSON form that the protocol library makes of its
messages).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ferrule.connectors.json_values import mapping_or_empty, objects_in, text_or_empty
from ferrule.connectors.text_cleaning import clean_text

StateName = Literal[
    "submitted",
    "working",
    "completed",
    "failed",
    "rejected",
    "canceled",
    "input-required",
    "auth-required",
]
_STATES: dict[str, StateName] = {
    "TASK_STATE_SUBMITTED": "submitted",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_INPUT_REQUIRED": "input-required",
    "TASK_STATE_AUTH_REQUIRED": "auth-required",
}
END_STATES = ("completed", "failed", "rejected", "canceled")
WAITING_STATES = ("input-required", "auth-required")
MAX_ARTIFACTS = 256
MAX_PARTS = 20_000
_MAX_PROGRESS = 200


@dataclass(slots=True)
class Artifact:
    """One artifact: its parts in order, each with whether it continues the one before it."""

    name: str
    parts: list[tuple[Mapping[str, Any], bool]]

    def joined_parts(self) -> list[Mapping[str, Any]]:
        """Return the parts, with those that were sent in pieces joined."""
        parts: list[dict[str, Any]] = []
        pieces: list[str] = []
        for part, continues in self.parts:
            if not (continues and parts and _is_text(part) and _is_text(parts[-1])):
                _join_pieces(parts, pieces)
                parts.append(dict(part))
            pieces.append(text_or_empty(part.get("text")))
        _join_pieces(parts, pieces)
        return list(parts)


def _is_text(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("text"), str)


def _join_pieces(parts: list[dict[str, Any]], pieces: list[str]) -> None:
    if parts and _is_text(parts[-1]):
        parts[-1]["text"] = "".join(pieces)
    pieces.clear()


@dataclass(slots=True)
class TaskState:
    """What one exchange has come to.

    `reply` are the parts of a message that ended it, `message` those that came with the last state.
    """

    task_id: str = ""
    context_id: str = ""
    state: StateName = "submitted"
    message: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    artifacts: dict[str, Artifact] = field(default_factory=dict[str, Artifact])
    reply: list[Mapping[str, Any]] | None = None
    part_count: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will come without us: it has ended, or waits for us."""
        return self.reply is not None or self.state in END_STATES or self.state in WAITING_STATES

    @property
    def can_cancel(self) -> bool:
        """Whether there is a task to cancel."""
        return bool(self.task_id) and self.reply is None and self.state not in END_STATES

    def apply_event(self, event: Mapping[str, Any]) -> str:
        """Apply one event of a stream, or one answer. Return what to show a person, if anything.

        Raises:
            ValueError: The event does not conform to the protocol, or there is too much of it.
        """
        if "message" in event:
            message = mapping_or_empty(event["message"])
            self.reply = objects_in(message.get("parts"))
            if not self.reply:
                raise ValueError("it answered with an empty message")
            self._check_ids(
                text_or_empty(message.get("taskId")), text_or_empty(message.get("contextId"))
            )
            return ""
        if "task" in event:
            return self.apply_task(mapping_or_empty(event["task"]))
        if "statusUpdate" in event:
            update = mapping_or_empty(event["statusUpdate"])
            self._check_ids(
                text_or_empty(update.get("taskId")), text_or_empty(update.get("contextId"))
            )
            return self._apply_status(mapping_or_empty(update.get("status")))
        if "artifactUpdate" in event:
            update = mapping_or_empty(event["artifactUpdate"])
            self._check_ids(
                text_or_empty(update.get("taskId")), text_or_empty(update.get("contextId"))
            )
            return self._apply_artifact(
                mapping_or_empty(update.get("artifact")), update.get("append") is True
            )
        raise ValueError("it answered with neither a message nor a task")

    def apply_task(self, task: Mapping[str, Any]) -> str:
        """Apply a whole task. Return what to show a person, if anything."""
        self._check_ids(text_or_empty(task.get("id")), text_or_empty(task.get("contextId")))
        self.artifacts.clear()
        self.part_count = 0
        for artifact in objects_in(task.get("artifacts")):
            self._apply_artifact(artifact, append=False)
        shown = self._apply_status(mapping_or_empty(task.get("status")))
        if not self.message and self.state == "completed" and not self.artifacts:
            # Some agents put their answer into the history only, and not into the state.
            messages = [
                message
                for message in objects_in(task.get("history"))
                if message.get("role") == "ROLE_AGENT"
            ]
            self.message = objects_in(messages[-1].get("parts")) if messages else []
        return shown

    def _check_ids(self, task: str, context: str) -> None:
        if self.task_id and task and task != self.task_id:
            raise ValueError("it answered for another task than the one that was asked for")
        self.task_id = task or self.task_id
        self.context_id = context or self.context_id

    def _apply_status(self, status: Mapping[str, Any]) -> str:
        # An unknown state (of a later version) counts as running: the call's timeout bounds it.
        self.state = _STATES.get(text_or_empty(status.get("state")), "working")
        self.message = objects_in(mapping_or_empty(status.get("message")).get("parts"))
        shown = " ".join(text_or_empty(part.get("text")) for part in self.message[:20])
        return clean_text(shown).strip()[:_MAX_PROGRESS]

    def _apply_artifact(self, artifact: Mapping[str, Any], append: bool) -> str:
        key = text_or_empty(artifact.get("artifactId"))
        parts = objects_in(artifact.get("parts"))
        self.part_count += len(parts)
        known = self.artifacts.get(key)
        if self.part_count > MAX_PARTS or (known is None and len(self.artifacts) == MAX_ARTIFACTS):
            raise ValueError(
                f"it gives more than {MAX_ARTIFACTS} artifacts, or {MAX_PARTS} parts of them"
            )
        if append and known is not None:
            known.parts += [(part, index == 0) for index, part in enumerate(parts)]
        else:
            name = text_or_empty(artifact.get("name"))
            self.artifacts[key] = Artifact(name, [(part, False) for part in parts])
        return ""
