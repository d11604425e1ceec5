"""The half of ACP that editors have: starts an agent, sends one message, answers yes to questions.

Shapes: https://agentclientprotocol.com/protocol/schema (version 1).
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .model_server import join_text


@dataclass
class Talk:
    """What an agent asked while it worked, and how it ended."""

    questions: list[str] = field(default_factory=list[str])
    reason: str = ""


def talk(
    words: list[str],
    folder: Path,
    environment: dict[str, str],
    message: str,
    yes: tuple[str, ...] = (),
) -> Talk:
    """Have an agent work on one message.

    Args:
        words: The command that speaks ACP on its standard streams.
        folder: The folder to work in.
        environment: Its whole environment.
        message: What a person asks for.
        yes: Ids of the answers that are given where they are offered; else a yes for this once.
    """
    with (folder.parent / "agent.log").open("w") as log:
        agent = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            return _Editor(agent, yes).work(folder, message)
        finally:
            assert agent.stdin
            agent.stdin.close()
            try:
                agent.wait(30)
            except subprocess.TimeoutExpired:
                agent.kill()


class _Editor:
    def __init__(self, agent: subprocess.Popen[str], yes: tuple[str, ...]) -> None:
        self._agent = agent
        self._yes = yes
        self._talk = Talk()

    def work(self, folder: Path, message: str) -> Talk:
        self._request(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        opened = self._request(2, "session/new", {"cwd": str(folder), "mcpServers": []})
        prompt = [{"type": "text", "text": message}]
        ended = self._request(
            3, "session/prompt", {"sessionId": opened["sessionId"], "prompt": prompt}
        )
        self._talk.reason = ended["stopReason"]
        return self._talk

    def _request(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._send({"id": number, "method": method, "params": params})
        assert self._agent.stdout
        for line in self._agent.stdout:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if message.get("method") == "session/request_permission":
                self._answer_question(message)
        raise RuntimeError(f"{method}: the agent ended without an answer")

    def _answer_question(self, message: dict[str, Any]) -> None:
        params = message["params"]
        shown = [
            join_text([part.get("content")]) for part in params["toolCall"].get("content") or ()
        ]
        self._talk.questions.append("\n".join([str(params["toolCall"].get("title")), *shown]))
        yes = [one for one in params["options"] if one["optionId"] in self._yes]
        yes += [one for one in params["options"] if one["kind"] == "allow_once"]
        chosen = (yes or params["options"])[0]["optionId"]
        outcome = {"outcome": "selected", "optionId": chosen}
        self._send({"id": message["id"], "result": {"outcome": outcome}})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._agent.stdin
        self._agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._agent.stdin.flush()
