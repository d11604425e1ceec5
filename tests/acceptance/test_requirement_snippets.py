"""Snippets of the requirements, as their authors wrote them or as near as Python comes.

Each was found to fail, or to work only in part, by somebody who read the requirement and tried it.
"""

from __future__ import annotations

import base64
import inspect
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ferrule.hooks
from ferrule import (
    Agent,
    ConfigError,
    ErrorType,
    Limits,
    Permissions,
    Scripted,
    Storage,
    ToolCalling,
    ToolDefinitionError,
    ToolFailed,
    define_tool,
    tool,
)
from ferrule.command import command_json
from ferrule.core.calls import ToolResult
from ferrule.engine import unknown_options
from ferrule.extensions.checks.workspace import check_workspace
from ferrule.models.scripted import calls, says
from ferrule.permissions import RuleSet
from ferrule.plugins import Parts
from ferrule.runtime.deferred_tools import set_loading_modes
from ferrule.storage import load_settings, paths
from ferrule.storage.audit.audit import audit_calls
from ferrule.storage.audit.explanation import explain
from ferrule.toolkits import (
    agent_command_tools,
    agent_edit_tools,
    agent_host_tools,
    agent_read_tools,
    git_toolbox_tools,
    git_tools,
    grep_search,
    stdlib_tools,
)
from ferrule.toolkits.search.search_files import search_files
from ferrule.tools.definition import Tool


async def call_tool(
    tools: Sequence[Tool],
    name: str,
    workspace: Path | None = None,
    permissions: Permissions | None = None,
    **arguments: Any,
) -> ToolResult:
    """Call a tool as a model would, and return the result. Everything is allowed by default."""
    agent = Agent(
        Scripted([calls((name, arguments)), says("Done.")]),
        tools,
        workspace=workspace,
        storage=Storage(journal=":memory:"),
        permissions=permissions or Permissions(mode="bypassPermissions"),
    )
    run = await agent.run("Go.")
    return run.results[0]


def read_settings(folder: Path, text: str) -> Any:
    file = folder / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(user_file=file, environment={})


# ---- requirement 001: typed tools


async def test_a_namespace_may_be_part_of_the_name() -> None:
    calc = define_tool(
        "math::calc",
        "Deterministic arithmetic",
        parameters={
            "lhs": {"type": "number"},
            "rhs": {"type": "number"},
            "op": {"type": "string", "enum": ["add", "sub", "mul", "div"]},
        },
        returns={"type": "number"},
        handler=lambda lhs, rhs, op: lhs + rhs if op == "add" else lhs - rhs,
    )
    assert (calc.namespace, calc.name, calc.full_name) == ("math", "calc", "math::calc")
    result = await call_tool([calc], "math::calc", lhs=1, rhs=2, op="add")
    assert result.data == 3


def test_a_namespace_that_is_given_twice_must_be_the_same() -> None:
    @tool(name="ops::deploy", namespace="ops")
    def deploy() -> str:
        """Deploy."""
        return "done"

    assert deploy.full_name == "ops::deploy"
    with pytest.raises(ToolDefinitionError, match="is given the namespace `other`"):
        define_tool("ops::deploy", "Deploy.", namespace="other", handler=lambda: 1)
    with pytest.raises(ToolDefinitionError, match="cannot be the name of a tool"):
        define_tool("ops::", "Deploy.", handler=lambda: 1)


@pytest.mark.proves("options.foreign-names")
@pytest.mark.parametrize(
    ("name", "lead"),
    [
        ("max_iterations", "limits=Limits(max_turns=...)"),
        ("max_turns", "limits=Limits(max_turns=...)"),
        ("loop_until_done", "a run ends with the first answer that has no calls"),
        ("system", "instructions=..."),
        ("tool_search", "tool_calling=ToolCalling(search=...)"),
        ("tool_format", "tool_calling="),
        ("mcp_servers", "connect_mcp"),
        ("hooks", "plugins=[Parts(hooks=...)]"),
        ("provider_tools", "model_options=ModelOptions(provider_tools=...)"),
        ("require_successful_tools", "run(text, require_successful_tools=[...])"),
        ("approver", "permissions=Permissions(approver=...)"),
    ],
)
def test_an_option_of_another_system_leads_to_ours(name: str, lead: str) -> None:
    given: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError) as caught:
        Agent(Scripted([]), [], **given)
    assert f"unexpected `{name}`: write " in str(caught.value)
    assert lead in str(caught.value)
    if lead.startswith("run("):
        return
    with pytest.raises(TypeError) as caught:
        Agent(Scripted([]), []).run_sync("Go.", **given)
    assert "there are: deps, history, key" in str(caught.value)
    assert lead in str(caught.value)


