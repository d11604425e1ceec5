"""Spans and metrics at a collector: what a real process sends to an OTLP receiver, decoded."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
sys.path.insert(0, str(Path(__file__).parents[1] / "repository"))

from model_double import serve_model
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Receiver:
    """An OTLP receiver over HTTP: its address, and what was sent, decoded."""

    url: str
    spans: list[Any] = field(default_factory=list[Any])
    metrics: set[str] = field(default_factory=set[str])
    resources: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.headers.append(headers)
        data = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(data)
            for group in traces.resource_spans:
                self.resources.append(attributes(group.resource))
                self.spans += [span for scope in group.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(data)
            self.metrics |= {
                metric.name
                for group in metrics.resource_metrics
                for scope in group.scope_metrics
                for metric in scope.metrics
            }

    def find(self, begin: str) -> dict[str, Any]:
        return next(attributes(span) for span in self.spans if span.name.startswith(begin))


def attributes(of: Any) -> dict[str, Any]:
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value")
        for one in of.attributes
    }


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on a thread."""

    class Receiving(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.take(self.path, headers, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiving) as server:
        found = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def run_ferrule(
    folder: Path, own: Path, variables: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from ferrule.cli.entry import main; main()", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(own), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


NO_SUCH_TOOL = 3
"""The exit code of a run that ends well after a failed call: the model asks for a tool of another
program.
"""


def test_a_run_on_the_command_line_is_seen_by_a_collector(
    receiver: Receiver, tmp_path: Path
) -> None:
    with serve_model(is_lenient=True) as (variables, _):
        done = run_ferrule(
            tmp_path,
            tmp_path,
            {
                **variables,
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
                "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=ada",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
                "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
                "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
                "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
            },
            *("run", "How many bolts?", "-m", "openai:gpt-test", "-q"),
        )
    assert done.returncode == NO_SUCH_TOOL, done.stderr
    assert receiver.resources[0]["service.name"] == "ferrule"
    assert receiver.resources[0]["deployment.environment"] == "test"
    assert {one.get("x-tenant") for one in receiver.headers} == {"ada"}
    run = receiver.find("invoke_agent")
    assert run["gen_ai.agent.name"] == "ferrule"
    chats = [attributes(span) for span in receiver.spans if span.name == "chat gpt-test"]
    assert len(chats) == 2
    for chat in chats:
        assert chat["gen_ai.response.id"]
        assert chat["gen_ai.response.model"]
        assert chat["server.address"] == "127.0.0.1"
        assert chat["server.port"] == int(variables["OPENAI_BASE_URL"].split(":")[2].split("/")[0])
    read = json.loads(chats[1]["gen_ai.input.messages"])
    assert [message["role"] for message in read] == ["user", "assistant", "tool"]
    assert read[0]["parts"][0]["content"] == "How many bolts?"
    assert read[2]["parts"][0]["type"] == "tool_call_response"
    assert "gen_ai.client.operation.duration" in receiver.metrics


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    ],
)
def test_nothing_is_sent_where_it_is_not_wanted(
    receiver: Receiver, tmp_path: Path, variables: dict[str, str]
) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url} if variables else {}
    with serve_model(is_lenient=True) as (model, _):
        done = run_ferrule(
            tmp_path,
            tmp_path,
            {**model, **endpoint, **variables},
            *("run", "How many bolts?", "-m", "openai:gpt-test", "-q"),
        )
    assert done.returncode == NO_SUCH_TOOL, done.stderr
    assert receiver.headers == []


def test_a_collector_that_is_not_there_ends_no_run(tmp_path: Path) -> None:
    # What else runs in the process, as a person's tools do, may have asked for all logs.
    work, startup = tmp_path / "work", tmp_path / "startup"
    work.mkdir()
    startup.mkdir()
    (startup / "sitecustomize.py").write_text("import logging\nlogging.basicConfig()\n")
    with serve_model(is_lenient=True) as (model, _):
        done = run_ferrule(
            work,
            tmp_path,
            {
                **model,
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
                "PYTHONPATH": str(startup),
            },
            *("run", "How many bolts?", "-m", "openai:gpt-test", "-q"),
        )
    assert done.returncode == NO_SUCH_TOOL
    assert "bolts" in done.stdout
    assert done.stderr == "ferrule: telemetry could not be sent to http://127.0.0.1:9\n"
