"""`bash` and `str_replace_based_edit_tool`: calls of our own tools, under the names that Claude knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import ToolBash20250124Param, ToolTextEditor20250728Param
from pydantic import TypeAdapter

from ferrule import Agent, Permissions, Scripted, Session
from ferrule.core.calls import ErrorType
from ferrule.models.anthropic.client import Anthropic, _EncodedPrefix
from ferrule.models.client import ModelOptions
from ferrule.permissions.approvals import ApprovalAnswer
from ferrule.plugins import Parts
from ferrule.testing import RecordingApprover
from ferrule.toolkits import BROWSE_TOOLS, COMMAND_TOOLS, FILE_TOOLS
from ferrule.toolkits.commands import CommandPolicy
from ferrule.toolkits.model_family_tools.anthropic import SHAPES

EDITOR = "str_replace_based_edit_tool"


def make_agent(tmp_path: Path, **permissions: Any) -> Agent[Any, Any]:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "sub").mkdir(exist_ok=True)
    return Agent(
        Scripted([]),
        [*FILE_TOOLS, *BROWSE_TOOLS, *COMMAND_TOOLS, *SHAPES],
        workspace=tmp_path,
        permissions=Permissions(**{"approver": RecordingApprover(), **permissions}),
        plugins=[Parts(resources=[CommandPolicy(on_missing_protection="off", shell_allowed=True)])],
    )


async def edit(session: Session, **arguments: Any) -> str:
    result = await session.call(EDITOR, **arguments)
    assert result.success, result.error_message
    return str(result.data)


@pytest.fixture
def agent(tmp_path: Path) -> Agent[Any, Any]:
    return make_agent(tmp_path)


async def test_a_run_reads_edits_tests_fails_and_mends(
    agent: Agent[Any, Any], tmp_path: Path
) -> None:
    session = agent.session()
    assert await edit(session, command="view", path="a.py") == "1: one\n2: two\n3: three"
    seen = await edit(session, command="view", path=str(tmp_path / "a.py"), view_range=[2, -1])
    assert seen.startswith("2: two\n3: three")
    assert "a.py" in await edit(session, command="view", path=".")
    await edit(session, command="create", path="t.sh", file_text="grep -c TWO a.py\n")
    failed = await session.call("bash", command="cd sub && sh ../t.sh; cd .. && sh t.sh")
    assert "[exit status 1]" in str(failed.data)
    await edit(session, command="str_replace", path="a.py", old_str="two", new_str="TWO")
    await edit(session, command="insert", path="a.py", insert_line=0, insert_text="zero\n")
    assert (tmp_path / "a.py").read_text() == "zero\none\nTWO\nthree\n"
    assert (await session.call("bash", command="sh t.sh | cat")).data == "1\n"
    assert (await session.call("bash", restart=True)).success
    await session.close()


async def test_the_gate_judges_what_is_done_and_not_the_shape(tmp_path: Path) -> None:
    approver = RecordingApprover(lambda request: ApprovalAnswer("deny", by="test"))
    session = make_agent(tmp_path, approver=approver, deny=["Read(sub/**)"]).session()
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "sub/b").write_text("hidden")
    for name, arguments in (
        ("bash", {"command": "rm a.py"}),
        (EDITOR, {"command": "create", "path": "b", "file_text": ""}),
        (EDITOR, {"command": "view", "path": ".env"}),
        (EDITOR, {"command": "view", "path": "sub/b"}),
        (EDITOR, {"command": "str_replace", "path": "a.py", "old_str": "one", "new_str": ""}),
    ):
        refused = await session.call(name, **arguments)
        assert refused.error_type is ErrorType.PERMISSION_DENIED, (name, arguments)
    assert [request.call.tool for request in approver.requests] == [
        "run_command", "write_file", "edit_file",
    ]  # fmt: skip
    unfit = {"command": "str_replace", "path": "t", "old_str": "tvo", "new_str": "2"}
    (tmp_path / "t").write_text("two\n")
    open_session = make_agent(tmp_path, allow=["Edit(t)"]).session()
    failed = await open_session.call(EDITOR, **unfit)
    assert "`str_replace`" in str(failed.error_message) and "`old_str`" in str(failed.error_message)
    assert "edit_file" not in str(failed.error_message)
    await open_session.close()
    missing = await session.call(EDITOR, command="create", path="b")
    assert "`create` needs `file_text`" in str(missing.error_message)
    await session.close()
    assert (tmp_path / "a.py").read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("official", [True, False])
def test_the_api_gets_the_types_that_it_describes_itself(
    agent: Agent[Any, Any], official: bool
) -> None:
    specs = [spec for spec in agent.visible_tools.specs() if spec.name in ("bash", EDITOR)]
    prefix = _EncodedPrefix("", specs, ModelOptions(), "5m", typed=official)
    sent = json.loads(f"{{{prefix.tools.decode()[1:]}}}")["tools"]
    if not official:
        assert all("input_schema" in each and "type" not in each for each in sent)
        return
    assert sent == [
        {"type": "bash_20250124", "name": "bash"},
        {
            "type": "text_editor_20250728",
            "name": EDITOR,
            "cache_control": {"type": "ephemeral"},
        },
    ]
    TypeAdapter(ToolBash20250124Param).validate_python(sent[0])
    TypeAdapter(ToolTextEditor20250728Param).validate_python(sent[1])
    assert Anthropic(
        "claude-sonnet-5", api_key="k", base_url="https://api.anthropic.com"
    ).is_anthropic
