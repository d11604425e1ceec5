"""Errors arrive whole: class and fields, however a run is made, and through every copy of them."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import ferrule
from ferrule import (
    Agent,
    ConfigError,
    FerruleError,
    LimitReached,
    OpenAIChat,
    OutputInvalid,
    ProviderError,
    Scripted,
    Storage,
    ToolCalling,
    tool,
)
from ferrule.core.calls import ErrorType
from ferrule.core.errors import JournalError, ToolFailed
from ferrule.core.events import ModelFailed
from ferrule.core.output import OutputAttempt
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.job_run import read_end
from ferrule.models.scripted import ScriptError, calls, fails, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.http_double import HttpDouble, Reply

FIELDS = {"code": "rate_limited", "status": 429, "retryable": True, "retry_after": 3600.0}


def fields_of(error: ProviderError) -> dict[str, Any]:
    return {name: getattr(error, name) for name in FIELDS}


def busy() -> ProviderError:
    return ProviderError(
        "slow down", code="rate_limited", status=429, retryable=True, retry_after=3600.0
    )


def by_run_sync(agent: Agent) -> None:
    agent.run_sync("go")


def by_run_sync_in_a_loop(agent: Agent) -> None:
    async def cell() -> None:
        agent.run_sync("go")

    asyncio.run(cell())


def by_run(agent: Agent) -> None:
    asyncio.run(agent.run("go"))


def by_session(agent: Agent) -> None:
    asyncio.run(agent.session().run("go"))


def by_stream(agent: Agent) -> None:
    async def read() -> None:
        async for _ in agent.stream("go"):
            pass

    asyncio.run(read())


def by_step(agent: Agent) -> None:
    async def read() -> None:
        async for _ in agent.session().step("go"):
            pass

    asyncio.run(read())


WAYS = (by_run_sync, by_run_sync_in_a_loop, by_run, by_session, by_stream, by_step)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_fields_of_a_provider_error_reach_the_caller(way: Callable[[Agent], None]) -> None:
    agent = Agent(Scripted([fails(busy())]))
    with pytest.raises(ProviderError) as caught:
        way(agent)
    assert fields_of(caught.value) == FIELDS
    assert caught.value.detail == "slow down"


async def test_fields_of_an_answer_on_the_wire_reach_the_caller() -> None:
    reply = Reply(429, json={"error": {"message": "slow down"}}, headers={"Retry-After": "3600"})
    async with HttpDouble(lambda request: reply) as server:
        model = OpenAIChat("gpt-4o", base_url=f"{server.url}/v1", api_key="k")
        agent = Agent(model)
        with pytest.raises(ProviderError) as caught:
            await agent.run("go")
        await agent.close()
    assert fields_of(caught.value) == FIELDS


def test_the_class_of_a_providers_error_reaches_the_caller() -> None:
    with pytest.raises(ScriptError) as caught:
        Agent(Scripted([])).run_sync("go")
    assert caught.value.code == "script_over"


def test_the_journal_and_a_workers_outcome_have_the_fields_of_an_error() -> None:
    with SqliteJournal(":memory:") as journal:
        agent = Agent(Scripted([fails(busy())]), storage=Storage(journal=journal, user="u"))
        session = agent.session(id="s" * 32)
        with pytest.raises(ProviderError):
            asyncio.run(session.run("go", run="r" * 32))
        events = [record.event for record in journal.records(session.id)]
        failed = next(event for event in events if isinstance(event, ModelFailed))
        assert {name: getattr(failed, name) for name in FIELDS} == FIELDS
        job = Job(text="go", session=session.id, run="r" * 32, tenant="local", user="u")
        end = read_end(journal, job)
        assert end is not None
        outcome = end.outcome
    assert outcome is not None and outcome["error"] == FIELDS


def test_a_delegating_run_learns_the_fields_of_its_sub_agents_error() -> None:
    def answer(history: Any) -> Any:
        if history[0].text == "go" and len(history) == 1:
            return calls(("delegate", {"task": "work", "agent": "helper"}))
        return says("end") if len(history) > 1 else fails(busy())

    agent = Agent(
        Scripted([answer] * 3),
        plugins=[Parts(agents=[SubAgent("helper", "Helps.", prompt="Help.")])],
    )
    ran = agent.run_sync("go")
    assert not ran.results[0].success
    assert ran.results[0].data == FIELDS


def subclasses(kind: type[FerruleError]) -> Iterator[type[FerruleError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from subclasses(one)


EXAMPLES: dict[type[FerruleError], FerruleError] = {
    ProviderError: busy(),
    LimitReached: LimitReached("max_turns", 3, session="s", hint="raise it"),
    OutputInvalid: OutputInvalid("wrong", attempts=(OutputAttempt("x", ("y",)),), session="s"),
}


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_every_error_survives_copies_with_all_its_fields(
    copied: Callable[[FerruleError], FerruleError],
) -> None:
    import_everything()
    seen = 0
    for kind in subclasses(FerruleError):
        error = EXAMPLES.get(kind)
        if error is None:
            error = kind.__new__(kind)
            FerruleError.__init__(error, "what", code="a_code", hint="do this", retryable=True)
        error.__dict__["extra_field"] = ("kept", 1)
        again = copied(error)
        assert type(again) is kind
        assert again.__dict__ == error.__dict__
        assert str(again) == str(error)
        seen += 1
    assert seen > 20


def import_everything() -> None:
    """Import the modules that define errors of their own."""
    import importlib
    import pkgutil

    for module in pkgutil.walk_packages(ferrule.__path__, "ferrule."):
        if not module.name.startswith(("ferrule.adapters", "ferrule.__main__")):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue


def test_errors_of_the_journal_keep_their_place() -> None:
    error = JournalError("broken")
    error.session, error.event = "s", 7
    again = pickle.loads(pickle.dumps(error))
    assert (again.session, again.event) == ("s", 7)


def test_a_config_error_says_whether_trying_again_could_help() -> None:
    error = ConfigError("x", retryable=False)
    assert pickle.loads(pickle.dumps(error)).retryable is False


async def test_the_text_of_an_exception_can_be_kept_from_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(side_effect="none")
    def look() -> str:
        """Look."""
        raise ValueError("password is 1234")

    @tool(side_effect="none")
    def read() -> str:
        """Read."""
        raise ToolFailed(ErrorType.TOOL_ERROR, "the shelf is empty")

    script = [calls(("look", {}), ("read", {})), says("done")]
    cases: list[tuple[Literal["text", "name"], bool]] = [("text", True), ("name", False)]
    for errors, shown in cases:
        agent = Agent(
            Scripted(script),
            [look, read],
            tool_calling=ToolCalling(errors=errors),
            storage=Storage(journal=":memory:"),
        )
        unknown, meant = (await agent.run("go")).results
        assert ("1234" in str(unknown.error_message)) is shown
        assert "ValueError" in str(unknown.error_message)
        assert "the shelf is empty" in str(meant.error_message)
    assert "password is 1234" in caplog.text
