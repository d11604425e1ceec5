"""A program that is planted where commands can write is never started with more than they have."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deputies import DEPUTIES
from ferrule.cli.chat.prompt import ChatPrompt
from ferrule.cli.mcp import _find_opener  # pyright: ignore[reportPrivateUsage]
from ferrule.connectors.mcp import LaunchSettings, McpServer
from ferrule.connectors.mcp.spec import fill_variables
from ferrule.connectors.mcp.stdio import open_stdio
from ferrule.core.errors import ProviderError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.engine.hooks.events import Occasion, SessionStart
from ferrule.extensions.diagnostics.checkers import Checker, ProjectChecker
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.permissions.entry_points import find_entry_points
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.loaded_code import trust_command_line, trust_shell_text
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.permissions.provenance import (
    CommandWritable,
    ProgramNotFound,
    UntrustedPath,
    find_program,
    trust_search_path,
)
from ferrule.sandbox.command import Capture
from ferrule.sandbox.deputies import DeputyRights
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits.commands import CommandPolicy
from ferrule.toolkits.confined_program import find_confined
from ferrule.toolkits.git.run import find_git
from ferrule.toolkits.search.ripgrep import find_ripgrep
from ferrule.tools.context import Context
from ferrule_local import pull

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("programs.yaml").read_text())
OWN_NAMES = [
    name
    for deputy in DEPUTIES
    if deputy.rights is DeputyRights.OWN
    for name in deputy.programs
    if " " not in name and not name.startswith("$")
]
NAMES = list(dict.fromkeys([*OWN_NAMES, *TABLE["names"]]))


class Planted:
    """A workspace, an opened folder and the person's own folder, with programs in them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.work = base / "work"
        self.opened = base / "opened"
        for folder in (self.work, self.opened, base / "person", base / "real"):
            folder.mkdir()
        self.marker = base / "started"
        self.policy = SandboxPolicy(self.work, writable=(str(self.opened),))
        self.writable: CommandWritable = self.policy.command_writable

    def make(self, path: Path, says: str = "planted") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {says} >> {self.marker}\n")
        path.chmod(0o755)
        return path

    def plant(self, name: str, place: dict[str, str]) -> str:
        """Plant a program, and return the folder of PATH that leads to it."""
        if "link" in place:
            self.make(self.base / place["link"] / name)
            (self.base / place["path"]).symlink_to(self.base / place["link"])
        elif "file_link" in place:
            target = self.make(self.base / place["file_link"] / name)
            (self.base / place["path"]).mkdir()
            (self.base / place["path"] / name).symlink_to(target)
        elif "above" in place:
            self.make(self.base / place["above"] / "bin" / name)
            (self.base / place["path"]).parent.symlink_to(self.base / place["above"])
        else:
            self.make(self.base / place.get("start", place["path"]) / name)
        if "start" in place:
            os.chdir(self.base / place["start"])
            return place["path"]
        return f"{self.base}/{place['path']}"

    def context(self) -> Context:
        resources: dict[type, object] = {
            Workspace: Workspace(self.work),
            CommandPolicy: CommandPolicy(confine=self.policy),
        }
        return Context(Identity("t", "u", "s", "r"), "call", memory={}, resources=resources)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planted]:
    monkeypatch.chdir(tmp_path)
    yield Planted(tmp_path)


