"""Calls to an agent: what is sent, what comes back, and what its task's states become."""

from __future__ import annotations

import asyncio
import base64
from base64 import b64encode
from typing import Any

import pytest
from a2a_world import (
    Job,
    JSONResponse,
    Part,
    Request,
    World,
    broken_stream,
    card_of,
    data,
    in_a_thread,
    skill,
)

from ferrule.connectors.a2a.results import result_value
from ferrule.connectors.a2a.task_state import TaskState
from ferrule.core.calls import ErrorType
from ferrule.engine.live_events import Progress
from media_samples import make_png


async def test_a_skill_is_a_tool_and_its_answer_the_result(world: World) -> None:
    peers = await world.peers()
    (tool,) = peers.tools
    assert (tool.name, tool.source) == ("friend__echo", "a2a friend")
    assert tool.description == "The A2A agent `friend` says: Echo: Does echo."
    result = await world.session(peers).call("friend__echo", message="hello")
    assert result.data == {"agent": "friend", "answer": "you said: hello"}


async def test_an_agent_is_an_effect_outside_and_as_risky_as_the_person_says(world: World) -> None:
    found = {}
    for trust in ("low", "medium", "high"):
        (tool,) = (await world.peers(world.peer(trust=trust))).tools
        found[trust] = (str(tool.side_effect), str(tool.risk), tool.is_repeatable)
    assert found == {
        "low": ("external", "high", False),
        "medium": ("external", "medium", False),
        "high": ("external", "low", False),
    }


async def test_only_wanted_skills_are_tools_and_they_can_wait_to_be_found(world: World) -> None:
    world.card = card_of(f"{world.url}/rpc", skill("a"), skill("b"), skill("c"))
    peers = await world.peers(world.peer(only=("a", "b"), without=("b",), deferred=True))
    assert [(tool.name, str(tool.loading)) for tool in peers.tools] == [("friend__a", "deferred")]


async def test_words_and_values_travel_as_parts_and_the_skill_is_named(world: World) -> None:
    result = await world.call(message="go", data={"city": "Paris", "days": 3})
    assert result.success
    (sent,) = world.sent("SendStreamingMessage")
    assert sent["message"]["parts"] == [{"text": "go"}, {"data": {"city": "Paris", "days": 3.0}}]
    assert sent["message"]["metadata"] == {"skill": "echo"}


async def test_a_message_has_an_id_of_its_own_and_a_session_one_conversation(world: World) -> None:
    peers = await world.peers()
    one, other = world.session(peers), world.session(peers)
    for session in (one, one, other):
        assert (await session.call("friend__echo", message="the same")).success
    sent = [params["message"] for params in world.sent("SendStreamingMessage")]
    assert len({message["messageId"] for message in sent}) == 3
    assert "contextId" not in sent[0] and "contextId" not in sent[2]
    assert sent[1]["contextId"] == world.jobs[0].context.context_id


