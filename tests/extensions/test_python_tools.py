"""Tools in Python: what a trusted file brings, what it may import, what is said of one that is
broken, and handlers for tool files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Catalog, Scripted, Storage
from ferrule.core.errors import ConfigError
from ferrule.extensions.checks.workspace import check_workspace
from ferrule.extensions.extensions import Extensions, load_extensions
from ferrule.extensions.tool_files.python_tools import PythonSources
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.trust import TrustStore
from ferrule.toolkits.files import tools as shipped_files

HEAD = "from ferrule import Context, Workspace, tool\n"
ADD = HEAD + (
    "@tool(side_effect='none')\ndef add(a: int, b: int = 1) -> int:\n    'Add.'\n    return a + b\n"
)
WEATHER = """---
parameters:
  city: { type: string, required: true }
  unit: { type: string, default: c }
side_effect: none
---
The weather of a city.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def put(folder: Path, *names: str, trusted: bool = True, **texts: str) -> None:
    """Settings that name these files, the files (`a__b` is `a/b.py`), and trust."""
    (folder / ".ferrule").mkdir(exist_ok=True)
    (folder / ".ferrule/ferrule.yaml").write_text(f"tools:\n  python: [{', '.join(names)}]\n")
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    if trusted:
        TrustStore().trust(folder)


def tool_file(folder: Path, name: str, text: str) -> None:
    path = folder / ".ferrule/tools" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def brought(folder: Path, **more: Any) -> Extensions:
    settings = load_settings(workspace=folder)
    where = settings.origin("tools.python").where
    sources = PythonSources(settings["tools.python"], where)
    return load_extensions(settings.repository, python=sources, **more)


def names(folder: Path) -> list[str]:
    return sorted(
        tool.full_name for tool in brought(folder).make_tools() if tool.source.endswith(".py")
    )


async def called(folder: Path, name: str, **arguments: Any) -> Any:
    ours = Agent(
        Scripted([]),
        Catalog(brought(folder).make_tools()),
        workspace=folder,
        storage=Storage(journal=":memory:"),
    )
    session = ours.session()
    try:
        return await session.call(name, **arguments)
    finally:
        await session.close()


async def test_every_tool_that_a_file_names_is_there_and_only_those(folder: Path) -> None:
    more = "from ferrule import define_tool\ndef plain(): ...\n_hidden = add\n"
    more += "TOOLS = [define_tool('listed', 'Listed.', parameters={}, handler=lambda: 'yes')]\n"
    # Read as Python reads the file: annotations are values unless it imports them from the future.
    more += "def typed(n: int): ...\nassert typed.__annotations__ == {'n': int}\n"
    put(folder, "tools.py", tools=ADD + more)
    assert names(folder) == ["add", "listed"]
    assert (await called(folder, "add", a=2)).data == 3
    assert (await called(folder, "listed")).data == "yes"


def test_what_is_run_is_what_was_trusted_and_a_change_asks_again(folder: Path) -> None:
    put(folder, "lib/tools.py", lib__tools=ADD)
    seen = load_settings(workspace=folder)
    assert seen.repository.files["lib/tools.py"] == ADD.encode()
    (folder / "lib/tools.py").write_text("raise SystemExit('changed')")
    # The bytes that trust has read, not those that are there now.
    tools = load_extensions(
        seen.repository, python=PythonSources(seen["tools.python"])
    ).make_tools()
    assert [tool.name for tool in tools] == ["add"]
    assert TrustStore().state(folder) == "changed"
    assert (
        brought(folder).make_tools() == () and load_settings(workspace=folder)["tools.python"] == ()
    )
    (change,) = TrustStore().diff(folder)
    assert change.name == "lib/tools.py" and "+raise SystemExit" in change.diff


def test_a_file_is_run_once_in_a_process_and_again_when_it_changed(folder: Path) -> None:
    counting = f"with open({str(folder / 'ran')!r}, 'a') as file:\n    file.write('x')\n"
    put(folder, "tools.py", tools=ADD + counting)
    brought(folder)
    brought(folder)
    assert (folder / "ran").read_text() == "x"
    (folder / "tools.py").write_text(ADD.replace("add", "plus"))
    TrustStore().trust(folder)
    assert names(folder) == ["plus"]