PLACES = [pytest.param(place, id=name) for name, place in TABLE["places"].items()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", PLACES)
def test_a_planted_program_is_passed_over_and_the_real_one_is_found(
    place: dict[str, str], name: str, planted: Planted
):
    folder = planted.plant(name, place)
    real = planted.make(planted.base / "real" / name, "real")
    search_path = os.pathsep.join([folder, str(real.parent)])
    assert find_program(name, search_path, planted.writable) == str(real)
    assert trust_search_path(search_path, planted.writable).split(":")[-1] == str(real.parent)


@pytest.mark.parametrize("place", PLACES)
def test_if_it_is_the_only_one_the_error_names_it_and_the_next_step(
    place: dict[str, str], planted: Planted
):
    folder = planted.plant("tool", place)
    with pytest.raises(ProgramNotFound) as raised:
        find_program("tool", folder, planted.writable)
    if folder.startswith("/"):
        assert f"{folder}/tool" in str(raised.value)
        assert "install `tool` outside the workspace" in raised.value.hint
    else:
        assert raised.value.skipped == ()


DOORS = {
    "git": lambda planted: find_git(planted.context()),
    "rg": lambda planted: find_ripgrep(planted.writable),
    "tesseract": lambda planted: find_confined(["tesseract"], planted.context(), "hint"),
    "pdftoppm": lambda planted: find_confined(["pdftoppm"], planted.context(), "hint"),
    "chromium": lambda planted: find_confined(["chromium"], planted.context(), "hint"),
    "xdg-open": lambda planted: _find_opener(CommandWritable.from_current_folder()),
    "uvx": lambda planted: pull._find_client(),  # pyright: ignore[reportPrivateUsage]
}
"""What looks for each of the names that Ferrule starts with rights of its own."""


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("where", ["work/.venv/bin", "work/node_modules/.bin", "opened/bin"])
def test_what_ferrule_looks_for_itself_is_never_the_planted_one(
    where: str, name: str, planted: Planted, monkeypatch: pytest.MonkeyPatch
):
    if name in ("xdg-open", "uvx") and where.startswith("opened"):
        pytest.skip("there is no session, so nothing was opened")
    program = planted.make(planted.base / where / name)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(pull, "find_spec", lambda name: None)
    monkeypatch.chdir(planted.work)
    try:
        found = DOORS[name](planted)
    except (ToolFailed, ProviderError) as error:
        assert str(program) in str(error)
        found = None
    assert str(found) != str(program)
    assert not planted.marker.exists()


async def start(server: McpServer, planted: Planted) -> None:
    launch = LaunchSettings(planted.work, commands=planted.policy, on_missing_protection="required")
    async with asyncio.timeout(60), open_stdio(server, fill_variables(server), launch) as streams:
        await streams.ended.wait()


SERVERS = {
    "container": McpServer("s", command=("docker", "run", "image")),
    "download": McpServer("s", command=("uvx", "tool")),
    "variables": McpServer("s", command=("tool",), env={"TOKEN": "secret"}),
    "hosts": McpServer("s", command=("tool",), network=("a.example",)),
    "absolute": McpServer("s", command=("WORK/.venv/bin/tool",), env={"TOKEN": "secret"}),
    "relative": McpServer("s", command=("./.venv/bin/tool",), env={"TOKEN": "secret"}),
    "script": McpServer("s", command=("/bin/sh", ".venv/bin/tool"), env={"TOKEN": "secret"}),
    "python": McpServer("s", command=("python3", "-m", "tool"), env={"TOKEN": "secret"}),
    "option": McpServer("s", command=("/bin/cat", "--x=.venv/bin/tool"), env={"TOKEN": "s"}),
    "path": McpServer("s", command=("/bin/cat",), env={"PYTHONPATH": "WORK/.venv/bin"}),
    "npm": McpServer("s", command=("/usr/bin/make", "serve"), env={"TOKEN": "secret"}),
    "shell": McpServer("s", command=("/bin/sh", "-c", ".venv/bin/tool"), env={"TOKEN": "s"}),
    "wrapper": McpServer("s", command=("/usr/bin/env", "A=1", "tool"), env={"TOKEN": "s"}),
}


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_server_with_more_than_commands_have_loads_nothing_that_they_can_write(
    kind: str, planted: Planted, monkeypatch: pytest.MonkeyPatch
):
    for name in ("docker", "uvx", "tool", "tool.py"):
        planted.make(planted.work / ".venv/bin" / name)
    monkeypatch.setenv("PATH", f"{planted.work}/.venv/bin:/usr/bin:/bin")
    given = SERVERS[kind]
    command = tuple(word.replace("WORK", str(planted.work)) for word in given.command)
    env = {name: value.replace("WORK", str(planted.work)) for name, value in given.env.items()}
    server = McpServer("s", command=command, env=env, network=given.network)
    assert server.choose_rights(planted.policy) is DeputyRights.OWN
    with pytest.raises(ToolFailed) as raised:
        await start(server, planted)
    assert "commands have" in raised.value.message or "no such program" in raised.value.message
    assert not planted.marker.exists()


async def test_a_server_with_the_rights_of_commands_may_lie_in_the_workspace(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
):
    program = planted.work / "server.sh"
    program.write_text('#!/bin/sh\necho "[$TOKEN]" > seen; cat ../person/note >> seen 2>&1\n')
    program.chmod(0o755)
    (planted.base / "person/note").write_text("private")
    monkeypatch.setenv("TOKEN", "secret")
    server = McpServer("s", command=("./server.sh",))
    assert server.choose_rights(planted.policy) is DeputyRights.COMMANDS
    await start(server, planted)
    seen = (planted.work / "seen").read_text()
    assert seen.startswith("[]") and "private" not in seen


@pytest.mark.parametrize("variable", ["VISUAL", "EDITOR"])
def test_the_editor_of_a_chat_is_never_the_planted_one(
    variable: str, planted: Planted, monkeypatch: pytest.MonkeyPatch
):
    folder = planted.make(planted.work / ".venv/bin/myeditor").parent
    real = planted.make(planted.base / "real/myeditor", "real").parent
    monkeypatch.chdir(planted.work)
    monkeypatch.setenv("PATH", f"{folder}:{real}:/usr/bin:/bin")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv(variable, "myeditor --wait")
    prompt = ChatPrompt(
        dict, lambda text, kind: (), lambda path: (), str, lambda: None, colour=False, plain=True
    )
    buffer = prompt._session.default_buffer  # pyright: ignore[reportPrivateUsage]
    assert buffer._open_file_in_editor(str(planted.base / "message"))  # pyright: ignore[reportPrivateUsage]
    assert planted.marker.read_text() == "real\n"


HOOK = 'echo "[$ORDINARY] [$OF_FILE] $(cat PERSON/transcript 2>&1)"'


async def run_hook(planted: Planted, command: str | list[str], **how: Any) -> str:
    """What a hook of the person's own settings says, with all that hooks may have."""
    runner = HookCommandRunner(
        planted.work,
        policy=planted.policy,
        readable=planted.base / "person",
        variables={"OF_FILE": "of-file"},
    )
    output = Capture(10_000, 0)
    occasion = Occasion(SessionStart(), Identity("t", "u", "s", "r"))
    try:
        await runner.run(command, occasion, b"", output, output, 60, **how)
    finally:
        await runner.close()
    return output.text()


def write_script(path: Path, person: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{HOOK.replace('PERSON', str(person))}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "command",
    [
        "sh tools/format.sh",
        "./tools/format.sh",
        "sh < tools/format.sh",
        "cat tools/format.sh | sh",
        "cd tools && sh format.sh",
        "bash -c 'sh tools/format.sh'",
        "env A=1 sh tools/format.sh",
        "timeout 5 sh tools/format.sh",
        'sh "$CLAUDE_PROJECT_DIR/tools/format.sh"',
        ". tools/format.sh",
        "eval sh tools/format.sh",
        "PATH=$PWD/tools:$PATH; format.sh",
        "for f in tools/*.sh; do sh $f; done",
        "format.sh",
        ["sh", "tools/format.sh"],
        ["./tools/format.sh"],
    ],
    ids=str,
)
async def test_a_hook_that_starts_a_file_of_the_workspace_has_the_rights_of_commands(
    command: str | list[str], planted: Planted, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ORDINARY", "ordinary")
    monkeypatch.setenv("PATH", f"{planted.work}/tools:/usr/bin:/bin")
    (planted.base / "person/transcript").write_text("canary")
    write_script(planted.work / "tools/format.sh", planted.base / "person")
    said = await run_hook(planted, command)
    assert said.startswith("[] []"), said
    assert "canary" not in said


@pytest.mark.parametrize("command", ["sh PERSON/hooks/check.sh", "PERSON/hooks/check.sh"])
async def test_a_hook_of_the_person_has_what_it_needs_and_sees_no_more_of_their_folder(
    command: str, planted: Planted, monkeypatch: pytest.MonkeyPatch
):
    person = planted.base / "person"
    monkeypatch.setenv("ORDINARY", "ordinary")
    (person / "transcript").write_text("canary")
    write_script(person / "hooks/check.sh", person)
    said = await run_hook(planted, command.replace("PERSON", str(person)))
    assert said.startswith("[ordinary] [of-file]"), said
    assert "canary" not in said


async def test_a_checker_has_the_rights_of_commands_wherever_its_program_lies(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
):
    # What the checker prints would be read as a finding, if it had the variable.
    monkeypatch.setenv("ORDINARY", "a.py:1:1: seen")
    (planted.work / "a.py").write_text("x\n")
    runner = HookCommandRunner(planted.work, policy=planted.policy)
    printing = Checker("printenv", (".py",), ("printenv",), whole=True)
    checker = ProjectChecker(printing, Workspace(planted.work), runner, 60)
    occasion = Occasion(SessionStart(), Identity("t", "u", "s", "r"))
    try:
        found = await checker.check("", occasion)
        said = await run_hook(planted, "printenv ORDINARY")
    finally:
        await runner.close()
    assert found == ()
    assert "seen" in said


def test_a_hook_that_loses_rights_is_explained(planted: Planted):
    runner = HookCommandRunner(planted.work, policy=planted.policy, variables={"A": "b"})
    assert "commands can write" in runner.explain_reduced_rights("sh tools/format.sh")
    assert runner.explain_reduced_rights("sh /opt/format.sh") == ""
    assert HookCommandRunner(planted.work).explain_reduced_rights("sh tools/format.sh") == ""


async def test_a_program_that_needs_its_own_rights_is_refused_in_the_workspace(planted: Planted):
    write_script(planted.work / ".venv/bin/server", planted.base)
    with pytest.raises(ToolFailed, match="where commands can write"):
        await run_hook(planted, [".venv/bin/server"], rights=DeputyRights.OWN)


@pytest.mark.parametrize(
    "words",
    [
        "node server.js",
        "node /opt/a.js ./settings.json",
        "python3 -m server",
        "python3",
        "python3 -W ignore server.py",
        "python3 ../work/server.py",
        "uvx --from . tool",
        "uvx --from=./pkg tool",
        "npx -y tool",
        "make",
        "cat --plugin=settings.json",
        "cat -Isettings.json",
        "cat file:settings.json",
        "env node server.js",
        "nice -n 5 node server.js",
        "docker compose up",
        "git status",
        "pre-commit run",
        "pytest -q",
        "eslint .",
        "bun /opt/server.ts",
        "Rscript /opt/server.R",
        "script-of-planted-interpreter",
    ],
)
def test_a_command_line_that_loads_what_commands_can_write_is_not_trusted(
    words: str, planted: Planted
):
    real = planted.base / "real"
    names = "node uvx npx docker python3 make cat env nice git pre-commit pytest eslint bun Rscript"
    for name in names.split():
        planted.make(real / name)
    (planted.work / "settings.json").write_text("{}")
    planted.make(planted.work / "bin/interpreter")
    script = planted.make(real / "script-of-planted-interpreter")
    script.write_text(f"#!{planted.work}/bin/interpreter\n")
    with pytest.raises(UntrustedPath):
        trust_command_line(words.split(), str(real), str(planted.work), planted.writable)


@pytest.mark.parametrize(
    "words",
    [
        "node /opt/server.js .",
        "node /opt/server.js --root=.",
        "python3 -P -m server --repository .",
        "python3 /opt/server.py sub",
        "uvx mcp-server-git --repository .",
        "npx --prefix=/opt/here -y @scope/server .",
        "docker run -v ./sub:/x image",
        "cat .",
        "env A=1 node /opt/server.js",
    ],
)
def test_a_command_line_that_names_folders_as_data_is_trusted(words: str, planted: Planted):
    real = planted.base / "real"
    (planted.work / "sub").mkdir()
    for name in ("node", "uvx", "npx", "docker", "python3", "cat", "env"):
        planted.make(real / name)
    found = trust_command_line(words.split(), str(real), str(planted.work), planted.writable)
    assert found == f"{real}/{words.split()[0]}"


@pytest.mark.parametrize(
    "text", ["echo done", "jq -r .tool_name | grep -q x && exit 2; true", "cat $FILE"]
)
def test_a_text_of_a_shell_that_loads_nothing_is_trusted(text: str, planted: Planted):
    trust_shell_text(text, "/usr/bin:/bin", str(planted.work), planted.writable)


@pytest.mark.parametrize(
    "name",
    [
        ".venv/lib/python3.11/site-packages/x-1.0.dist-info/entry_points.txt",
        "env/lib/site-packages/x.egg-info/PKG-INFO",
        "src/x.egg-info/entry_points.txt",
        ".venv/lib/python3.11/site-packages/x.egg-link",
        ".venv/lib/python3.11/site-packages/__editable__.x-1.0.pth",
        ".venv/lib/python3.11/site-packages/__editable___x_finder.py",
        ".venv/lib/python3.11/site-packages/a.pth",
        "usr/lib/python3/dist-packages/a.pth",
        ".venv/lib/python3.11/site-packages/sitecustomize.py",
        "lib/usercustomize.py",
        ".venv/pyvenv.cfg",
        "env/conda-meta/history",
        ".VENV/LIB/SITE-PACKAGES/X.DIST-INFO/RECORD",
    ],
)
def test_file_tools_write_nothing_that_says_which_code_an_environment_loads(name: str):
    assert DEFAULT_NAMES.check(name, write=True)
    assert DEFAULT_NAMES.check(name, write=False) is None


@pytest.mark.parametrize("kind", ["inside", "editable", "outside"])
def test_entry_points_of_what_commands_can_write_are_not_loaded(
    kind: str, planted: Planted, monkeypatch: pytest.MonkeyPatch
):
    site = planted.base / "site" if kind != "inside" else planted.work / "site"
    metadata = site / "acme-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[test.plugins]\nacme = acme:plugin\n")
    (site / "__editable__.acme.pth").write_text(f"{planted.work}/src\n")
    record = "__editable__.acme.pth,,\n" if kind == "editable" else "acme.py,,\n"
    (metadata / "RECORD").write_text(record)
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    found, refused = find_entry_points("test.plugins", planted.writable)
    assert [point.name for point in found] == (["acme"] if kind == "outside" else [])
    assert [one.name for one in refused] == ([] if kind == "outside" else ["acme"])
