"""Options of packs, each driven to its effect: descriptions, defaults of commands and searches,
readers of output.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.engine.dispatcher import Dispatcher
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import SessionCommands
from ferrule.toolkits.packs import (
    agent_command_tools,
    agent_edit_tools,
    agent_host_tools,
    agent_read_tools,
)
from ferrule.tools import toolset
from ferrule.tools.catalog import Catalog
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool
from unheld import share_unheld


class Session:
    """Calls through the whole pipeline that share a memory, as those of a session do."""

    def __init__(self, root: Path, tools: tuple[Tool, ...]) -> None:
        self.root, self.tools = root, tools
        self.memory: dict[str, Any] = {}
        self.told: list[str] = []
        self.news = asyncio.Event()

    def _tell(self, text: str) -> None:
        self.told.append(text)
        self.news.set()

    def _context(self) -> Context:
        resources: dict[type, object] = {
            Workspace: Workspace(self.root),
            Sandbox: share_unheld(),
        }
        identity = Identity("t", "u", "s", "r")
        return Context(identity, "c1", memory=self.memory, resources=resources, tell=self._tell)

    async def ask(self, name: str, **arguments: Any) -> ToolResult:
        dispatcher = Dispatcher(
            Catalog(self.tools), PermissionGate(mode="bypassPermissions", root=self.root.resolve())
        )
        prepared = dispatcher.evaluate(ToolCall("c1", name, json.dumps(arguments)))
        result = await dispatcher.execute(prepared, self._context())
        assert isinstance(result, ToolResult)
        return result

    async def value(self, name: str, **arguments: Any) -> Any:
        result = await self.ask(name, **arguments)
        assert result.success, result.error_message
        return result.data

    async def close(self) -> None:
        await SessionCommands.from_context(self._context()).close()


def in_session(root: Path, tools: tuple[Tool, ...], work: Callable[[Session], Any]) -> Any:
    async def run() -> Any:
        session = Session(root, tools)
        try:
            return await work(session)
        finally:
            await session.close()

    return asyncio.run(run())


# ---- descriptions


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (agent_read_tools, "search_files"),
        (agent_edit_tools, "write_file"),
        (agent_command_tools, "run_command"),
        (agent_host_tools, "read_command_output_tail"),
    ],
)
def test_a_description_is_what_the_model_reads_of_this_tool_alone(make: Any, key: str) -> None:
    usual = {toolset.logical_key(tool): tool.description for tool in make()}
    changed = make(descriptions={key: "Only this."}, names={key: "renamed"})
    assert {
        toolset.logical_key(tool): tool.description
        for tool in changed
        if toolset.logical_key(tool) == key
    } == {key: "Only this."}
    # Others keep theirs, but for the new name where they speak of the tool.
    others = {
        toolset.logical_key(tool): tool.description.replace("renamed", key) for tool in changed
    }
    assert {name: text for name, text in others.items() if name != key} == {
        name: text for name, text in usual.items() if name != key
    }
    schemas = {toolset.logical_key(tool): tool.schema_json() for tool in make()}
    assert {
        toolset.logical_key(tool): tool.schema_json().replace("renamed", key) for tool in changed
    } == schemas


@pytest.mark.parametrize("descriptions", [{"run_comand": "x"}, {"run_command": " "}, {"*": "x"}])
def test_a_description_of_nothing_and_one_that_says_nothing_are_refused(
    descriptions: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match="descriptions"):
        agent_command_tools(descriptions=descriptions)


# ---- search_max_matches


@pytest.mark.parametrize("option", ["search_max_matches", "max_search_matches"])
@pytest.mark.parametrize("make", [agent_read_tools, agent_host_tools])
def test_matches_stop_at_the_packs_number_unless_a_call_names_another(
    tmp_path: Path, make: Any, option: str
) -> None:
    (tmp_path / "many.txt").write_text("word\n" * 9)
    tools = make(output_format="value", **{option: 4})
    (search,) = (tool for tool in tools if tool.name == "search_files")
    assert search.arguments.schema["properties"]["max_matches"]["default"] == 4

    async def work(session: Session) -> list[tuple[int, bool]]:
        found = [
            await session.value("search_files", pattern="word", **more)
            for more in ({}, {"max_matches": 2}, {"max_matches": 8}, {"max_matches": 9})
        ]
        return [(len(one["matches"]), one["truncated"]) for one in found]

    assert in_session(tmp_path, tools, work) == [(4, True), (2, True), (8, True), (9, False)]


@pytest.mark.parametrize("number", [0, 1001, -1])
def test_a_number_of_matches_that_no_call_could_ask_for_is_refused(number: int) -> None:
    with pytest.raises(ConfigError, match="search_max_matches"):
        agent_read_tools(search_max_matches=number)


# ---- command_behavior


@pytest.mark.parametrize("option", ["command_behavior", "run_command_behavior"])
def test_the_behaviour_of_a_pack_holds_for_calls_that_say_nothing(
    tmp_path: Path, option: str
) -> None:
    behavior = {
        "background_after_ms": 200,
        "progress_interval_ms": 50,
        "progress_max_inline_bytes": 5,
    }
    tools = agent_command_tools(output_format="value", lifecycle=True, **{option: behavior})  # pyright: ignore[reportArgumentType]  one of two names

    script = tmp_path / "slow.sh"
    script.write_text(
        "#!/bin/sh\necho 0123456789\nread go < go\necho abcdefghij\nexec sleep 1000\n"
    )
    script.chmod(0o755)
    os.mkfifo(tmp_path / "go")

    async def running(session: Session) -> None:
        started = await session.value("run_command", argv=["./slow.sh"])
        assert (started["status"], started["stdout"]) == ("running", "0123456789\n")
        assert started["output_path"] and started["handle_id"]
        await asyncio.to_thread((tmp_path / "go").write_text, "go\n")
        async with asyncio.timeout(60):
            await session.news.wait()
        assert "still running" in session.told[0]
        assert session.told[0].endswith("ghij\n") and "abcdef" not in session.told[0]
        assert (await session.value("kill_command", handle_id=started["handle_id"]))["cancelled"]
        # A call's own word holds before the pack's.
        waited = await session.value("run_command", argv=["echo", "hi"], background=False)
        assert waited["status"] == "completed"
        at_once = await session.value("run_command", argv=["./slow.sh"], background_after_ms=0)
        assert at_once["status"] == "running"

    in_session(tmp_path, tools, running)


def test_a_timeout_of_a_pack_ends_commands_that_name_none(tmp_path: Path) -> None:
    tools = agent_command_tools(output_format="value", command_behavior={"timeout_ms": 200})

    async def work(session: Session) -> str:
        return (await session.value("run_command", argv=["sleep", "1000"]))["status"]

    assert in_session(tmp_path, tools, work) == "timed_out"


def test_a_behaviour_that_means_nothing_is_refused_with_the_nearest_word() -> None:
    with pytest.raises(ConfigError) as raised:
        agent_host_tools(command_behavior={"background_after": 1})
    assert "`background_after_ms`" in raised.value.hint
    for wrong in ({"progress_interval_ms": 1}, {"background_after_ms": -1}, {"timeout_ms": "5"}):
        with pytest.raises(ConfigError):
            agent_host_tools(command_behavior=wrong)
    with pytest.raises(ConfigError):
        agent_host_tools(command_behavior={}, run_command_behavior={})


# ---- read_command_output_tail


def test_the_tail_is_the_last_bytes_by_every_locator_and_stream(tmp_path: Path) -> None:
    (tmp_path / "speak.sh").write_text("#!/bin/sh\nseq 1 5000\nseq 6001 9000 >&2\n")
    (tmp_path / "speak.sh").chmod(0o755)
    tools = agent_command_tools(output_format="value")

    async def work(session: Session) -> None:
        ran = await session.value("run_command", argv=["./speak.sh"])
        by = {
            "command_id": {"command_id": ran["command_id"], "stream": "stdout"},
            "handle_id": {"handle_id": ran["handle_id"], "stream": "stdout"},
            "path": {"path": ran["stdout_path"]},
        }
        for locator in by.values():
            tail = await session.value("read_command_output_tail", length=10, **locator)
            assert (tail["content"], tail["bytes_read"], tail["eof"]) == ("4999\n5000\n", 10, True)
            assert tail["offset"] + 10 == tail["total_bytes"] == 23893
        errors = await session.value(
            "read_command_output_tail", command_id=ran["command_id"], stream="stderr", length=5
        )
        assert errors["content"] == "9000\n"
        usual = await session.value(
            "read_command_output_tail", command_id=ran["command_id"], stream="stdout"
        )
        assert usual["bytes_read"] == 12_000 and usual["content"].endswith("5000\n")
        whole = await session.value(
            "read_command_output_tail", command_id=ran["command_id"], stream="stdout", length=10**9
        )
        assert (whole["offset"], whole["bytes_read"]) == (0, 23893)
        for wrong in (
            {},
            {"command_id": ran["command_id"], "handle_id": ran["handle_id"]},
            {"length": 0},
        ):
            assert (
                await session.ask("read_command_output_tail", **wrong)
            ).error_type is ErrorType.VALIDATION_FAILED
        assert (
            await session.ask("read_command_output_tail", command_id="cmd_unknown")
        ).error_type is ErrorType.NOT_FOUND

    in_session(tmp_path, tools, work)


def test_the_tail_of_a_running_command_is_what_it_said_last(tmp_path: Path) -> None:
    (tmp_path / "slow.sh").write_text("#!/bin/sh\necho é1234\nexec sleep 1000\n")
    (tmp_path / "slow.sh").chmod(0o755)
    tools = agent_command_tools(output_format="value")

    async def work(session: Session) -> None:
        ran = await session.value("run_command", argv=["./slow.sh"], background_after_ms=300)
        assert ran["status"] == "running"
        async with asyncio.timeout(60):
            while (await session.value("read_command_output_tail", handle_id=ran["handle_id"]))[
                "total_bytes"
            ] < 7:
                await asyncio.sleep(0)
        tail = await session.value("read_command_output_tail", handle_id=ran["handle_id"], length=6)
        assert tail["eof"] is False and tail["status"] == "running"
        assert tail["content"].endswith("1234\n") and "\ufffd" not in tail["content"]

    in_session(tmp_path, tools, work)
