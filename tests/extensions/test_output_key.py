"""`output` in front matter: what an agent ends with, and what a tool's script returns."""

from __future__ import annotations

import pytest

from ferrule import Agent, ConfigError, Scripted, Storage
from ferrule.extensions.agents.agent_file import parse_agent
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.handlers import make_tool
from ferrule.extensions.tool_files.tool_file import parse_tool
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts

AGENT = "---\ndescription: Reads.\noutput: {output}\n---\nYou read.\n"
TOOL = "---\nscript: |\n  def run(args):\n      return {value}\noutput: {output}\n---\nMine.\n"


@pytest.mark.parametrize(
    "output",
    ["name, age int", "{ type: object, properties: { age: { type: integer } }, required: [age] }"],
)
def test_an_agent_of_a_file_ends_with_the_value(output: str) -> None:
    reader, warnings = parse_agent(AGENT.format(output=output).encode(), "reader.md")
    assert warnings == []
    steps = [
        calls(("delegate", {"task": "who?", "agent": "reader"})),
        says('{"name":"Ada"}'),
        says('{"name":"Ada","age":36}'),
        says("Ada"),
    ]
    agent = Agent(
        Scripted(steps), plugins=[Parts(agents=[reader])], storage=Storage(journal=":memory:")
    )
    [result] = agent.run_sync("go").results
    assert result.data["answer"] == {"name": "Ada", "age": 36}


@pytest.mark.parametrize(("value", "fits"), [('{"age": 36}', True), ('{"age": "old"}', False)])
async def test_what_a_script_returns_is_checked(
    shared_workers: WorkerPool, value: str, fits: bool
) -> None:
    file = parse_tool(TOOL.format(value=value, output="age int").encode(), "ages.md")
    assert file.warnings == ()
    made = make_tool(file, ScriptEnvironment(), pool=shared_workers)
    agent = Agent(Scripted([]), [made], storage=Storage(journal=":memory:"))
    result = await agent.session().call("ages")
    assert result.success
    assert bool(result.notes) != fits


@pytest.mark.parametrize("output", ["a wat", "7", "[1]"])
def test_what_is_no_schema_is_an_error_at_its_place(output: str) -> None:
    with pytest.raises(ConfigError, match=r"reader\.md:3:9: `output`"):
        parse_agent(AGENT.format(output=output).encode(), "reader.md")
