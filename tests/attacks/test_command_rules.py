"""A person's deny rules for paths hold in commands through every interface, and commits work through
every interface.

The commands are those of a script in the workspace, so that no text that the gate sees names a
path: what holds is the sandbox. An interface is whatever makes an agent out of settings or for a program;
one that is not in the table fails a test.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from servers import (
    Interface,
    all_interfaces,
    end,
    exchanged,
    found,
    spelled,
    spoken_to,
    start,
    wait_for_run,
)

import ferrule
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.models.scripted import Scripted
from ferrule.plugins import Parts
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections
from ferrule.sandbox.backends.selection import available_backends, choose_backend
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.commands import TOOLS as COMMANDS
from ferrule.toolkits.commands import CommandPolicy, session_sandbox

ALL = os.environ.get("FERRULE_TEST_ATTACKS") == "all"
HIDDEN = "canaryofahiddenfile"
SHOWN = "wordsofanopenfile"

PYTHON = (
    "/usr/bin/python3" if Path("/usr/bin/python3").exists() else os.path.realpath(sys.executable)
)

DENY = (
    "Read(private/**)",
    "Read(deep/er/secret.txt)",
    "Read(**/*.hidden)",
    "Edit(src/**)",
    "Edit(./*.lock)",
    "Edit(later/**)",
    "Read(never/**)",
)
ALLOW = (f"Bash({PYTHON} probe.py)",)

READING = (
    "grep -r . .",
    "cat private/a.txt",
    "cat private/../private/sub/b.txt",
    "cat < private/a.txt",
    "cat deep/er/secret.txt",
    "cat src/x.hidden",
    f"{PYTHON} -c 'print(open(\"private/a.txt\").read())'",
    "tar cf - . | strings",
    "find . -type f -exec cat {} +",
    "cp private/a.txt copy1; cat copy1",
    "cp -r . ../copies; cp -r private copy2; cat copy2/*",
    "ln private/a.txt hard; cat hard",
    "ln deep/er/secret.txt hard2; cat hard2",
    "ln -s private soft; cat soft/a.txt",
    "ln -s ../private/a.txt src/soft; cat src/soft",
    "mv private moved; cat moved/a.txt",
    "mv deep moved2; cat moved2/er/secret.txt",
    "mv deep/er deep/moved3; cat deep/moved3/secret.txt",
    "mv deep/er/secret.txt moved4; cat moved4",
    "git show HEAD:open.txt > /dev/null; git diff; git grep -n . -- private; git stash -u",
    "umount private; cat private/a.txt",
    "unshare -Ur cat private/a.txt",
)
WRITING = (
    "echo changed > src/main.py",
    "echo changed >> src/main.py",
    "echo new > src/new.py",
    "cp open.txt src/main.py",
    "cp open.txt src/sub/copied.py",
    "mkdir src/made",
    "rm -f src/main.py",
    "rm -rf src",
    "mv src src2; echo changed > src2/main.py",
    "mv open2.txt src/main.py",
    "mv src/main.py taken.py",
    "ln src/main.py hard3 && echo changed > hard3",
    "ln -s src soft3; echo changed > soft3/main.py",
    "ln -sf ../open.txt src/main.py",
    "sed -i s/kept/changed/ src/main.py",
    f'{PYTHON} -c \'open("src/main.py", "w").write("changed")\'',
    "truncate -s 0 src/main.py",
    "chmod 000 src/main.py",
    "echo changed > uv.lock",
    "rm -f uv.lock",
    "mv open2.txt uv.lock",
    "echo new > other.lock",
    "mkdir later && echo new > later/x",
    "mkdir early && echo new > early/x && mv early later",
    "cp -r early later",
    "ln -s /tmp later",
    "mkdir never && echo new > never/x",
    "git checkout HEAD~1 -- src/main.py",
    "git reset -q --hard HEAD~1",
    "echo changed > .git/hooks/pre-commit",
    "echo changed > .git/config",
    "git config user.name changed",
)
COMMITTING = (
    "git status --short > /dev/null",
    "echo 1 > committed.txt",
    "git add committed.txt",
    "git commit -q -m by-a-command",
    "git log -1 --format=made:%s",
)


def make(root: Path) -> None:
    """What the person has: a repository with an earlier commit, and files that rules name."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Person")
    git(root, "config", "user.email", "person@example.org")
    files = {
        "open.txt": SHOWN,
        "open2.txt": SHOWN,
        "private/a.txt": HIDDEN,
        "private/sub/b.txt": HIDDEN,
        "deep/er/secret.txt": HIDDEN,
        "deep/er/open.txt": SHOWN,
        "src/x.hidden": HIDDEN,
        "src/main.py": "kept first",
        "src/sub/other.py": "kept",
        "sub/open.txt": SHOWN,
        "uv.lock": "kept",
        "probe.py": "",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    # What was committed can be read by commands: what is hidden was not.
    git(root, "add", "open.txt", "src/main.py", "src/sub", "uv.lock")
    git(root, "commit", "-q", "-m", "first")
    (root / "src/main.py").write_text("kept\n")
    git(root, "commit", "-q", "-a", "-m", "second")
    lines = ["echo began", *COMMITTING, *READING, *WRITING, "cat open.txt", "echo ended"]
    (root / "probe.py").write_text(
        f"import subprocess\nfor line in {lines!r}:\n    subprocess.run(['sh', '-c', line], "
        "stderr=1)\n"
    )


def git(root: Path, *words: str) -> str:
    named = ("-c", "user.name=Person", "-c", "user.email=person@example.org")
    return subprocess.run(
        ["git", *named, *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout


def read_protected(root: Path) -> dict[str, bytes]:
    """What no command may change."""
    watched = [
        *root.glob("private/**/*"),
        *root.glob("src/**/*"),
        root / "deep/er/secret.txt",
        root / "uv.lock",
    ]
    watched += [root / ".git/config", *root.glob(".git/hooks/*")]
    return {str(path.relative_to(root)): path.read_bytes() for path in watched if path.is_file()}


def made_in_spite(root: Path) -> list[str]:
    """Names that rules refuse and that are there."""
    names = [root / "other.lock", root / "later", root / "never", root / ".git/hooks/pre-commit"]
    return [str(path) for path in names if path.exists() or path.is_symlink()]


# ---- the interfaces

MAIN = "from ferrule.cli.entry import main; main()"
CALL = {"tool": "run_command", "arguments": {"command": [PYTHON, "probe.py"]}}
SCRIPT = json.dumps([{"call": [CALL]}, {"say": "done"}] * 3)


@dataclass(frozen=True)
class AgentMaker:
    """`modules` are those of the package that make agents for it. `go` runs the script through it,
    in the folder `base / "work"`.

    What comes back is all that was said there; the rest is in `base / "journal.db"`.
    """

    name: str
    modules: tuple[str, ...]
    go: Callable[[Path], str]


def options(base: Path) -> list[str]:
    script = base / "script.json"
    script.write_text(SCRIPT)
    rules = [word for rule in DENY for word in ("--deny", rule)]
    rules += [word for rule in ALLOW for word in ("--allow", rule)]
    return [
        "--model",
        f"scripted:{script}",
        "--journal",
        str(base / "journal.db"),
        "-C",
        str(base / "work"),
        *rules,
    ]


def spoken(base: Path, *words: str, stdin: str = "") -> str:
    """What a command line says."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("FERRULE", "XDG"))
    }
    ran = subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        cwd=base / "work",
        env={**environment, "HOME": str(base)},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.stdout + ran.stderr


def library(base: Path) -> str:
    with SqliteJournal(base / "journal.db") as journal:
        ours = Agent(
            Scripted([]),
            COMMANDS,
            workspace=base / "work",
            storage=Storage(journal=journal),
            permissions=Permissions(deny=DENY, allow=ALLOW),
        )
        return str(_called(ours))


def library_with_policy(base: Path) -> str:
    """A program that says itself what holds its commands, and does not think of rules."""
    with SqliteJournal(base / "journal.db") as journal:
        policy = CommandPolicy(confine=SandboxPolicy((base / "work").resolve()))
        ours = Agent(
            Scripted([]),
            COMMANDS,
            workspace=base / "work",
            storage=Storage(journal=journal),
            permissions=Permissions(deny=DENY, allow=ALLOW),
            plugins=[Parts(resources=[policy])],
        )
        return str(_called(ours))


def _called(ours: Agent) -> Any:
    import asyncio

    async def go() -> Any:
        session = ours.session()
        try:
            return (await session.call("run_command", command=[PYTHON, "probe.py"])).data
        finally:
            await session.close()

    return asyncio.run(go())


def run(base: Path) -> str:
    return spoken(base, "run", "go", *options(base))


def call_tool(base: Path) -> str:
    return spoken(
        base,
        "tools",
        "call",
        "run_command",
        f"command={json.dumps([PYTHON, 'probe.py'])}",
        *options(base),
    )


def served(name: str, *sent: Callable[[Interface], Any]) -> Callable[[Path], str]:
    """Through a server: its own request that makes the model work, or a call of the tool."""

    def go(base: Path) -> str:
        interface = next(one for one in all_interfaces() if one.name == name)
        interface.script = SCRIPT
        interface.options = tuple(word for rule in DENY for word in ("--deny", rule))
        interface.options += tuple(word for rule in ALLOW for word in ("--allow", rule))
        start(interface, base)
        try:
            found(interface)
            deed = (
                interface.deed()
                if name != "mcp"
                else spoken_to("tools/call", name="run_command", arguments=CALL["arguments"])
            )
            answer = exchanged(interface, spelled(interface, deed))
            assert answer is not None and answer.status < 400, answer
            if name == "console":
                # A page is answered at once: its run goes on.
                wait_for_run(interface, answer)
            return answer.body
        finally:
            end(interface)

    return go


def journaled(base: Path) -> list[str]:
    """All that is in the journal."""
    with SqliteJournal(base / "journal.db") as journal:
        found = [journal.records(info.session) for info in journal.sessions()]
        return [record.body for records in found for record in records]


def _without_folder(words: list[str]) -> list[str]:
    at = words.index("-C")
    return [*words[:at], *words[at + 2 :]]


def acp(base: Path) -> str:
    """An editor: one line of JSON for each message."""
    words = [sys.executable, "-c", MAIN, "serve", "acp", *_without_folder(options(base))]
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("FERRULE", "XDG"))
    }
    process = subprocess.Popen(
        words, cwd=base / "work", env={**environment, "HOME": str(base)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    said: list[str] = []

    def ask(number: int, method: str, **parameters: Any) -> Any:
        assert process.stdin is not None and process.stdout is not None
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            said.append(line)
            answer = json.loads(line)
            if answer.get("id") == number and "method" not in answer:
                return answer["result"]
        raise AssertionError(said)

    try:
        ask(1, "initialize", protocolVersion=1, clientCapabilities={})
        session = ask(2, "session/new", cwd=str(base / "work"), mcpServers=[])["sessionId"]
        ask(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
    return "".join(said)


# A chat is assembled as a run is, and needs a terminal.
_CLI = "cli.terminal_agent"
AGENT_MAKERS = (
    AgentMaker("library", (), library),
    AgentMaker("library with a policy", (), library_with_policy),
    AgentMaker("run", (_CLI, "runtime.assemble"), run),
    AgentMaker("tools call", (_CLI,), call_tool),
    AgentMaker("mcp", ("servers.mcp.command",), served("mcp")),
    AgentMaker("openai", ("servers.agent_server",), served("openai")),
    AgentMaker("a2a", ("servers.agent_server",), served("a2a")),
    AgentMaker("acp", ("servers.acp.session_sources",), acp),
    AgentMaker("console", ("console.setup",), served("console")),
)
ALIKE = {
    "runtime.hot_reload": "makes what its face made, anew, by the same function",
    "cli.distributed": "workers take what `assemble` made",
    "evaluation.model_judge": "a model without tools",
    "runtime.trial_agents": "trials take what `assemble` made, in a folder of their own",
    "testing.plugins": "a test of one plugin, without files or commands",
    "web": "mounted applications take what `assemble` made, as the servers do",
    "extensions.checks.tool_cases": "runs the person's own checks with a model, in a folder made for it",
}
"""Modules that make agents and are no interface of their own."""

OFTEN = ("library", "library with a policy", "run", "mcp")


def holds() -> bool:
    try:
        choose_backend(SandboxPolicy(Path("/")), probe())
    except MissingProtections:
        return False
    return True


@pytest.mark.skipif(not holds(), reason="this machine cannot hold commands")
@pytest.mark.parametrize(
    "maker",
    [maker for maker in AGENT_MAKERS if ALL or maker.name in OFTEN],
    ids=lambda maker: maker.name,
)
def test_path_rules_hold_in_commands_and_commits_work(maker: AgentMaker, tmp_path: Path) -> None:
    root = tmp_path / "work"
    make(root)
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Person\n\temail = person@example.org\n")
    before = read_protected(root)
    with contextlib.suppress(KeyError):
        os.environ.pop("FERRULE_SANDBOX_MODE")
    said = maker.go(tmp_path)
    said += "".join(journaled(tmp_path))
    (tmp_path / "said.txt").write_text(said)
    assert "began" in said and "ended" in said and SHOWN in said, said[-3000:]
    assert HIDDEN not in said
    assert read_protected(root) == before
    assert made_in_spite(root) == []
    assert "made:by-a-command" in said, said[:2000]
    # The commands went back to an earlier commit later on.
    assert "by-a-command" in git(root, "log", "-g", "--format=%s")


@pytest.mark.skipif(not ALL, reason="the usual backend is tried above")
@pytest.mark.parametrize("backend", ["namespaces", "bubblewrap", "landlock"])
def test_path_rules_hold_on_every_backend(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [
        one for one in available_backends(SandboxPolicy(Path("/")), probe()) if one.name == backend
    ]
    if not chosen:
        pytest.skip(f"this machine has no `{backend}`")
    monkeypatch.setattr(session_sandbox, "choose_backend", lambda policy, probes: chosen[0])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    test_path_rules_hold_in_commands_and_commits_work(AGENT_MAKERS[0], tmp_path)


def test_every_maker_of_agents_is_a_maker_of_the_table() -> None:
    package = Path(ferrule.__file__).parent
    makers = {
        ".".join(path.relative_to(package).with_suffix("").parts)
        for path in package.rglob("*.py")
        if re.search(r"\b(?:assemble|Agent)\(", text := path.read_text())
        and _makes_agents(ast.parse(text))
    }
    known = {module for maker in AGENT_MAKERS for module in maker.modules} | ALIKE.keys()
    assert makers == known


def _makes_agents(tree: ast.Module) -> bool:
    """Whether it imports something that makes agents of ours, and calls it."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(("assemble", "agent"))
        for alias in node.names
        if alias.name in ("assemble", "Agent")
    }
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    # A command imports the module lazily and calls `assemble.assemble(...)`.
    return not called.isdisjoint(imported | {"assemble.assemble"})