@pytest.mark.proves("options.foreign-names")
def test_what_the_names_of_other_systems_lead_to_exists() -> None:
    """The leads are checked as the pages are: each named class has each named parameter."""
    known = inspect.signature(Agent.__init__).parameters
    groups: dict[str, Any] = {"Limits": Limits, "ToolCalling": ToolCalling}
    for lead in unknown_options._LEADS.values():
        for argument in re.findall(r"^(\w+)=", lead):
            assert argument in known, lead
        for group, parameter in re.findall(r"(Limits|ToolCalling)\((\w+)=", lead):
            assert parameter in inspect.signature(groups[group]).parameters, lead


@pytest.mark.parametrize(
    "pack",
    [
        agent_command_tools,
        agent_edit_tools,
        agent_host_tools,
        agent_read_tools,
        git_toolbox_tools,
        git_tools,
    ],
)
def test_options_given_to_a_pack_as_an_object_lead_to_keywords(pack: Any) -> None:
    with pytest.raises(ConfigError, match="is a folder, found a dict") as caught:
        pack({"repo": ".", "max_inline_bytes": 12_000})
    assert "write options as keywords" in caught.value.hint


async def test_an_image_may_be_an_object(tmp_path: Path) -> None:
    (ocr,) = stdlib_tools(["vision::ocr"])
    picture = Path(__file__).parents[1] / "toolkits/stdlib/receipt.png"
    (tmp_path / "receipt.png").write_bytes(picture.read_bytes())
    encoded = base64.b64encode(picture.read_bytes()).decode()
    assert [one.value for one in ocr.subjects({"image": {"path": "receipt.png"}})] == [
        "receipt.png"
    ]
    assert ocr.subjects({"image": {"base64": encoded}}) == ()
    for image in ({"path": "receipt.png"}, {"base64": encoded, "name": "receipt.png"}):
        result = await call_tool([ocr], "vision::ocr", tmp_path, image=image)
        if not result.success and "tesseract" in (result.error_message or ""):
            pytest.skip("no tesseract on this machine")
        assert result.success, result.error_message
        assert result.data["source"]["path"] == "receipt.png"


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ({}, "either `path` or `base64`"),
        ({"path": "a.png", "base64": "eA=="}, "either `path` or `base64`"),
        ({"base64": "%%%"}, "cannot be decoded"),
        ({"base64": "eA=="}, "`image` is not an image"),
        ({"base64": "eA==", "url": "x"}, "found `url`"),
        ({"path": ".env"}, "secret"),
    ],
)
async def test_a_wrong_image_object_is_refused(
    tmp_path: Path, image: dict[str, str], words: str
) -> None:
    (tmp_path / ".env").write_text("KEY=1", encoding="utf-8")
    (ocr,) = stdlib_tools(["vision::ocr"])
    result = await call_tool([ocr], "vision::ocr", tmp_path, image=image)
    assert not result.success
    assert words in (result.error_message or "")


async def test_command_json_takes_capture_by_keyword() -> None:
    repository = await command_json(
        ["echo", '{"name": "harn"}'], capture={"max_inline_bytes": 65536}
    )
    assert repository == {"name": "harn"}
    with pytest.raises(ConfigError, match="capture: found a int"):
        await command_json(["true"], capture=65536)  # type: ignore[arg-type]


# ---- requirement 004: hints, causes, settings


async def test_cost_and_latency_hints_reach_the_model() -> None:
    @tool(name="weather.get_current", side_effect="external", cost="medium", latency="slow")
    def weather(city: str) -> str:
        """Return the current temperature."""
        return city

    agent = Agent(Scripted([says("x")]), [weather], storage=Storage(journal=":memory:"))
    (spec,) = agent.visible_tools.specs()
    assert spec.description == "Return the current temperature.\n(cost: medium; latency: slow)"
    assert weather.description == "Return the current temperature."


async def fetch_by_error(city: str) -> str:
    """Fetch the weather."""
    try:
        raise ConnectionError("no route to host")
    except ConnectionError as error:
        raise ValueError(f"weather: fetch {city!r}") from error


