"""Golden answers of the Messages, Responses and Gemini APIs: decoded, stored, sent again byte for byte, cut
at every byte.

The files were made from the official SDKs' types by `golden/make_golden.py`; these tests read them
without an SDK, but for those that ask whether the files, and the requests made from them, still fit
the SDKs that are installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.core import events
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.models.answer_building import AnswerBuilder
from ferrule.models.anthropic import answers
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.client import ModelClient, ModelOptions
from ferrule.models.google import answers as google_answers
from ferrule.models.google.client import Google
from ferrule.models.http.server_sent_events import EventSplitter
from ferrule.models.openai import responses_answers
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import ADD, HELLO, RecordingSink
from ferrule.tools.decorator import tool

GOLDEN = Path(__file__).parent / "golden"
CASES = [
    (model_client, path.stem)
    for model_client in ("anthropic", "openai-responses", "google")
    for path in sorted((GOLDEN / model_client).glob("*.json"))
]
NOT_REPLAYED = {
    ("anthropic", "refusal"),
    ("openai-responses", "refusal"),
    ("google", "refusal"),
    ("anthropic", "pause"),
}
SPENT = {
    "anthropic": Usage(2316, 77, 2048, 256),
    "openai-responses": Usage(2316, 77),
    "google": Usage(2316, 77, 2048, 0, 7),
}

# Text, reasoning, calls, stop, and what the provider did itself (kind, name, status).
EXPECTED: dict[
    tuple[str, str], tuple[str, str, list[tuple[str, str]], str, list[tuple[str, str, str]]]
] = {
    ("anthropic", "text"): ("Drei ☃ 🙂\n\nEnde.", "", [], "end", []),
    ("anthropic", "tools"): (
        "Let me add.",
        "",
        [("toolu_01A", '{"a":1,"b":2}'), ("toolu_01B", '{"a":"ä\\"","b":[null,1.5]}')],
        "calls",
        [],
    ),
    ("anthropic", "thinking"): (
        "",
        'First ä,\nthen "b". ☃',
        [("toolu_01A", '{"a":1,"b":2}')],
        "calls",
        [],
    ),
    ("anthropic", "interleaved"): (
        "So:",
        'First ä,\nthen "b". ☃More.',
        [("toolu_01A", "{}")],
        "calls",
        [],
    ),
    ("anthropic", "cut"): ("so f", 'First ä,\nthen "b". ☃', [], "length", []),
    ("anthropic", "refusal"): ("I will", "", [], "filter", []),
    ("anthropic", "web_search"): (
        "I search.It rains.",
        "",
        [],
        "end",
        [("search", "web_search", "completed")],
    ),
    ("anthropic", "web_search_error"): ("No.", "", [], "end", [("search", "web_search", "failed")]),
    ("anthropic", "tool_search"): (
        "",
        "",
        [("toolu_01A", '{"a":1,"b":2}')],
        "calls",
        [("tool_search", "tool_search_tool_bm25", "completed")],
    ),
    ("anthropic", "tool_search_error"): (
        "?",
        "",
        [],
        "end",
        [("tool_search", "tool_search_tool_regex", "failed")],
    ),
    ("anthropic", "code_execution"): (
        "",
        "",
        [("toolu_01A", '{"a":1}')],
        "calls",
        [("execute", "bash_code_execution", "completed")],
    ),
    ("anthropic", "mcp"): ("Found.", "", [], "end", [("mcp", "docs.search", "completed")]),
    ("anthropic", "pause"): ("", "", [], "length", [("search", "web_search", "in_progress")]),
    ("google", "text"): ("Drei ☃ 🙂\n\nEnde.", "", [], "end", []),
    ("google", "tools"): (
        "Let me add.",
        "",
        [("fc_1", '{"a":1,"b":2}'), ("fc_2", '{"a":"ä\\"","b":[null,1.5]}')],
        "calls",
        [],
    ),
    ("google", "unnamed"): (
        "",
        "",
        [("call_UNNAMED_0", '{"a":1}'), ("call_UNNAMED_1", "{}")],
        "calls",
        [],
    ),
    ("google", "thinking"): (
        "",
        'First ä,\nthen "b". ☃',
        [("fc_1", '{"a":1,"b":2}')],
        "calls",
        [],
    ),
    ("google", "signed_text"): ("Three.", 'First ä,\nthen "b". ☃', [], "end", []),
    ("google", "signed_end"): ("Three.", "", [], "end", []),
    ("google", "code"): ("1", "", [], "end", []),
    ("google", "cut"): ("so f", "", [], "length", []),
    ("google", "refusal"): ("I will", "", [], "filter", []),
    ("openai-responses", "text"): ("Drei ☃ 🙂\n\nEnde.", "", [], "end", []),
    ("openai-responses", "tools"): (
        "Let me add.",
        'First ä.\n\nThen "b".',
        [("call_1", '{"a": 1, "b": 2}'), ("call_2", '{"a":"ä"}')],
        "calls",
        [],
    ),
    ("openai-responses", "web_search"): (
        "It rains.",
        "",
        [],
        "end",
        [("search", "web_search", "completed")],
    ),
    ("openai-responses", "mcp"): (
        "Found.",
        "",
        [],
        "end",
        [("mcp", "docs.mcp_list_tools", "completed"), ("mcp", "docs.search", "completed")],
    ),
    ("openai-responses", "mcp_approval"): (
        "",
        "",
        [("mcpr_1", '{"server":"docs","tool":"delete","arguments":{"id":7}}')],
        "calls",
        [],
    ),
    ("openai-responses", "tool_search"): (
        "",
        "",
        [("call_1", '{"a":1}')],
        "calls",
        [("tool_search", "tool_search", "completed")],
    ),
    ("openai-responses", "code"): (
        "1",
        "",
        [],
        "end",
        [("execute", "code_interpreter", "completed")],
    ),
    ("openai-responses", "program"): (
        "",
        "",
        [("call_1", '{"a":1}')],
        "calls",
        [("execute", "program", "completed")],
    ),
    ("openai-responses", "refusal"): ("I will not.", "", [], "filter", []),
    ("openai-responses", "cut"): ("so f", "", [], "length", []),
    ("openai-responses", "compaction"): ("Going on.", "", [], "end", []),
}


def golden(model_client: str, case: str, *, streamed: bool) -> bytes:
    return (GOLDEN / model_client / f"{case}.{'sse' if streamed else 'json'}").read_bytes()


def parts(model_client: str, case: str) -> list[tuple[Any, bytes]]:
    """The blocks or items of a case, and the bytes in which its files spell them."""
    answer = json.loads(golden(model_client, case, streamed=False))
    if model_client == "google":
        listed = answer["candidates"][0]["content"]["parts"]
    else:
        listed = answer["content" if model_client == "anthropic" else "output"]
    escaped = b'": ' in golden(model_client, case, streamed=False)[:16]
    if escaped:
        return [(part, json.dumps(part).encode()) for part in listed]
    return [
        (part, json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode())
        for part in listed
    ]


def folded(model_client: str, chunks: list[bytes]) -> ModelAnswered:
    """A stream, folded without a server."""
    fold = {
        "anthropic": _folded_message,
        "openai-responses": _folded_output,
        "google": _folded_content,
    }
    return fold[model_client](chunks)


def _folded_content(chunks: list[bytes]) -> ModelAnswered:
    content = google_answers.ContentBuilder(AnswerBuilder())
    fold = google_answers.ResponseStreamParser(content, "m", tools=True)
    _feed(fold, chunks)
    fold.finish()
    return content.build("m", {})


def _folded_message(chunks: list[bytes]) -> ModelAnswered:
    message = answers.MessageBuilder(AnswerBuilder())
    fold = answers.MessageStreamParser(message, "m", tools=True)
    _feed(fold, chunks)
    fold.finish()
    return message.with_raw("m", message.build({}), "")


def _folded_output(chunks: list[bytes]) -> ModelAnswered:
    output = responses_answers.OutputBuilder(AnswerBuilder())
    fold = responses_answers.ResponseStreamParser(output, "m", tools=True)
    _feed(fold, chunks)
    fold.finish()
    return output.with_raw("m", output.build({}), "")


def _feed(fold: Any, chunks: list[bytes]) -> None:
    stream = EventSplitter()
    for chunk in chunks:
        fold.add(stream.feed(chunk))
    fold.add(stream.close())


MAKE: dict[str, Callable[[str], ModelClient]] = {
    "anthropic": lambda url: Anthropic("m", base_url=url, api_key="k"),
    "openai-responses": lambda url: OpenAIResponses("m", base_url=f"{url}/v1", api_key="k"),
    "google": lambda url: Google("gemini-3.8-flash", base_url=url, api_key="k"),
}
LAST = {
    "google": Reply(
        json={"candidates": [{"content": {"parts": [{"text": "3"}]}, "finishReason": "STOP"}]}
    ),
    "anthropic": Reply(
        json={"content": [{"type": "text", "text": "3"}], "stop_reason": "end_turn", "usage": {}}
    ),
    "openai-responses": Reply(
        json={
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "3"}],
                }
            ],
            "status": "completed",
        }
    ),
}


def exchanged(model_client: str, case: str, *, streamed: bool) -> tuple[ModelAnswered, bytes]:
    """The golden answer over HTTP, stored and read again, and the request that follows it."""
    kind = "text/event-stream" if streamed else "application/json"
    first = Reply(
        pieces=[golden(model_client, case, streamed=streamed)], headers={"content-type": kind}
    )
    replies, sent = [first, LAST[model_client]], list[bytes]()

    def answer(request: Request) -> Reply:
        sent.append(request.body)
        return replies.pop(0)

    async def story() -> ModelAnswered:
        async with asyncio.timeout(20), HttpDouble(answer) as server:
            client = MAKE[model_client](server.url)
            try:
                found = await client.open("Be brief.", [ADD], ModelOptions()).ask(
                    HELLO, sink=RecordingSink() if streamed else None
                )
                kept = stored(found)
                history: list[Message] = [
                    *HELLO,
                    AssistantMessage(
                        kept.text or "(no answer)", kept.calls, kept.reasoning, kept.raw
                    ),
                ]
                history += [ToolMessage(call.id, call.tool, "3") for call in kept.calls]
                await client.open("Be brief.", [ADD], ModelOptions()).ask(
                    [*history, UserMessage("And?")] if not kept.calls else history
                )
            finally:
                await client.close()
        return kept

    if case == "pause":
        # It goes on with the next answer: what is looked at here is the first part alone.
        return folded(model_client, [golden(model_client, case, streamed=True)]), b""
    return asyncio.run(story()), sent[-1]


def stored(answer: ModelAnswered) -> ModelAnswered:
    """As the journal keeps it."""
    kind, body = events.dump_event(answer)
    found = events.event_from_json(kind, json.loads(body))
    assert isinstance(found, ModelAnswered)
    return found


def turn_of(model_client: str, request: bytes) -> list[Any]:
    """The blocks or items of the answer in a request."""
    sent = json.loads(request)
    if model_client == "google":
        return sent["contents"][1]["parts"]
    if model_client == "anthropic":
        return sent["messages"][1]["content"]
    # What the provider compacted stands for the question, too.
    return sent["input"] if sent["input"][0].get("type") == "compaction" else sent["input"][1:]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("model_client", "case"), CASES)
def test_a_golden_answer_is_read_as_what_it_says(
    model_client: str, case: str, streamed: bool
) -> None:
    found, _ = exchanged(model_client, case, streamed=streamed)
    # An id that the client made up is made of what the answer says.
    unnamed = re.compile(r"(?<=^call_)[0-9a-f]{12}(?=_\d$)")
    calls = [(unnamed.sub("UNNAMED", call.id), call.arguments) for call in found.calls]
    made = [(call.tool_kind, call.name, call.status) for call in found.provider_calls]
    assert (found.text, found.reasoning, calls, found.stop, made) == EXPECTED[model_client, case]
    assert found.usage == SPENT[model_client]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("model_client", "case"), [one for one in CASES if one not in NOT_REPLAYED]
)
def test_a_golden_answer_goes_back_byte_for_byte(
    model_client: str, case: str, streamed: bool
) -> None:
    _, request = exchanged(model_client, case, streamed=streamed)
    sent, expected = turn_of(model_client, request), parts(model_client, case)
    assert sent[: len(expected)] == [part for part, _ in expected]
    for part, spelled in expected:
        # Blocks that Anthropic streams in pieces have no bytes of their own; all others keep
        # theirs. Text of Gemini that nothing is attached to is spelled anew.
        if model_client == "google" and part.keys() <= {"text", "thought"}:
            continue
        if (
            not streamed
            or model_client != "anthropic"
            or part["type"].endswith("_result")
            or part["type"] == "redacted_thinking"
        ):
            assert spelled in request


@pytest.mark.parametrize(("model_client", "case"), CASES)
def test_a_golden_stream_may_be_cut_at_every_byte(model_client: str, case: str) -> None:
    data = golden(model_client, case, streamed=True)
    whole = EventSplitter()
    expected = whole.feed(data) + whole.close()
    for at in range(1, len(data)):
        stream = EventSplitter()
        assert stream.feed(data[:at]) + stream.feed(data[at:]) + stream.close() == expected, at
    assert folded(model_client, [data[i : i + 1] for i in range(len(data))]) == folded(
        model_client, [data]
    )


@pytest.mark.parametrize(
    ("model_client", "case"),
    [("anthropic", "thinking"), ("openai-responses", "mcp_approval"), ("google", "tools")],
)
def test_a_golden_stream_that_ends_early_is_never_taken_for_a_whole_one(
    model_client: str, case: str
) -> None:
    data = golden(model_client, case, streamed=True)
    expected = folded(model_client, [data])
    for at in range(len(data)):
        try:
            assert folded(model_client, [data[:at]]) == expected
        except ProviderError as error:
            assert error.code in ("interrupted", "not_understood"), at


@pytest.mark.parametrize("model_client", ["anthropic", "openai-responses", "google"])
def test_a_resumed_session_sends_the_same_bytes(model_client: str, tmp_path: Path) -> None:
    case = "thinking" if model_client == "anthropic" else "tools"
    first = Reply(
        pieces=[golden(model_client, case, streamed=False)],
        headers={"content-type": "application/json"},
    )
    replies, sent = [first, LAST[model_client], LAST[model_client]], list[bytes]()

    def answer(request: Request) -> Reply:
        if request.method == "GET":
            # How large the model's window is. Nobody knows here.
            return Reply(status=404)
        sent.append(request.body)
        return replies.pop(0)

    @tool(side_effect="none")
    def math_add(a: Any = 0, b: Any = 0) -> str:
        """Add."""
        return f"{a}{b}"

    async def story() -> None:
        async with asyncio.timeout(20), HttpDouble(answer) as server:
            for message in ("What is 1+2?", "And?"):
                agent = Agent(
                    MAKE[model_client](server.url),
                    [math_add],
                    tool_calling="native",
                    storage=Storage(journal=tmp_path / "j.db"),
                )
                session = agent.resume(names[0]) if names else agent.session()
                names.append(session.id)
                await session.run(message)
                await session.close()
                await agent.close()
                agent.journal.close()

    names: list[str] = []
    asyncio.run(story())
    end = sent[1].rindex(b"]")
    # The results stand in a turn of the user's that is still open.
    is_turn = model_client in ("anthropic", "google")
    assert sent[2].startswith(sent[1][: end - 2 if is_turn else end])
    for part, spelled in parts(model_client, case):
        is_respelled = model_client == "google" and "text" in part
        assert is_respelled or spelled in sent[2]


# ---- against the SDKs that are installed

SDKS = all(map(importlib.util.find_spec, ("anthropic", "openai", "google"))) and (
    importlib.util.find_spec("google.genai")
)
with_sdks = pytest.mark.skipif(not SDKS, reason="the official SDKs are not installed")


@with_sdks
def test_the_golden_files_are_what_their_script_makes_of_the_sdks_types() -> None:
    spec = importlib.util.spec_from_file_location("make_golden", GOLDEN / "make_golden.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: dict[str, bytes] = module.files()
    assert {
        f"{path.parent.name}/{path.name}"
        for path in GOLDEN.glob("*/*.*")
        if path.suffix in (".json", ".sse")
    } == made.keys()
    assert [name for name, content in made.items() if (GOLDEN / name).read_bytes() != content] == []


@with_sdks
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("model_client", "case"), [one for one in CASES if one not in NOT_REPLAYED]
)
def test_the_request_after_a_golden_answer_fits_the_sdks_types(
    model_client: str, case: str, streamed: bool
) -> None:
    from google_double import check_request

    from provider_double import check_messages, check_responses

    _, request = exchanged(model_client, case, streamed=streamed)
    check = {
        "anthropic": check_messages,
        "openai-responses": check_responses,
        "google": check_request,
    }
    check[model_client](json.loads(request))


@with_sdks
@pytest.mark.parametrize(
    "case", [case for model_client, case in CASES if model_client == "anthropic"]
)
def test_the_sdk_puts_a_stream_together_as_we_do(case: str) -> None:
    import anthropic

    data = golden("anthropic", case, streamed=True)

    async def story() -> Any:
        server = HttpDouble(
            lambda _: Reply(pieces=[data], headers={"content-type": "text/event-stream"})
        )
        async with asyncio.timeout(20), server:
            client = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
            asked: Any = {
                "model": "m",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "?"}],
            }
            async with client, client.beta.messages.stream(**asked) as stream:
                return await stream.get_final_message()

    theirs = asyncio.run(story())
    message = answers.MessageBuilder(AnswerBuilder())
    _feed(answers.MessageStreamParser(message, "m", tools=True), [data])
    shown = json.loads(theirs.to_json(exclude_unset=True))["content"]
    for block in shown:
        block.pop("parsed_output", None)
    assert json.loads(message.content()) == shown
