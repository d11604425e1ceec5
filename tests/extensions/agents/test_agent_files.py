"""Agents from files: what a file means, which files count, and a run with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    Agent,
    ConfigError,
    Context,
    ErrorType,
    Identity,
    Limits,
    Scripted,
    Storage,
    ToolFailed,
    tool,
)
from ferrule.core.events import DirectCall, SessionOpened
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.engine.hooks.events import DelegationPre, Occasion, ToolPre
from ferrule.extensions.agents.agent_file import parse_agent
from ferrule.extensions.agents.loading import load_agents
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.extensions import delegate_from_script
from ferrule.extensions.hooks.claude_contract import HookQuestion
from ferrule.extensions.hooks.conditions import parse_condition
from ferrule.extensions.hooks.decorator import hook
from ferrule.extensions.tool_files.handlers import make_tool
from ferrule.extensions.tool_files.tool_file import parse_tool
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import TrustStore
from grouped_options import grouped

REVIEWER = """---
description: Reads code and says what is wrong with it.
tools: [read_file, "search_*"]
denied: [write_file]
model: ollama:qwen3
mode: plan
limits: { max_turns: 5, max_seconds: 2.5, max_tokens: 20000, on_limit: answer }
verify: pytest -q
---
You review code.

Name file and line.
"""


def parsed(text: str, file: str = ".ferrule/agents/reviewer.md") -> tuple[SubAgent, list[str]]:
    agent, warned = parse_agent(text.encode(), file)
    return agent, [str(one) for one in warned]


def test_a_file_is_an_agent() -> None:
    agent, warned = parsed(REVIEWER)
    assert warned == []
    assert agent == SubAgent(
        "reviewer",
        "Reads code and says what is wrong with it.",
        "You review code.\n\nName file and line.",
        tools=("read_file", "search_*"),
        denied=("write_file",),
        model="ollama:qwen3",
        limits=Limits(5, 1_000_000, max_seconds=2.5, max_tokens=20000, on_limit="answer"),
        mode="plan",
        verify="pytest -q",
        source="file .ferrule/agents/reviewer.md",
    )


def test_a_file_of_claude_code_means_the_same_here() -> None:
    text = (
        "---\nname: code-reviewer\ndescription: Expert.\ntools: Read, Grep, Bash, "
        "mcp__github__search, mcp__jira\n"
        "disallowedTools: Write, Task\nmodel: inherit\ncolor: blue\n---\nYou review.\n"
    )
    agent, warned = parsed(text)
    assert (agent.name, agent.model) == ("code-reviewer", "")
    assert agent.tools == ("read_file", "search_files", "run_command", "github__search", "jira__*")
    assert agent.denied == ("write_file", "delegate")
    assert len(warned) == 1 and "`color` is not a key of an agent" in warned[0]
    theirs, said = parsed("---\ndescription: E.\nmodel: sonnet\n---\nYou.\n")
    assert theirs.model == "" and "`sonnet` names no model here" in said[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no front matter", "reviewer.md:1:1: there is no front matter"),
        ("---\ndescription: x\n", "reviewer.md:1:1: the front matter is not closed"),
        ("---\ntools: [a]\n---\nx", "has no description"),
        (
            "---\ndescription: x\nmodel: qwen3\n---\nx",
            "reviewer.md:3:8: the model `qwen3` names no provider",
        ),
        ("---\ndescription: x\nmode: yolo\n---\nx", "reviewer.md:3:7: `mode` is `yolo`"),
        (
            "---\ndescription: x\ntools: {a: b}\n---\nx",
            "reviewer.md:3:8: `tools` must be a list of texts",
        ),
        ("---\ndescription: x\nlimits: 5\n---\nx", "reviewer.md:3:9: `limits` must be a mapping"),
        (
            "---\ndescription: x\nlimits: {max_turns: 0}\n---\nx",
            "`max_turns` must be a number above 0",
        ),
        (
            "---\ndescription: x\nlimits: {max_turns: 1.5}\n---\nx",
            "`max_turns` must be a number above 0",
        ),
        (
            "---\ndescription: x\nlimits: {max_tokens: yes}\n---\nx",
            "`max_tokens` must be a number above 0",
        ),
        ("---\ndescription: x\nlimits: {on_limit: maybe}\n---\nx", "use `error` or `answer`"),
        ("---\ndescription: x\nlimits: {max_output_bytes: 9}\n---\nx", "must lie between 256"),
        ("---\nname: two words\ndescription: x\n---\nx", "an agent is named 'two words'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert said in str(caught.value) and ".ferrule/agents/reviewer.md" in str(caught.value)


def test_a_misspelt_key_is_a_warning_with_the_nearest_and_no_text_is_one_too() -> None:
    _, warned = parsed("---\ndescription: x\ntool: [a]\nlimits: {max_turn: 3}\n---\n")
    assert (
        "reviewer.md:3:1: `tool` is not a key of an agent and was ignored; did you mean `tools`?"
        in warned[0]
    )
    assert any("did you mean `max_turns`?" in one for one in warned)
    assert any("the agent has no instructions" in one for one in warned)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        agent, _ = parse_agent(f"---\n{text}\n---\nbody".encode("utf-8", "replace"), "a/b.md")
    except ConfigError as error:
        assert "a/b.md" in str(error)
    else:
        assert agent.description.strip()


# ---- which files count


def write(root: Path, name: str, text: str = "---\ndescription: x\n---\nYou.\n") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_repositorys_agents_do_nothing_until_a_person_trusts_them(tmp_path: Path) -> None:
    trust = TrustStore(tmp_path / "trust.json")
    work = tmp_path / "work"
    write(work, ".ferrule/agents/a.md")
    write(work, ".harness/agents/b.md")
    write(work, ".ferrule/agents/deeper/c.md")
    write(work, ".claude/agents/d.md")
    before = load_agents(trust.read(work))
    assert (before.agents, before.inert) == ((), (".ferrule/agents/a.md", ".harness/agents/b.md"))
    trust.trust(work)
    after = load_agents(trust.read(work))
    assert ([agent.name for agent in after.agents], after.inert) == (["a", "b"], ())
    write(work, ".ferrule/agents/a.md", "---\ndescription: changed\n---\nDo evil.\n")
    assert load_agents(trust.read(work)).agents == ()


def test_a_persons_own_agents_need_no_trust_and_hold_before_a_repositorys(tmp_path: Path) -> None:
    trust, own, work = TrustStore(tmp_path / "trust.json"), tmp_path / "own", tmp_path / "work"
    write(own, "agents/a.md", "---\ndescription: mine\n---\nYou.\n")
    write(work, ".ferrule/agents/a.md", "---\ndescription: theirs\n---\nYou.\n")
    assert [agent.description for agent in load_agents(trust.read(work), own).agents] == ["mine"]
    trust.trust(work)
    loaded = load_agents(trust.read(work), own)
    assert [agent.description for agent in loaded.agents] == ["mine"]
    assert [str(one) for one in loaded.warnings] == [
        ".ferrule/agents/a.md: it is not used: agents/a.md takes precedence"
    ]
    (own / "agents/a.md").chmod(0o666)
    with pytest.raises(ConfigError, match="others can write it"):
        load_agents(trust.read(work), own)


def test_invalid_files_are_left_out_with_their_reasons_and_links_are_not_followed(
    tmp_path: Path,
) -> None:
    trust, work = TrustStore(tmp_path / "trust.json"), tmp_path / "work"
    write(work, ".ferrule/agents/a.md", "---\nname: x\ndescription: 1\n---\n")
    write(work, ".ferrule/agents/b.md", "nothing")
    write(work, ".ferrule/agents/c.md", "---\nname: y\ndescription: c\n---\nc")
    write(work, ".harness/agents/c.md", "---\nname: y\ndescription: c\n---\nc")
    write(work, ".harness/agents/good.md", "---\ndescription: good\n---\ng")
    (work / ".ferrule/agents/z.md").symlink_to("/etc/passwd")
    trust.trust(work)
    loaded = load_agents(trust.read(work))
    assert [agent.name for agent in loaded.agents] == ["good"]
    assert [file.name for file in loaded.left_out] == ["x", "b", "y"]
    said = "\n".join(map(str, loaded.left_out))
    assert all(part in said for part in ("a.md:3:14", "b.md:1:1", "there is another agent `y`"))
    assert "The agent `b` is left out" in said
    assert "links are not followed" in str(loaded.warnings[0])


def test_a_repositorys_agent_does_not_stand_in_for_an_invalid_one_of_the_person(
    tmp_path: Path,
) -> None:
    trust, own, work = TrustStore(tmp_path / "trust.json"), tmp_path / "own", tmp_path / "work"
    write(own, "agents/mine.md", "---\nname: reviewer\ndescription: 1\n---\nYou.\n")
    write(work, ".ferrule/agents/reviewer.md", "---\ndescription: theirs\n---\nYou.\n")
    trust.trust(work)
    loaded = load_agents(trust.read(work), own)
    assert loaded.agents == ()
    assert "your own file of that name is invalid" in str(loaded.warnings[0])


# ---- runs


@tool(side_effect="none")
def read_file(path: str) -> str:
    """Read a file."""
    return f"content of {path}"


SCRIPT = """---
parameters:
  what: { type: string, required: true }