async def fetch_by_failure(city: str) -> str:
    """Fetch the weather."""
    try:
        await fetch_by_error(city)
    except ValueError as error:
        raise ToolFailed(ErrorType.IO_ERROR, "weather is not available") from error
    return ""


def look_up(city: str) -> str:
    """Look up the weather."""
    return {"Ghent": {}["now"]}[city] if city else ""


def fetch_while_handling(city: str) -> str:
    """Fetch the weather."""
    try:
        return look_up(city)
    except KeyError:
        raise ValueError(f"weather: fetch {city!r}")  # noqa: B904  as tools are written


def fetch_from_none(city: str) -> str:
    """Fetch the weather."""
    try:
        return look_up(city)
    except KeyError:
        raise ValueError(f"weather: fetch {city!r}") from None


async def fetch_many(city: str) -> str:
    """Fetch the weather."""
    raise ExceptionGroup("stations", [ConnectionError("no route"), ValueError(city)])


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (fetch_by_error, "ConnectionError: no route to host"),
        (
            fetch_by_failure,
            "ValueError: weather: fetch 'Ghent'; from ConnectionError: no route to host",
        ),
        (fetch_while_handling, "while handling KeyError: 'now'"),
        (fetch_from_none, ""),
        (fetch_many, "with ConnectionError: no route; with ValueError: Ghent"),
    ],
)
async def test_the_cause_of_an_error_is_in_the_result_the_journal_and_the_audit(
    function: Any, cause: str
) -> None:
    model = Scripted([calls((function.__name__, {"city": "Ghent"})), says("Sorry.")])
    agent = Agent(model, [tool(function)], storage=Storage(journal=":memory:"))
    run = await agent.run("Weather?")
    assert run.results[0].cause == cause
    assert "no route" not in model.histories[1][-1].text, "causes are for programs and people"
    (record,) = audit_calls(agent.journal.records(run.session))
    assert record.cause == cause
    shown = [line.strip() for line in explain(record)]
    linked = cause if cause.startswith(("while ", "with ")) else f"from {cause}"
    assert (linked in shown) == bool(cause)


async def test_an_error_that_is_hidden_from_the_model_keeps_no_cause() -> None:
    model = Scripted([calls(("fetch_by_error", {"city": "Ghent"})), says("Sorry.")])
    agent = Agent(
        model,
        [tool(fetch_by_error)],
        storage=Storage(journal=":memory:"),
        tool_calling=ToolCalling(errors="name"),
    )
    run = await agent.run("Weather?")
    assert run.results[0].cause == ""


async def test_artifact_fetch_takes_the_reference_as_ref(tmp_path: Path) -> None:
    """`artifact_fetch` takes {ref: string, max_bytes?: int}."""

    @tool(side_effect="none")
    def report() -> str:
        """Write a long report."""
        return "line\n" * 9_000

    model = Scripted([calls(("report", {})), says("Long.")])
    stored = Storage(journal=":memory:", artifacts=tmp_path / "kept")
    session = Agent(model, [report], storage=stored).session()
    ref = (await session.run("Report.")).results[0].data["artifact"]
    for name in ("artifact_fetch", "artifact_read"):
        assert (await session.call(name, ref=ref)).success
    fetched = await session.call("artifact_fetch", ref=ref, max_bytes=10)
    assert fetched.data["content"] == "line\nline\n"
    assert {"mime", "size_bytes", "content", "truncated"} <= fetched.data.keys()
    assert fetched.notes == ("[note: `ref` is `artifact` here]",)
    await session.close()


def test_settings_of_harbor_are_understood(tmp_path: Path) -> None:
    settings = read_settings(
        tmp_path,
        """
planner: {max_steps: 12, parallel_tool_calls: false}
artifacts: {heavy_output_threshold_bytes: 16384}
tools:
  entries:
    - name: weather.get_current
      loading_mode: always
    - name: niche.compute_orbital_elements
      loading_mode: deferred
  mcp_servers:
    - name: youtube
      transport_mode: streamable_http
      url: https://example.com/mcp/youtube
      policy: {max_attempts: 3, timeout_ms: 10000, retry_on: [transient, timeout, 5xx]}
      tool_policies: {get_metadata: {max_attempts: 1, timeout_ms: 60000}, search: {max_attempts: 6}}
""",
    )
    assert settings.limits.max_turns == 12
    assert settings["tools.parallel"] is False
    assert settings["artifacts.threshold"] == 16384
    assert settings["mcp_servers"][0]["name"] == "youtube"


