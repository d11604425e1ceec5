"""A script's `http.*` is a call like any other: rules, modes and hooks see it, whatever effect its
file declares.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.engine.agent import Agent
from ferrule.engine.hooks.events import block
from ferrule.engine.web.domains import AllowedDomains
from ferrule.engine.web.fetch import WebClient
from ferrule.extensions.builtins.scope import ScriptEnvironment
from ferrule.extensions.checks.tool_file import check_tool
from ferrule.extensions.hooks.decorator import hook
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.loading import LoadedTools
from ferrule.extensions.tool_files.tool_file import parse_tool
from ferrule.models.scripted import Scripted, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.fakes import RecordingApprover
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.tools.definition import SideEffect
from grouped_options import grouped

FILE = (
    "---\n{keys}parameters: {{ url: {{ type: string }} }}\nscript: |\n  def run(args):\n      "
    "{line}\n---\nAsk.\n"
)
POST = "return http.post(args['url'], {'a': 1}, headers={'X-Api-Key': 'hunter2'})"


def text(line: str = POST, keys: str = "side_effect: none\n") -> bytes:
    return FILE.format(keys=keys, line=line).encode()


@asynccontextmanager
async def open_asker(
    pool: WorkerPool, folder: Path, data: bytes, **options: Any
) -> AsyncGenerator[Callable[..., Any]]:
    """`ask(url)` has the tool `t` ask; `ask.journal` is all that was written down."""
    world = ScriptEnvironment(
        web=WebClient(AllowedDomains.parse(["localhost", "127.0.0.1"]), environment={})
    )
    tools = LoadedTools((parse_tool(data, "t.md"),)).make_tools(world, pool=pool)
    given: dict[str, Any] = {"allow": ["t"], **options}
    ours = Agent(
        given.pop("model", Scripted([])),
        tools,
        **grouped(workspace=folder, journal=SqliteJournal(":memory:"), **given),
    )
    session = ours.session()

    async def ask(url: str) -> ToolResult:
        return await session.call("t", url=url)

    ask.__dict__["journal"] = lambda: [record.body for record in ours.journal.records(session.id)]
    ask.__dict__["agent"] = ours
    try:
        yield ask
    finally:
        await session.close()
        await ours.close()


async def test_a_script_posts_text_or_json(shared_workers: WorkerPool, tmp_path: Path) -> None:
    lines = (
        "return http.post(args['url'], {'a': 1})",
        "return http.post(args['url'], body='text', headers={'Content-Type': 'text/plain'})",
    )
    async with HttpDouble(
        lambda request: Reply(status=404, json={"got": request.body.decode()})
    ) as server:
        answers: list[Any] = []
        for line in lines:
            async with open_asker(shared_workers, tmp_path, text(line)) as ask:
                answers.append((await ask(f"http://localhost:{server.port}/")).data)
    assert [json.loads(one["body"])["got"] for one in answers] == ['{"a":1}', "text"]
    sent = [request.headers["content-type"] for request in server.requests]
    assert sent == ["application/json", "text/plain"]
    assert (answers[0]["status"], answers[0]["ok"], answers[0]["truncated"]) == (404, False, False)


async def test_a_body_of_many_results_comes_whole(
    shared_workers: WorkerPool, tmp_path: Path
) -> None:
    whole = "\u00e4\x01" * 60_000
    line = "return len(http.get(args['url'])['body'])"
    async with (
        HttpDouble(lambda request: Reply(pieces=[whole.encode()])) as server,
        open_asker(shared_workers, tmp_path, text(line)) as ask,
    ):
        result = await ask(f"http://localhost:{server.port}/")
    assert result.data == len(whole), result.error_message


@pytest.mark.parametrize(
    "keys",
    ["side_effect: none\n", "side_effect: none\nrisk: safe\n", "side_effect: external\n", ""],
)
@pytest.mark.parametrize(
    "options",
    [
        {"deny": ["WebFetch(domain:localhost)"]},
        {"deny": ["WebFetch(domain:localhost)"], "mode": "bypassPermissions"},
        {"ask": ["WebFetch(domain:localhost)"]},
        {"mode": "plan"},
        {"deny": ["web_request"]},
    ],
    ids=str,
)
async def test_what_a_rule_forbids_no_script_does(
    shared_workers: WorkerPool, tmp_path: Path, keys: str, options: dict[str, Any]
) -> None:
    async with HttpDouble(lambda request: Reply(pieces=[b"reached"])) as server:
        async with open_asker(shared_workers, tmp_path, text(keys=keys), **options) as ask:
            result = await ask(f"http://localhost:{server.port}/")
        assert result.error_type is ErrorType.PERMISSION_DENIED, result
        assert server.connection_count == 0


async def test_a_rule_holds_for_where_a_redirect_leads(
    shared_workers: WorkerPool, tmp_path: Path
) -> None:
    async with HttpDouble(lambda request: Reply(pieces=[b"reached"])) as other:
        there = f"http://127.0.0.1:{other.port}/"
        async with (
            HttpDouble(lambda request: Reply(status=303, headers={"Location": there})) as server,
            open_asker(
                shared_workers, tmp_path, text(), deny=["WebFetch(domain:127.0.0.1)"]
            ) as ask,
        ):
            result = await ask(f"http://localhost:{server.port}/")
        assert result.error_type is ErrorType.PERMISSION_DENIED
        assert (len(server.requests), other.connection_count) == (1, 0)


def _refusing(call: Any) -> Any:
    return block("not there") if call.name == "web_request" else None


async def test_a_person_who_is_asked_sees_the_address_and_hooks_see_the_call(
    shared_workers: WorkerPool, tmp_path: Path
) -> None:
    approver = RecordingApprover(["once"])
    seen: list[Request] = []

    def answer(request: Request) -> Reply:
        seen.append(request)
        return Reply(pieces=[b"ok"])

    async with HttpDouble(answer) as server:
        url = f"http://localhost:{server.port}/place"
        rules = {"ask": ["WebFetch(domain:localhost)"], "approver": approver}
        async with open_asker(shared_workers, tmp_path, text(), **rules) as ask:
            assert (await ask(url)).success
            journal = "".join(ask.__dict__["journal"]())
        assert seen[0].headers["x-api-key"] == "hunter2"
        assert "hunter2" not in journal and url in journal
        assert any(url in str(one) for one in approver.requests)
        no = hook("tool.pre", name="no")(_refusing)
        async with open_asker(shared_workers, tmp_path, text(), hooks=[no]) as ask:
            refused = await ask(url)
        assert "not there" in (refused.error_message or "")
    assert len(seen) == 1


async def test_a_model_cannot_make_the_call_itself(
    shared_workers: WorkerPool, tmp_path: Path
) -> None:
    async with HttpDouble(lambda request: Reply(pieces=[b"reached"])) as server:
        given = {"method": "GET", "url": f"http://localhost:{server.port}/", "script": "x"}
        model = Scripted([calls(("web_request", given)), says("done")])
        async with open_asker(
            shared_workers, tmp_path, text(), model=model, mode="bypassPermissions"
        ) as ask:
            run = await ask.__dict__["agent"].run("go")
        assert [one.error_type for one in run.results] == [ErrorType.NOT_FOUND]
        assert server.connection_count == 0


@pytest.mark.parametrize("effect", ["none", "read", "write", "execute"])
@pytest.mark.parametrize(
    "line", [POST, "h = http; return h.get('http://a.test/')", "return [delegate][0]('x')"]
)
async def test_a_declared_effect_is_no_less_than_what_the_script_names(
    effect: str, line: str
) -> None:
    data = text(line, f"side_effect: {effect}\n")
    made = parse_tool(data, "t.md")
    assert made.side_effect is SideEffect.EXTERNAL
    assert [one for one in made.warnings if f"`side_effect: {effect}` is less" in one.message]
    found = [one for one in await check_tool(data, "t.md") if one.level == "error"]
    assert [(one.line, one.hint) for one in found] == [
        (2, "write `side_effect: external`, or leave it out")
    ]


async def test_a_text_that_only_mentions_an_address_declares_what_it_likes() -> None:
    data = text("return 'http://a.test/ # http'", "side_effect: none\n")
    assert parse_tool(data, "t.md").side_effect is SideEffect.NONE
    assert [one for one in await check_tool(data, "t.md") if one.level == "error"] == []
