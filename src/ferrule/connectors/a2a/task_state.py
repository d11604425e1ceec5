"""What is known of a task at a peer, folded from what the peer says of it. Values in, values out:
no I/O.

A peer answers a message with a message, which ends it, or with a task, which goes through states:

    submitted, working                     it goes on
    completed                              artifacts are the answer, and what it said last
    failed, rejected, canceled             an error of the call
    input-required, auth-required          it waits: an answer that says for what, and how to go on

An artifact comes at once or in pieces (`append`); a text that continues a text is joined to it
without anything between.

Source: A2A 1.0, "Task state" and "Streaming" (the JSON form that the protocol library makes of its
    messages).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ferrule.connectors.cleaning import clean
from ferrule.connectors.json_values import mapping_of, objects_of, text_of

State = Literal[
    "submitted",
    "working",
    "completed",
    "failed",
    "rejected",
    "canceled",
    "input-required",
    "auth-required",
]
_STATES: dict[str, State] = {
    "TASK_STATE_SUBMITTED": "submitted",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_INPUT_REQUIRED": "input-required",
    "TASK_STATE_AUTH_REQUIRED": "auth-required",
}
OVER = ("completed", "failed", "rejected", "canceled")
WAITS = ("input-required", "auth-required")
MAX_ARTIFACTS = 256
MAX_PARTS = 20_000
_PROGRESS = 200


@dataclass(slots=True)
class Artifact:
    """One artifact: parts in the order they came, each with whether it continues the one before
    it.
    """

    name: str
    parts: list[tuple[Mapping[str, Any], bool]]

    def whole(self) -> list[Mapping[str, Any]]:
        """The parts, those that were sent in pieces joined."""
        made: list[dict[str, Any]] = []
        pieces: list[str] = []
        for part, continues in self.parts:
            if not (continues and made and _is_text(part) and _is_text(made[-1])):
                _close(made, pieces)
                made.append(dict(part))
            pieces.append(text_of(part.get("text")))
        _close(made, pieces)
        return list(made)


def _is_text(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("text"), str)


def _close(made: list[dict[str, Any]], pieces: list[str]) -> None:
    if made and _is_text(made[-1]):
        made[-1]["text"] = "".join(pieces)
    pieces.clear()


@dataclass(slots=True)
class Work:
    """One exchange. `reply` are the parts of a message that ended it, `said` those that came with
    the last state.
    """

    task_id: str = ""
    context_id: str = ""
    state: State = "submitted"
    said: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    artifacts: dict[str, Artifact] = field(default_factory=dict[str, Artifact])
    reply: list[Mapping[str, Any]] | None = None
    parts: int = 0

    @property
    def settled(self) -> bool:
        """Whether nothing more will come without us: it is over, or waits for us."""
        return self.reply is not None or self.state in OVER or self.state in WAITS

    @property
    def runs(self) -> bool:
        """Whether there is a task to cancel."""
        return bool(self.task_id) and self.reply is None and self.state not in OVER

    def take(self, event: Mapping[str, Any]) -> str:
        """Learn from one event of a stream, or one answer. What to show a person of it, or nothing.

        Raises ValueError for what is not of the protocol, or too much of it.
        """
        if "message" in event:
            message = mapping_of(event["message"])
            self.reply = objects_of(message.get("parts"))
            if not self.reply:
                raise ValueError("it answered with a message that says nothing")
            self._known(text_of(message.get("taskId")), text_of(message.get("contextId")))
            return ""
        if "task" in event:
            return self.replace(mapping_of(event["task"]))
        if "statusUpdate" in event:
            update = mapping_of(event["statusUpdate"])
            self._known(text_of(update.get("taskId")), text_of(update.get("contextId")))
            return self._status(mapping_of(update.get("status")))
        if "artifactUpdate" in event:
            update = mapping_of(event["artifactUpdate"])
            self._known(text_of(update.get("taskId")), text_of(update.get("contextId")))
            return self._artifact(mapping_of(update.get("artifact")), update.get("append") is True)
        raise ValueError("it answered with neither a message nor a task")

    def replace(self, task: Mapping[str, Any]) -> str:
        """Learn from a whole task. What to show a person of it."""
        self._known(text_of(task.get("id")), text_of(task.get("contextId")))
        self.artifacts.clear()
        self.parts = 0
        for one in objects_of(task.get("artifacts")):
            self._artifact(one, append=False)
        shown = self._status(mapping_of(task.get("status")))
        if not self.said and self.state == "completed" and not self.artifacts:
            # Some agents answer into the history and say nothing of it in the state.
            spoken = [
                one for one in objects_of(task.get("history")) if one.get("role") == "ROLE_AGENT"
            ]
            self.said = objects_of(spoken[-1].get("parts")) if spoken else []
        return shown

    def _known(self, task: str, context: str) -> None:
        if self.task_id and task and task != self.task_id:
            raise ValueError("it speaks of another task than the one that was asked for")
        self.task_id = task or self.task_id
        self.context_id = context or self.context_id

    def _status(self, status: Mapping[str, Any]) -> str:
        # A state that is not known here (a later version's) is one that goes on: the time of the
        # call bounds it.
        self.state = _STATES.get(text_of(status.get("state")), "working")
        self.said = objects_of(mapping_of(status.get("message")).get("parts"))
        shown = " ".join(text_of(part.get("text")) for part in self.said[:20])
        return clean(shown).strip()[:_PROGRESS]

    def _artifact(self, artifact: Mapping[str, Any], append: bool) -> str:
        key, parts = text_of(artifact.get("artifactId")), objects_of(artifact.get("parts"))
        self.parts += len(parts)
        known = self.artifacts.get(key)
        if self.parts > MAX_PARTS or (known is None and len(self.artifacts) == MAX_ARTIFACTS):
            raise ValueError(
                f"it gives more than {MAX_ARTIFACTS} artifacts, or {MAX_PARTS} parts of them"
            )
        if append and known is not None:
            known.parts += [(part, place == 0) for place, part in enumerate(parts)]
        else:
            self.artifacts[key] = Artifact(
                text_of(artifact.get("name")), [(part, False) for part in parts]
            )
        return ""