@pytest.mark.parametrize(
    ("text", "lead"),
    [
        ("tools: {built_in: [tool_search]}", "`tools.allowed` and `tools.denied`"),
        ("tools_policy: {allow: [x]}", "`permissions`, `tools.allowed` and `tools.denied`"),
    ],
)
def test_a_setting_of_another_system_leads_to_ours(tmp_path: Path, text: str, lead: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path, text)
    assert lead in caught.value.hint


async def test_the_name_of_requirement_003_for_waiting_leads_to_ours(tmp_path: Path) -> None:
    """Starlark reserves `await`, so `task.await` cannot be written in it."""
    file = tmp_path / ".harness/tools/wait.md"
    file.parent.mkdir(parents=True)
    file.write_text(
        "---\nscript: |\n  def run(args):\n      return task.await('task_1')\n---\nWait.\n"
    )
    (problem,) = (await check_workspace(tmp_path)).problems
    assert (problem.line, problem.level) == (4, "error")
    assert "the built-in is `task.wait`" in problem.message


# ---- what only reads asks nothing, whatever the form of its arguments


@pytest.mark.parametrize(
    ("image", "asks"),
    [
        ("a.png", False),
        ({"path": "a.png"}, False),
        ({"base64": "aGVsbG8="}, False),
        ({"base64": "aGVsbG8=", "path": "../a.png"}, True),
        ({"url": "file:///etc/passwd"}, True),
    ],
)
async def test_an_image_in_the_workspace_or_in_the_call_is_read_without_a_question(
    tmp_path: Path, image: Any, asks: bool
) -> None:
    (tmp_path / "a.png").write_bytes(b"hello")
    result = await call_tool(
        stdlib_tools(["vision"]), "vision::ocr", tmp_path, Permissions(), image=image
    )
    assert (result.error_type == "permission_denied") == asks
    assert asks or "is not an image" in str(result.error_message)


async def test_grep_search_asks_as_search_files_does(tmp_path: Path) -> None:
    (tmp_path / "a.zig").write_text("fn main init\n")
    for rules, ends in (
        (Permissions(), "none"),
        (Permissions(deny=["Read"]), "permission_denied"),
        (Permissions(ask=["Read"]), "permission_denied"),
    ):
        for searching in (grep_search, search_files):
            result = await call_tool([searching], searching.name, tmp_path, rules, pattern="init")
            assert result.error_type == ends, (rules, searching.name)


# ---- rules for tools that a script will register, and checks of a person's own settings


def test_a_rule_may_name_a_tool_that_a_script_will_register() -> None:
    rules = RuleSet.parse(deny=["whisper", "read_fil"])
    assert len(rules.lint(["read_file"])) == 2
    (finding,) = rules.lint(["read_file"], can_grow=True)
    assert "read_fil" in finding, "a misspelling is still found"


async def test_validate_checks_tool_names_in_a_persons_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "config", lambda: tmp_path / "config")
    own = tmp_path / "config/ferrule.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(
        "tools:\n  required: [red_file]\n  entries:\n    - name: nothing_such\n", encoding="utf-8"
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    checked = await check_workspace(folder, shipped=["read_file"])
    found = [
        (one.file, one.line, one.level, one.message.partition(",")[0]) for one in checked.problems
    ]
    assert (str(own), 2, "error", "`tools.required` names a tool `red_file`") in found
    assert (str(own), 4, "warning", "`tools.entries` names a tool `nothing_such`") in found
    # A run agrees: another folder may have the tool.
    settings = load_settings(user_file=own, environment={})
    assert set_loading_modes(settings, [search_files]) == [search_files]


async def test_the_hook_in_the_docstring_of_the_hooks_blocks_what_it_says() -> None:
    block = textwrap.dedent(
        (ferrule.hooks.__doc__ or "").partition("\n\n")[2].rpartition("\n\n")[0]
    )
    space: dict[str, Any] = {}
    exec(block, space)

    def git_push() -> str:
        """Push."""
        return "pushed"

    model = Scripted([calls(("git_push", {})), says("No.")])
    run = await Agent(model, [git_push], plugins=[Parts(hooks=[space["no_pushes"]])]).run("Push.")
    assert "ask me first" in str(run.results[0].error_message)
