"""Media that are uploaded once: as the providers' own SDKs upload, and named by id from then on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from email.message import Message as Form
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, NamedTuple

import pytest
from media_messages import history, image, load, pdf

from ferrule import Agent, Document, ModelOptions, Storage
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import Noticed
from ferrule.core.messages import AssistantMessage, Message, UserMessage
from ferrule.engine.replay.replay import replay
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.client import ModelClient
from ferrule.models.google.client import Google
from ferrule.models.http.transport import Transport
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.models.registry import check_options
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import ADD
from media_samples import PDF

ALL = ModelOptions(upload_media_from=1)
SAID: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "3"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "/v1/responses": {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "3", "annotations": []}],
            }
        ],
    },
    "/v1/chat/completions": {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "3"},
                "finish_reason": "stop",
            }
        ]
    },
}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "3"}]}, "finishReason": "STOP"}]
}


class Client(NamedTuple):
    """A client, the file ids in its requests, and how many of `history` it uploads."""

    make: Callable[[str], ModelClient]
    uploads: int = 2


CLIENTS = {
    "anthropic": Client(lambda url: Anthropic("claude-x", base_url=url, api_key="k")),
    "chat": Client(lambda url: OpenAIChat("gpt-x", base_url=f"{url}/v1", api_key="k"), 1),
    "google": Client(lambda url: Google("gemini-3.8-flash", base_url=url, api_key="k")),
    "responses": Client(lambda url: OpenAIResponses("gpt-x", base_url=f"{url}/v1", api_key="k")),
}


class Files:
    """A server with files: it keeps what is uploaded, and answers every question with `3`."""

    def __init__(self, *, states: tuple[str, ...] = ()) -> None:
        self.http = HttpDouble(self._answer)
        self.uploads: list[Request] = []
        self.asked: list[dict[str, Any]] = []
        self._states = list(states)

    def _answer(self, request: Request) -> Reply:
        path = request.target.partition("?")[0]
        if path in ("/v1/files", "/bytes"):
            self.uploads.append(request)
        number = len(self.uploads)
        if path == "/v1/files":
            kind = {"type": "file", "object": "file", "created_at": "2026-01-01T00:00:00Z"}
            more = {"filename": "f", "mime_type": "m", "size_bytes": 1, "bytes": 1}
            return Reply(json={"id": f"file_{number}", **kind, **more})
        if path == "/upload/v1beta/files":
            # Whatever host it names, the bytes go to the one that was chosen.
            return Reply(json={}, headers={"x-goog-upload-url": "http://else.test/bytes?id=1"})
        if path == "/bytes":
            file = {"file": self._file(number)}
            return Reply(json=file, headers={"x-goog-upload-status": "final"})
        if path.startswith("/v1beta/files/"):
            return Reply(json=self._file(number))
        if request.method != "POST":
            return Reply(404, json={})
        self.asked.append(request.json())
        return Reply(json=SAID.get(path, GEMINI))

    def _file(self, number: int) -> dict[str, Any]:
        state = self._states.pop(0) if self._states else "ACTIVE"
        return {"name": f"files/{number}", "uri": f"https://g/files/{number}", "state": state}


def read_form(request: Request) -> dict[str, tuple[str, str, bytes]]:
    """Return the parts of a form by name: the file name, the content type and the bytes."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    form: Form = BytesParser(policy=HTTP).parsebytes(head + request.body)
    found: dict[str, tuple[str, str, bytes]] = {}
    for part in form.iter_parts():  # pyright: ignore[reportAttributeAccessIssue]  the policy makes such messages
        name = part.get_param("name", header="content-disposition")
        kind = part.get_content_type() if part.get_filename() else ""
        found[name] = (part.get_filename() or "", kind, part.get_payload(decode=True))
    return found


async def ask(client: ModelClient, *histories: list[Message], options: ModelOptions = ALL) -> Any:
    """Ask in one conversation with each of these histories. Return its notices."""
    exchange = client.open("Be brief.", [ADD], options)
    for messages in histories:
        await exchange.ask(messages)
    return exchange.notices


