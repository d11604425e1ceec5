"""Plugins in the settings: which are on, with what, and what their manifests say of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ConfigError
from ferrule.engine.plugins.loading import load_class
from ferrule.runtime.assemble import Assembly, assemble
from ferrule.runtime.chosen_plugins import load_shipped_tools
from ferrule.runtime.tool_profiles import list_default_names
from ferrule.storage.plugins.manifests import list_coding_tools, read_shipped_manifests
from ferrule.storage.settings.table import BY_KEY
from ferrule.storage.trust import TrustStore

FIELDS: dict[str, list[dict[str, Any]]] = {"git": [{"tools": "write"}, {"tools": "toolbox"}]}
"""The fields of plugins with which they bring all their tools."""
MODELS: dict[str, list[str]] = {
    "shapes": [
        "openai:gpt-5.2",
        "openai-responses:gpt-5.2",
        "openai-responses:codex-mini-latest",
        "anthropic:claude-sonnet-5",
        "google:gemini-3-pro",
        "ollama:qwen3-coder",
    ]
}
"""The models for which they do."""
IN_A_FOLDER = ("memory", "skills")
"""Plugins whose tools are there in a workspace alone."""


@pytest.fixture
def assembled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Assembly]:
    """An assembly for a folder of its own, from a settings file and options."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"FERRULE_{name}", str(tmp_path / name.lower()))
    (tmp_path / "work").mkdir()
    (tmp_path / "config").mkdir()

    def make(text: str = "", **options: Any) -> Assembly:
        (tmp_path / "config/ferrule.yaml").write_text(text)
        given = {"workspace": str(tmp_path / "work"), "model": "scripted:x", **options}
        return assemble(given, notice=lambda _: None)

    return make


WITH_CLASS = [name for name, one in read_shipped_manifests().items() if one.is_set_up]


@pytest.mark.parametrize("name", WITH_CLASS)
def test_a_manifest_says_what_the_plugin_is(name: str) -> None:
    manifest = read_shipped_manifests()[name]
    made = load_class(manifest)()
    assert made.name == name
    own = {one.name: one.default for one in fields(made)}  # pyright: ignore[reportArgumentType]  a value class
    for field, row in manifest.settings.items():
        default: object = row["default"]
        assert own[field] == (() if default == [] else default), field
    base = {tool.full_name for tool in load_shipped_tools()}
    found = {
        tool.full_name
        for given in FIELDS.get(name, [{}])
        for model in MODELS.get(name, [""])
        for tool in load_shipped_tools(model, **{name: given})
    }
    if name in IN_A_FOLDER:
        found.update(manifest.tools)
    assert found - base | (set(manifest.tools) & base) >= set(manifest.tools)
    assert found <= base | set(manifest.tools) | {"vision::ocr"}


@pytest.mark.parametrize("name", WITH_CLASS)
def test_what_a_plugin_takes_is_a_field_of_it_and_a_setting(name: str) -> None:
    manifest = read_shipped_manifests()[name]
    own = {one.name for one in fields(load_class(manifest)())}  # pyright: ignore[reportArgumentType]  a value class
    assert set(manifest.takes) <= own
    assert {*manifest.takes.values(), *manifest.when_settings} <= set(BY_KEY)


def test_the_manifests_say_which_tools_a_run_has_by_default() -> None:
    assert sorted(list_default_names()) == [tool.full_name for tool in load_shipped_tools()]
    assert list_coding_tools() <= set(list_default_names())


