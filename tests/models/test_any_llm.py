"""The model client over any-llm: driven by the official SDK's client in its place, and by any-llm itself
where it is installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage
from ferrule.models.any_llm.client import AnyLLM
from ferrule.models.client import ModelOptions
from ferrule.models.registry import create_model_client
from ferrule.models.scripted import Step, calls, fails, says
from ferrule.testing.model_client_conformance import ADD, HELLO, RecordingSink

if importlib.util.find_spec("openai") is None:
    pytest.skip(
        "`openai` is not installed: its client stands in for any-llm", allow_module_level=True
    )

from provider_double import ProviderDouble


class SdkClient:
    """What the model client uses of any-llm, done by OpenAI's own client."""

    def __init__(self, url: str) -> None:
        import openai

        self._client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)

    async def acompletion(self, **request: Any) -> Any:
        return await self._client.chat.completions.create(**request)

    async def close(self) -> None:
        await self._client.close()


class Library:
    """A client that answers with these values, or raises them."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.requests: list[dict[str, Any]] = []

    async def acompletion(self, **request: Any) -> Any:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return _streamed(answer) if isinstance(answer, list) else answer


async def _streamed(chunks: Sequence[Any]) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk


def asked(
    steps: Sequence[Step], *histories: Sequence[Message], sink: RecordingSink | None = None
) -> tuple[list[ModelAnswered], ProviderDouble]:
    """The answers that come through OpenAI's client, and the server that gave them."""

    async def story() -> tuple[list[ModelAnswered], ProviderDouble]:
        async with asyncio.timeout(30), ProviderDouble(steps) as double:
            client = SdkClient(double.url)
            exchange = AnyLLM("openai/m", client=client).open("Be brief.", [ADD], ModelOptions())
            try:
                return [
                    await exchange.ask(history, sink=sink) for history in histories or [HELLO]
                ], double
            finally:
                await client.close()

    return asyncio.run(story())


@pytest.mark.parametrize("streamed", [False, True])
def test_words_calls_and_results_go_there_and_back(streamed: bool) -> None:
    made = calls(("math_add", {"a": 1, "b": 2}, "c1"), text="Let me add ☃.", usage=Usage(1000, 7))
    listener = RecordingSink() if streamed else None
    answers, double = asked([made], sink=listener)
    assert (answers[0].text, answers[0].stop, answers[0].usage) == (
        "Let me add ☃.",
        "calls",
        Usage(1000, 7),
    )
    assert [(call.tool, call.arguments) for call in answers[0].calls] == [
        ("math::add", '{"a":1,"b":2}')
    ]
    assert listener is None or "".join(listener.pieces) == answers[0].text
    history = [
        *HELLO,
        AssistantMessage(answers[0].text, answers[0].calls),
        ToolMessage("c1", "math::add", "3"),
    ]
    answers, double = asked([says("3")], history)
    assert (answers[0].text, double.refusals) == ("3", [])


@pytest.mark.parametrize(("status", "code"), [(401, "unauthorized"), (400, "context_overflow")])
def test_a_librarys_exceptions_never_get_out(status: int, code: str) -> None:
    told = ProviderError(
        "maximum context length is 9 tokens" if status == 400 else "unauthorized: bad key",
        status=status,
    )
    with pytest.raises(ProviderError) as raised:
        asked([fails(told)])
    assert raised.value.code in (code, "provider")
    assert raised.value.__cause__ is not None


class RateLimitError(Exception):
    """Named as any-llm names it."""

    retry_after = 99.0


class APIError(Exception):
    """Named as an SDK names it."""

    code = "insufficient_quota"
    status_code = 400


def test_an_exception_of_an_unknown_name_is_known_by_its_code() -> None:
    model_client = AnyLLM("mistral/m", client=Library(APIError("no more for you")))
    with pytest.raises(ProviderError) as raised:
        asyncio.run(model_client.open("", (), ModelOptions()).ask(HELLO))
    assert (raised.value.code, raised.value.status) == ("quota", 400)


def test_an_exception_is_known_by_its_name_and_its_wish_to_wait_is_heard() -> None:
    model_client = AnyLLM("mistral/m", client=Library(RateLimitError("slow down")))
    with pytest.raises(ProviderError) as raised:
        asyncio.run(model_client.open("", (), ModelOptions()).ask(HELLO))
    assert (raised.value.code, raised.value.retry_after) == ("rate_limited", 99.0)


def test_what_comes_beside_a_call_goes_back_with_it() -> None:
    from openai.types.chat import ChatCompletion

    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "math_add", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "c2ln"}},
    }
    choice = {
        "index": 0,
        "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": None, "tool_calls": [call]},
    }
    first = ChatCompletion.model_validate(
        {"id": "x", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
    )
    last = ChatCompletion.model_validate(
        {
            **first.model_dump(),
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "3"},
                }
            ],
        }
    )
    client = Library(first, last)

    async def story() -> ModelAnswered:
        exchange = AnyLLM("gemini/m", client=client).open("", [ADD], ModelOptions())
        answer = await exchange.ask(HELLO)
        return await exchange.ask(
            [
                *HELLO,
                AssistantMessage(answer.text, answer.calls, "", answer.raw),
                ToolMessage("c1", "math::add", "3"),
            ]
        )

    assert asyncio.run(story()).text == "3"
    assert (
        client.requests[1]["messages"][1]["tool_calls"][0]["extra_content"] == call["extra_content"]
    )


def test_a_name_without_a_provider_and_hosted_tools_are_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        create_model_client("any:mistral-small")
    assert "any:provider/model" in raised.value.hint
    with pytest.raises(ConfigError):
        create_model_client("any:mistral/m").open(
            "", (), ModelOptions(provider_tools=({"type": "web_search"},))
        )


@pytest.mark.skipif(importlib.util.find_spec("any_llm") is not None, reason="any-llm is installed")
def test_without_the_library_the_extra_is_named() -> None:
    with pytest.raises(ProviderError) as raised:
        asyncio.run(AnyLLM("mistral/m").open("", (), ModelOptions()).ask(HELLO))
    assert (raised.value.code, raised.value.hint) == ("extra_missing", "pip install 'ferrule[any]'")


@pytest.mark.skipif(importlib.util.find_spec("any_llm") is None, reason="any-llm is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("streamed", [False, True])
def test_the_library_itself_reaches_a_server(streamed: bool) -> None:
    async def story() -> ModelAnswered:
        async with (
            asyncio.timeout(60),
            ProviderDouble([calls(("math_add", {"a": 1}), text="So:")]) as double,
        ):
            model_client = AnyLLM("openai/m", base_url=f"{double.url}/v1", api_key="k")
            return await model_client.open("", [ADD], ModelOptions()).ask(
                HELLO, sink=RecordingSink() if streamed else None
            )

    answer = asyncio.run(story())
    assert (answer.text, [call.tool for call in answer.calls]) == ("So:", ["math::add"])
