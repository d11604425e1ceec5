"""The tutorial is followed: its commands run in its order from an empty folder, and print what it
says they print.

What a block of `docs/tutorial.md` says behind its language:

    console tutorial            its `$` lines are run; the lines below one must be in what it printed (`…` stands for anything)
    console tutorial exit=2     the same, and the commands end with this status
    console tutorial model      run where the embedded model is pulled, else skipped
    console tutorial server=X   started, used as `X` says below, and stopped
    … file=PATH                 written to this file of the project

On other pages `console served` is followed in the same way, from an empty folder with the page's own
files, where a model of OpenAI or Anthropic is a server on this machine.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from model_double import serve_model
from source import ROOT

from ferrule.cli.init.project import project_files
from ferrule.cli.new_files import write_new_files
from ferrule.storage.trust import TrustStore

FENCE = re.compile(r"^```(?P<info>\S[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = ROOT / "docs/tutorial.md"
SECONDS = 120
TALK = [{"call": [{"tool": "record_sale", "arguments": {"item": "tea"}}]}, {"say": "I noted it."}]


@dataclass
class Block:
    """One block of the page: what its first line says, by name, and its text."""

    line: int
    words: dict[str, str]
    body: str

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command and the lines that it should print."""
        for part in re.split(r"^\$ ", self.body, flags=re.MULTILINE)[1:]:
            command, *printed = part.splitlines()
            yield command, [line for line in printed if line.strip()]