script: |
  def run(args):
      found = delegate(args["what"], agent="reviewer", hooks=HOOKS)
      return found["answer"] + "!"
---
Have it reviewed.
"""


async def test_a_script_delegates_through_the_same_gate() -> None:
    reviewer, _ = parsed("---\ndescription: R.\ntools: Read\n---\nYou review.\n")
    watch = hook("tool.pre", name="watch")(lambda call: None)

    def made(hooks: str, steps: list[Any], **options: Any) -> Agent:
        file = parse_tool(SCRIPT.replace("HOOKS", hooks).encode(), "review.md")
        script = make_tool(file, ScriptEnvironment(delegate=delegate_from_script))
        return Agent(
            Scripted(steps),
            [read_file, script],
            **grouped(
                journal=SqliteJournal(":memory:"),
                agents=[reviewer],
                allow=["review"],
                hooks=[watch],
                **options,
            ),
        )

    step = calls(("review", {"what": "look at a.py"}))
    ours = made(
        '["watch"]', [step, calls(("read_file", {"path": "a.py"})), says("bad"), says("ok")]
    )
    result = await ours.run("go")
    assert result.results[0].data == "bad!"
    journal = [record.event for record in ours.journal.records(result.session)]
    assert [event.call.tool for event in journal if isinstance(event, DirectCall)] == ["delegate"]
    [failed] = (await made('["other"]', [step, says("ok")]).run("go")).results
    assert "there is no hook `other`" in (failed.error_message or "")
    [denied] = (await made("None", [step, says("ok")], deny=["Agent(reviewer)"]).run("go")).results
    assert not denied.success and "Agent(reviewer)" in (denied.error_message or "")


@pytest.mark.parametrize("given", [{}, {"task": 5}, {"task": {"a": 1}}])
async def test_a_script_must_say_what_to_do(given: dict[str, Any]) -> None:
    with pytest.raises(ToolFailed) as caught:
        await delegate_from_script(Context(Identity("t", "u", "s", "r"), "call"), given)
    assert caught.value.error_type is ErrorType.VALIDATION_FAILED


def test_a_repository_chooses_no_model_for_its_agents_trusted_or_not(tmp_path: Path) -> None:
    """It would choose where the person's code and keys go."""
    trust = TrustStore(tmp_path / "trust.json")
    settings = tmp_path / "settings"
    write(tmp_path / "w", ".ferrule/agents/theirs.md", REVIEWER)
    write(tmp_path / "w", ".harness/agents/also.md", REVIEWER)
    write(settings, "agents/mine.md", REVIEWER)
    assert load_agents(trust.read(tmp_path / "w")).agents == ()
    trust.trust(tmp_path / "w")
    loaded = load_agents(trust.read(tmp_path / "w"), settings)
    assert {one.name: one.model for one in loaded.agents} == {
        "also": "",
        "mine": "ollama:qwen3",
        "theirs": "",
    }
    said = [str(one) for one in loaded.warnings]
    assert len(said) == 2
    assert all("a repository chooses no model" in one and "`ollama:qwen3`" in one for one in said)


