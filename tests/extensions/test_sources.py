"""Where tools come from, which of two holds, and that nothing of a repository works before it is
trusted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Agent, Permissions, Storage
from ferrule.core.errors import ConfigError
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.extensions import Extensions, load_extensions
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.loading import KINDS, load_tools
from ferrule.models.scripted import Scripted, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import TrustStore
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Loading

SCRIPT = "script: |\n  def run(args):\n      return 1\n"


def tool_file(body: str = "A tool.", extra: str = "") -> bytes:
    return f"---\n{extra}{SCRIPT}---\n{body}\n".encode()


def bundle(*names: str, head: str = "name: my-bundle\ndescription: Things.\n") -> bytes:
    tools = "".join((f"  - name: {name}\n    description: From a bundle.\n    script: |\n      def "
        "run(args):\n          return 2\n") for name in names)  # fmt: skip
    return f"---\n{head}tools:\n{tools}---\nBody.\n".encode()


def test_tools_come_from_folders_bundles_and_main_files() -> None:
    loaded = load_tools(
        {
            ".harness/tools/a.md": tool_file("First."),
            ".ferrule/tools/b.md": tool_file("Second."),
            ".harness/harness.md": b"---\ntools:\n  - name: c\n    description: Third.\n    script: 'x = 1'\n---\n",
            ".harness/plugins/extra.md": bundle("d", "e"),
            ".harness/tools/notes.txt": b"not a tool",
            ".harness/tools/deeper/f.md": tool_file(),
            ".harness/agents/g.md": b"no front matter",
            "tools/h.md": tool_file(),
        }
    )
    assert [(one.name, one.description) for one in loaded.tools] == [
        ("a", "First."),
        ("b", "Second."),
        ("c", "Third."),
        ("d", "From a bundle."),
        ("e", "From a bundle."),
    ]
    assert [(one.kind, one.name, one.description) for one in loaded.bundles] == [
        ("plugin", "my-bundle", "Things.")
    ]


@pytest.mark.proves("file.precedence")
def test_of_builtin_plugin_and_override_the_override_holds_and_the_others_are_reported() -> None:
    files = {
        ".harness/builtins/one.md": bundle("t"),
        ".harness/plugins/two.md": bundle("t"),
        ".harness/overrides/three.md": bundle("t"),
        ".harness/tools/t.md": tool_file("Own."),
    }
    loaded = load_tools(files)
    assert [one.file for one in loaded.tools] == [".harness/overrides/three.md"]
    assert [(one.kind, one.by_kind) for one in loaded.shadowed] == [
        ("harness", "override"),
        ("builtin", "override"),
        ("plugin", "override"),
    ]
    assert "is not used: .harness/overrides/three.md (override) takes precedence" in str(
        loaded.shadowed[0]
    )
    del files[".harness/overrides/three.md"]
    assert [one.description for one in load_tools(files).tools] == ["Own."]


@pytest.mark.proves("file.precedence")
@given(st.sets(st.sampled_from(KINDS), min_size=1))
def test_the_first_kind_there_is_holds_and_every_other_is_shadowed(kinds: set[str]) -> None:
    places = {
        "override": ".harness/overrides/x.md",
        "builtin": ".harness/builtins/x.md",
        "plugin": ".harness/plugins/x.md",
        "harness": ".harness/tools/t.md",
    }
    loaded = load_tools(
        {places[kind]: tool_file() if kind == "harness" else bundle("t") for kind in kinds}
    )
    first, *rest = sorted(kinds, key=KINDS.index)
    assert [one.file for one in loaded.tools] == [places[first]]
    assert [one.kind for one in loaded.shadowed] == rest


@pytest.mark.proves("file.duplicates")
def test_two_tools_of_one_kind_with_one_name_are_an_error() -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"tool `t` is defined more than once: .*\.ferrule/tools/t\.md and "
            r"\.harness/tools/t\.md"
        ),
    ):
        load_tools({".harness/tools/t.md": tool_file(), ".ferrule/tools/t.md": tool_file()})


@pytest.mark.parametrize(
    "data",
    [
        b"no front matter",
        b"---\nx: 1\n",
        b"---\nparameters: [a]\n---\n",
        b"---\ntimeout_ms: -1\n---\n",
        b"---\noutput: {type: strnig}\nscript: |\n  return 1\n---\n",
        b"---\nparameters: {a: {type: string, pattern: '('}}\nscript: |\n  return 1\n---\n",
        b"\xff\xfe---",
    ],
)
def test_an_invalid_tool_file_is_left_out_and_the_others_are_used(data: bytes) -> None:
    loaded = load_tools({".harness/tools/bad.md": data, ".harness/tools/good.md": tool_file()})
    assert [tool.name for tool in loaded.tools] == ["good"]
    (bad,) = loaded.left_out
    assert bad.detail.startswith(".harness/tools/bad.md:")
    assert str(bad).endswith("The tool `bad` is left out")
    names = [tool.name for tool in loaded.make_tools(ScriptEnvironment())]
    assert "good" in names
    assert "bad" not in names


def test_nothing_stands_in_for_a_file_that_is_left_out() -> None:
    """The file may have been written to limit what has its name."""
    plugin = b"---\nname: p\ndescription: d\ntools: [{name: run_command, script: x}]\n---\n"
    loaded = load_tools(
        {".harness/tools/run_command.md": b"no front matter", ".harness/plugins/p.md": plugin}
    )
    assert (loaded.tools, [file.name for file in loaded.left_out]) == ((), ["run_command"])
    shipped = define_tool("run_command", "Run.", handler=lambda: 1)
    (made,) = loaded.make_tools(ScriptEnvironment(), shipped=[shipped])
    assert (made.full_name, made.loading) == ("ferrule::run_command", Loading.INTERNAL)


def test_an_override_holds_beside_an_invalid_file_of_its_name() -> None:
    override = b"---\ntools: [{name: t, script: x}]\n---\n"
    loaded = load_tools(
        {".harness/tools/t.md": b"no front matter", ".harness/overrides/o.md": override}
    )
    assert [tool.file for tool in loaded.tools] == [".harness/overrides/o.md"]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    files = {
        ".harness/plugins/Bad_Name.md": b"---\ntools: []\n---\n",
        ".harness/overrides/e.md": b"---\ntools: [{script: x}]\n---\n",
        ".harness/harness.md": b"---\ntools: {}\n---\n",
    }
    with pytest.raises(ConfigError) as caught:
        load_tools(files)
    lines = caught.value.detail.splitlines()
    assert len(lines) == len(files)
    assert {line.partition(":")[0] for line in lines} == set(files)


def test_a_settings_file_with_a_section_of_that_name_has_no_tools() -> None:
    assert load_tools({".ferrule/ferrule.yaml": b"tools: { enabled: true }\n"}).tools == ()
    assert [
        one.name
        for one in load_tools({".ferrule/ferrule.yaml": b"tools: [{name: t, script: x}]\n"}).tools
    ] == ["t"]


def test_warnings_of_the_tools_that_hold_are_gathered() -> None:
    loaded = load_tools({".harness/tools/t.md": tool_file(extra="paramters: {}\n")})
    assert "did you mean `parameters`?" in str(loaded.warnings[0])


def test_tools_with_scripts_come_with_what_scripts_read_files_with() -> None:
    names = [
        tool.name
        for tool in load_tools({".harness/tools/t.md": tool_file()}).make_tools(ScriptEnvironment())
    ]
    assert names == ["t", "read_text", "stat_path", "web_request", "web_body"]
    assert load_tools({}).make_tools(ScriptEnvironment()) == ()


# ---- trust


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / ".harness/tools").mkdir(parents=True)
    (folder / ".harness/tools/t.md").write_bytes(tool_file())
    return folder


def load(repository: Path, **more: Any) -> Extensions:
    return load_extensions(TrustStore().read(repository), **more)


def names_of(loaded: Extensions) -> list[str]:
    return [tool.full_name for tool in loaded.make_tools() if tool.loading is not Loading.INTERNAL]


def test_a_repository_brings_nothing_until_it_is_trusted(repository: Path) -> None:
    assert load(repository).make_tools() == ()
    TrustStore().trust(repository)
    assert names_of(load(repository)) == ["t"]


def test_a_changed_file_brings_nothing_and_what_changed_is_shown(repository: Path) -> None:
    trust = TrustStore()
    trust.trust(repository)
    (repository / ".harness/tools/t.md").write_bytes(
        tool_file().replace(b"return 1", b"return exec.run('x')")
    )
    assert load(repository).make_tools() == ()
    (change,) = trust.diff(repository)
    assert change.what == "changed"
    assert "-      return 1" in change.diff
    assert "+      return exec.run('x')" in change.diff
    (repository / ".harness/tools/u.md").write_bytes(tool_file())
    assert [one.what for one in trust.diff(repository)] == ["changed", "added"]


def test_an_untrusted_file_is_not_even_read_as_a_tool(repository: Path) -> None:
    (repository / ".harness/tools/broken.md").write_bytes(b"no front matter")
    assert load(repository).left_out == ()
    TrustStore().trust(repository)
    (left_out,) = load(repository).left_out
    assert "broken.md" in left_out.detail


def test_a_link_to_a_tool_is_not_followed_and_said(repository: Path) -> None:
    (repository / "outside.md").write_bytes(tool_file())
    (repository / ".harness/tools/linked.md").symlink_to("../../outside.md")
    assert load(repository).notices == ()
    TrustStore().trust(repository)
    loaded = load(repository)
    assert names_of(loaded) == ["t"]
    assert loaded.notices == (".harness/tools/linked.md: it is a link, and links are not followed",)


def test_a_repository_without_configuration_brings_nothing(tmp_path: Path) -> None:
    assert load(tmp_path).make_tools() == ()


async def test_a_trusted_file_is_called_by_a_model(
    repository: Path, shared_workers: WorkerPool
) -> None:
    script = "def run(args):\n      return fs.read(args['path']).split('\\n')[0]\n"
    text = (
        "---\nside_effect: read\nparameters: "
        f"{{ path: {{ type: string, required: true }} }}\nscript: |\n  {script}---\nFirst line "
        "of a file.\n"
    )
    (repository / ".harness/tools/first_line.md").write_text(text)
    (repository / "poem.txt").write_text("roses are red\nviolets are blue\n")
    TrustStore().trust(repository)
    tools = load(repository, pool=shared_workers).make_tools()
    steps = [calls(("first_line", {"path": "poem.txt"})), says("done")]
    agent = Agent(
        Scripted(steps),
        tools,
        workspace=repository,
        storage=Storage(journal=SqliteJournal(":memory:")),
        permissions=Permissions(allow=["Read"]),
    )
    result = await agent.run("How does it begin?")
    assert [(one.success, one.data) for one in result.results] == [(True, "roses are red")]
