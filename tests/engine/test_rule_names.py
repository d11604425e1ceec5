"""A rule with the misspelled name of a tool is an error; a name that may come from elsewhere is
not.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest

from ferrule import WRITES, Agent, ConfigError, Permissions, tool
from ferrule.cli.exit_codes import run as ferrule
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.models.scripted import Scripted
from ferrule.runtime.chosen_plugins import load_shipped_tools
from ferrule.runtime.tool_profiles import list_known_names
from grouped_options import grouped


@pytest.mark.parametrize("given", ["allow", "ask", "deny"])
@pytest.mark.parametrize(
    ("name", "meant"),
    [("reed_file", "read_file"), ("readfile", "read_file"), ("list_file", "list_files")],
)
def test_a_misspelled_tool_is_an_error_that_names_the_nearest(
    name: str, meant: str, given: str
) -> None:
    for rule in (name, f"{name}(x)"):
        with pytest.raises(ConfigError, match=f"no tool `{name}`") as caught:
            Agent(Scripted([]), **grouped(tools=load_shipped_tools(), **{given: [rule]}))  # pyright: ignore[reportArgumentType]
        assert f"`{meant}`" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["srv__reed_file", "ns::reed_file", "mcp__srv", "deploy", "re*d_file"]
)
def test_a_name_that_may_come_from_elsewhere_stays_allowed(name: str) -> None:
    Agent(Scripted([]), tools=load_shipped_tools(), permissions=Permissions(allow=[name]))


@pytest.mark.parametrize("given", ["allow", "ask", "deny"])
def test_a_rule_about_the_arguments_of_a_tool_that_marks_none_is_an_error(given: str) -> None:
    @tool(side_effect="write")
    def publish(name: str, folder: Annotated[str, WRITES] = ".") -> str:
        """Publish a page."""
        return name

    @tool(side_effect="write")
    def notify(name: str) -> str:
        """Notify somebody."""
        return name

    rules: Any = {given: ["publish(private)", "notify"]}
    Agent(Scripted([]), tools=[publish, notify], permissions=Permissions(**rules))
    rules = {given: ["publish(private)", "notify(ada)"]}
    said = r"`notify\(ada\)`.*no parameter of `notify` is marked"
    with pytest.raises(ConfigError, match=said) as refused:
        Agent(Scripted([]), tools=[publish, notify], permissions=Permissions(**rules))
    assert "name alone" in (refused.value.hint or "")


def test_each_tool_that_a_run_can_have_may_be_named_where_it_is_not_there(tmp_path: Path) -> None:
    names = list_known_names()
    assemble_at_terminal(
        {"workspace": str(tmp_path), "model": "scripted:none", "permissions__allow": names}
    )


@pytest.mark.parametrize("how", ["flag", "settings"])
def test_the_command_line_refuses_a_misspelled_tool(
    how: str,
    tmp_path: Path,
    own_folders: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    (tmp_path / "work").mkdir()
    (tmp_path / "says.yaml").write_text('[{"say": "done"}]')
    line = ["run", "-m", f"scripted:{tmp_path}/says.yaml", "-C", str(tmp_path / "work")]
    if how == "flag":
        line += ["--allow", "reed_file"]
    else:
        (own_folders / "config").mkdir(exist_ok=True)
        (own_folders / "config" / "ferrule.yaml").write_text("permissions: {allow: [reed_file]}\n")
    assert ferrule([*line, "go"]) == 2
    said = capsys.readouterr().err
    assert "there is no tool `reed_file`" in said
    assert "did you mean `read_file`?" in said