async def test_who_a_call_is_for_is_sent_only_where_the_person_said_so(world: World) -> None:
    await world.call()
    await world.call(world.peer("other", identity=True))
    without, given = (
        params["message"]["metadata"] for params in world.sent("SendStreamingMessage")
    )
    assert set(without) == {"skill"}
    assert set(given["ferrule/identity"]) == {"tenant", "user", "session", "run"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data": {"number": 2**53 + 1}}, "cannot carry exactly"),
        ({"data": {"text": "x" * 262_144}}, "say it with less"),
        ({"task_id": "another-sessions"}, "waits in this session"),
        ({"message": ""}, "message"),
        ({"files": ["large.bin", "large.bin"]}, "bytes together"),
        ({"agent": "else"}, "agent"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    world: World, arguments: dict[str, Any], said: str
) -> None:
    with (world.state / "large.bin").open("wb") as large:
        large.truncate(9 << 20)
    result = await world.call(**arguments)
    assert result.error_type is ErrorType.VALIDATION_FAILED and said in str(result.error_message)
    assert world.sent("SendStreamingMessage") == []


async def test_files_go_along_by_their_bytes_with_their_types_by_content(world: World) -> None:
    (world.state / "cat.txt").write_bytes(make_png())
    (world.state / "a.bin").write_bytes(b"\0\1")
    assert (await world.call(files=["cat.txt", "./a.bin"])).success
    (sent,) = world.sent("SendStreamingMessage")
    picture = base64.b64encode(make_png()).decode()
    assert sent["message"]["parts"][1:] == [
        {"raw": picture, "filename": "cat.txt", "mediaType": "image/png"},
        {"raw": "AAE=", "filename": "a.bin", "mediaType": "application/octet-stream"},
    ]


@pytest.mark.parametrize("name", [".env", "../other.txt", "link.txt", "/etc/passwd", "key.pem"])
async def test_what_no_tool_may_read_is_not_sent_either(world: World, name: str) -> None:
    for one in (".env", "key.pem", "../other.txt"):
        (world.state / one).write_text("secret")
    (world.state / "link.txt").symlink_to(world.state.parent / "other.txt")
    result = await world.call(files=[name])
    assert (result.success, result.error_type) == (False, ErrorType.PERMISSION_DENIED)
    assert world.requests == [] or world.sent("SendStreamingMessage") == []


async def test_values_that_nest_too_deeply_are_refused(world: World) -> None:
    nested: dict[str, Any] = {}
    for _ in range(80):
        nested = {"deeper": nested}
    result = await world.call(data=nested)
    assert (
        result.error_type is ErrorType.VALIDATION_FAILED
        and world.sent("SendStreamingMessage") == []
    )


# ---- what comes back


async def message(job: Job) -> None:
    await job.reply("at once")


async def values(job: Job) -> None:
    await job.begin()
    await job.updater.add_artifact([data({"degrees": 21, "rain": None})])
    await job.updater.complete()


async def pieces(job: Job) -> None:
    await job.begin()
    for number, text in enumerate(("Once ", "upon ", "a time")):
        await job.updater.add_artifact([Part(text=text)], artifact_id="story", append=number > 0)
    await job.updater.complete(job.says("told it"))


async def several(job: Job) -> None:
    await job.begin()
    await job.updater.add_artifact([Part(text="first"), Part(text="second")], name="words")
    picture = Part(raw=b"12345", media_type="image/png", filename="a.png")
    await job.updater.add_artifact(
        [picture, Part(url="https://elsewhere.example/b.png", media_type="image/png")]
    )
    await job.updater.complete()


async def silent(job: Job) -> None:
    await job.begin()
    await job.updater.complete(job.says("nothing to show, but done"))


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
@pytest.mark.parametrize(
    ("behaviour", "answer"),
    [
        (message, {"answer": "at once"}),
        (values, {"answer": {"degrees": 21, "rain": None}}),
        (silent, {"answer": "nothing to show, but done"}),
    ],
    ids=["message", "values", "silent"],
)
async def test_answers_are_text_or_values_however_they_come(
    world: World, behaviour: Any, answer: dict[str, Any], streaming: bool
) -> None:
    world.behaviour = behaviour
    world.card = card_of(f"{world.url}/rpc", streaming=streaming)
    result = await world.call()
    assert result.data == {"agent": "friend", **answer}
    assert bool(world.sent("SendMessage")) is not streaming


async def test_a_text_that_is_streamed_in_pieces_is_one_text(world: World) -> None:
    world.behaviour = pieces
    result = await world.call()
    assert result.data == {"agent": "friend", "answer": "Once upon a time", "said": "told it"}


async def test_several_artifacts_are_listed_and_files_described_not_fetched(world: World) -> None:
    world.behaviour = several
    result = await world.call()
    assert result.data["answer"] == [
        {"name": "words", "content": "first\nsecond"},
        {
            "name": "",
            "content": [
                {"file": "a.png", "media_type": "image/png", "bytes": 5},
                {
                    "file": "",
                    "media_type": "image/png",
                    "url": "https://elsewhere.example/b.png",
                    "note": "not fetched",
                },
            ],
        },
    ]


async def test_one_file_alone_is_kept_as_an_artifact(world: World) -> None:
    raw = bytes(range(256)) * 400

    async def file(job: Job) -> None:
        await job.begin()
        await job.updater.add_artifact([Part(raw=raw, media_type="application/zip")])
        await job.updater.complete()

    world.behaviour = file
    peers = await world.peers()
    result = await world.session(peers, artifacts=world.state / "kept").call(
        "friend__echo", message="zip it"
    )
    assert result.success and result.size == len(raw) and result.partial
    assert any(
        found.read_bytes() == raw for found in (world.state / "kept").rglob("*") if found.is_file()
    )


async def test_the_http_form_of_the_protocol_is_spoken_too(world: World) -> None:
    for streaming in (True, False):
        world.card = card_of(f"{world.url}/rest", binding="HTTP+JSON", streaming=streaming)
        result = await world.call(world.peer(f"rest-{streaming}"))
        assert result.data == {"agent": f"rest-{streaming}", "answer": "you said: hello"}


async def test_a_way_of_speaking_that_is_not_known_is_said(world: World) -> None:
    world.card = card_of(f"{world.url}/rpc", binding="GRPC")
    result = await world.call()
    assert not result.success and "JSON-RPC" in str(result.error_message)


# ---- states


def ends(how: str) -> Any:
    async def behaviour(job: Job) -> None:
        await job.begin()
        await getattr(job.updater, how)(job.says("no such city"))

    return behaviour


@pytest.mark.parametrize(
    ("how", "state", "kind"),
    [
        ("failed", "failed", ErrorType.TOOL_ERROR),
        ("reject", "rejected", ErrorType.PERMISSION_DENIED),
        ("cancel", "canceled", ErrorType.CANCELLED),
    ],
)
async def test_a_task_that_came_to_nothing_is_an_error_with_its_reason(
    world: World, how: str, state: str, kind: ErrorType
) -> None:
    world.behaviour = ends(how)
    result = await world.call()
    assert result.error_type is kind and "no such city" in str(result.error_message)
    assert result.data["state"] == state and result.data["task_id"] == world.jobs[0].context.task_id


async def asks(job: Job) -> None:
    await job.begin()
    if job.text == "Lyon":
        await job.updater.add_artifact([Part(text="sunny in Lyon")])
        await job.updater.complete()
    else:
        await job.updater.requires_input(job.says("Which city?"))


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
async def test_a_task_that_wants_input_says_for_what_and_is_gone_on_with(
    world: World, streaming: bool
) -> None:
    world.behaviour = asks
    world.card = card_of(f"{world.url}/rpc", streaming=streaming)
    session = world.session(await world.peers())
    first = await session.call("friend__echo", message="weather")
    task = world.jobs[0].context.task_id
    assert first.success and {key: first.data[key] for key in ("state", "wants", "task_id")} == {
        "state": "input-required",
        "wants": "Which city?",
        "task_id": task,
    }
    assert "`friend__echo`" in first.data["next"] and world.cancelled == []
    second = await session.call("friend__echo", message="Lyon", task_id=task)
    assert second.data["answer"] == "sunny in Lyon"
    sent = world.sent("SendStreamingMessage" if streaming else "SendMessage")[1]["message"]
    assert (sent["taskId"], sent["contextId"]) == (task, world.jobs[0].context.context_id)
    again = await session.call("friend__echo", message="Lyon", task_id=task)
    assert again.error_type is ErrorType.VALIDATION_FAILED


async def test_another_session_cannot_go_on_with_a_task(world: World) -> None:
    world.behaviour = asks
    peers = await world.peers()
    first = await world.session(peers).call("friend__echo", message="weather")
    other = await world.session(peers).call(
        "friend__echo", message="Lyon", task_id=first.data["task_id"]
    )
    assert other.error_type is ErrorType.VALIDATION_FAILED and len(world.jobs) == 1


async def test_a_task_that_wants_a_sign_in_leads_to_a_person_and_not_to_a_password(
    world: World,
) -> None:
    async def locked(job: Job) -> None:
        await job.begin()
        await job.updater.requires_auth(job.says("Sign in at https://login.example"))

    world.behaviour = locked
    result = await world.call()
    assert result.success and result.data["state"] == "auth-required"
    assert (
        "login.example" in result.data["wants"] and "Never send a password" in result.data["next"]
    )


# ---- progress, polling, time, cancellation


async def test_what_an_agent_says_on_the_way_is_progress_and_cannot_move_the_cursor(
    world: World,
) -> None:
    async def chatty(job: Job) -> None:
        await job.begin()
        await job.updater.start_work(job.says("half\x1b[2J way\u202e"))
        await job.updater.complete(job.says("done"))

    world.behaviour = chatty
    session = world.session(await world.peers())
    shown: list[str] = []
    session.observe(lambda one: shown.append(one.text) if isinstance(one, Progress) else None)
    await session.call("friend__echo", message="go")
    assert "half[2J way" in "".join(shown)


async def test_an_agent_that_does_not_stream_is_asked_until_it_is_done(world: World) -> None:
    asked = asyncio.Event()

    async def slow(job: Job) -> None:
        await job.begin()
        await asked.wait()
        await job.updater.add_artifact([Part(text="done now")])
        await job.updater.complete()

    async def rpc(request: Request) -> Any:
        body = await request.json()
        if body["method"] == "GetTask":
            asked.set()
        return await world.agent(request)

    world.behaviour = slow
    world.instead["/rpc"] = rpc
    world.card = card_of(f"{world.url}/rpc", streaming=False)
    result = await world.call()
    assert result.data["answer"] == "done now"
    assert (
        world.sent("GetTask")
        and world.sent("SendMessage")[0]["configuration"]["returnImmediately"] is True
    )


async def test_a_stream_that_breaks_is_no_end_and_nothing_is_sent_twice(world: World) -> None:
    first = True

    async def rpc(request: Request) -> Any:
        nonlocal first
        body = await request.json()
        task = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}
        if body["method"] == "SendStreamingMessage":
            return broken_stream({"jsonrpc": "2.0", "id": body["id"], "result": {"task": task}})
        state = "TASK_STATE_WORKING" if first else "TASK_STATE_COMPLETED"
        first = False
        artifacts = [{"artifactId": "a", "parts": [{"text": "after all"}]}]
        done = {**task, "status": {"state": state}, "artifacts": artifacts}
        return JSONResponse({"jsonrpc": "2.0", "id": body["id"], "result": done})

    world.instead["/rpc"] = rpc
    result = await world.call()
    assert result.data == {"agent": "friend", "answer": "after all"}
    assert len(world.sent("SendStreamingMessage")) == 1 and len(world.sent("GetTask")) == 2