def test_a_file_imports_what_is_named_beside_it_and_nothing_else_of_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    using = HEAD + (
        "@tool\ndef late() -> str:\n    'Late.'\n    from helpers import WORD\n    return "
        "WORD\nimport helpers\n"
    )
    put(folder, "tools.py", "helpers.py", tools=using, helpers="WORD = 'found'\n")
    (late,) = [tool for tool in brought(folder).make_tools() if tool.name == "late"]
    assert late() == "found"
    assert "helpers" not in sys.modules
    put(folder, "tools.py", tools=using + "# again\n")
    for visible in (False, True):
        if visible:
            monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        (folder / "helpers.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
        with pytest.raises(
            ConfigError, match=r"^tools\.py:7: it cannot be loaded: \w+Error: "
        ) as refused:
            brought(folder)
        assert "name `helpers.py` under `tools.python` too" in refused.value.hint
        assert not (folder / "ran").exists()


@pytest.mark.parametrize("name", ["../x.py", "/etc/x.py", "a/../../x.py", "~/x.py", "lib/x"])
def test_a_repository_names_no_file_outside_its_folder(name: str, folder: Path) -> None:
    (folder.parent / "x.py").write_text(ADD)
    put(folder, f'"{name}"')
    with pytest.raises(ConfigError, match="is not a file below this folder"):
        load_settings(workspace=folder)


@pytest.mark.parametrize("link", ["tools.py", "lib"])
def test_a_link_is_not_followed(link: str, folder: Path) -> None:
    (folder.parent / "there").mkdir()
    (folder.parent / "there/tools.py").write_text(ADD)
    (folder / link).symlink_to(folder.parent / "there" / ("" if link == "lib" else link))
    put(folder, "lib/tools.py" if link == "lib" else link)
    with pytest.raises(ConfigError, match="is a link, and links are not followed"):
        brought(folder)


def test_a_person_names_their_own_files_and_none_that_a_tool_could_change(folder: Path) -> None:
    own = Path(os.environ["FERRULE_CONFIG"])
    own.mkdir(parents=True, exist_ok=True)
    (own / "mine.py").write_text(ADD)
    (own / "ferrule.yaml").write_text("tools.python: [mine.py]\n")
    assert [tool.name for tool in brought(folder, settings_folder=own).make_tools()] == ["add"]
    (folder / "tools.py").write_text(ADD)
    (own / "ferrule.yaml").write_text(f"tools.python: ['{folder / 'tools.py'}']\n")
    with pytest.raises(ConfigError, match="lies in the workspace, where a tool could change it"):
        brought(folder, settings_folder=own)


def test_an_installed_module_may_be_named_and_one_of_the_folder_may_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = folder.parent / "site"
    site.mkdir()
    (site / "acme_installed_tools.py").write_text(ADD)
    (folder / "acme_folder_tools.py").write_text(ADD)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    put(folder, "acme_installed_tools")
    assert [tool.name for tool in brought(folder).make_tools()] == ["add"]
    put(folder, "acme_folder_tools")
    with pytest.raises(ConfigError, match="where commands can write, and trust does not cover it"):
        brought(folder)


WRONG = {
    "def (": r"tools\.py:1: it cannot be loaded: SyntaxError: ",
    "x = 1\nx.y\n": r"tools\.py:2: it cannot be loaded: AttributeError: ",
    "import sys\n\nsys.exit(3)\n": r"tools\.py:3: it cannot be loaded: SystemExit: 3",
    "import nothing_like_it\n": r"tools\.py:1: it cannot be loaded: ModuleNotFoundError: ",
    "from .near import x\n": r"tools\.py:1: it cannot be loaded: ImportError: ",
    HEAD
    + "@tool\ndef f(a): ...\n": r"tools\.py:2: it cannot be loaded: tool `f`: parameter `a` has no type",
    "x = 1\n": r"tools\.py: there is no tool in it",
    ADD + ADD: r"tools\.py:7: the tool `add` is defined a second time \(first in line 2\)",
    ADD
    + "again = tool(lambda: 1, name='add')\n": r"tool `add` is defined more than once: tools\.py:2 and tools\.py:6",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_with_a_file_names_it_the_line_and_the_next_step(
    text: str, folder: Path
) -> None:
    put(folder, "tools.py", tools=text)
    with pytest.raises(ConfigError, match=WRONG[text]) as refused:
        brought(folder)
    assert refused.value.hint


def test_everything_that_is_wrong_is_said_at_once_with_the_place_of_the_setting(
    folder: Path,
) -> None:
    put(folder, "tools.py", "gone.py", "nothing_like_it", "ok.py", tools="def (", ok=ADD)
    TrustStore().trust(folder)
    with pytest.raises(ConfigError) as refused:
        brought(folder)
    said = refused.value.detail
    assert "tools.py:1: " in said
    assert "ferrule.yaml:2:11: `tools.python` names `gone.py`, and there is no such file" in said
    assert (
        "ferrule.yaml:2:11: `tools.python` names `nothing_like_it`, and no module of that name"
        in said
    )


def test_an_invalid_tool_file_beside_python_files_is_left_out_with_its_reason(
    folder: Path,
) -> None:
    put(folder, "ok.py", ok=ADD)
    tool_file(folder, "broken", "---\nparameters: 1\n---\n")
    TrustStore().trust(folder)
    assert names(folder) == ["add"]
    [file] = brought(folder).left_out
    assert (file.kind, file.name) == ("tool", "broken") and "broken.md:2" in file.detail


async def test_validate_reads_python_files_and_runs_nothing_of_them(folder: Path) -> None:
    mark = folder / "ran"
    good = ADD + f"open({str(mark)!r}, 'w')\ndef weather(city, unit): ...\n"
    put(folder, "tools.py", tools=good)
    tool_file(folder, "weather", WEATHER)
    with (folder / ".ferrule/ferrule.yaml").open("a") as file:
        file.write("  required: [add]\npermissions: { ask: [add] }\n")
    assert (await check_workspace(folder)).problems == []
    put(folder, "tools.py", "gone.py", "../x.py", tools="def (")
    found = [str(one) for one in (await check_workspace(folder)).problems]
    assert any("`../x.py` is not a file below this folder" in one for one in found)
    put(folder, "tools.py", "gone.py", tools="\ndef (")
    found = [str(one) for one in (await check_workspace(folder)).problems]
    assert any(
        one.startswith("tools.py:2: error: it cannot be loaded: SyntaxError") for one in found
    )
    assert any("`gone.py`, and there is no such file" in one for one in found)
    assert any("without a function of its name" in one for one in found)
    assert not mark.exists()


# ---- names


def test_a_tool_in_python_and_a_tool_file_of_one_name_are_an_error_and_an_override_holds(
    folder: Path,
) -> None:
    put(folder, "tools.py", tools=ADD)
    tool_file(folder, "add", WEATHER)
    TrustStore().trust(folder)
    with pytest.raises(ConfigError, match="tool `add` is defined more than once") as refused:
        brought(folder)
    assert "take `@tool` away where the function is meant as the handler" in refused.value.hint
    (folder / ".ferrule/tools").rename(folder / ".ferrule/other")
    (folder / ".ferrule/overrides").mkdir()
    script = "script: |\n      def run(args):\n        return 7\n"
    text = f"---\nname: over\ndescription: Over.\ntools:\n  - name: add\n    {script}---\nOver.\n"
    (folder / ".ferrule/overrides/over.md").write_text(text)
    TrustStore().trust(folder)
    made = brought(folder)
    assert [tool.source for tool in made.make_tools() if tool.name == "add"] == [
        "file .ferrule/overrides/over.md"
    ]
    assert any("`add` of tools.py:2 (harness) is not used" in one for one in made.notices)


def test_a_tool_in_python_may_take_the_name_of_one_that_ships(folder: Path) -> None:
    put(folder, "tools.py", tools=ADD.replace("add", "read_file"))
    made = brought(folder)
    (ours,) = [
        tool for tool in made.make_tools(shipped_files.TOOLS) if tool.full_name == "read_file"
    ]
    assert ours.source == "file tools.py"
    assert (
        "Ferrule's own tool `read_file` is hidden from the model: tools.py:2 has the same name"
        in made.describe_hidden(shipped_files.TOOLS)
    )


# ---- handlers


HANDLERS = {
    "a function": "def weather(city: str, unit: str) -> str:\n    return f'{city} 20 {unit}'\n",
    "a coroutine": "async def weather(city, unit):\n    return f'{city} 20 {unit}'\n",
    "with a context": HEAD
    + (
        "def weather(city: str, context: Context, unit: str = 'k'):\n    "
        "context.resource(Workspace)\n    return f'{city} 20 {unit}'\n"
    ),
    "open": "def weather(**given):\n    return f\"{given['city']} 20 {given['unit']}\"\n",
}


@pytest.mark.parametrize("text", HANDLERS.values(), ids=HANDLERS)
async def test_a_plain_function_is_the_handler_of_the_tool_file_of_its_name(
    text: str, folder: Path
) -> None:
    put(folder, "tools.py", tools=text)
    tool_file(folder, "weather", WEATHER)
    TrustStore().trust(folder)
    assert not [one for one in brought(folder).notices if "no `script`" in one]
    result = await called(folder, "weather", city="Lima")
    assert (result.success, result.data) == (True, "Lima 20 c")
    refused = await called(folder, "weather", unit="c")
    assert refused.error_type == "validation_failed" and "city" in str(refused.error_message)
    extra = await called(folder, "weather", city="Lima", days=3)
    assert extra.success == ("**given" in text)


async def test_without_a_function_of_its_name_the_file_says_what_is_missing(folder: Path) -> None:
    put(folder, "tools.py", tools=ADD)
    tool_file(folder, "get-weather", WEATHER)
    TrustStore().trust(folder)
    assert [one for one in brought(folder).notices if "without a function of its name" in one]
    assert (await called(folder, "get-weather", city="Lima")).error_type == "not_found"
    (folder / "tools.py").write_text(ADD + HANDLERS["a function"].replace("weather", "get_weather"))
    TrustStore().trust(folder)
    assert (await called(folder, "get-weather", city="Lima")).data == "Lima 20 c"


UNFIT = {
    "def weather(city): ...": "`unit` is no parameter of it",
    "def weather(city, unit, days): ...": "its `days` has no default, and is not required",
    "def weather(city, unit, /): ...": "cannot be passed by name",
    "def weather(city, unit, context: Gone): ...": "its `context` has no default",
}


@pytest.mark.parametrize("text", UNFIT)
def test_a_handler_that_does_not_fit_its_file_is_an_error_that_names_both(
    text: str, folder: Path
) -> None:
    put(folder, "tools.py", tools=f"from __future__ import annotations\n{text}\n")
    tool_file(folder, "weather", WEATHER)
    TrustStore().trust(folder)
    with pytest.raises(ConfigError, match=UNFIT[text]) as refused:
        brought(folder).make_tools()
    assert refused.value.detail.startswith(".ferrule/tools/weather.md: ")
    assert f"{folder / 'tools.py'}:2" in refused.value.detail


def test_two_handlers_for_one_file_are_an_error(folder: Path) -> None:
    text = HANDLERS["a function"]
    put(folder, "a.py", "b.py", a=text, b=text)
    tool_file(folder, "weather", WEATHER)
    TrustStore().trust(folder)
    with pytest.raises(
        ConfigError, match=r"a\.py:1 and b\.py:1: both are a handler for the tool file `weather`"
    ):
        brought(folder).make_tools()