def blocks(page: Path = PAGE, kind: str = "tutorial") -> list[Block]:
    """The blocks of a page that are followed."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in FENCE.finditer(text):
        words = dict(word.partition("=")[::2] for word in match["info"].split())
        if "theirs" not in words and (kind in words or "file" in words):
            found.append(Block(text[: match.start()].count("\n") + 2, words, match["body"]))
    return found


@dataclass
class Reader:
    """Whoever follows the page: a folder, an environment, and where they are."""

    folder: Path
    environment: dict[str, str]
    served: list[str] = field(default_factory=list)

    def follow(self, block: Block) -> None:
        if name := block.words.get("file"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(block.body, encoding="utf-8")
            return
        for command, printed in block.commands():
            if server := block.words.get("server"):
                self.served.append(server)
                SERVERS[server](self, command, printed)
            else:
                self.run(
                    command,
                    printed,
                    int(block.words.get("exit") or 0),
                    f"line {block.line}: {command}",
                )

    def run(self, command: str, printed: list[str], status: int, where: str) -> None:
        words = shlex.split(command)
        if words[0] == "cd":
            self.folder /= words[1]
            return
        ran = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        said = ran.stdout + ran.stderr
        assert ran.returncode == status, f"{where}\n{said[-4000:]}"
        for line in printed:
            assert re.search(shown(line), said), (
                f"{where}: it did not print {line!r}\n{said[-4000:]}"
            )

    @contextmanager
    def serving(self, command: str, *more: str) -> Iterator[subprocess.Popen[str]]:
        """A server that was started as the page says, and `more`; it ends well when it is told
        to.
        """
        words = [*shlex.split(command), *more]
        server = subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield server
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
            server.communicate(timeout=SECONDS)
            assert server.returncode in (0, 130), f"{command} ended with {server.returncode}"
        finally:
            server.kill()
            server.communicate()


def shown(line: str) -> str:
    """What a line of the page must match."""
    return ".*".join(re.escape(part.strip()) for part in line.split("…"))


# ---- servers


def console(reader: Reader, command: str, printed: list[str]) -> None:
    """A person opens the address that was printed. The port is a free one: another test may have
    the usual one.
    """
    with reader.serving(command, "--port", "0") as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert re.search(shown(re.sub(r":\d+/", ":…/", printed[0])), line), line
        address = line.split()[1]
        directly = urllib.request.ProxyHandler({})
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), directly)
        with browser.open(address, timeout=SECONDS) as page:
            assert (
                page.status == 200 and "/login" not in page.url and "<html" in page.read().decode()
            )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.build_opener(directly).open(page.url, timeout=SECONDS)
        refused.value.close()
        assert refused.value.code == 401


class Speaking:
    """JSON-RPC 2.0 over a server's streams, one message a line; its own questions are answered by
    `answer`.
    """

    def __init__(self, server: subprocess.Popen[str], answer: dict[str, Any]) -> None:
        self._server = server
        self._answer = answer
        self._next = 0
        self.heard: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._server.stdin.flush()

    def ask(self, method: str, **params: Any) -> Any:
        self._next += 1
        self.send(id=self._next, method=method, params=params)
        assert self._server.stdout is not None
        while line := self._server.stdout.readline():
            said = json.loads(line)
            self.heard.append(said)
            if "method" in said and "id" in said:
                self.send(id=said["id"], result=self._answer[said["method"]])
            elif said.get("id") == self._next:
                assert "error" not in said, said
                return said["result"]
        raise AssertionError(f"the server ended before it answered `{method}`")


def mcp(reader: Reader, command: str, printed: list[str]) -> None:
    """A client lists the tool and calls it."""
    with reader.serving(command) as server:
        client = Speaking(server, {})
        about = {"name": "reader", "version": "1"}
        client.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
        client.send(method="notifications/initialized")
        assert "record_sale" in [tool["name"] for tool in client.ask("tools/list")["tools"]]
        called = client.ask(
            "tools/call", name="record_sale", arguments={"item": "coffee", "count": 2}
        )
        assert not called.get("isError") and "noted: 2 coffee" in json.dumps(called)
    assert (reader.folder / "sales.txt").read_text().endswith("2 coffee\n")


def acp(reader: Reader, command: str, printed: list[str]) -> None:
    """An editor opens the folder and passes a message on; a script plays the model."""
    with reader.serving(command) as server:
        editor = Speaking(server, {})
        editor.ask("initialize", protocolVersion=1, clientCapabilities={})
        session = editor.ask("session/new", cwd=str(reader.folder), mcpServers=[])["sessionId"]
        text = [{"type": "text", "text": "Somebody bought tea."}]
        ended = editor.ask("session/prompt", sessionId=session, prompt=text)
        assert ended["stopReason"] == "end_turn" and "noted: 1 tea" in json.dumps(editor.heard)
    assert (reader.folder / "sales.txt").read_text().endswith("1 tea\n")


SERVERS = {"console": console, "mcp": mcp, "acp": acp}


# ---- the page


def install_wheel(folder: Path) -> Path:
    """Build the wheels and install them into a new environment. Return the folder of its programs.

    What the wheels depend on is taken from this environment, so that nothing is downloaded.
    """
    environment = folder / "env"
    venv.create(environment, symlinks=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    for project in (ROOT, *(file.parent for file in ROOT.glob("packages/*/pyproject.toml"))):
        subprocess.run(build, cwd=project, check=True, capture_output=True, timeout=SECONDS)
    wheels = [str(wheel) for wheel in folder.glob("*.whl")]
    python = environment / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    install = [*pip, "--no-deps", "--no-index", "--no-cache-dir", *wheels]
    subprocess.run(install, check=True, capture_output=True, timeout=SECONDS)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    where = [str(python), "-P", "-c", "import ferrule; print(ferrule.__file__)"]
    found = subprocess.run(where, check=True, capture_output=True, text=True, timeout=SECONDS)
    assert found.stdout.startswith(str(packages))
    return environment / "bin"


def test_the_tutorial_can_be_followed_from_an_empty_folder(
    tmp_path: Path, own_folders: Path
) -> None:
    """A script plays the model where no command asks for one that is pulled: what a small model
    says cannot be promised.
    """
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    (tmp_path / "home").mkdir()
    empty = tmp_path / "empty"
    empty.mkdir()
    programs = install_wheel(tmp_path)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "FERRULE_MODEL": f"scripted:{tmp_path}/talk.json",
        # The suite's own plugins, not the reader's: one of them warns about settings that a new
        # project does not have.
        "PYTEST_ADDOPTS": "-p no:asyncio -p no:cacheprovider -W error",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    reader = Reader(empty, environment)
    for block in blocks():
        if "model" not in block.words:
            reader.follow(block)
    assert reader.served == ["console", "acp", "mcp"]
    assert (reader.folder / "sales.txt").read_text() == "1 cake\n1 tea\n2 coffee\n"


@pytest.mark.model
def test_the_local_model_of_the_tutorial_calls_the_tool(tmp_path: Path, own_folders: Path) -> None:
    write_new_files(tmp_path, project_files("shop"))
    TrustStore().trust(tmp_path)
    reader = Reader(
        tmp_path, {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    )
    [block] = [block for block in blocks() if "model" in block.words]
    for command, _ in block.commands():
        reader.run(command, [], 0, command)


SERVED = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if re.search(r"^```console served", page.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.proves("documents.commands-run")
@pytest.mark.parametrize("page", SERVED, ids=lambda page: page.stem)
def test_the_commands_that_ask_a_model_print_what_the_page_shows(
    page: Path, tmp_path: Path, own_folders: Path
) -> None:
    folder = tmp_path / "folder"
    home = tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    programs = str(Path(sys.executable).parent)
    with serve_model() as (variables, double):
        environment = {
            **os.environ,
            **variables,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
        }
        reader = Reader(folder, environment)
        for block in blocks(page, "served"):
            reader.follow(block)
    assert double.refusals == []


def test_only_the_tutorial_has_blocks_that_are_run_as_parts_of_it() -> None:
    others = [path for path in (ROOT / "docs").rglob("*.md") if path != PAGE]
    assert [
        path.name
        for path in others
        if re.search(r"^```console .*\btutorial\b", path.read_text(), re.MULTILINE)
    ] == []
    assert len(blocks()) >= 15
