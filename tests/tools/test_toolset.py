"""Toolsets: small functions over sequences of tools that select, rename, annotate, configure and
format.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError, ToolDefinitionError
from ferrule.tools import toolset
from ferrule.tools.catalog import Catalog
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Risk, SideEffect, Tool
from ferrule.tools.pack_options import PackOptions, apply_options
from ferrule.tools.result_formatting import format_results
from ferrule.tools.toolset import replace_names


@tool(side_effect="execute")
def run_command(argv: list[str]) -> dict[str, Any]:
    """Run a program. Its whole output is read with `read_output` or read_output_tail; then
    run_command again.
    """
    return {"status": "completed", "argv": argv}


@tool(side_effect="read")
def read_output(
    command_id: Annotated[str, "The id that `run_command` gave; see read_output_tail for the end."],
) -> str:
    """Read the output of a run_command."""
    return f"output of {command_id}"


@tool(side_effect="read")
async def read_output_tail(command_id: str, size: int = 10) -> str:
    """Read the end of the output."""
    return "tail"


@tool(side_effect="none")
def search(text: str) -> list[str]:
    """Search for words; unlike read_output it does not read."""
    return [text, text]


def pack() -> tuple[Tool, ...]:
    commands = toolset.annotate(
        toolset.add_to_groups([run_command, read_output, read_output_tail], "command"),
        {"run_command": {"result_readers": ["read_output", "read_output_tail"]}},
    )
    return (*commands, *toolset.add_to_groups([search], "read"))


def names(tools: tuple[Tool, ...]) -> list[str]:
    return [one.full_name for one in tools]


def by_key(tools: tuple[Tool, ...], key: str) -> Tool:
    return next(one for one in tools if toolset.logical_key(one) == key)


# ---- which tools


@pytest.mark.parametrize(
    ("enabled", "without", "expected"),
    [
        (None, (), ["run_command", "read_output", "read_output_tail", "search"]),
        (["read"], (), ["search"]),
        (["command"], ["read_output"], ["run_command", "read_output_tail"]),
        (["search", "run_command"], (), ["run_command", "search"]),
        (["all"], ["command"], ["search"]),
        (["*"], ["*"], []),
        ([], (), []),
    ],
)
def test_tools_are_selected_by_key_or_group_in_their_own_order(
    enabled: list[str] | None, without: list[str], expected: list[str]
) -> None:
    assert names(toolset.select(pack(), enabled, without=without)) == expected


def test_a_renamed_tool_is_still_selected_by_its_logical_key_and_by_its_name() -> None:
    tools = toolset.rename(pack(), {"run_command": "release_run"})
    assert names(toolset.select(tools, ["run_command"])) == ["release_run"]
    assert names(toolset.select(tools, ["release_run"])) == ["release_run"]


@pytest.mark.parametrize(
    ("act", "hint"),
    [
        (lambda t: toolset.select(t, ["run_comand"]), "`run_command`"),
        (lambda t: toolset.select(t, ["comand"]), "`command`"),
        (lambda t: toolset.select(t, None, without=["serch"]), "`search`"),
        (lambda t: toolset.select(t, "read"), "['read']"),
        (lambda t: toolset.rename(t, {"read_outpt": "x"}), "`read_output`"),
        (lambda t: toolset.describe(t, {"serach": "x"}), "`search`"),
        (lambda t: toolset.annotate(t, {"serach": {}}), "`search`"),
        (lambda t: toolset.configure(t, {"serach": {}}), "`search`"),
        (lambda t: toolset.configure(t, {"search": {"riks": "low"}}), "`risk`"),
        (lambda t: toolset.mark_deferred(t, ["comand"]), "`command`"),
        (lambda t: format_results(t, formatters={"serach": str}), "`search`"),
        (lambda t: apply_options(t, {"descripions": {}}), "`descriptions`"),
        (lambda t: apply_options(t, {"names": {"zzz": "x"}}), "there are: `read_output`"),
    ],
)  # fmt: skip
def test_a_word_that_names_nothing_is_refused_with_the_nearest(
    act: Callable[[Any], Any], hint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        act(pack())
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    "act",
    [
        lambda t: toolset.rename(t, {"search": "read_output"}),
        lambda t: toolset.rename(t, {"search": "one", "read_output": "one"}),
        lambda t: toolset.rename(t, {"search": "no name"}),
        lambda t: toolset.add_namespace(t, ""),
        lambda t: toolset.add_namespace(t, "a b"),
        lambda t: toolset.add_namespace(t, 42),
        lambda t: apply_options(t, {"namespace": 42}),
        lambda t: apply_options(t, {"namespace": " "}),
        lambda t: toolset.describe(t, {"search": " "}),
        lambda t: toolset.annotate(t, {"search": 3}),
        lambda t: toolset.mark_deferred(t, defer="yes"),
        lambda t: apply_options(t, {"defer_loading": "yes"}),
        lambda t: toolset.configure(t, {"search": {"risk": "huge"}}),
        lambda t: toolset.configure(t, {"*": {"timeout": -1}}),
        lambda t: toolset.configure(t, {"*": {"max_attempts": 0}}),
        lambda t: format_results(t, "yaml"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_a_config_error(act: Callable[[Any], Any]) -> None:
    with pytest.raises((ConfigError, ToolDefinitionError)):
        act(pack())


# ---- names


def test_what_mentions_a_renamed_tool_follows() -> None:
    tools = toolset.rename(
        pack(), {"read_output_tail": "release_log_tail", "run_command": "release_run"}
    )
    runner = by_key(tools, "run_command")
    assert runner.name == "release_run"
    assert runner.annotations["result_readers"] == ["read_output", "release_log_tail"]
    assert (
        "read with `read_output` or release_log_tail; then release_run again" in runner.description
    )
    reader = by_key(tools, "read_output")
    assert reader.description == "Read the output of a release_run."
    said = reader.arguments.schema["properties"]["command_id"]["description"]
    assert said == "The id that `release_run` gave; see release_log_tail for the end."
    assert reader.arguments.check({"command_id": "c1"}).values == {"command_id": "c1"}


def test_two_tools_may_swap_their_names() -> None:
    tools = toolset.rename(
        pack(), {"read_output": "read_output_tail", "read_output_tail": "read_output"}
    )
    assert by_key(tools, "run_command").annotations["result_readers"] == [
        "read_output_tail",
        "read_output",
    ]
    assert "with `read_output_tail` or read_output;" in by_key(tools, "run_command").description


def test_an_ordinary_word_is_not_taken_for_a_name() -> None:
    assert (
        replace_names("search in the research, or `search`", {"search": "grep"})
        == "search in the research, or `grep`"
    )
    assert replace_names("my_read_file read_file_x src/read_file.py", {"read_file": "look"}) == (
        "my_read_file read_file_x src/read_file.py"
    )


def test_a_name_that_another_one_begins_with_is_not_taken_for_it() -> None:
    names = {"read_log": "look", "read_log.tail": "end", "read": "get"}
    assert replace_names("`read_log.tail`, `read`, read_log.tail. Or read_log.", names) == (
        "`end`, `get`, end. Or look."
    )


def test_a_namespace_is_part_of_the_full_name_and_of_every_mention() -> None:
    tools = toolset.add_namespace(pack(), "release")
    runner = by_key(tools, "run_command")
    assert runner.full_name == "release::run_command"
    assert runner.annotations["result_readers"] == [
        "release::read_output",
        "release::read_output_tail",
    ]
    assert "`release__read_output`" in runner.description
    catalog = Catalog(tools)
    assert catalog.api_name(by_key(tools, "read_output")) == "release__read_output"


plain_names = st.from_regex(r"[a-z]{1,5}_[a-z]{1,5}", fullmatch=True)


@given(st.lists(plain_names, min_size=4, max_size=4, unique=True))
def test_renaming_there_and_back_gives_the_same_names_and_links(new: list[str]) -> None:
    keys = [toolset.logical_key(one) for one in pack()]
    if set(new) & set(keys):
        return
    there = toolset.rename(pack(), dict(zip(keys, new, strict=True)))
    assert names(there) == new
    assert [toolset.logical_key(one) for one in there] == keys
    back = toolset.rename(there, {key: key for key in keys})
    for before, after in zip(pack(), back, strict=True):
        assert (before.name, before.annotations.get("result_readers")) == (
            after.name,
            after.annotations.get("result_readers"),
        )


def test_a_link_to_a_tool_that_is_left_out_is_dropped() -> None:
    links = {"see_also": ["search", "read_output"], "result_readers": "search"}
    linked = toolset.select(toolset.annotate(pack(), {"run_command": links}), without=["search"])
    (command,) = [one for one in linked if one.name == "run_command"]
    assert command.annotations["see_also"] == ["read_output"]
    assert command.annotations["result_readers"] == []


def test_the_tools_that_were_given_are_not_changed() -> None:
    before = pack()
    snapshot = [(one.name, one.description, dict(one.annotations), one.risk) for one in before]
    apply_options(
        before,
        {
            "names": {"search": "find"},
            "descriptions": {"search": "Find."},
            "annotations": {"*": {"a": 1}},
            "tool_config": {"*": {"risk": "critical"}},
            "namespace": "n",
            "defer_loading": True,
            "output_format": "json",
        },
    )
    assert [
        (one.name, one.description, dict(one.annotations), one.risk) for one in before
    ] == snapshot


# ---- what is known of them


def test_annotations_are_merged_the_shared_ones_under_a_tools_own() -> None:
    tools = toolset.annotate(
        pack(),
        {"*": {"phase": "audit", "x": 1}, "run_command": {"phase": "release", "kind": "execute"}},
    )
    runner, finder = by_key(tools, "run_command"), by_key(tools, "search")
    assert (runner.annotations["phase"], runner.annotations["x"]) == ("release", 1)
    assert runner.annotations["kind"] == "execute"
    assert runner.annotations["result_readers"] == ["read_output", "read_output_tail"]
    assert finder.annotations["phase"] == "audit"


def test_raw_overrides_hold_for_all_or_for_one() -> None:
    tools = toolset.configure(
        pack(),
        {
            "*": {"risk": "low", "timeout": 7},
            "search": {
                "risk": "high",
                "side_effect": "external",
                "max_attempts": 2,
                "defer_loading": True,
            },
            "read_output": {"annotations": {"a": 1}, "cost": "cheap", "scopes": ["x"]},
        },
    )
    finder = by_key(tools, "search")
    assert (finder.risk, finder.side_effect) == (Risk.HIGH, SideEffect.EXTERNAL)
    assert (finder.reliability.timeout, finder.reliability.max_attempts) == (7, 2)
    assert finder.annotations["defer_loading"] is True
    reader = by_key(tools, "read_output")
    assert (reader.risk, reader.cost, reader.scopes) == (Risk.LOW, "cheap", frozenset({"x"}))
    assert reader.annotations["groups"] == ("command",)


def test_deferring_marks_all_tools_or_a_group() -> None:
    marks = [
        one.annotations.get("defer_loading", False)
        for one in toolset.mark_deferred(pack(), ["command"])
    ]
    assert marks == [True, True, True, False]
    assert all(one.annotations["defer_loading"] for one in toolset.mark_deferred(pack()))


# ---- formats


@dataclass
class Point:
    x: int
    y: int


@tool
def point() -> Point:
    return Point(1, 2)


async def test_formats_hold_for_sync_and_async_tools() -> None:
    runner, reader, tail, finder = format_results(pack(), "json")
    assert json.loads(runner(argv=["a", "é"])) == {"status": "completed", "argv": ["a", "é"]}
    assert reader(command_id="c") == '"output of c"'
    assert await tail(command_id="c") == '"tail"'
    assert finder(text="x") == '["x","x"]'
    assert finder.output is None
    runner, reader, _, finder = format_results(pack(), "display")
    assert runner(argv=["a", "b"]) == "status: completed\nargv:\n  - a\n  - b"
    assert reader(command_id="c") == "output of c"
    assert finder(text="x") == "- x\n- x"
    assert format_results(pack(), "value") == pack()
    assert json.loads(format_results([point], "json")[0]()) == {"x": 1, "y": 2}


async def test_a_tools_own_formatter_wins_over_the_shared_one_and_both_over_the_format() -> None:
    runner, reader, tail, finder = format_results(
        pack(),
        "json",
        result_formatter=lambda tool, value: f"{tool.name}: {value}",
        formatters={"search": lambda tool, value: len(value)},
    )
    assert reader(command_id="c") == "read_output: output of c"
    assert await tail(command_id="c") == "read_output_tail: tail"
    assert finder(text="x") == 2
    assert runner(argv=[]).startswith("run_command: {")


# ---- all together


def test_all_options_together_mean_what_each_means_alone() -> None:
    tools = apply_options(
        pack(),
        {
            "enabled_tools": ["read", "command"],
            "disabled_tools": ["read_output"],
            "names": {"run_command": "release_run", "read_output_tail": "release_log_tail"},
            "descriptions": {"run_command": "Run one bounded release inspection command."},
            "annotations": {"run_command": {"workflow_phase": "release_audit"}},
            "namespace": "release",
            "defer_loading": True,
            "output_format": "json",
        },
    )
    assert names(tools) == ["release::release_run", "release::release_log_tail", "release::search"]
    runner = tools[0]
    assert runner.description == "Run one bounded release inspection command."
    assert runner.annotations["workflow_phase"] == "release_audit"
    assert runner.annotations["result_readers"] == ["release::release_log_tail"]
    assert all(one.annotations["defer_loading"] for one in tools)
    assert json.loads(runner(argv=["x"]))["argv"] == ["x"]


def test_settings_of_a_tool_that_is_disabled_are_accepted_and_have_no_effect() -> None:
    options: PackOptions = {
        "enabled_tools": ["read"],
        "names": {"run_command": "x"},
        "descriptions": {"read_output": "y"},
    }
    assert names(apply_options(pack(), options)) == ["search"]
    assert names(apply_options(pack(), {}, default_selection=["read"])) == ["search"]