@pytest.mark.parametrize("name", CLIENTS)
async def test_what_is_large_is_uploaded_once_for_all_conversations_of_a_client(name: str) -> None:
    server = Files()
    async with asyncio.timeout(20), server.http as http:
        client = CLIENTS[name].make(http.url)
        first = history()
        notices = await ask(client, first, [*first, AssistantMessage("3"), UserMessage("Again?")])
        second = await ask(client, first)
        await client.close()
    assert (len(server.uploads), len(server.asked)) == (CLIENTS[name].uploads, 3)
    told = [text for topic, text in notices if topic == "upload"]
    assert len(told) == CLIENTS[name].uploads
    assert all("was uploaded as " in text and ", for 24 hours" in text for text in told)
    assert second == []
    for asked in server.asked:
        text = json.dumps(asked)
        assert ("file_1" in text) or ("https://g/files/1" in text)
        assert "JVBERi" not in text


@pytest.mark.parametrize("name", CLIENTS)
async def test_what_is_small_is_sent_in_the_request(name: str) -> None:
    server = Files()
    async with asyncio.timeout(20), server.http as http:
        client = CLIENTS[name].make(http.url)
        await ask(client, history(), options=ModelOptions(upload_media_from=1_000_000))
        await client.close()
    assert server.uploads == []
    assert "JVBERi" in json.dumps(server.asked[0])


@pytest.mark.parametrize(("more", "uploads"), [(0, 1), (1, 0)])
async def test_a_medium_is_uploaded_from_exactly_so_many_bytes_on(more: int, uploads: int) -> None:
    server = Files()
    async with asyncio.timeout(20), server.http as http:
        client = CLIENTS["anthropic"].make(http.url)
        options = ModelOptions(upload_media_from=len(PDF) + more)
        await ask(client, [UserMessage("?", (pdf(),))], options=options)
        await client.close()
    assert len(server.uploads) == uploads


async def upload_by_sdk(name: str, url: str) -> None:
    if name == "anthropic":
        import anthropic

        async with anthropic.AsyncAnthropic(base_url=url, api_key="k") as sdk:
            await sdk.beta.files.upload(
                file=("paper.pdf", PDF, "application/pdf"),
                expires_in_seconds=86_400,
                betas=["files-api-2025-04-14"],
            )
    else:
        import openai

        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k") as sdk:
            await sdk.files.create(
                file=("paper.pdf", PDF, "application/pdf"),
                purpose="user_data",
                expires_after={"anchor": "created_at", "seconds": 86_400},
            )


@pytest.mark.parametrize(("name", "sdk"), [("anthropic", "anthropic"), ("responses", "openai")])
async def test_a_file_is_uploaded_as_the_sdk_uploads_it(name: str, sdk: str) -> None:
    pytest.importorskip(sdk, reason="it says what is legal")
    server = Files()
    async with asyncio.timeout(20), server.http as http:
        client = CLIENTS[name].make(http.url)
        await ask(client, [UserMessage("?", (pdf(),))])
        await client.close()
        await upload_by_sdk(name, http.url)
    ours, theirs = server.uploads
    assert (ours.method, ours.target) == (theirs.method, theirs.target.partition("?")[0])
    assert read_form(ours) == read_form(theirs)
    assert read_form(ours)["file"] == ("paper.pdf", "application/pdf", PDF)
    assert ours.headers.get("anthropic-beta") == theirs.headers.get("anthropic-beta")


async def test_gemini_gets_a_file_in_two_requests_to_the_server_that_was_chosen() -> None:
    server = Files()
    async with asyncio.timeout(20), server.http as http:
        client = CLIENTS["google"].make(http.url)
        await ask(client, [UserMessage("?", (pdf(),))])
        await client.close()
        (begun,) = [one for one in http.requests if one.target.startswith("/upload/")]
    assert begun.headers["x-goog-upload-protocol"] == "resumable"
    assert begun.headers["x-goog-upload-header-content-type"] == "application/pdf"
    assert begun.headers["x-goog-upload-header-content-length"] == str(len(PDF))
    (sent,) = server.uploads
    assert (sent.body, sent.target) == (PDF, "/bytes?id=1")
    assert sent.headers["x-goog-upload-command"] == "upload, finalize"
    assert "x-goog-api-key" not in sent.headers


