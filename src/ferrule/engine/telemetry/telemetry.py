"""Telemetry: OpenTelemetry spans and metrics, made from the event bus. Needs `ferrule[otel]`.

    agent = Agent("ollama:llama3.2", tools=[...], plugins=[OpenTelemetry()])

    invoke_agent {agent}                  a run
      chat {model}                        a request to the model and its answer (client)
      execute_tool {tool}                 a call; below it what a sub-agent does
        invoke_agent {agent} ...

The pipeline does not know of it: without a bus, it costs a run nothing. It sees what subscribers
see, so what was redacted there is redacted here. Times are those of the events. A request begins
when the event that it answers has happened; a call that runs begins when it is announced, or when
it was allowed.

The spans go where the program's OpenTelemetry SDK sends them; without one they go nowhere. A run is
a child of the span that is current where it was started, and the current span for hooks and model
clients; a call is the current span in its handler, also in a thread. Not made here: spans of single
attempts, of HTTP requests, and of MCP methods.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ferrule._version import __version__
from ferrule.core import events
from ferrule.core.calls import ToolCall, ToolResult, encode_json
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.core.vocabulary import Refuser
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.events import BusEvent, SessionKey
from ferrule.tools.forking import make_rlock

from .names import (
    BUCKETS,
    EXCEPTION_TYPE,
    FINISH_REASONS,
    TOOL_EXCEPTION,
    Attribute,
    Metric,
    Operation,
    OptIn,
    find_model_address,
    provider_and_model,
    server_attributes,
)
from .state import (
    MOST_MESSAGES,
    OpenCall,
    OpenSession,
    make_answer_message,
    make_message,
    make_result_message,
    messages,
    nanoseconds,
    tokens,
    with_error,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, TracerProvider
else:
    MeterProvider = TracerProvider = Any

MOST_SESSIONS = 10_000
"""Maximum number of remembered sessions; open spans of the least recently used are ended."""
_NOTHING = "cancelled"


def _leave_nothing() -> None:
    """Undo nothing."""


class Telemetry:
    """Makes spans and metrics; created once per program. Safe to share between threads.

    Providers are OpenTelemetry's global ones unless given. `find_address` returns the URL of a
    model's server by the model's full name, for sessions whose client does not say where it asks.
    `agent` names runs of agents that have no name. Raises ConfigError if the library is not
    installed.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        environment: Mapping[str, str] | None = None,
        find_address: Callable[[str], str] = find_model_address,
        agent: str = "",
    ) -> None:
        self._find_address = find_address
        self._agent = agent
        self._buses: list[Bus] = []
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise ConfigError(
                "telemetry needs OpenTelemetry, which is not installed",
                hint='pip install "ferrule[otel]"',
            ) from error

        self._choice = OptIn(os.environ if environment is None else environment)
        self._tracer = trace.get_tracer("ferrule", __version__, tracer_provider)
        meter = metrics.get_meter("ferrule", __version__, meter_provider)
        self._histograms = {
            metric: meter.create_histogram(
                metric,
                unit="{token}" if metric is Metric.TOKENS else "s",
                explicit_bucket_boundaries_advisory=BUCKETS[metric],
            )
            for metric in Metric
            if self._choice.emits(metric)
        }
        self._sessions: OrderedDict[SessionKey, OpenSession] = OrderedDict()
        self._lock = make_rlock()

    def listen(self, bus: Bus) -> None:
        """Make spans of what this bus publishes from now on."""
        self._buses.append(bus)
        bus.tap(self.take)
        bus.add_scope(self.enter_scope)

    def leave(self, bus: Bus) -> None:
        """Make no more spans of this bus, if it is left as often as it was listened to."""
        self._buses.remove(bus)
        bus.untap(self.take)
        bus.remove_scope(self.enter_scope)

    def take(self, event: BusEvent) -> None:
        """Process one event, in the thread of its run."""
        who = event.identity
        if who is None:
            return
        with self._lock:
            session = self._session((who.tenant, who.user, who.session))
            if event.kind in ("piece.text", "piece.reasoning"):
                session.first_piece = session.first_piece or event.time
                return
            handler = self._HANDLERS.get(event.kind)
            if handler is None:
                return
            said = events.event_from_json(event.kind, event.payload)
            if not isinstance(said, events.Unknown):
                handler(self, session, said, event.time)

    def _find_server(self, session: OpenSession, model: str) -> str:
        """Return the URL that a session's client asks; by the model's name if no client says."""
        addresses = (bus.find_address(session.key, model) for bus in self._buses)
        return next(filter(None, addresses), "") or self._find_address(model)

    def carrier(self, identity: Identity, call_id: str) -> dict[str, str]:
        """Return the trace context of a running call, to be sent along with a request.

        It is in the form of W3C Trace Context (`traceparent`, `tracestate`); empty for a call that
        is not running.
        """
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carried: dict[str, str] = {}
        with self._lock:
            key = (identity.tenant, identity.user, identity.session)
            context = self._call_context(key, call_id) if key in self._sessions else None
        if context is not None:
            TraceContextTextMapPropagator().inject(carried, context)
        return carried

    def enter_scope(self, identity: Identity, call_id: str) -> Callable[[], None]:
        """Make the span of a call, or of the run if `call_id` is "", the current one.

        Returns:
            A function that undoes it.
        """
        from opentelemetry.context import attach, detach

        key = (identity.tenant, identity.user, identity.session)
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                context = None
            elif call_id:
                context = self._call_context(key, call_id)
            else:
                context = self._context_of(session.run)
        if context is None:
            return _leave_nothing
        token = attach(context)
        return lambda: detach(token)

    # ---- events

    def _on_opened(self, session: OpenSession, event: events.SessionOpened, time: float) -> None:
        self._name_model(session, event.model)
        session.agent = event.agent or self._agent
        session.system, session.tools = event.system, event.tools
        if event.parent:
            session.above = ((session.key[0], session.key[1], event.parent), event.parent_call)

    def _on_run_started(self, session: OpenSession, event: events.RunStarted, time: float) -> None:
        if event.model:
            self._name_model(session, event.model)
        session.agent = session.agent or self._agent
        self._remember(session, lambda: make_message("user", event.text))
        self._begin(session, time)
        self._set_attributes(
            session.run, {Attribute.INPUT_MESSAGES: lambda: messages("user", event.text)}
        )

    def _name_model(self, session: OpenSession, name: str) -> None:
        session.model_name = name
        session.provider, session.model = provider_and_model(name)

    def _remember(self, session: OpenSession, make: Callable[[], dict[str, Any]]) -> None:
        """Keep a message for the spans of later questions, if content is captured."""
        if self._choice.content:
            session.messages.append(make())
            del session.messages[:-MOST_MESSAGES]

    def _on_compacted(
        self, session: OpenSession, event: events.ContextCompacted, time: float
    ) -> None:
        # What was said before is no longer what the model reads.
        session.messages.clear()

    def _on_recovered(self, session: OpenSession, event: events.Recovered, time: float) -> None:
        self._begin(session, time)

    def _begin(self, session: OpenSession, time: float) -> None:
        self._end_run(session, time, _NOTHING)
        name = f"{Operation.AGENT} {session.agent}".rstrip()
        above = session.above and self._call_context(*session.above)
        session.run = self._span(
            session, name, self._attributes(session, Operation.AGENT), time, above
        )
        session.began = session.since = time
        session.first_piece = 0.0
        attributes: dict[str, Callable[[], object]] = {
            Attribute.SYSTEM: lambda: encode_json([{"type": "text", "content": session.system}]),
            Attribute.TOOL_DEFINITIONS: lambda: encode_json(
                [{"type": "function", "name": name} for name in session.tools]
            ),
        }
        self._set_attributes(session.run, attributes)
        if session.agent:
            self._set_attributes(session.run, {Attribute.AGENT_NAME: lambda: session.agent})

    def _on_answered(self, session: OpenSession, event: events.ModelAnswered, time: float) -> None:
        used = event.usage
        attributes: dict[str, Callable[[], object]] = {
            **tokens(used),
            Attribute.FINISH_REASONS: lambda: (FINISH_REASONS.get(event.stop, event.stop),),
            Attribute.OUTPUT_MESSAGES: lambda: encode_json([make_answer_message(event)]),
        }
        answered_by = (
            event.response_model or provider_and_model(event.model or session.model_name)[1]
        )
        attributes[Attribute.RESPONSE_MODEL] = lambda: answered_by
        if event.response_id:
            attributes[Attribute.RESPONSE_ID] = lambda: event.response_id
        self._chat(session, time, attributes, "", event.model)
        self._remember(session, lambda: make_answer_message(event))
        about = self._attributes(session, Operation.CHAT)
        for kind, count in (("input", used.input), ("output", used.output)):
            if count:
                self._record(Metric.TOKENS, count, {**about, Attribute.TOKEN_TYPE: kind})
        session.calls.update((call.id, OpenCall(call)) for call in event.calls)

    def _on_failed(self, session: OpenSession, event: events.ModelFailed, time: float) -> None:
        self._chat(session, time, {}, event.code)

    def _chat(
        self,
        session: OpenSession,
        time: float,
        attributes: dict[str, Callable[[], object]],
        error: str,
        model: str = "",
    ) -> None:
        from opentelemetry.trace import SpanKind

        begin, piece = session.since or time, session.first_piece
        name = session.model
        about = self._attributes(session, Operation.CHAT)
        if model and model != session.model_name:
            # Another model answered in place of the run's own.
            provider, name = provider_and_model(model)
            about |= {Attribute.PROVIDER.value: provider, Attribute.MODEL.value: name}
        about |= server_attributes(self._find_server(session, model or session.model_name))
        attributes = {**attributes, Attribute.INPUT_MESSAGES: lambda: encode_json(session.messages)}
        span = self._span(
            session,
            f"{Operation.CHAT} {name}".rstrip(),
            about,
            begin,
            self._context_of(session.run),
            SpanKind.CLIENT,
        )
        if piece >= begin:
            attributes = {
                **attributes,
                Attribute.STREAM: lambda: True,
                Attribute.FIRST_CHUNK: lambda: piece - begin,
            }
        self._set_attributes(span, attributes)
        self._end(span, time, error)
        self._record(Metric.DURATION, time - begin, with_error(about, error))
        session.since, session.first_piece = time, 0.0

    def _direct(self, session: OpenSession, event: events.DirectCall, time: float) -> None:
        session.calls[event.call.id] = OpenCall(event.call, event.by, time)

    def _on_evaluated(self, session: OpenSession, event: events.CallEvaluated, time: float) -> None:
        if event.result is not None:
            self._on_settled(session, event.result, time)
        elif call := session.calls.get(event.call_id):
            call.since = time

    def _person(self, session: OpenSession, event: events.PersonAnswered, time: float) -> None:
        call = session.calls.get(event.call_id)
        if call is not None and event.choice == "deny":
            refuser = event.refused_by or "person"
            self._close(session, event.call_id, time, 0.0, "permission_denied", refuser)
        elif call is not None:
            call.since = time

    def _on_started(self, session: OpenSession, event: events.CallStarted, time: float) -> None:
        if call := session.calls.get(event.call_id):
            call.since, call.announced = time, True

    def _on_tool_answered(
        self, session: OpenSession, event: events.ToolAnswered, time: float
    ) -> None:
        self._on_settled(session, event.result, time)

    def _on_settled(self, session: OpenSession, result: ToolResult, time: float) -> None:
        call = session.calls.setdefault(
            result.call_id, OpenCall(ToolCall(result.call_id, result.tool), since=time)
        )
        if not call.direct:
            self._remember(session, lambda: make_result_message(result))
        error = "" if result.success else str(result.error_type)
        begin = call.since if call.announced else time - result.duration_ms / 1000
        if call.span is None:
            call.span = self._call_span(session, call, begin)
        self._set_attributes(
            call.span,
            {
                Attribute.TOOL_ARGUMENTS: lambda: call.call.arguments,
                Attribute.TOOL_RESULT: result.to_text,
            },
        )
        seconds = result.duration_ms / 1000
        self._close(session, result.call_id, time, seconds, error, result.refused_by)

    def _close(
        self,
        session: OpenSession,
        call_id: str,
        time: float,
        seconds: float,
        error: str,
        refused_by: Refuser | Literal[""] = "",
    ) -> None:
        call = session.calls.pop(call_id)
        span = call.span or self._call_span(session, call, time)
        if refused_by:
            span.set_attribute(Attribute.REFUSED_BY, refused_by)
        if error and self._choice.emits(TOOL_EXCEPTION):
            span.add_event(TOOL_EXCEPTION, {EXCEPTION_TYPE: error}, nanoseconds(time))
        self._end(span, time, error)
        about = with_error(
            {
                Attribute.OPERATION.value: Operation.TOOL.value,
                Attribute.TOOL_NAME.value: call.call.tool,
            },
            error,
        )
        metric = Metric.TOOL_DURATION if self._choice.latest else Metric.DURATION
        self._record(metric, seconds, about)
        if not call.direct:
            session.since = time

    def _on_finished(self, session: OpenSession, event: events.RunFinished, time: float) -> None:
        error = "" if event.stop == "done" else event.code or event.stop
        self._set_attributes(
            session.run,
            {
                **tokens(event.usage),
                Attribute.OUTPUT_MESSAGES: lambda: messages("assistant", event.text),
            },
        )
        self._end_run(session, time, error)

    def _end_run(self, session: OpenSession, time: float, error: str) -> None:
        for call_id in [name for name, call in session.calls.items() if not call.direct]:
            # A call that a stopped run left open has no answer of its own.
            self._close(session, call_id, time, 0.0, _NOTHING)
        if session.run is not None:
            self._end(session.run, time, error)
            about = with_error(self._attributes(session, Operation.AGENT), error)
            self._record(Metric.AGENT_DURATION, time - session.began, about)
            session.run = None

    _HANDLERS: ClassVar[dict[str, Callable[[Telemetry, OpenSession, Any, float], None]]] = {
        events.SessionOpened.kind: _on_opened,
        events.RunStarted.kind: _on_run_started,
        events.Recovered.kind: _on_recovered,
        events.ModelAnswered.kind: _on_answered,
        events.ModelFailed.kind: _on_failed,
        events.DirectCall.kind: _direct,
        events.CallEvaluated.kind: _on_evaluated,
        events.PersonAnswered.kind: _person,
        events.CallStarted.kind: _on_started,
        events.ToolAnswered.kind: _on_tool_answered,
        events.RunFinished.kind: _on_finished,
        events.ContextCompacted.kind: _on_compacted,
    }

    # ---- spans

    def _session(self, key: SessionKey) -> OpenSession:
        found = self._sessions.get(key)
        if found is None:
            found = self._sessions[key] = OpenSession(key)
            if len(self._sessions) > MOST_SESSIONS:
                _, oldest = self._sessions.popitem(last=False)
                self._end_run(oldest, oldest.since, _NOTHING)
        else:
            self._sessions.move_to_end(key)
        return found

    def _attributes(self, session: OpenSession, operation: Operation) -> dict[str, Any]:
        return {
            Attribute.OPERATION.value: operation.value,
            Attribute.PROVIDER.value: session.provider,
            Attribute.MODEL.value: session.model,
        }

    def _call_span(self, session: OpenSession, call: OpenCall, begin: float) -> Span:
        about = {
            Attribute.OPERATION.value: Operation.TOOL.value,
            Attribute.TOOL_NAME.value: call.call.tool,
            Attribute.TOOL_CALL_ID.value: call.call.id,
            Attribute.TOOL_TYPE.value: "function",
        }
        caller = call.direct.removeprefix("call ")
        above = self._call_context(session.key, caller) if caller != call.direct else None
        return self._span(
            session,
            f"{Operation.TOOL} {call.call.tool}",
            about,
            begin,
            above or self._context_of(session.run),
        )

    def _call_context(self, key: SessionKey, call_id: str) -> Context | None:
        """Return the context of a call; this opens its span, if it is not open yet."""
        session = self._sessions.get(key)
        call = session and session.calls.get(call_id)
        if session is None or not call:
            return None
        call.span = call.span or self._call_span(session, call, call.since)
        return self._context_of(call.span)

    def _context_of(self, span: Span | None) -> Context | None:
        from opentelemetry.trace import set_span_in_context

        return None if span is None else set_span_in_context(span)

    def _span(
        self,
        session: OpenSession,
        name: str,
        about: Mapping[str, Any],
        begin: float,
        within: Context | None,
        kind: SpanKind | None = None,
    ) -> Span:
        from opentelemetry.trace import SpanKind as Kinds

        attributes = {**about, Attribute.CONVERSATION.value: session.key[2]}
        return self._tracer.start_span(
            name, within, kind or Kinds.INTERNAL, attributes, start_time=nanoseconds(begin)
        )

    def _set_attributes(
        self, span: Span | None, attributes: Mapping[str, Callable[[], Any]]
    ) -> None:
        """Set attributes that are emitted; the values of others are not computed."""
        if span is None:
            return
        for name, value in attributes.items():
            if self._choice.emits(name):
                span.set_attribute(name, value())

    def _end(self, span: Span, time: float, error: str) -> None:
        if error:
            from opentelemetry.trace import Status, StatusCode

            span.set_attribute(Attribute.ERROR, error)
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(nanoseconds(time))

    def _record(self, metric: Metric, value: float, about: Mapping[str, Any]) -> None:
        histogram = self._histograms.get(metric)
        if histogram is not None:
            histogram.record(value, about)