@pytest.mark.parametrize(
    ("text", "options", "on", "off"),
    [
        ("", {}, ["files", "git", "clock"], ["typed", "index"]),
        ("plugins: {typed: true, git: false}", {}, ["typed"], ["git"]),
        ("plugins: {index: {outline: 200}}", {}, ["index"], []),
        ("plugins: {typed: true}", {"plugins": ("typed=false",)}, [], ["typed"]),
        ("plugins: {git: false}", {"plugins": ("git.tools=read",)}, ["git"], []),
        ("plugins: {diagnostics: {checkers: [ruff]}}", {}, ["diagnostics"], []),
        ("media: {ocr: true}", {}, ["ocr"], []),
        ("", {}, ["extensions", "shapes", "skills", "instructions"], ["mcp", "a2a", "http"]),
        ("mcp_servers: {a: {command: b}}", {}, ["mcp"], []),
        ("mcp_servers: {a: {command: b}}", {"plugins": ("mcp=false",)}, [], ["mcp"]),
        ("a2a_peers: {a: {url: 'https://a.example'}}", {}, ["a2a"], []),
        ("tools: {http_manifests: [a.yaml]}", {}, ["http"], []),
        ("skills: {enabled: false}", {}, [], ["skills"]),
        ("tools: {memory: state}", {}, ["memory"], []),
    ],
)
def test_the_strongest_layer_that_names_a_plugin_decides(
    assembled: Callable[..., Assembly],
    text: str,
    options: dict[str, Any],
    on: list[str],
    off: list[str],
) -> None:
    names = assembled(text, **options).agent.plugins.names
    assert set(on) <= set(names) and not set(off) & set(names)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tools: {packs: [typed]}", "it is `plugins` now"),
        ("diagnostics: {checkers: [ruff]}", "it is `plugins.diagnostics` now"),
        ("index: {outline: 3}", "it is `plugins.index` now"),
        ("index.outline: 3", "it is `plugins.index.outline` now"),
        ("plugins: {tiped: true}", "did you mean `plugins.typed`"),
        ("plugins: {git: {tools: all}}", "`write`"),
    ],
)
def test_what_is_wrong_names_what_to_write(
    assembled: Callable[..., Assembly], text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        assembled(text)
    assert said in f"{caught.value.detail}; {caught.value.hint}"


def test_files_switch_on_what_reads_them(
    assembled: Callable[..., Assembly], tmp_path: Path
) -> None:
    (tmp_path / "config/mcp.json").write_text('{"mcpServers": {}}')
    (tmp_path / "config/http").mkdir()
    (tmp_path / "work/.ferrule/http").mkdir(parents=True)
    assert {"mcp", "http"} <= set(assembled().agent.plugins.names)
    (tmp_path / "config/mcp.json").unlink()
    (tmp_path / "config/http").rmdir()
    (tmp_path / "work/.ferrule/http/a.yaml").write_text("tools: []")
    (tmp_path / "work/.mcp.json").write_text('{"mcpServers": {}}')
    assert not {"mcp", "http"} & set(assembled().agent.plugins.names)  # the folder is not trusted
    TrustStore().trust(tmp_path / "work")
    assert {"mcp", "http"} <= set(assembled().agent.plugins.names)


def test_a_file_takes_the_place_of_a_tool_and_of_nothing_that_came_later(
    assembled: Callable[..., Assembly], tmp_path: Path
) -> None:
    folder = tmp_path / "work/.ferrule/tools"
    folder.mkdir(parents=True)
    for name in ("search_files", "memory"):
        (folder / f"{name}.md").write_text(
            "---\nscript: |\n  def run(args):\n    return 1\n---\nX.\n"
        )
    TrustStore().trust(tmp_path / "work")
    agent = assembled().agent
    assert agent.catalog.get("search_files").source == "file .ferrule/tools/search_files.md"
    assert agent.plugins.sources["search_files"] == "extensions"
    assert agent.plugins.sources["ferrule::search_files"] == "search"
    with pytest.raises(ConfigError, match="two tools are named `memory`"):
        assembled("tools: {memory: state}")


def test_nothing_of_a_plugin_that_is_off_is_imported(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    program = (
        "import sys, json\n"
        "from ferrule.runtime.assemble import assemble\n"
        f"assemble({{'workspace': {str(work)!r}, 'model': 'scripted:x'}}, notice=print)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    folders = {f"FERRULE_{name}": str(tmp_path / name) for name in ("CONFIG", "STATE")}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **folders},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    loaded = set(json.loads(ran.stdout.splitlines()[-1]))
    by_setting = ("skills", "instructions")
    off = [
        one
        for one in read_shipped_manifests().values()
        if not one.default and one.name not in by_setting
    ]
    assert [one.name for one in off if one.object.partition(":")[0] in loaded] == []
    assert "ferrule.toolkits.git.tools" not in loaded