async def test_gemini_is_asked_once_its_file_can_be_used() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    server = Files(states=("PROCESSING", "PROCESSING", "ACTIVE"))
    async with asyncio.timeout(20), server.http as http:
        transport = Transport(sleep=sleep)
        client = Google("gemini-3.8-flash", base_url=http.url, api_key="k", transport=transport)
        await ask(client, [UserMessage("?", (pdf(),))])
        await transport.close()
        assert (waits, len(server.asked)) == ([1, 1], 1)
        failing = Files(states=("FAILED",))
        async with failing.http as other:
            client = Google("gemini-3.8-flash", base_url=other.url, api_key="k")
            with pytest.raises(ProviderError, match=r"paper\.pdf.*cannot be uploaded.*FAILED"):
                await ask(client, [UserMessage("?", (pdf(),))])
            await client.close()
        assert failing.asked == []


async def test_what_is_gone_soon_is_uploaded_again_and_the_conversation_names_the_new_one() -> None:
    server = Files()
    time = 1_000.0
    async with asyncio.timeout(20), server.http as http:
        client = OpenAIResponses("gpt-x", base_url=f"{http.url}/v1", api_key="k")
        exchange = client.open("", [], ALL)
        assert client.files is not None
        client.files.now = lambda: time
        asked: list[Message] = [UserMessage("?", (pdf(),))]
        await exchange.ask(asked)
        time += 86_400 - 3_601
        await exchange.ask(asked)
        assert len(server.uploads) == 1
        time += 2
        await exchange.ask([*asked, AssistantMessage("3"), UserMessage("And now?")])
        await client.close()
    named = [json.dumps(one["input"]).count("file_1") for one in server.asked]
    assert named == [1, 1, 0]
    assert json.dumps(server.asked[2]["input"]).count("file_2") == 1


async def test_a_server_without_files_is_an_error_before_the_question() -> None:
    asked: list[str] = []

    def answer(request: Request) -> Reply:
        asked.append(request.target)
        return Reply(404, json={"error": {"message": "no such route"}})

    async with asyncio.timeout(20), HttpDouble(answer) as http:
        client = Anthropic("claude-x", base_url=http.url, api_key="k")
        with pytest.raises(ProviderError, match=r"paper\.pdf.*cannot be uploaded") as raised:
            await ask(client, [UserMessage("?", (pdf(),))])
        await client.close()
    assert asked == ["/v1/files"]
    assert "upload_media_from" in raised.value.hint


async def test_a_name_cannot_write_into_the_form() -> None:
    server = Files()
    medium = load("document", "application/pdf", PDF, name='a"\r\nX: 1\\.pdf')
    async with asyncio.timeout(20), server.http as http:
        client = CLIENTS["anthropic"].make(http.url)
        await ask(client, [UserMessage("?", (medium,))])
        await client.close()
    assert read_form(server.uploads[0])["file"] == ("aX: 1.pdf", "application/pdf", PDF)


async def test_an_upload_is_in_the_journal_and_replay_uploads_nothing() -> None:
    server = Files()
    async with asyncio.timeout(20), server.http as http:
        client = CLIENTS["anthropic"].make(http.url)
        agent = Agent(client, storage=Storage(journal=":memory:"), model_options=ALL)
        run = await agent.run(["Read it", Document.from_bytes(PDF, name="paper.pdf")])
        await client.close()
        records = list(agent.journal.records(run.session))
        count = len(http.requests)
        assert replay(records).differences == ()
        assert len(http.requests) == count
    told = [one.event for one in records if isinstance(one.event, Noticed)]
    assert [one.topic for one in told] == ["upload"]
    assert "paper.pdf" in told[0].text and "file_1" in told[0].text


@pytest.mark.parametrize("model", ["cohere:x", "ollama:x", "bedrock:x", "vertex:x", "groq:x"])
def test_providers_without_files_refuse_the_option(model: str) -> None:
    with pytest.raises(ConfigError, match="`upload_media_from`"):
        check_options(model, ALL)


async def test_chat_completions_name_documents_alone() -> None:
    server = Files()
    async with asyncio.timeout(20), server.http as http:
        client = CLIENTS["chat"].make(http.url)
        await ask(client, [UserMessage("?", (image(), pdf()))])
        await client.close()
    kinds = [block["type"] for block in server.asked[0]["messages"][1]["content"]]
    assert kinds == ["image_url", "file", "text"]
    assert server.asked[0]["messages"][1]["content"][1]["file"] == {"file_id": "file_1"}
