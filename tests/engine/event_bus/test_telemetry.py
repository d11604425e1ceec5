"""Spans and metrics, read back from OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from ferrule import (
    Agent,
    ConfigError,
    Context,
    Host,
    Identity,
    Limits,
    OpenAIChat,
    ProviderError,
    RunCancelled,
    Scripted,
    Storage,
    SubAgent,
    tool,
)
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    DirectCall,
    Event,
    ModelAnswered,
    PersonAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Usage,
)
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.events import BusEvent
from ferrule.engine.telemetry.names import CONTENT, LATEST, Attribute, Metric, provider_and_model
from ferrule.engine.telemetry.telemetry import Telemetry
from ferrule.models.registry import PROVIDERS
from ferrule.models.scripted import calls, fails, says
from ferrule.testing.http_double import HttpDouble, Reply
from grouped_options import grouped

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

LATEST_ON = {"OTEL_SEMCONV_STABILITY_OPT_IN": "http,gen_ai_latest_experimental"}
CONTENT_ON = {**LATEST_ON, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}


class Collected:
    """A bus, telemetry that listens to it, and what came of it."""

    def __init__(self, environment: Mapping[str, str] = LATEST_ON) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        self.bus = Bus()
        self.telemetry = Telemetry(
            tracer_provider=provider,
            meter_provider=MeterProvider([self.reader]),
            environment=environment,
        )
        self.telemetry.listen(self.bus)

    def agent(self, steps: list[Any], tools: list[Any] | None = None, **options: Any) -> Agent:
        options.setdefault("resources", [self.telemetry])
        model_client = Scripted(steps, model="openai:gpt-test")
        return Agent(
            model_client,
            tools or [],
            **grouped(bus=self.bus, journal=":memory:", user="ada", **options),
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def metrics(self) -> dict[str, list[Any]]:
        return {metric.name: list(metric.data.data_points) for metric in self._read_metrics()}

    def units(self) -> dict[str, str]:
        return {metric.name: metric.unit for metric in self._read_metrics()}

    def _read_metrics(self) -> list[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effect="none")
def fail() -> int:
    """Fail."""
    raise ValueError("no")


USED = Usage(input=100, output=20, cached=60, written=5, reasoning=7)


async def test_a_run_is_a_tree_of_spans_with_the_names_of_the_conventions() -> None:
    seen = Collected()
    agent = seen.agent(
        [calls(("add", {"a": 2, "b": 3}, "c1"), usage=USED), says("5", usage=Usage(130, 2))], [add]
    )
    session = agent.session(id="s1")
    with seen.tracer.start_as_current_span("caller"):
        await session.run("2 + 3?")
    run, tool_span, caller = (
        seen.spans["invoke_agent"],
        seen.spans["execute_tool add"],
        seen.spans["caller"],
    )
    first, second = [s for s in seen.exporter.get_finished_spans() if s.name == "chat gpt-test"]
    assert parent(run) == own(caller)
    assert {parent(span) for span in (first, second, tool_span)} == {own(run)}
    assert {span.kind for span in (run, tool_span)} == {SpanKind.INTERNAL}
    assert first.kind == second.kind == SpanKind.CLIENT
    assert dict(first.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-test",
        "gen_ai.response.model": "gpt-test",
        "server.address": "api.openai.com",
        "gen_ai.conversation.id": "s1",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 7,
        "gen_ai.response.finish_reasons": ("tool_call",),
    }
    assert dict(tool_span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": "s1",
    }
    assert (run.attributes or {})["gen_ai.usage.input_tokens"] == 230
    assert {span.status.status_code for span in seen.spans.values()} == {StatusCode.UNSET}


async def test_times_of_spans_are_those_of_the_events() -> None:
    seen = Collected()
    at: dict[str, list[int]] = {}

    def keep(event: BusEvent) -> None:
        at.setdefault(event.kind, []).append(int(event.time * 1e9))

    seen.bus.tap(keep)

    @tool(side_effect="write")
    def keep_it(n: int) -> str:
        """Keep a number."""
        return str(n)

    await seen.agent([calls(("keep_it", {"n": 1})), says("ok")], [keep_it], allow=["keep_it"]).run(
        "go"
    )
    first, second = [s for s in seen.exporter.get_finished_spans() if s.name == "chat gpt-test"]
    run, kept = seen.spans["invoke_agent"], seen.spans["execute_tool keep_it"]
    assert (run.start_time, run.end_time) == (at["run.started"][0], at["run.finished"][0])
    assert (first.start_time, first.end_time) == (at["run.started"][0], at["model.answered"][0])
    assert (kept.start_time, kept.end_time) == (at["call.started"][0], at["call.answered"][0])
    assert (second.start_time, second.end_time) == (at["call.answered"][0], at["model.answered"][1])


@pytest.mark.parametrize(
    "decided",
    [
        [CallEvaluated("c1", "allow")],
        [CallEvaluated("c1", "ask"), PersonAnswered("c1", "once")],
        [CallEvaluated("c1", "allow"), CallStarted("c1", "d1")],
    ],
)
async def test_a_span_that_is_needed_early_begins_when_the_call_was_allowed(
    decided: list[Event],
) -> None:
    seen = Collected()
    times: list[int] = []
    seen.bus.tap(lambda event: times.append(int(event.time * 1e9)))
    who = Identity("local", "ada", "s1", "r1")
    feed = seen.bus.feed(who)
    call = ModelAnswered("", (ToolCall("c1", "add", "{}"),), stop="calls")
    for event in (SessionOpened(model="openai:gpt-test"), RunStarted("go"), call, *decided):
        feed.publish(event)
    allowed = times[-1]
    assert seen.telemetry.carrier(who, "c1")
    feed.publish(ToolAnswered(ToolResult("c1", "add", True, 5)))
    assert seen.spans["execute_tool add"].start_time == allowed


async def test_what_went_wrong_has_its_type() -> None:
    seen = Collected()
    steps = [
        calls(("fail", {}), ("nope", {}), ("secret", {})),
        fails(ProviderError("gone", code="unreachable")),
    ]

    @tool(side_effect="none")
    def secret() -> str:
        """Never."""
        return ""

    with pytest.raises(ProviderError):
        await seen.agent(steps, [fail, secret], deny=["secret"]).run("go")
    wrong = {name: (span.attributes or {}).get("error.type") for name, span in seen.spans.items()}
    assert wrong["execute_tool fail"] == "internal_error"
    assert wrong["execute_tool nope"] == "not_found"
    assert wrong["execute_tool secret"] == "permission_denied"
    assert wrong["chat gpt-test"] == "unreachable"
    assert wrong["invoke_agent"] == "unreachable"
    failed = seen.spans["execute_tool fail"]
    assert failed.status.status_code is StatusCode.ERROR
    assert [event.name for event in failed.events] == ["gen_ai.execute_tool.exception"]


async def test_a_run_that_is_stopped_leaves_no_span_open() -> None:
    seen, begun = Collected(), asyncio.Event()

    @tool(side_effect="none")
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(seen.agent([calls(("wait", {}))], [wait]).run("go"))
    await asyncio.wait_for(begun.wait(), 20)
    task.cancel()
    with pytest.raises((RunCancelled, asyncio.CancelledError)):
        await task
    wrong = {name: (span.attributes or {}).get("error.type") for name, span in seen.spans.items()}
    assert wrong == {
        "chat gpt-test": None,
        "execute_tool wait": "cancelled",
        "invoke_agent": "cancelled",
    }


async def test_tokens_and_durations_are_measured() -> None:
    seen = Collected()
    await seen.agent([calls(("add", {"a": 2, "b": 3}), usage=USED), says("5")], [add]).run("2 + 3?")
    metrics = seen.metrics()
    assert set(metrics) == set(Metric)
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in metrics[Metric.TOKENS]}
    assert tokens == {"input": 100, "output": 20}
    (chat,) = metrics[Metric.DURATION]
    assert (chat.count, chat.attributes["gen_ai.operation.name"]) == (2, "chat")
    assert chat.attributes["gen_ai.provider.name"] == "openai"
    assert len(chat.explicit_bounds) == 14
    (called,) = metrics[Metric.TOOL_DURATION]
    assert dict(called.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
    }
    (run,) = metrics[Metric.AGENT_DURATION]
    assert run.sum >= chat.sum
    assert seen.units() == {
        "gen_ai.client.token.usage": "{token}",
        "gen_ai.client.operation.duration": "s",
        "gen_ai.execute_tool.duration": "s",
        "gen_ai.invoke_agent.duration": "s",
    }
    (tokens_in, _) = metrics[Metric.TOKENS]
    assert list(tokens_in.explicit_bounds)[:4] == [1, 4, 16, 64]
    assert list(chat.explicit_bounds)[:4] == [0.01, 0.02, 0.04, 0.08]


async def test_a_tool_s_time_is_measured_in_seconds() -> None:
    seen = Collected()
    feed = seen.bus.feed(Identity("local", "ada", "s1", "r1"))
    feed.publish(SessionOpened(model="openai:gpt-test"))
    feed.publish(RunStarted("go"))
    asked = (ToolCall("c1", "add", "{}"), ToolCall("c3", "wait", "{}"))
    feed.publish(ModelAnswered("", asked, stop="calls"))
    feed.publish(ToolAnswered(ToolResult("c1", "add", True, 5, duration_ms=2500)))
    # What the model called ends with the run at the latest, what a person called does not.
    feed.publish(DirectCall(ToolCall("c2", "fail", "{}")))
    feed.publish(RunFinished("done"))
    feed.publish(ToolAnswered(ToolResult("c2", "fail", True, 5, duration_ms=1500)))
    called = seen.metrics()[Metric.TOOL_DURATION]
    assert {(one.attributes["gen_ai.tool.name"], one.count, one.sum) for one in called} == {
        ("add", 1, 2.5),
        ("wait", 1, 0),
        ("fail", 1, 1.5),
    }


async def test_a_run_with_another_model_than_its_session_is_named_after_its_own() -> None:
    seen = Collected()
    feed = seen.bus.feed(Identity("local", "ada", "s1", "r1"))
    feed.publish(SessionOpened(model="openai:gpt-test"))
    feed.publish(RunStarted("go"))
    feed.publish(ModelAnswered("", stop="end"))
    feed.publish(RunStarted("go on", model="anthropic:claude-test"))
    feed.publish(ModelAnswered("", stop="end"))
    asked = [
        (span.attributes["gen_ai.provider.name"], span.attributes["gen_ai.request.model"])
        for span in seen.exporter.get_finished_spans()
        if span.attributes and span.name.startswith("chat ")
    ]
    assert asked == [("openai", "gpt-test"), ("anthropic", "claude-test")]


async def test_the_newest_names_come_only_where_somebody_opted_in() -> None:
    seen = Collected({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"})
    await seen.agent([calls(("add", {"a": 2, "b": 3}), usage=USED), says("5")], [add]).run("2 + 3?")
    emitted = {
        name for span in seen.exporter.get_finished_spans() for name in span.attributes or {}
    }
    assert emitted & LATEST == set()
    assert {"gen_ai.provider.name", "gen_ai.usage.input_tokens", "gen_ai.tool.call.id"} <= emitted
    metrics = seen.metrics()
    assert set(metrics) == {Metric.TOKENS, Metric.DURATION}
    operations = {point.attributes["gen_ai.operation.name"] for point in metrics[Metric.DURATION]}
    assert operations == {"chat", "execute_tool"}


@pytest.mark.parametrize("asked", ["", "false", "NO_CONTENT", "EVENT_ONLY", "yes please"])
async def test_no_content_is_captured_unless_it_is_asked_for_by_name(asked: str) -> None:
    seen = Collected({**LATEST_ON, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": asked})
    await seen.agent([calls(("add", {"a": 987654321098, "b": 1})), says("forty-two")], [add]).run(
        "how many?"
    )
    everything = "".join(span.to_json() for span in seen.exporter.get_finished_spans())
    for said in ("forty-two", "how many", "987654321098"):
        assert said not in everything
    assert not CONTENT & {
        name for s in seen.exporter.get_finished_spans() for name in s.attributes or {}
    }


async def test_content_that_is_asked_for_comes_without_secrets() -> None:
    seen = Collected(CONTENT_ON)

    @tool(side_effect="none")
    def fetch(url: str, password: str) -> str:
        """Fetch it."""
        return "token=abcdefghijklmnop"

    steps = [calls(("fetch", {"url": "u", "password": "correct horse battery"})), says("done")]
    await seen.agent(steps, [fetch], instructions="be brief").run("fetch u")
    call, run = (
        seen.spans["execute_tool fetch"].attributes or {},
        seen.spans["invoke_agent"].attributes or {},
    )
    assert json.loads(str(call["gen_ai.tool.call.arguments"]))["password"].startswith(
        "[redacted sha256:"
    )
    assert str(call["gen_ai.tool.call.result"]).startswith("token=[redacted")
    (said,) = json.loads(str(run["gen_ai.input.messages"]))
    assert said == {"role": "user", "parts": [{"type": "text", "content": "fetch u"}]}
    assert "done" in str(run["gen_ai.output.messages"])
    assert "be brief" in str(run["gen_ai.system_instructions"])
    assert json.loads(str(run["gen_ai.tool.definitions"])) == [
        {"type": "function", "name": "fetch"}
    ]
    assert "correct horse" not in "".join(s.to_json() for s in seen.exporter.get_finished_spans())


async def test_what_a_sub_agent_does_stands_below_the_call_that_delegated() -> None:
    seen = Collected()
    steps = [
        calls(("delegate", {"task": "2 + 3?", "agent": "adder"})),
        calls(("add", {"a": 2, "b": 3})),
        says("5"),
        says("It is 5."),
    ]
    agent = seen.agent(steps, [add], agents=[SubAgent("adder", description="adds", tools=["add"])])
    await agent.run("ask the adder")
    names = seen.spans
    assert parent(names["invoke_agent adder"]) == own(names["execute_tool delegate"])
    assert parent(names["execute_tool add"]) == own(names["invoke_agent adder"])
    assert parent(names["execute_tool delegate"]) == own(names["invoke_agent"])
    assert (names["invoke_agent adder"].attributes or {})["gen_ai.agent.name"] == "adder"
    trace_ids = {span.context.trace_id for span in names.values() if span.context}
    assert len(trace_ids) == 1


async def test_a_handler_can_send_the_context_of_its_call_along() -> None:
    seen = Collected()
    carried: list[dict[str, str]] = []

    @tool(side_effect="none")
    def reach_out(context: Context) -> str:
        """Ask elsewhere."""
        telemetry = context.resource(Telemetry)
        carried.append(telemetry.carrier(context.identity, context.call_id))
        return "ok"

    session = seen.agent([calls(("reach_out", {})), says("ok")], [reach_out]).session(id="s1")
    await session.run("go")
    span = seen.spans["execute_tool reach_out"]
    assert span.context is not None
    version, trace_id, span_id, _ = carried[0]["traceparent"].split("-")
    assert (version, trace_id, span_id) == (
        "00",
        trace.format_trace_id(span.context.trace_id),
        trace.format_span_id(span.context.span_id),
    )
    assert seen.telemetry.carrier(session.driver.log.identity, "call_1_0") == {}


async def test_the_time_to_the_first_words_is_known_where_words_arrive() -> None:
    seen = Collected()
    session = seen.agent([says("one two three")]).session(id="s1")
    async for _ in session.stream("count"):
        pass
    about = seen.spans["chat gpt-test"].attributes or {}
    assert about["gen_ai.request.stream"] is True
    first = about["gen_ai.response.time_to_first_chunk"]
    assert isinstance(first, float)
    assert first >= 0


async def test_reasoning_is_something_that_arrives_too() -> None:
    seen = Collected()
    session = seen.agent([says("", reasoning="let me count")]).session(id="s1")
    async for _ in session.stream("count"):
        pass
    about = seen.spans["chat gpt-test"].attributes or {}
    assert about["gen_ai.request.stream"] is True
    assert isinstance(about["gen_ai.response.time_to_first_chunk"], float)


def test_every_name_is_one_of_the_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
    from opentelemetry.semconv.attributes import error_attributes, server_attributes

    known = {
        value
        for module in (gen_ai_attributes, gen_ai_metrics, error_attributes, server_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    # Newer than the published package; both stand in the conventions' own repository.
    newer = {Metric.AGENT_DURATION, Metric.TOOL_DURATION}
    own = {Attribute.REFUSED_BY}  # no convention says who refused a call
    assert {str(name) for name in (*Attribute, *Metric)} - known == newer | own
    values = {value.value for value in gen_ai_attributes.GenAiProviderNameValues}
    values.add("moonshot_ai")  # Newer than the published package.
    renamed = [f"{name}:x" for name, row in PROVIDERS.items() if row.telemetry_name]
    for ours in (
        *renamed,
        "openai:x",
        "anthropic:x",
        "any:bedrock/x",
        "any:mistral/x",
        "any:gemini/x",
        "any:vertexai/x",
        "any:watsonx/x",
        "any:xai/x",
    ):
        assert provider_and_model(ours)[0] in values
    assert provider_and_model("ollama:llama3.2") == ("ollama", "llama3.2")
    assert provider_and_model("openai-responses:gpt-5") == ("openai", "gpt-5")
    assert provider_and_model("any:mistral/large") == ("mistral_ai", "large")


def test_without_the_library_one_learns_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match="ferrule\\[otel\\]"):
        Telemetry()


async def test_a_run_at_its_limit_says_so() -> None:
    seen = Collected()
    agent = seen.agent([calls(("add", {"a": 1, "b": 1}))] * 2, [add], limits=Limits(max_turns=1))
    with pytest.raises(Exception, match="max_turns"):
        await agent.run("go")
    assert (seen.spans["invoke_agent"].attributes or {})["error.type"] == "limit_max_turns"


@pytest.mark.parametrize("has_caller", [True, False])
async def test_spans_made_inside_tools_are_below_their_call_and_a_run_is_one_trace(
    has_caller: bool,
) -> None:
    seen = Collected()

    @tool(side_effect="read")
    def in_a_thread() -> str:
        """Make a span in a thread."""
        with seen.tracer.start_as_current_span("inside a thread"):
            return "ok"

    @tool(side_effect="write")
    async def in_a_task() -> str:
        """Make a span in a task."""
        with seen.tracer.start_as_current_span("inside a task"):
            await asyncio.sleep(0)
            return "ok"

    class SpanHook:
        async def before(self, tool: Any, values: Any, context: Context) -> None:
            with seen.tracer.start_as_current_span(f"hook before {tool.name}"):
                await asyncio.sleep(0)

        async def after(self, tool: Any, result: Any, context: Context) -> None: ...

    both = calls(("in_a_thread", {}), ("in_a_task", {}))
    agent = seen.agent(
        [calls(("in_a_thread", {})), both, says("end")],
        [in_a_thread, in_a_task],
        hooks=[SpanHook()],
        allow=["in_a_task"],
    )
    if has_caller:
        with seen.tracer.start_as_current_span("caller"):
            await agent.run("go")
    else:
        await agent.run("go")
    assert trace.get_current_span() is trace.INVALID_SPAN
    spans = seen.exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans if span.context}) == 1
    by_id = {span.context.span_id: span.name for span in spans if span.context}
    parents = sorted((span.name, by_id[span.parent.span_id]) for span in spans if span.parent)
    run = "invoke_agent"
    expected = [
        ("chat gpt-test", run),
        ("chat gpt-test", run),
        ("chat gpt-test", run),
        ("execute_tool in_a_task", run),
        ("execute_tool in_a_thread", run),
        ("execute_tool in_a_thread", run),
        ("hook before in_a_task", run),
        ("hook before in_a_thread", run),
        ("hook before in_a_thread", run),
        ("inside a task", "execute_tool in_a_task"),
        ("inside a thread", "execute_tool in_a_thread"),
        ("inside a thread", "execute_tool in_a_thread"),
    ]
    assert parents == sorted([*expected, *([(run, "caller")] if has_caller else [])])


async def test_a_span_names_the_host_that_was_asked_and_the_agent() -> None:
    seen = Collected()
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}}]}
    async with HttpDouble(lambda _: Reply(json=answer)) as double:
        client = OpenAIChat("gpt-test", base_url=f"{double.url}/v1", api_key="k")
        agent = Agent(
            client,
            host=Host(bus=seen.bus, name="clerk"),
            storage=Storage(journal=":memory:"),
        )
        await agent.run("go")
        await agent.disconnect()
        (span,) = [one for one in seen.exporter.get_finished_spans() if one.name.startswith("chat")]
        host, _, port = double.url.removeprefix("http://").partition(":")
        attributes = dict(span.attributes or {})
        assert (attributes["server.address"], attributes["server.port"]) == (host, int(port))
    (run,) = [one for one in seen.exporter.get_finished_spans() if "invoke_agent" in one.name]
    assert dict(run.attributes or {})["gen_ai.agent.name"] == "clerk"
