"""Check any model client (`ferrule.models.client.ModelClient`) that uses HTTP against its contract.

    class TestMyClient(ModelClientConformance):
        def make_client(self, url, transport):  # a model client for this server
            return MyClient("some-model", base_url=url, transport=transport)

        def encode(self, said, streamed):       # what its server would send for this answer
            return Reply(pieces=[...])

`answer_other_request` answers requests that are not for an answer of the model (descriptions of
models).
`pieces_before_text` is the number of pieces of a stream up to the first text. `object_arguments`
and `string_arguments` say how the format encodes arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.extras import name_missing_extra
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.core.vocabulary import AnswerStop
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.models.http.transport import Transport
from ferrule.models.registry import BASIC_OPTIONS, find_provider

from .http_double import HttpDouble, Reply, Request

with name_missing_extra():
    import pytest

TEST_SECONDS = 20.0
"""Seconds that a test waits for an event before it fails."""

ADD = ToolSpec(
    "math::add",
    "math_add",
    "Add two numbers.",
    '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}',
)
OPTIONS: dict[str, Any] = {
    "temperature": 0.625,
    "max_tokens": 4321,
    "seed": 97,
    "top_p": 0.375,
    "presence_penalty": 0.125,
    "frequency_penalty": 0.875,
    "stop": ("HALT-97",),
    "top_k": 43,
    "logit_bias": {"50256": -1.75},
    "service_tier": "tier-97",
    "cache_key": "key-97",
    "cached_content": "cachedContents/97",
    "cache_control": "1h",
}
"""Options with values that stand nowhere else in a request; `upload_media_from` changes none of
these requests.
"""
HELLO: tuple[Message, ...] = (UserMessage("Was ist 1+2? ☃ 🙂"),)


@dataclass(frozen=True)
class ServerCall:
    """A tool call as the server sends it; `name` is the API name."""

    name: str = "math_add"
    arguments: str | Mapping[str, Any] = '{"a":1,"b":2}'
    id: str = ""


@dataclass(frozen=True)
class ServerAnswer:
    """An answer of the model.

    `text` is streamed in these pieces; `stop` is `end`, `calls` or `length`.
    """

    text: tuple[str, ...] = ()
    calls: tuple[ServerCall, ...] = ()
    reasoning: tuple[str, ...] = ()
    stop: AnswerStop = "end"
    usage: Usage = Usage(1000, 7)


@dataclass
class RecordingSink:
    """A sink that records everything. `text_received` is set at the first piece of text."""

    pieces: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    notices: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    arguments: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    text_received: asyncio.Event = field(default_factory=asyncio.Event)

    def add_text(self, piece: str) -> None:
        self.pieces.append(piece)
        self.text_received.set()

    def add_reasoning(self, piece: str) -> None:
        self.thoughts.append(piece)

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        self.arguments.setdefault(call, []).append(piece)

    def notice(self, topic: str, text: str) -> None:
        self.notices.append((topic, text))


class Conversation:
    """A model client, its server, and the waits its retries asked for (none is slept)."""

    def __init__(self, suite: ModelClientConformance, replies: Sequence[Reply]) -> None:
        self._suite = suite
        self._replies = list(replies)
        self.waits: list[float] = []
        self.model_requests: list[Request] = []
        self.server = HttpDouble(self._handle)
        self.transport = Transport(sleep=self._sleep, random_fraction=lambda: 0.5)

    def _handle(self, request: Request) -> Reply:
        if (other := self._suite.answer_other_request(request)) is not None:
            return other
        self.model_requests.append(request)
        return self._replies.pop(0)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def client(self) -> ModelClient:
        return self._suite.make_client(self.server.url, self.transport)

    async def ask(
        self,
        sink: RecordingSink | None = None,
        *,
        tools: bool = True,
        history: Sequence[Message] = HELLO,
    ) -> ModelAnswered:
        exchange = self.client().open("Be brief.", [ADD], ModelOptions())
        return await exchange.ask(history, tools=tools, sink=sink)


class ModelClientConformance:
    """Tests of a model client: subclass as `Test…` and implement `make_client` and `encode`."""

    object_arguments = False
    string_arguments = True
    pieces_before_text = 2
    """Number of pieces of a stream up to the first text."""

    @property
    def supported_options(self) -> frozenset[str]:
        """The fields of `ModelOptions` that the API has: by default those of the provider's row."""
        provider = find_provider(self.make_client("http://127.0.0.1:9", Transport()).model)
        return BASIC_OPTIONS if provider is None else provider.options

    def make_client(self, url: str, transport: Transport) -> ModelClient:
        raise NotImplementedError

    def encode(self, said: ServerAnswer, streamed: bool) -> Reply:
        raise NotImplementedError

    def answer_other_request(self, request: Request) -> Reply | None:
        """Answer a request that is not for the model; None if it is for the model."""
        return None

    def run_conversation(
        self, replies: Sequence[Reply], story: Callable[[Conversation], Awaitable[None]]
    ) -> None:
        """Run a test's steps against these replies, with a time limit."""

        async def run_story() -> None:
            talk = Conversation(self, replies)
            async with asyncio.timeout(TEST_SECONDS), talk.server:
                try:
                    await story(talk)
                finally:
                    await talk.transport.close()

        asyncio.run(run_story())

    def ask_whole_and_streamed(
        self, said: ServerAnswer
    ) -> tuple[ModelAnswered, ModelAnswered, RecordingSink]:
        """Return the same answer in one piece and streamed, and the sink of the stream."""
        answers: list[ModelAnswered] = []
        listener = RecordingSink()

        async def story(talk: Conversation) -> None:
            answers.append(await talk.ask())
            answers.append(await talk.ask(listener))

        self.run_conversation([self.encode(said, False), self.encode(said, True)], story)
        return answers[0], answers[1], listener

    # ---- answers

    def test_text_reaches_the_sink_in_order_and_joined_is_the_answer(self) -> None:
        said = ServerAnswer(("Drei", " ☃", " 🙂", "\n\n", "Ende."))
        whole, streamed, listener = self.ask_whole_and_streamed(said)
        assert whole == streamed
        assert streamed.text == "".join(listener.pieces) == "Drei ☃ 🙂\n\nEnde."
        assert (streamed.stop, streamed.calls, streamed.usage) == ("end", (), Usage(1000, 7))

    def test_reasoning_is_kept_apart_from_the_text(self) -> None:
        whole, streamed, listener = self.ask_whole_and_streamed(
            ServerAnswer(("3",), reasoning=("one ", "and two"))
        )
        assert whole == streamed
        assert (streamed.text, streamed.reasoning) == ("3", "one and two")
        assert "".join(listener.thoughts) == "one and two"

    def test_calls_come_in_order_under_the_tools_own_names(self) -> None:
        said = ServerAnswer(
            calls=(
                ServerCall(id="x1"),
                ServerCall("nobody_has_this", id="x2"),
                ServerCall(id="x3"),
            ),
            stop="calls",
        )
        whole, streamed, _ = self.ask_whole_and_streamed(said)
        assert whole == streamed
        assert [call.tool for call in streamed.calls] == [
            "math::add",
            "nobody_has_this",
            "math::add",
        ]
        assert [call.arguments for call in streamed.calls] == ['{"a":1,"b":2}'] * 3
        assert streamed.stop == "calls"

    def test_text_and_calls_may_come_in_one_answer(self) -> None:
        whole, streamed, _ = self.ask_whole_and_streamed(
            ServerAnswer(("Let me add.",), (ServerCall(id="x1"),), stop="calls")
        )
        assert whole == streamed
        assert (streamed.text, len(streamed.calls)) == ("Let me add.", 1)

    def test_missing_ids_stay_empty_and_calls_stay_apart(self) -> None:
        whole, streamed, _ = self.ask_whole_and_streamed(
            ServerAnswer(calls=(ServerCall(), ServerCall()), stop="calls")
        )
        assert whole == streamed
        assert [call.id for call in streamed.calls] == ["", ""]

    def test_arguments_given_as_an_object_become_compact_json(self) -> None:
        if not self.object_arguments:
            pytest.skip("this format has no object arguments")
        said = ServerAnswer(
            calls=(ServerCall(arguments={"a": 1, "b": {"c": ["ä", None]}}),), stop="calls"
        )
        whole, streamed, _ = self.ask_whole_and_streamed(said)
        assert whole == streamed
        assert streamed.calls[0].arguments == '{"a":1,"b":{"c":["ä",null]}}'

    @pytest.mark.parametrize("broken", ['{"a": 1, "b"', "not json", '{"a":1}}', "[1, 2]"])
    def test_broken_arguments_are_kept_as_they_are(self, broken: str) -> None:
        if not self.string_arguments:
            pytest.skip("this format has no string arguments")
        whole, streamed, _ = self.ask_whole_and_streamed(
            ServerAnswer(calls=(ServerCall(arguments=broken, id="x"),), stop="calls")
        )
        assert whole == streamed
        assert streamed.calls[0].arguments == broken

    def test_a_call_that_was_cut_off_is_returned_as_it_stands(self) -> None:
        if not self.string_arguments:
            pytest.skip("this format has no partial calls")
        whole, streamed, _ = self.ask_whole_and_streamed(
            ServerAnswer(calls=(ServerCall(arguments='{"a":1,"b', id="x"),), stop="length")
        )
        assert whole == streamed
        assert (streamed.stop, streamed.calls[0].arguments) == ("length", '{"a":1,"b')

    def test_an_answer_cut_at_the_limit_says_so(self) -> None:
        whole, streamed, _ = self.ask_whole_and_streamed(ServerAnswer(("so far",), stop="length"))
        assert (whole.stop, streamed.stop) == ("length", "length")

    def test_the_answer_does_not_depend_on_how_the_bytes_are_cut(self) -> None:
        said = ServerAnswer(
            ("Drei ☃", " 🙂"), (ServerCall(id="x1"), ServerCall(id="x2")), stop="calls"
        )
        reply = self.encode(said, True)
        data = b"".join(reply.body())
        bytewise = Reply(
            reply.status, [data[i : i + 1] for i in range(len(data))], headers=reply.headers
        )
        in_one = Reply(reply.status, [data], headers=reply.headers)
        answers: list[ModelAnswered] = []

        async def story(talk: Conversation) -> None:
            for _ in range(3):
                answers.append(await talk.ask(RecordingSink()))

        self.run_conversation([reply, bytewise, in_one], story)
        assert answers[0] == answers[1] == answers[2]
        assert len(answers[0].calls) == 2

    # ---- what is sent

    def test_what_was_sent_before_is_sent_again_byte_for_byte(self) -> None:
        bodies: list[bytes] = []

        async def story(talk: Conversation) -> None:
            exchange = talk.client().open("Be brief.", [ADD], ModelOptions())
            history: list[Message] = list(HELLO)
            answer = await exchange.ask(history)
            history.append(AssistantMessage(answer.text, answer.calls))
            history.append(ToolMessage("x1", "math::add", "3 ☃"))
            await exchange.ask(history)
            bodies.extend(request.body for request in talk.model_requests)

        first = ServerAnswer(calls=(ServerCall(id="x1"),), stop="calls")
        self.run_conversation(
            [self.encode(first, False), self.encode(ServerAnswer(("3",)), False)], story
        )
        known = bodies[0][: bodies[0].index("🙂".encode()) + 4]
        assert bodies[1].startswith(known)
        assert "3 ☃".encode() in bodies[1]

    def test_the_options_that_the_provider_has_are_sent(self) -> None:
        sent: set[Any] = set()
        known = {name: OPTIONS[name] for name in OPTIONS if name in self.supported_options}

        async def story(talk: Conversation) -> None:
            exchange = talk.client().open("", [ADD], ModelOptions(**known))
            await exchange.ask(HELLO)
            sent.update(_values_in(talk.model_requests[0].json()))

        self.run_conversation([self.encode(ServerAnswer(("3",)), False)], story)
        missing = [name for name, value in known.items() if not sent.issuperset(_values_in(value))]
        assert missing == []

    def test_an_option_that_the_provider_does_not_have_is_refused_by_name(self) -> None:
        for name in OPTIONS.keys() - self.supported_options:
            client = self.make_client("http://127.0.0.1:9", Transport())
            with pytest.raises(ConfigError, match=f"`{name}`"):
                client.open("", [ADD], ModelOptions(**{name: OPTIONS[name]}))

    def test_broken_arguments_of_the_model_do_not_break_the_next_request(self) -> None:
        sent: list[dict[str, Any]] = []

        async def story(talk: Conversation) -> None:
            exchange = talk.client().open("", [ADD], ModelOptions())
            answer = await exchange.ask(HELLO)
            broken = answer.calls[0].__class__("x1", "a tool! that is none", '{"a": ')
            await exchange.ask(
                [*HELLO, AssistantMessage("", (broken,)), ToolMessage("x1", broken.tool, "no")]
            )
            sent.extend(request.json() for request in talk.model_requests)

        first = ServerAnswer(calls=(ServerCall(id="x1"),), stop="calls")
        self.run_conversation(
            [self.encode(first, False), self.encode(ServerAnswer(("3",)), False)], story
        )
        assert sent[1], "the request is one JSON object"

    def test_with_tools_off_no_call_comes_back(self) -> None:
        answers: list[ModelAnswered] = []

        async def story(talk: Conversation) -> None:
            answers.append(await talk.ask(tools=False))

        stubborn = self.encode(ServerAnswer(calls=(ServerCall(id="x1"),), stop="calls"), False)
        self.run_conversation([stubborn, self.encode(ServerAnswer(("3",)), False)], story)
        assert not answers[0].calls

    # ---- when it goes wrong

    def test_cancelling_before_the_answer_closes_the_connection(self) -> None:
        async def story(talk: Conversation) -> None:
            ask = asyncio.create_task(talk.ask(RecordingSink()))
            while not talk.model_requests:
                talk.server.request_received.clear()
                await talk.server.request_received.wait()
            ask.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ask
            await talk.server.client_left.wait()

        self.run_conversation([Reply(hold_head=True)], story)

    def test_cancelling_in_the_middle_closes_the_connection(self) -> None:
        begun = self.encode(ServerAnswer(("Drei", " ist")), True)
        held = Reply(
            200, begun.body()[: self.pieces_before_text], headers=begun.headers, then="hold"
        )

        async def story(talk: Conversation) -> None:
            listener = RecordingSink()
            ask = asyncio.create_task(talk.ask(listener))
            await listener.text_received.wait()
            ask.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ask
            await talk.server.client_left.wait()

        self.run_conversation([held], story)

    @pytest.mark.parametrize("then", ["end", "drop"])
    def test_a_stream_that_breaks_off_is_an_error_and_is_not_repeated(self, then: Any) -> None:
        whole = self.encode(ServerAnswer(("Drei", " ist", " es")), True)
        cut = Reply(200, whole.body()[: self.pieces_before_text], headers=whole.headers, then=then)
        errors: list[ProviderError] = []
        asks: list[Request] = []

        async def story(talk: Conversation) -> None:
            with pytest.raises(ProviderError) as raised:
                await talk.ask(RecordingSink())
            errors.append(raised.value)
            asks.extend(talk.model_requests)

        self.run_conversation([cut], story)
        assert errors[0].code == "interrupted"
        assert len(asks) == 1

    def test_a_busy_server_is_asked_again_as_it_wishes(self) -> None:
        busy = Reply(429, json={"error": {"message": "slow down"}}, headers={"Retry-After": "3"})
        listener = RecordingSink()

        async def story(talk: Conversation) -> None:
            answer = await talk.ask(listener)
            assert answer.text == "3"
            assert talk.waits == [3.0, 3.0]

        self.run_conversation([busy, busy, self.encode(ServerAnswer(("3",)), True)], story)
        assert [topic for topic, _ in listener.notices] == ["retry", "retry"]

    def test_four_attempts_are_made_and_not_more(self) -> None:
        failing = Reply(503, pieces=[b"down for maintenance"])

        async def story(talk: Conversation) -> None:
            with pytest.raises(ProviderError) as raised:
                await talk.ask()
            assert (raised.value.code, raised.value.status) == ("http_503", 503)
            assert (len(talk.model_requests), talk.waits) == (4, [0.25, 0.5, 1.0])

        self.run_conversation([failing] * 4, story)

    def test_a_refusal_is_not_repeated(self) -> None:
        async def story(talk: Conversation) -> None:
            with pytest.raises(ProviderError) as raised:
                await talk.ask()
            assert raised.value.code == "unauthorized"
            assert "who are you" in raised.value.detail
            assert (len(talk.model_requests), talk.waits) == (1, [])

        self.run_conversation([Reply(401, json={"error": {"message": "who are you"}})], story)

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(pieces=[b"<html>hello</html>"]),
            Reply(json=[1]),
            Reply(json={}),
            Reply(json={"error": "boom"}),
        ],
        ids=["html", "array", "nothing", "error"],
    )
    @pytest.mark.parametrize("streamed", [False, True])
    def test_an_answer_that_is_none_is_a_provider_error(self, reply: Reply, streamed: bool) -> None:
        async def story(talk: Conversation) -> None:
            with pytest.raises(ProviderError):
                await talk.ask(RecordingSink() if streamed else None)

        self.run_conversation([reply], story)

    def test_a_server_that_is_not_there_is_unreachable(self) -> None:
        async def story(talk: Conversation) -> None:
            client = self.make_client("http://127.0.0.1:1", talk.transport)
            with pytest.raises(ProviderError) as raised:
                await client.open("", [], ModelOptions()).ask(HELLO)
            assert (raised.value.code, len(talk.waits)) == ("unreachable", 3)
            assert raised.value.hint

        self.run_conversation([], story)

    def test_after_an_error_the_exchange_can_be_asked_again(self) -> None:
        async def story(talk: Conversation) -> None:
            exchange = talk.client().open("Be brief.", [ADD], ModelOptions())
            with pytest.raises(ProviderError):
                await exchange.ask(HELLO)
            assert (await exchange.ask(HELLO)).text == "3"
            assert talk.model_requests[0].body == talk.model_requests[1].body

        self.run_conversation(
            [Reply(400, json={"error": "no"}), self.encode(ServerAnswer(("3",)), False)], story
        )


def _values_in(value: object) -> Iterator[object]:
    """Yield the numbers and texts of a JSON value, without the names of members."""
    if isinstance(value, Mapping):
        value = list(cast("Mapping[str, object]", value).values())
    if isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from _values_in(item)
    elif isinstance(value, (int, float, str)):
        yield value
