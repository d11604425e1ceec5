"""Answers: values as they are, failures by their class, and what is repeated by itself."""

from __future__ import annotations

import base64
import json
from email.utils import formatdate
from typing import Any

import pytest
from conftest_http import AUTH, Service

from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import RunArtifacts
from ferrule.testing.http_double import Reply
from ferrule.tools.result_facts import take_facts

SCHEMA = "output_schema: {type: object, required: [id], properties: {id: {type: integer}}}"


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (Reply(json={"a": [1, None]}), {"a": [1, None]}),
        (Reply(201, json="text"), "text"),
        (
            Reply(pieces=[b'{"a": 1e999}'], headers={"content-type": "application/json"}),
            {"a": "Infinity"},
        ),
        (
            Reply(
                pieces=[b'{"a": 1}'],
                headers={"content-type": "application/problem+json; charset=utf-8"},
            ),
            {"a": 1},
        ),
        (Reply(pieces=[b'{"a": 1}'], headers={"content-type": "text/plain"}), '{"a": 1}'),
        (Reply(pieces=[b"<a/>"], headers={"content-type": "application/xml"}), "<a/>"),
        (Reply(204, framing="length"), {"status": 204}),
        (Reply(200, framing="length"), {"status": 200}),
        (
            Reply(
                pieces=[b'{"a": 1}'], headers={"content-type": "application/json"}, framing="close"
            ),
            {"a": 1},
        ),
    ],
)
async def test_an_answer_is_a_value(service: Service, reply: Reply, value: Any) -> None:
    service.replies = [reply]
    result = await service.call(service.tool())
    assert result.success and result.data == value


async def test_an_answer_is_checked_where_the_tool_says_what_it_is(service: Service) -> None:
    tool = service.tool("/x", SCHEMA)
    service.replies = [Reply(json={"id": 1})]
    assert (await service.call(tool)).data == {"id": 1}
    for reply in (
        Reply(json={"id": "1"}),
        Reply(json=[]),
        Reply(pieces=[b"x"], headers={"content-type": "text/plain"}),
    ):
        service.replies = [reply]
        result = await service.call(tool)
        assert result.success
        assert "does not fit the tool's own schema" in result.notes[0]
    service.replies = [Reply(204, framing="length")]
    assert (await service.call(tool)).data == {"status": 204}


async def test_a_program_finds_status_and_type_beside_the_value(service: Service) -> None:
    from ferrule.core.identity import Identity
    from ferrule.tools.context import Context

    service.replies = [Reply(202, json={})]
    tool = service.tool()
    context = Context(Identity("t", "u", "s", "r"), "call-1")
    await tool.handler(**tool.arguments.check({}).values, **{"ferrule context": context})
    assert take_facts(context, "call-1") == {"status": 202, "content_type": "application/json"}


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (
            "application/json",
            json.dumps(
                [{"n": n, "text": "word " * 20} for n in range(9000)], separators=(",", ":")
            ).encode(),
        ),
        (
            "application/json",
            json.dumps(
                [{"n": n, "text": "word " * 20} for n in range(50_000)], separators=(",", ":")
            ).encode(),
        ),
        ("text/csv", b"a,b\n" + b"1,2\n" * 50_000),
        ("image/png", b"\x89PNG" + bytes(range(256)) * 10),
    ],
)
async def test_a_large_answer_or_one_that_is_no_text_is_kept_aside(
    service: Service, media: str, body: bytes
) -> None:
    service.replies = [Reply(pieces=[body], headers={"content-type": media})]
    from ferrule.engine.artifacts.tools import TOOLS

    store = FileArtifactStore(service.folder / "artifacts")
    agent = Agent(
        "scripted:x",
        [service.tool(), *TOOLS],
        workspace=service.folder,
        permissions=Permissions(allow=["it", "artifact_fetch"]),
        storage=Storage(journal=service.folder / "journal.db", artifacts=RunArtifacts(store)),
    )
    session = agent.session()
    result = await session.call("it")
    assert (
        result.success
        and result.partial
        and result.data["size_bytes"] == len(body)
        and result.data["mime"] == media
    )
    fetched = await session.call("artifact_fetch", artifact=result.data["artifact"])
    content = fetched.data["content"] if isinstance(fetched.data, dict) else fetched.data
    assert body[:30].decode("latin-1") in content or base64.b64encode(body[:30]).decode() in content
    await session.close()


