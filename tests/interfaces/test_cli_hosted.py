"""`provider_tools` in the settings: checked before anything is sent, sent as they are, and asked
about by the person.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule.testing.fakes import RecordingApprover
from ferrule.testing.http_double import HttpDouble, Reply, Request

MODEL = "openai-responses:gpt-5.4"
ASKED = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "docs",
    "name": "search",
    "arguments": "{}",
}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "done", "annotations": [], "logprobs": []}],
}


def reply(*output: dict[str, Any]) -> Reply:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return Reply(
        json={
            "id": "r",
            "object": "response",
            "status": "completed",
            "output": list(output),
            "usage": usage,
        }
    )


@contextmanager
def provider(*replies: Reply) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A provider with these answers in a thread beside the command: its address, and what it was
    sent.
    """
    sent: list[dict[str, Any]] = []
    left = list(replies)

    def answer(request: Request) -> Reply:
        sent.append(request.json())
        return left.pop(0)

    loop, address, over = asyncio.new_event_loop(), list[str](), asyncio.Event()
    ready = threading.Event()

    async def serve() -> None:
        async with HttpDouble(answer) as double:
            address.append(double.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield address[0], sent
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(20)
        loop.close()


def settings(
    own_folders: Path, tools: str, url: str = "http://127.0.0.1:1", *, of: str = "model"
) -> None:
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir(exist_ok=True)
    mine = f"    provider_tools: {tools}\n"
    file.write_text(
        f"models:\n  '{MODEL}':\n    tool_mode: native\n{mine if of == 'model' else ''}"
        f"providers:\n  openai-responses:\n    base_url: {url}/v1\n    api_key_env: MY_KEY\n"
        f"{mine if of == 'provider' else ''}"
    )


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k")
    monkeypatch.setenv("DOCS_TOKEN", "of the docs")


@pytest.mark.parametrize("of", ["model", "provider"])
def test_provider_tools_of_the_settings_are_sent_as_they_are_with_secrets_out_of_variables(
    ferrule: Any, folder: Path, own_folders: Path, of: str
) -> None:
    tools = (
        "[{type: web_search}, "
        "{type: mcp, server_label: docs, server_url: 'https://mcp.example', require_approval: never, headers: {X-Key: 'Bearer ${DOCS_TOKEN}'}}]"
    )
    with provider(reply(SAID)) as (url, sent):
        settings(own_folders, tools, url, of=of)
        ran = ferrule("run", "-m", MODEL, "go")
    assert (ran.code, ran.out) == (0, "done\n"), ran.err
    hosted = [tool for tool in sent[0]["tools"] if tool["type"] != "function"]
    assert hosted == [
        {"type": "web_search"},
        {
            "type": "mcp",
            "server_label": "docs",
            "server_url": "https://mcp.example",
            "require_approval": "never",
            "headers": {"X-Key": "Bearer of the docs"},
        },
    ]


@pytest.mark.parametrize("choice", ["once", "deny", None])
def test_a_server_that_asks_first_is_answered_by_the_person_and_no_is_the_default(
    ferrule: Any, folder: Path, own_folders: Path, choice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = RecordingApprover([choice])
    if choice is not None:
        # Whoever sits at a terminal: here nobody does.
        monkeypatch.setattr("ferrule.cli.terminal_agent.DenyingApprover", lambda: person)
    with provider(reply(ASKED), reply(SAID)) as (url, sent):
        settings(
            own_folders, "[{type: mcp, server_label: docs, server_url: 'https://mcp.example'}]", url
        )
        # A rule or an answer in advance is no person: the question has critical risk.
        ran = ferrule(
            "run",
            "-m",
            MODEL,
            "--allow",
            "mcp_approval",
            "--yes-to",
            "mcp_approval",
            "--json",
            "go",
        )
    assert sent[1]["input"][-1]["approve"] is (choice == "once")
    assert [one["success"] for one in json.loads(ran.out)["results"]] == [choice == "once"]
    assert all(tool.get("name") != "mcp_approval" for tool in sent[0]["tools"])
    asked = [
        (one.tool.full_name, one.values["server"], one.values["tool"]) for one in person.requests
    ]
    assert asked == ([("mcp_approval", "docs", "search")] if choice else [])


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("[{kind: web_search}]", "an entry without a `type`"),
        ("{type: web_search}", "must be a list of maps"),
        ("[{type: local_shell}]", "`local_shell` is not a hosted tool"),
        ("[{type: mcp, server_url: 'https://x'}]", "`server_label` must be text"),
        ("[{type: mcp, server_label: docs}]", "needs a `server_url` or a `connector_id`"),
        (
            "[{type: mcp, server_label: d, server_url: u, require_approval: sometimes}]",
            "`require_approval` = 'sometimes'",
        ),
        (
            "[{type: mcp, server_label: d, server_url: u, require_approval: {never: {}}}]",
            "`require_approval`",
        ),
        (
            "[{type: mcp, server_label: d, server_url: u, authorization: s3cret}]",
            "a secret must not be written into the settings",
        ),
        (
            "[{type: mcp, server_label: d, server_url: u, authorization: '${NOBODY_SET}'}]",
            "`NOBODY_SET` is not set",
        ),
    ],
)
def test_what_cannot_be_a_provider_tool_is_an_error_before_anything_is_sent(
    ferrule: Any, folder: Path, own_folders: Path, tools: str, said: str
) -> None:
    settings(own_folders, tools)
    ran = ferrule("run", "-m", MODEL, "go")
    assert ran.code == 2 and said in ran.err
    assert "s3cret" not in ran.err


def test_a_provider_without_hosted_tools_says_so(
    ferrule: Any, folder: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir()
    file.write_text(
        "models: {'openai:x': {tool_mode: native, provider_tools: [{type: web_search}]}}"
    )
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    ran = ferrule("run", "-m", "openai:x", "go")
    assert ran.code == 2 and "`openai:x` cannot be given provider tools" in ran.err
