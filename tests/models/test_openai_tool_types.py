"""`shell`, `apply_patch` and `local_shell` on Responses: items that the SDK types, and our calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseOutputItem
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from pydantic import TypeAdapter

from ferrule import Agent, Permissions
from ferrule.core.calls import encode_json
from ferrule.models.http.transport import Transport
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.models.openai.tool_types import read_typed_arguments
from ferrule.plugins import Parts
from ferrule.runtime.chosen_plugins import load_shipped_tools
from ferrule.testing import RecordingApprover
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.toolkits.commands import CommandPolicy

MODEL = "openai-responses:gpt-5.2"
USAGE = {"input_tokens": 10, "output_tokens": 2}


def make_reply(*items: Mapping[str, Any], streamed: bool) -> Reply:
    for item in items:
        TypeAdapter(ResponseOutputItem).validate_python(item)
    whole = {"object": "response", "status": "completed", "output": items, "usage": USAGE}
    if not streamed:
        return Reply(json={**whole, "error": None, "incomplete_details": None})
    events: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        place = {"output_index": index}
        began = {**item, "status": "in_progress"}
        events.append({"type": "response.output_item.added", **place, "item": began})
        if item["type"] == "apply_patch_call":
            events.append(
                {"type": "response.apply_patch_call_operation_diff.delta", **place, "delta": "-"}
            )
        if item["type"] == "shell_call":
            events.append(
                {
                    "type": "response.shell_call_command.delta",
                    **place,
                    "command_index": 0,
                    "delta": "c",
                }
            )
        events.append({"type": "response.output_item.done", **place, "item": item})
    events.append({"type": "response.completed", "response": whole})
    data = [f"event: {each['type']}\ndata: {encode_json(each)}\n\n".encode() for each in events]
    return Reply(200, data, headers={"content-type": "text/event-stream"})


def shell(id: str, *commands: str, **more: Any) -> dict[str, Any]:
    action = {"commands": list(commands), "max_output_length": 9000, "timeout_ms": None}
    return {
        "type": "shell_call", "id": f"sh_{id}", "call_id": id, "status": "completed",
        "action": action, "environment": {"type": "local"}, **more,
    }  # fmt: skip


def patch(id: str, kind: str, path: str, diff: str | None = None) -> dict[str, Any]:
    operation = {"type": kind, "path": path} | ({} if diff is None else {"diff": diff})
    return {
        "type": "apply_patch_call", "id": f"apc_{id}", "call_id": id, "status": "completed",
        "operation": operation,
    }  # fmt: skip


def message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [part],
    }  # fmt: skip


class Provider:
    """Answers with these replies, and keeps the requests."""

    def __init__(self, *replies: tuple[Mapping[str, Any], ...]) -> None:
        self.replies = list(replies)
        self.sent: list[dict[str, Any]] = []

    def __call__(self, request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404)
        self.sent.append(request.json())
        return make_reply(*self.replies.pop(0), streamed=bool(self.sent[-1].get("stream")))


async def run(
    folder: Path,
    provider: Provider,
    *,
    model: str = MODEL,
    official: bool = True,
    streamed: bool = False,
) -> Any:
    async with HttpDouble(provider) as server:
        transport = Transport()
        client = OpenAIResponses(
            model.partition(":")[2], base_url=f"{server.url}/v1", api_key="k", transport=transport
        )
        client.is_openai = official
        tools = load_shipped_tools(model, shapes={"shapes": "gpt"})
        agent = Agent(
            client,
            tools,
            workspace=folder,
            permissions=Permissions(approver=RecordingApprover()),
            plugins=[
                Parts(resources=[CommandPolicy(on_missing_protection="off", shell_allowed=True)])
            ],
        )
        try:
            if not streamed:
                return await agent.run("Mend it.")
            session = agent.session()
            stop = session.observe(lambda _: None)  # somebody watches: the client streams
            ended = await session.run("Mend it.")
            stop()
            await session.close()
            return ended
        finally:
            await agent.close()


def check_request(sent: Mapping[str, Any]) -> None:
    """The request is one that the SDK would send, item by item and tool by tool."""
    TypeAdapter(ResponseCreateParamsNonStreaming).validate_python({**sent, "stream": False})
    for item in sent["input"]:
        if "type" in item:
            TypeAdapter(ResponseInputItemParam).validate_python(item)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_run_reads_patches_tests_fails_and_mends(tmp_path: Path, streamed: bool) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "old.txt").write_text("old\n")
    provider = Provider(
        (shell("c1", "cat a.txt", "ls"),),
        (
            patch("c2", "update_file", "a.txt", "@@\n one\n-two\n+2\n"),
            patch("c3", "create_file", "t.sh", "+grep -c TWO a.txt\n"),
            patch("c4", "delete_file", "old.txt"),
        ),
        (shell("c5", "sh t.sh"),),
        (patch("c6", "update_file", "a.txt", "@@\n-three\n+TWO\n"),),
        (patch("c7", "update_file", "a.txt", "@@\n-2\n+TWO\n"),),
        (shell("c8", "sh t.sh"),),
        (message("Mended."),),
    )
    ended = await run(tmp_path, provider, streamed=streamed)
    assert ended.text == "Mended.", ended.results
    assert all(sent.get("stream", False) is streamed for sent in provider.sent)
    assert (tmp_path / "a.txt").read_text() == "one\nTWO\n"
    assert (tmp_path / "t.sh").read_text() == "grep -c TWO a.txt\n"
    assert not (tmp_path / "old.txt").exists()
    for sent in provider.sent:
        check_request(sent)
        assert {"type": "shell", "environment": {"type": "local"}} in sent["tools"]
        assert {"type": "apply_patch"} in sent["tools"]
        assert not {"shell", "apply_patch"} & {tool.get("name") for tool in sent["tools"]}
    items = {item["call_id"]: item for item in provider.sent[-1]["input"] if "output" in item}
    ok = {"type": "exit", "exit_code": 0}
    assert items["c1"] == {
        "type": "shell_call_output",
        "call_id": "c1",
        "output": [
            {"stdout": "one\ntwo\n", "stderr": "", "outcome": ok},
            {"stdout": "a.txt\nold.txt\n", "stderr": "", "outcome": ok},
        ],
        "max_output_length": 9000,
    }
    assert items["c5"]["output"][0]["outcome"] == {"type": "exit", "exit_code": 1}
    assert [items[f"c{n}"]["status"] for n in (2, 3, 4, 6, 7)] == [
        "completed", "completed", "completed", "failed", "completed",
    ]  # fmt: skip
    assert "nothing was changed" in items["c6"]["output"]
    assert items["c8"]["output"][0]["stdout"] == "1\n"
    replayed = [item for item in provider.sent[-1]["input"] if item.get("type") == "shell_call"]
    assert replayed[0] == shell("c1", "cat a.txt", "ls")


async def test_the_older_model_has_the_older_shell(tmp_path: Path) -> None:
    action = {"type": "exec", "command": ["cat", "a.txt"], "env": {}, "timeout_ms": 5000}
    item = {
        "type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "status": "completed",
        "action": action,
    }  # fmt: skip
    (tmp_path / "a.txt").write_text("one\n")
    provider = Provider((item,), (message("Done."),))
    await run(tmp_path, provider, model="openai-responses:codex-mini-latest")
    check_request(provider.sent[1])
    assert {"type": "local_shell"} in provider.sent[1]["tools"]
    output = provider.sent[1]["input"][-1]
    assert output["type"] == "local_shell_call_output" and output["id"] == "c1"
    assert json.loads(output["output"]) == {"output": "one\n"}


async def test_another_server_of_the_protocol_gets_functions(tmp_path: Path) -> None:
    called = {
        "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "shell",
        "arguments": '{"commands":["echo one"]}', "status": "completed",
    }  # fmt: skip
    provider = Provider((called,), (message("Done."),))
    await run(tmp_path, provider, official=False)
    sent = {tool["name"]: tool["type"] for tool in provider.sent[0]["tools"]}
    assert sent["shell"] == sent["apply_patch"] == "function"
    output = provider.sent[1]["input"][-1]
    assert output["type"] == "function_call_output" and "one" in output["output"]


async def test_a_shell_in_a_container_of_the_provider_is_the_providers(tmp_path: Path) -> None:
    hosted = shell(
        "c1", "ls", environment={"type": "container_reference", "container_id": "cntr_1"}
    )
    provider = Provider(
        (
            hosted,
            message("Done."),
        )
    )
    ended = await run(tmp_path, provider)
    assert ended.text == "Done." and ended.results == ()


@pytest.mark.parametrize(
    ("operation", "input"),
    [
        ({"type": "delete_file", "path": "a"}, "*** Delete File: a\n"),
        ({"type": "create_file", "path": "a", "diff": "x\n+y"}, "*** Add File: a\n+x\n++y\n"),
        ({"type": "create_file", "path": "a", "diff": ""}, "*** Add File: a\n"),
        (
            {"type": "update_file", "path": "a", "diff": "-x\n*** Delete File: b\n+y"},
            "*** Update File: a\n-x\n *** Delete File: b\n+y\n",
        ),
    ],
)
def test_an_operation_is_a_patch_of_one_file(operation: dict[str, Any], input: str) -> None:
    arguments = json.loads(
        read_typed_arguments({"type": "apply_patch_call", "operation": operation})
    )
    assert arguments == {"input": f"*** Begin Patch\n{input}*** End Patch"}


@pytest.mark.parametrize(
    "operation",
    [
        None,
        {"type": "move_file", "path": "a"},
        {"type": "delete_file", "path": "a\n*** Delete File: b"},
        {"type": "delete_file", "path": "a\u2028*** Delete File: b"},
        {"type": "delete_file", "path": " "},
        {"type": "delete_file"},
        {"type": "update_file", "path": "a", "diff": 3},
    ],
)
def test_an_operation_that_is_none_is_no_patch(operation: object) -> None:
    arguments = json.loads(
        read_typed_arguments({"type": "apply_patch_call", "operation": operation})
    )
    assert arguments == {"operation": operation}