FAILURES = [
    (400, "validation_failed", 1),
    (401, "permission_denied", 1),
    (403, "permission_denied", 1),
    (404, "not_found", 1),
    (410, "not_found", 1),
    (409, "tool_error", 1),
    (405, "tool_error", 1),
    (413, "tool_error", 1),
    (422, "validation_failed", 1),
    (408, "timeout", 4),
    (504, "timeout", 4),
    (429, "io_error", 4),
    (503, "io_error", 4),
    (500, "io_error", 4),
    (502, "io_error", 4),
    (304, "tool_error", 1),
]


@pytest.mark.proves("http-tools.failures")
@pytest.mark.parametrize(("status", "error", "attempts"), FAILURES)
async def test_a_failure_is_what_its_status_says(
    service: Service, status: int, error: str, attempts: int
) -> None:
    service.replies = [Reply(status, json={"error": "as the service puts it"}, framing="length")]
    result = await service.call(service.tool())
    assert result.error_type == error and f"HTTP {status}" in (result.error_message or "")
    assert result.data["status"] == status
    assert len(service.requests) == attempts
    assert status == 304 or "data, not instructions" in (result.error_message or "")


@pytest.mark.proves("http-tools.failures")
async def test_a_refusal_names_the_auth_entry_that_was_used(service: Service) -> None:
    tool = service.tool("/x", "auth_ref: token", top=AUTH)
    for status in (401, 403):
        service.replies = [Reply(status)]
        message = (await service.call(tool)).error_message or ""
        assert "auth_ref `token`" in message and "5bd1" not in message
    service.replies = [Reply(401)]
    assert "has no auth_ref" in ((await service.call(service.tool())).error_message or "")


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize(
    ("reply", "unknown"),
    [
        (Reply(500), True),
        (Reply(502), True),
        (Reply(503, headers={"retry-after": "1"}), True),
        (Reply(504), True),
        (Reply(408), True),
        (Reply(drop_head=True), True),
        (Reply(pieces=[b"{"], then="drop"), True),
        (Reply(429), False),
        (Reply(400), False),
    ],
)
async def test_what_has_an_effect_is_not_repeated_by_itself(
    service: Service, method: str, reply: Reply, unknown: bool
) -> None:
    service.replies = [reply]
    result = await service.call(service.tool(method=method))
    assert not result.success and len(service.requests) == 1
    said = result.error_message or ""
    assert ("check what it did" in said or "outcome unknown" in said) is unknown


@pytest.mark.parametrize("reply", [Reply(500), Reply(503), Reply(504), Reply(drop_head=True)])
async def test_not_even_where_more_attempts_are_allowed_unless_it_says_that_twice_does_no_harm(
    service: Service, reply: Reply
) -> None:
    service.replies = [reply]
    await service.call(service.tool("/x", "policy: {max_attempts: 3}", method="POST"))
    assert len(service.requests) == 1
    for line in ("idempotent: true", "idempotency_key: true", "side_effect: read"):
        service.server.requests.clear()
        await service.call(service.tool("/x", "policy: {max_attempts: 3}", line, method="POST"))
        assert len(service.requests) == 3
    for method in ("PUT", "DELETE", "GET"):
        service.server.requests.clear()
        await service.call(service.tool("/x", "policy: {max_attempts: 3}", method=method))
        assert len(service.requests) == 3
    service.server.requests.clear()
    await service.call(
        service.tool("/x", "policy: {max_attempts: 3}", "idempotent: false", method="PUT")
    )
    assert len(service.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_a_service_that_says_when_to_come_back_is_asked_then(
    service: Service, status: int
) -> None:
    service.replies = [Reply(status, headers={"retry-after": "7"}), Reply(json={"ok": 1})]
    before = service.clock.monotonic()
    result = await service.call(service.tool("/x", "policy: {timeout_ms: 5000}"))
    assert result.data == {"ok": 1} and len(service.requests) == 2
    assert service.clock.monotonic() - before >= 7


@pytest.mark.parametrize(
    "value", ["3600", formatdate(9_999_999_999, usegmt=True), "-5", "soon", "9" * 5000]
)
async def test_a_wait_that_is_too_long_or_none_holds_nobody_up(
    service: Service, value: str
) -> None:
    service.replies = [Reply(429, headers={"retry-after": value})]
    before = service.clock.monotonic()
    result = await service.call(service.tool())
    assert result.error_type == "io_error" and service.clock.monotonic() - before < 60
    assert len(service.requests) == (
        1 if value == "3600" or "GMT" in value or value.isdigit() else 4
    )
