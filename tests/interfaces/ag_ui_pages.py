"""An AG-UI endpoint in a host application that knows people by a header, and clients of it.

Every event that is sent is read by the protocol's own types, which must know each of its fields.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
from ag_ui.core import Event, RunAgentInput
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request

from ferrule.web import Principal

ADDRESS = "https://app.example.org"
EVENT: TypeAdapter[Any] = TypeAdapter(Event)
_numbers = count(1)


def identify(request: Request) -> Principal | None:
    """The host application's sign-in, as far as these tests need one."""
    user = request.headers.get("x-user")
    return Principal(user, operator=user == "root") if user else None


def require_known_fields(value: Any) -> None:
    """Refuse fields that the protocol's types do not have."""
    if isinstance(value, BaseModel):
        assert not value.model_extra, (type(value).__name__, value.model_extra)
        for name in type(value).model_fields:
            require_known_fields(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            require_known_fields(one)


@dataclass
class Client:
    """Somebody at a page: it keeps the conversation as the protocol's clients do."""

    http: httpx.AsyncClient
    user: str
    thread: str = "t1"
    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)

    async def post(self, **more: Any) -> httpx.Response:
        """Send a run, as it is."""
        number = next(_numbers)
        body = {
            "threadId": self.thread,
            "runId": f"run-{number}",
            "messages": self.messages,
            "tools": self.tools,
            "context": [],
            "state": {},
            "forwardedProps": {},
            **more,
        }
        RunAgentInput.model_validate(body)
        headers = {"x-user": self.user} if self.user else {}
        return await self.http.post("/agent/run", json=body, headers=headers)

    async def run(self, **more: Any) -> list[dict[str, Any]]:
        """Send a run and return its events."""
        answer = await self.post(**more)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/event-stream"
        return self._read(answer.text)

    async def say(self, text: str, **more: Any) -> list[dict[str, Any]]:
        """Send a message of the person."""
        self.messages.append({"id": f"m{next(_numbers)}", "role": "user", "content": text})
        return await self.run(**more)

    async def answer(self, events: list[dict[str, Any]], **payload: Any) -> list[dict[str, Any]]:
        """Answer all questions that a run ended with."""
        asked = events[-1]["outcome"]["interrupts"]
        entries = [
            {"interruptId": one["id"], "status": "resolved", "payload": payload} for one in asked
        ]
        return await self.run(resume=entries)

    def _read(self, text: str) -> list[dict[str, Any]]:
        lines = [line for line in text.split("\n\n") if line.startswith("data: ")]
        events = [json.loads(line.removeprefix("data: ")) for line in lines]
        for one in events:
            known = EVENT.validate_python(one)
            require_known_fields(known)
            self._apply(one)
        assert events[0]["type"] == "RUN_STARTED"
        assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
        return events

    def _apply(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                self._add("assistant", event["messageId"], content="")
            case "TEXT_MESSAGE_CONTENT":
                self.messages[-1]["content"] += event["delta"]
            case "TOOL_CALL_START":
                call = {"id": event["toolCallId"], "type": "function"}
                call["function"] = {"name": event["toolCallName"], "arguments": ""}
                self._add("assistant", event["toolCallId"], toolCalls=[call])
            case "TOOL_CALL_ARGS":
                self.messages[-1]["toolCalls"][0]["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                self._add(
                    "tool",
                    event["messageId"],
                    toolCallId=event["toolCallId"],
                    content=event["content"],
                )
            case "MESSAGES_SNAPSHOT":
                self.messages = list(event["messages"])
            case _:
                pass

    def _add(self, role: str, name: str, **more: Any) -> None:
        self.messages.append({"id": name, "role": role, **more})


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """The types of events, with pieces of one text as one."""
    found: list[str] = []
    for one in events:
        if not (found and found[-1] == one["type"] and one["type"].endswith("_CONTENT")):
            found.append(one["type"])
    return found


def text_of(events: list[dict[str, Any]]) -> str:
    """What the model says in a stream."""
    return "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT")


def results_of(events: list[dict[str, Any]]) -> dict[str, str]:
    """What calls returned, by their ids."""
    return {
        one["toolCallId"]: one["content"] for one in events if one["type"] == "TOOL_CALL_RESULT"
    }
