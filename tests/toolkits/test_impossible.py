"""Nobody is asked about a call whose numbers can never work, whichever of the tools that ship it
names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions
from ferrule.core.calls import ToolCall
from ferrule.models.scripted import Scripted
from ferrule.runtime.chosen_plugins import load_shipped_tools
from ferrule.toolkits.commands import CommandOptions, command_tools
from ferrule.toolkits.git.tools import git_toolbox_tools
from ferrule.toolkits.packs import agent_read_tools

FAR = 10**15
SAMPLES = {"run_command": {"command": "true"}}
FILLED: dict[str, Any] = {
    "string": "x",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": ["x"],
    "object": {},
}


def kinds(schema: dict[str, Any]) -> list[str]:
    """The JSON types that a parameter may have."""
    return [part.get("type", "string") for part in schema.get("anyOf", [schema])]


def sets() -> dict[str, Any]:
    """All tools that ship, in sets whose names are unique."""
    return {
        "shipped": load_shipped_tools(
            git={"tools": "write"}, typed={}, code={}, index={}, pictures={}
        ),
        "toolbox": git_toolbox_tools(),
        "read pack": agent_read_tools(),
        "command pack": command_tools(CommandOptions(lifecycle=True)),
    }


@pytest.mark.parametrize("name", list(sets()))
async def test_a_number_that_a_tool_refuses_is_refused_before_anybody_is_asked(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("x\n")
    agent = Agent(
        Scripted([]),
        tools=sets()[name],
        workspace=tmp_path,
        permissions=Permissions(mode="bypassPermissions"),
    )
    session = agent.session()
    dispatcher = session.driver.dispatcher
    late: list[str] = []
    tried = 0
    for tool in agent.catalog:
        if tool.side_effect == "none":
            continue  # nobody is asked about these
        schema = tool.arguments.schema
        required: dict[str, Any] = {
            key: FILLED[kinds(schema["properties"][key])[0]] for key in schema.get("required", ())
        }
        for parameter, described in schema["properties"].items():
            if not {"integer", "number"} & set(kinds(described)):
                continue
            for value in (-FAR, -1, 0, FAR):
                tried += 1
                arguments: dict[str, Any] = {
                    **required,
                    **SAMPLES.get(tool.name, {}),
                    parameter: value,
                }
                call = ToolCall("c1", tool.full_name, json.dumps(arguments))
                if dispatcher.evaluate(call).evaluation.verdict == "refuse":
                    continue
                result = await session.call(tool.full_name, **arguments)
                said = str(result.error_message)
                # What lies past a file's end is known once the file was read.
                outside = "past the end" in said
                if (
                    result.error_type == "validation_failed"
                    and f"`{parameter}`" in said
                    and not outside
                ):
                    late.append(f"{tool.full_name}({parameter}={value}): {said}")
    await session.close()
    assert tried >= 8
    assert not late, "\n".join(late)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "say what to run, once"),
        ({"command": "ls", "argv": ["ls"]}, "say what to run, once"),
        ({"command": " "}, "names no program"),
        ({"argv": []}, "names no program"),
        ({"argv": ["", "x"]}, "names no program"),
        (
            {"command": "ls", "timeout_ms": -1},
            "`timeout_ms` must be a whole number from 1 to 3600000",
        ),
        (
            {"command": "ls", "timeout_ms": 3_600_001},
            "`timeout_ms` must be a whole number from 1 to 3600000",
        ),
        ({"command": "ls", "background_after_ms": -1}, "`background_after_ms`"),
        ({"command": "ls", "capture": {"transport": "pty"}}, "there is no terminal"),
        ({"command": "ls", "env_remove": ["A B"]}, "is not the name of a variable"),
    ],
)
async def test_the_full_run_command_refuses_an_impossible_request_before_anybody_is_asked(
    arguments: dict[str, Any], why: str, tmp_path: Path
) -> None:
    agent = Agent(Scripted([]), tools=sets()["command pack"], workspace=tmp_path)
    dispatcher = agent.session().driver.dispatcher
    evaluation = dispatcher.evaluate(
        ToolCall("c1", "run_command", json.dumps(arguments))
    ).evaluation
    assert evaluation.verdict == "refuse"
    assert evaluation.result is not None
    assert evaluation.result.error_type == "validation_failed"
    assert why in (evaluation.result.error_message or "")
