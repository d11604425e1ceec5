"""The command line defers tools and finds them as the settings say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.terminal_agent import TerminalAssembly, assemble_at_terminal
from ferrule.core.errors import ConfigError
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.runtime.model_clients import create_client
from ferrule.storage.settings.settings import load_settings
from ferrule.tools.definition import Loading


@pytest.fixture
def settings(own_folders: Path) -> Callable[[str], Path]:
    """`settings(text)`: the person's own settings file."""

    def written(text: str) -> Path:
        (own_folders / "config").mkdir(exist_ok=True)
        file = own_folders / "config" / "ferrule.yaml"
        file.write_text(text)
        return file

    return written


def option_of(assembly: TerminalAssembly) -> Any:
    return assembly.agent.visible_tools.search


@pytest.mark.proves("settings.tool-loading")
def test_an_entry_defers_a_tool_and_a_run_finds_it(
    folder: Path,
    ferrule: Callable[..., Any],
    script: Callable[..., str],
    a_call: Callable[..., Any],
    settings: Any,
) -> None:
    settings("tools:\n  entries: [{name: read_file, loading_mode: deferred}, {name: write_file}]\n")
    model = script(
        a_call("read_file", path="note.txt"),
        a_call("tool_search", query="read a file"),
        a_call("read_file", path="note.txt"),
        {"say": "It says one, two."},
    )
    ran = ferrule("run", "--model", model, "--allow", "Read(**)", "What does it say?")
    assert ran.code == 0
    assert "one, two" in ran.out
    told = ferrule("sessions", "show", ferrule("sessions", "list").lines[-1].split()[0])
    assert "read_file is not loaded" in told.out.replace("`", "")
    assert "one\n" in told.out


@pytest.mark.proves("settings.tool-loading")
def test_without_an_entry_there_is_no_search_and_nothing_of_it_is_offered(folder: Path) -> None:
    assembly = assemble_at_terminal({"workspace": str(folder)})
    assert option_of(assembly) is None
    assert "tool_search" not in assembly.agent.catalog


@pytest.mark.proves("settings.tool-loading")
def test_the_settings_refine_the_search(folder: Path, settings: Any) -> None:
    entries = (
        "  entries: [{name: read_file, loading_mode: deferred}, "
        "{name: write_file, loading_mode: deferred}]\n"
    )
    more = (
        "  tool_search: hybrid\n  search_mode: client\n  search_budget: 900\n  always_loaded: "
        "[write_file]\n"
    )
    settings(f"tools:\n{entries}{more}")
    assembly = assemble_at_terminal({"workspace": str(folder)})
    option = option_of(assembly)
    assert (option.variant, option.mode, option.budget_tokens) == ("hybrid", "client", 900)
    sent = [spec.name for spec in assembly.agent.visible_tools.specs()]
    assert "write_file" in sent and "read_file" not in sent
    settings(f"tools:\n{entries}  tool_search: off\n")
    assert option_of(assemble_at_terminal({"workspace": str(folder)})) is None
    settings(f"tools:\n{entries}  denied: [tool_search]\n")
    denied = assemble_at_terminal({"workspace": str(folder)})
    assert option_of(denied) is None
    assert "read_file" in [spec.name for spec in denied.agent.visible_tools.specs()]


@pytest.mark.proves("settings.tool-loading")
@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("entries: [{name: red_file, loading_mode: deferred}]", "`red_file`, and there is none"),
        ("entries: [{name: read_file, loading_mode: later}]", "loading_mode `later`"),
        ("entries: [{name: read_file, loading: deferred}]", "unknown key `loading`"),
        ("entries: [{loading_mode: deferred}]", "an entry without a tool"),
        ("entries: read_file", "must be a list of entries"),
        ("tool_search: semantic", "`semantic`"),
        ("search_budget: 0", "at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(
    folder: Path, settings: Any, written: str, named: str
) -> None:
    file = settings(f"tools:\n  {written}\n")
    with pytest.raises(ConfigError) as refused:
        assemble_at_terminal({"workspace": str(folder)})
    assert named in refused.value.detail
    assert str(file) in refused.value.detail


@pytest.mark.proves("settings.tool-loading")
def test_an_entry_for_a_servers_tool_that_is_not_there_is_told_and_no_error(
    folder: Path, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings("tools:\n  entries: [{name: git__log, loading_mode: deferred}]\n")
    assembly = assemble_at_terminal({"workspace": str(folder)})
    assert "name a tool `git__log`, and there is none" in capsys.readouterr().err.replace("\n", " ")
    assert not [tool for tool in assembly.agent.catalog if tool.loading is Loading.DEFERRED]


async def test_a_provider_setting_says_that_a_gateway_passes_the_search_on(settings: Any) -> None:
    settings(
        "providers:\n  openai-responses: "
        "{base_url: 'http://127.0.0.1:9/v1', force_native_tool_search: true}\n"
    )
    model_client = create_client(load_settings(), "openai-responses:my-clone")
    assert isinstance(model_client, OpenAIResponses) and model_client.force_tool_search
    await model_client.close()
    settings("providers:\n  ollama: {force_native_tool_search: true}\n")
    with pytest.raises(ConfigError, match="cannot be set up"):
        create_client(load_settings(), "ollama:llama3.2")
