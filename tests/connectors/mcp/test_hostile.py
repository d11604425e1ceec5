"""Servers that mean harm, or only behave badly: nothing of it reaches further than the result of a
call.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest_mcp import PYTHON, Place

from ferrule.connectors.mcp import McpServer
from ferrule.core.calls import ErrorType
from ferrule.tools.reliability import Policies, Reliability

MAX_DESCRIPTION = 2000
MAX_TOOLS = 2048

BOTH = pytest.mark.parametrize("era", ["old", "new"])


@BOTH
async def test_a_server_of_either_era_is_listed_and_called(place: Place, era: str) -> None:
    servers = await place.servers(place.plain(era))
    names = [tool.name for tool in servers.tools]
    assert [name for name in names if name != "plain__resources"] == [
        "plain__echo",
        "plain__look",
        "plain__wipe",
    ]
    result = await place.session(servers).call("plain__echo", text="hello")
    assert (result.success, result.data) == (True, "echo: hello")
    assert servers.status()[0].detail == {"old": "2025-11-25", "new": "2026-07-28"}[era]


@BOTH
async def test_a_cancelled_call_is_cancelled_at_the_server_and_the_server_goes_on(
    place: Place, era: str
) -> None:
    servers = await place.servers(place.plain(era))
    session = place.session(servers)
    place.behave("slow")
    call = asyncio.create_task(session.call("plain__echo", text="x"))
    await place.until(lambda: bool(place.sent("tools/call")))
    call.cancel()
    await asyncio.wait([call])
    await place.until(lambda: any("stopped" in one for one in place.seen()))
    place.behave("good")
    assert (await session.call("plain__echo", text="after")).data == "echo: after"


@BOTH
async def test_a_crash_is_an_error_with_the_reason_and_the_next_call_starts_it_again(
    place: Place, era: str
) -> None:
    servers = await place.servers(place.plain(era))
    session = place.session(servers)
    place.behave("crash")
    crashed = await session.call("plain__echo", text="x")
    assert crashed.error_type is ErrorType.IO_ERROR
    assert "ended with 3" in (crashed.error_message or "") and "out of cheese" in (
        crashed.error_message or ""
    )
    assert "outcome unknown" in (crashed.error_message or "")
    assert servers.status()[0].state == "failed"
    place.behave("good")
    assert (await session.call("plain__echo", text="again")).data == "echo: again"


async def test_a_server_that_dies_again_and_again_is_left_alone_for_a_while(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("ferrule.connectors.mcp.server_client.time", clock)
    servers = await place.servers(place.plain())
    session = place.session(servers)
    place.behave("crash")
    await session.call("plain__echo", text="1")
    for calls, seconds in ((2, 1), (3, 2)):
        assert "ended with 3" in str((await session.call("plain__echo", text="x")).error_message)
        told = (await session.call("plain__echo", text="y")).error_message
        assert f"is tried again in {seconds} s" in str(told)
        assert len(place.sent("tools/call")) == calls
        now += seconds


async def test_a_server_that_cannot_start_says_why_and_which_variable_it_missed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_TOKEN", "hush")
    servers = await place.servers(place.plain(behaviour="dies"))
    said = " ".join(servers.notices)
    assert servers.tools == ()
    assert "DATABASE_TOKEN" in said and "it was not given" in said and "hush" not in said


async def test_a_server_that_never_says_a_word_is_a_notice_and_nothing_is_left_running(
    place: Place,
) -> None:
    servers = await place.servers(place.plain(behaviour="mute", connect_timeout=1.0))
    assert servers.tools == ()
    assert any("did not answer within 1 s" in one for one in servers.notices)
    assert servers.status()[0].state == "failed"


@BOTH
async def test_a_call_that_is_never_answered_is_a_timeout(place: Place, era: str) -> None:
    spec = place.plain(era, policies=Policies(Reliability(timeout=0.3)))
    session = place.session(await place.servers(spec))
    place.behave("silent")
    result = await session.call("plain__echo", text="x")
    assert result.error_type is ErrorType.TIMEOUT
    assert "within 0.3 s" in (result.error_message or "")


@BOTH
async def test_a_server_that_gives_no_sign_of_life_any_more_is_ended_and_marked(
    place: Place, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.connectors.mcp.server_client.LIVENESS_SECONDS", 0.3)
    spec = place.plain(era, policies=Policies(Reliability(timeout=0.3)))
    servers = await place.servers(spec)
    session = place.session(servers)
    place.behave("frozen")
    listed = len(place.sent("tools/list"))
    assert (await session.call("plain__echo", text="x")).error_type is ErrorType.TIMEOUT
    servers._clients["plain"].start_liveness_check()  # as for another call, a moment later
    await place.until(lambda: servers.status()[0].state == "failed")
    assert len(place.sent("tools/list")) <= listed + 1, "it is asked once"
    assert "does not answer any more" in servers.status()[0].detail
    place.behave("good")
    assert (await session.call("plain__echo", text="again")).data == "echo: again"


async def test_a_giant_result_is_thrown_away_and_the_server_stays(place: Place) -> None:
    servers = await place.servers(place.plain())
    session = place.session(servers)
    place.behave("giant")
    result = await session.call("plain__echo", text="x")
    assert not result.success and "too large" in (result.error_message or "")
    place.behave("good")
    assert (await session.call("plain__echo", text="y")).data == "echo: y"
    assert len(place.sent("server/discover")) == 1


async def test_a_large_result_is_cut_like_any_other(place: Place) -> None:
    session = place.session(await place.servers(place.plain()))
    place.behave("large")
    result = await session.call("plain__echo", text="x")
    assert (
        result.success
        and result.partial
        and result.size == 300_000
        and len(str(result.data)) <= 64 * 1024
    )


async def test_a_server_that_floods_does_not_fill_our_memory(place: Place) -> None:
    servers = await place.servers(place.plain())
    session = place.session(servers)
    place.behave("flood")
    result = await session.call("plain__echo", text="x")
    assert result.success or result.error_type is ErrorType.IO_ERROR


async def test_lines_that_are_no_messages_are_dropped(place: Place) -> None:
    session = place.session(await place.servers(place.plain()))
    place.behave("garbage")
    assert (await session.call("plain__echo", text="x")).data == "echo: x"


@BOTH
async def test_a_result_of_another_form_is_an_error_and_no_crash(place: Place, era: str) -> None:
    session = place.session(await place.servers(place.plain(era)))
    place.behave("nonsense")
    result = await session.call("plain__echo", text="x")
    assert result.error_type is ErrorType.PARSE_ERROR
    assert "not valid" in (result.error_message or "")


@pytest.mark.proves("mcp.rug-pull")
async def test_a_tool_that_changed_since_it_was_approved_is_not_called(place: Place) -> None:
    spec = place.plain()
    session = place.session(await place.servers(spec))
    await session.call("plain__look", text="x")
    place.behave("rug-pull")
    again = await place.servers(spec)
    second = place.session(again)
    result = await second.call("plain__echo", text="x")
    assert result.error_type is ErrorType.PERMISSION_DENIED and "changed since it was approved" in (
        result.error_message or ""
    )
    assert (await second.call("plain__look", text="same")).data == "echo: same"
    assert [one["params"]["name"] for one in place.sent("tools/call")] == ["look", "look"]


@pytest.mark.proves("mcp.rug-pull")
async def test_what_changed_is_not_offered_in_the_next_run_and_the_difference_is_shown(
    place: Place,
) -> None:
    spec = place.plain()
    await place.call(spec, "look", text="x")
    place.behave("rug-pull")
    await place.call(spec, "look", text="x")
    later = await place.servers(spec)
    assert "plain__echo" not in [tool.name for tool in later.tools]
    assert any("held back: `echo`" in one for one in later.notices)
    seen = place.approvals.get(spec)
    assert seen.state == "changed"
    diff = place.approvals.diff(spec, seen.pending)
    assert "+" in diff and "id_rsa" in diff
    assert not [line for line in diff.splitlines() if line.startswith("-") and "look" in line]
    place.approvals.approve(spec, seen.pending)
    assert "plain__echo" in [tool.name for tool in (await place.servers(spec)).tools]


@pytest.mark.proves("mcp.rug-pull")
async def test_a_server_that_says_that_its_tools_changed_is_asked_again_before_a_call(
    place: Place,
) -> None:
    session = place.session(await place.servers(place.plain("old")))
    await session.call("plain__echo", text="x")
    place.behave("announces")
    # The announcement comes with the first answer, and is heard before or after it.
    results = [await session.call("plain__echo", text="x") for _ in range(20)]
    assert results[0].success and results[-1].error_type is ErrorType.PERMISSION_DENIED
    assert len(place.sent("tools/call")) < 20


async def test_a_poisoned_description_is_cut_cleaned_and_named_as_the_servers(place: Place) -> None:
    servers = await place.servers(place.plain(behaviour="poisoned"))
    echo = next(tool for tool in servers.tools if tool.name == "plain__echo")
    assert echo.description.startswith("MCP server `plain` says: ")
    assert len(echo.description) < MAX_DESCRIPTION + 50
    assert not set(echo.description) & {"\x1b", "\u202e"} and "\U000e0073" not in echo.description
    assert str(echo.risk) == "medium" and str(echo.side_effect) == "external"


async def test_schemas_that_cost_too_much_are_left_out_or_checked_from_outside_only(
    place: Place,
) -> None:
    servers = await place.servers(place.plain(behaviour="schemas"))
    assert [tool.name for tool in servers.tools if not tool.name.endswith("resources")] == [
        "plain__costly",
        "plain__itself",
        "plain__look",
    ]
    left_out = " ".join(servers.notices)
    for name in ("deep", "large", "remote", "broken"):
        assert f"tool `{name}` is left out" in left_out
    session = place.session(servers)
    assert (await session.call("plain__costly", v="x")).success
    nested: list[object] = []
    for _ in range(40):
        nested = [{"v": nested}]
    assert (await session.call("plain__itself", v=nested)).success
    assert (
        await session.call("plain__itself", v="no list")
    ).error_type is ErrorType.VALIDATION_FAILED


async def test_a_policy_for_a_tool_that_the_server_does_not_offer_is_named(place: Place) -> None:
    policies = Policies(tools={"echo": Reliability(), "ecco": Reliability()})
    servers = await place.servers(place.plain(policies=policies))
    assert [said for said in servers.notices if "tool_policies" in said] == [
        "server `plain`: `tool_policies` names `ecco`, which it does not offer"
    ]


async def test_a_result_that_is_not_what_the_server_promised_is_a_success_with_a_notice(
    place: Place,
) -> None:
    servers = await place.servers(place.plain(behaviour="promises"))
    said = " ".join(servers.notices)
    assert "what it returns is not checked: tool `refers`" in said and "left out" not in said
    session = place.session(servers)
    for tool, fits in (("says", True), ("refers", True), ("counts", False)):
        result = await session.call(f"plain__{tool}", text="x")
        assert result.success and result.data == {"count": "three"}
        assert ("['count']: \"three\" is not of type" in " ".join(result.notes)) is not fits


@pytest.mark.parametrize("behaviour", ["many", "endless"])
async def test_more_tools_than_a_run_can_use_are_left_out_with_a_notice(
    place: Place, behaviour: str
) -> None:
    servers = await place.servers(place.plain(behaviour=behaviour))
    assert len(servers.tools) <= MAX_TOOLS + 2
    assert any("more" in one for one in servers.notices)


@pytest.mark.proves("mcp.names")
async def test_names_that_cannot_be_names_are_left_out_and_said(place: Place) -> None:
    servers = await place.servers(place.plain(behaviour="names"))
    assert [tool.name for tool in servers.tools if not tool.name.endswith("resources")] == [
        "plain__echo",
        "plain__ok",
    ]
    assert sum("is left out" in one for one in servers.notices) == 5


async def test_a_name_like_one_of_ours_or_of_another_server_is_reported(place: Place) -> None:
    specs = [
        place.plain(behaviour="ours"),
        place.plain(behaviour="ours", name="other"),
        place.plain(name="other"),
    ]
    servers = await place.servers(*specs, taken_names=["read_file"])
    said = "\n".join(servers.notices)
    assert "`plain__read_file`" in servers.summary and "\n" not in servers.summary
    assert "`other__read_file`" in servers.summary
    assert "server `other` of yours is not used" in said
    assert {"plain__read_file", "other__read_file"} <= {tool.name for tool in servers.tools}


async def test_a_tool_whose_name_is_taken_is_left_out(place: Place) -> None:
    servers = await place.servers(place.plain(), taken_names=["plain__echo"])
    assert "plain__echo" not in [tool.name for tool in servers.tools]
    assert any("`plain__echo` is left out" in one for one in servers.notices)


async def test_what_a_result_says_changes_nothing(place: Place) -> None:
    servers = await place.servers(place.plain())
    session = place.session(servers)
    place.behave("says")
    before = [tool.name for tool in servers.tools]
    result = await session.call("plain__echo", text="x")
    assert result.success and "SYSTEM" in result.data
    assert [tool.name for tool in servers.tools] == before


@pytest.mark.proves("mcp.sandboxed")
async def test_a_server_is_held_like_a_command_and_gets_few_variables(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("MY_SETTING", "yes")
    (place.root / ".env").write_text("TOKEN=1")
    place.behave("environment")
    spec = place.plain(env={"GIVEN": "${MY_SETTING}", "OTHER": "${NOT_SET:-fallback}"})
    await place.call(spec, "echo", text="x")
    environment = next(one for one in place.seen() if "GIVEN" in one)
    assert (environment["GIVEN"], environment["OTHER"]) == ("yes", "fallback")
    assert "OPENAI_API_KEY" not in environment and "MY_SETTING" not in environment


@pytest.mark.proves("mcp.sandboxed")
async def test_a_server_without_the_workspace_does_not_see_it(place: Place, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy(place.root / "plain_server.py", tools)
    words = (PYTHON, str(tools / "plain_server.py"), "new", "good")
    spec = McpServer("plain", command=words, readable=(str(tools),), workspace=False)
    assert (await place.call(spec, "echo", text="x")).data == "echo: x"
    assert place.seen() == [] and {one.name for one in place.root.iterdir()} == {"plain_server.py"}


async def test_an_error_names_the_hosts_that_the_sandbox_refused_meanwhile(place: Place) -> None:
    session = place.session(await place.servers(place.plain("old")))
    assert (await session.call("plain__echo", text="x")).success
    place.behave("reaches")
    assert (await session.call("plain__echo", text="x")).success, "a refusal alone is no error"
    place.behave("installs")
    failed = await session.call("plain__echo", text="x")
    assert failed.error_type == "tool_error"
    assert "the install failed; meanwhile the sandbox refused it a connection to " in str(
        failed.error_message
    )
    assert '`network: ["registry.example.com:443"]` in the entry of server `plain`' in str(
        failed.error_message
    )