async def forever(job: Job) -> None:
    await job.begin()
    await job.updater.start_work(job.says("begun"))
    await asyncio.Event().wait()


BOUND = 77.0


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the time of a call (`TEST_SECONDS` seconds) run out when the agent said that it began, however
    long that took.
    """
    bounds: list[asyncio.Timeout] = []
    real = asyncio.timeout

    def note_bound(seconds: float | None) -> asyncio.Timeout:
        made = real(seconds)
        if seconds == BOUND:
            bounds.append(made)
        return made

    def look(session: Any) -> None:
        def shown(one: Any) -> None:
            if isinstance(one, Progress):
                bounds[-1].reschedule(asyncio.get_running_loop().time())

        session.observe(shown)

    monkeypatch.setattr(asyncio, "timeout", note_bound)
    return look


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "polled"])
async def test_time_runs_out_and_the_remote_task_is_told_so(
    world: World, late: Any, streaming: bool
) -> None:
    world.behaviour = forever
    world.card = card_of(f"{world.url}/rpc", streaming=streaming)
    session = world.session(await world.peers(world.peer(timeout=BOUND)))
    late(session)
    result = await session.call("friend__echo", message="go")
    assert result.error_type is ErrorType.TIMEOUT
    assert "within 77 s" in str(result.error_message) and "asked to stop" in str(
        result.error_message
    )
    # The session does not end before the agent was told.
    await session.close()
    assert world.cancelled == [world.jobs[0].context.task_id]


async def test_a_policy_says_more_of_time_than_the_peer(world: World) -> None:
    from ferrule.tools.reliability import read_policies

    world.behaviour = forever
    said = read_policies({"timeout_ms": 200}, {"other": {"timeout_ms": 1}}, "here")
    peers = await world.peers(world.peer(timeout=600, policies=said))
    assert peers.notices == (
        "peer `friend`: `tool_policies` names `other`, which it does not offer",
    )
    result = await world.session(peers).call("friend__echo", message="go")
    assert "within 0.2 s" in str(result.error_message)


async def test_cancelling_the_call_cancels_the_remote_task(world: World) -> None:
    began = asyncio.Event()

    async def behaviour(job: Job) -> None:
        await job.begin()
        await job.updater.start_work(job.says("begun"))
        began.set()
        await asyncio.Event().wait()

    world.behaviour = behaviour
    session = world.session(await world.peers())
    shown = asyncio.Event()
    session.observe(lambda one: shown.set() if isinstance(one, Progress) else None)
    calling = asyncio.create_task(session.call("friend__echo", message="go"))
    async with asyncio.timeout(20):
        await began.wait()
        await shown.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await session.close()
        await world.was_cancelled.wait()
    assert world.cancelled == [world.jobs[0].context.task_id]


async def test_a_peer_that_does_not_let_itself_be_cancelled_holds_up_nobody(
    world: World, late: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ferrule.connectors.a2a import exchange

    monkeypatch.setattr(exchange, "CANCEL_SECONDS", 0.05)
    asked = asyncio.Event()

    async def rpc(request: Request) -> Any:
        if (await request.json())["method"] == "CancelTask":
            asked.set()
            await asyncio.Event().wait()
        return await world.agent(request)

    world.behaviour = forever
    world.instead["/rpc"] = rpc
    peers = await world.peers(world.peer(timeout=BOUND))
    session = world.session(peers)
    late(session)
    result = await session.call("friend__echo", message="go")
    assert result.error_type is ErrorType.TIMEOUT
    async with asyncio.timeout(20):
        await asked.wait()
        await peers.close()


def test_a_peer_works_on_a_second_loop_as_on_the_first(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may call `asyncio.run` again and again with the same tools."""
    from ferrule.connectors.a2a import A2aPeer, connect

    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))
    with in_a_thread(tmp_path) as far:
        peers = connect([A2aPeer("far", url=far.url, plain_http=True)])
        asyncio.run(peers.open())
        for _ in range(2):

            async def once() -> Any:
                session = far.session(peers)
                try:
                    return await session.call("far__echo", message="hello")
                finally:
                    await session.close()
                    await peers.close()

            assert asyncio.run(once()).data["answer"] == "you said: hello"


def test_sizes_of_files_are_told_without_decoding_them() -> None:
    from ferrule.connectors.a2a.results import content_value

    raw = base64.b64encode(b"x" * 300).decode()
    assert content_value([{"raw": raw}, {"text": "and"}]) == [
        {"file": "", "media_type": "", "bytes": 300},
        "and",
    ]


def test_pictures_of_a_peer_follow_its_answer_as_media() -> None:
    encoded = b64encode(make_png()).decode()
    parts = [{"text": "here"}, {"raw": encoded, "filename": "a.png", "mediaType": "text/html"}]
    for given in (parts, parts[1:]):
        value, picture = result_value("p", "t", TaskState(reply=given))
        assert value["agent"] == "p"
        assert (picture.data, picture.name) == (make_png(), "a.png")