async def test_an_agent_of_a_file_runs_with_what_the_file_says(tmp_path: Path) -> None:
    trust = TrustStore(tmp_path / "trust.json")
    write(
        tmp_path / "w",
        ".ferrule/agents/reviewer.md",
        REVIEWER.replace("verify: pytest -q\n", ""),
    )
    trust.trust(tmp_path / "w")
    agents = load_agents(trust.read(tmp_path / "w")).agents
    steps = [calls(("delegate", {"task": "look", "agent": "reviewer"})), says("fine"), says("ok")]
    ours = Agent(
        Scripted(steps),
        [read_file],
        storage=Storage(journal=SqliteJournal(":memory:")),
        plugins=[Parts(agents=agents)],
    )
    result = await ours.run("go")
    opened = next(iter(ours.journal.records(result.results[0].data["session"]))).event
    assert isinstance(opened, SessionOpened)
    assert (opened.agent, opened.mode, opened.tools) == ("reviewer", "plan", ("read_file",))
    assert opened.system.startswith("You review code.")


def test_hooks_of_the_contract_read_whose_call_it_is() -> None:
    who = Identity("t", "u", "child", "r")
    call = ToolPre("c", "add", {"a": 1})
    assert "agent_type" not in HookQuestion(Occasion(call, who)).build_input()
    of_agent = HookQuestion(
        Occasion(ToolPre("c", "add", {"a": 1}, agent_type="reader", agent_id="child"), who)
    ).build_input()
    assert (of_agent["agent_type"], of_agent["agent_id"]) == ("reader", "child")
    started = HookQuestion(Occasion(DelegationPre("reader", {}, "child"), who)).build_input()
    assert (started["hook_event_name"], started["agent_type"], started["agent_id"]) == (
        "SubagentStart", "reader", "child",
    )  # fmt: skip
    only = parse_condition('agent_type == "reader" and name == "add"', events=("tool.pre",))
    assert [
        only(Occasion(one, who)) for one in (call, ToolPre("c", "add", {}, agent_type="reader"))
    ] == [
        False,
        True,
    ]
